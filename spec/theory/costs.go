package theory

// Costs is a measured cost curve: what the time of a loop is made of, in any
// one unit of time. It takes the place of c where scoring several tokens takes
// the target longer than scoring one.
type Costs struct {
	// Draft is the time in which one token is drafted.
	Draft float64
	// Score[s-1] is the time in which the target scores s tokens of a sequence
	// in one pass, s = 1 .. len(Score). Score[0] is the time of a token in
	// autoregressive sampling.
	Score []float64
}

// Uniform is the cost curve that Theorem 3.8 assumes, for lookaheads of up to
// k: the target takes 1 for any number of tokens, the draft c for one.
func Uniform(c float64, k int) Costs {
	score := make([]float64, k+1)
	for i := range score {
		score[i] = 1
	}
	return Costs{Draft: c, Score: score}
}

// MaxK is the largest lookahead that the curve has a cost for; -1 if it is
// empty.
func (c Costs) MaxK() int { return len(c.Score) - 1 }

// Loop is the time of a loop with lookahead k <= MaxK.
func (c Costs) Loop(k int) float64 { return float64(k)*c.Draft + c.Score[k] }

// SpeedupAt is the improvement of wall time over autoregressive sampling when
// a loop with lookahead k <= MaxK yields this many tokens on average.
func (c Costs) SpeedupAt(tokens float64, k int) float64 {
	return tokens * c.Score[0] / c.Loop(k)
}

// Speedup is the expected improvement of wall time with lookahead k <= MaxK.
func (c Costs) Speedup(alpha float64, k int) float64 {
	return c.SpeedupAt(TokensPerLoop(alpha, k), k)
}

// BreakEven returns the acceptance rate above which lookahead k <= MaxK is
// faster than autoregressive sampling; ok is false where none is. It is 0 where
// every acceptance pays.
func (c Costs) BreakEven(k int) (alpha float64, ok bool) {
	if k < 1 || c.Speedup(1, k) <= 1 {
		return 0, false
	}
	lo, hi := 0.0, 1.0 // TokensPerLoop grows with alpha: bisect
	if c.Speedup(lo, k) >= 1 {
		return 0, true
	}
	for range 60 {
		if mid := (lo + hi) / 2; c.Speedup(mid, k) < 1 {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi, true
}

// OptimalK returns the lookahead of 0 to MaxK with the largest [Costs.Speedup],
// the smallest of equals. The curve must not be empty.
func (c Costs) OptimalK(alpha float64) int {
	best := 0
	for k := range c.Score {
		if c.Speedup(alpha, k) > c.Speedup(alpha, best) {
			best = k
		}
	}
	return best
}

package report

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/draftmill/draftmill/pipeline/eval"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/theory"
	"github.com/draftmill/draftmill/storage"
)

// sweepTokens is the length whose time is stated, that of Figure 1 of Chen et
// al. 2023.
const sweepTokens = 128

// Sweep is the same work at several lookaheads: Figure 1 of Chen et al.
type Sweep struct {
	Points    []SweepPoint `json:"points"`               // by ascending K
	Auto      *SweepPoint  `json:"auto,omitempty"`       // the lookahead is chosen from loop to loop; K is none
	Slope     float64      `json:"loop_ms_per_token"`    // of the loop's time over K, least squares
	SlopeSE   float64      `json:"loop_ms_per_token_se"` // its standard error; 0 where two points leave none
	Intercept float64      `json:"loop_ms_at_zero"`
	Alpha     float64      `json:"alpha"` // that theory is drawn with: over the examined positions of all points
	C         float64      `json:"c"`
	Best      int          `json:"best_k"`     // of the smallest mean token time
	BestLow   int          `json:"best_k_low"` // 95% interval by resampling sequences
	BestHigh  int          `json:"best_k_high"`
	Share     float64      `json:"best_k_share"` // of the resamples that have Best as their best
}

// SweepPoint is one lookahead; 0 is autoregressive sampling.
type SweepPoint struct {
	K             int      `json:"k"`
	Job           string   `json:"job"`
	Seconds       float64  `json:"seconds_128"`     // for 128 tokens: mean over sequences of the time per token
	SecondsDev    float64  `json:"seconds_128_dev"` // standard deviation over sequences
	TokenMS       float64  `json:"mean_token_ms"`
	TokensPerLoop float64  `json:"tokens_per_loop"`
	Efficiency    float64  `json:"efficiency,omitempty"` // tokens per loop / (K + 1)
	LoopMS        float64  `json:"loop_ms"`
	Speedup       *float64 `json:"speedup,omitempty"` // over K = 0
	Theory        *float64 `json:"theory,omitempty"`  // of the speed-up

	// Of the point alone: the chance that a drafted token is accepted, by the
	// distributions or, under a lossy rule, counted over those examined; the time of
	// drafting a token over that of an autoregressive loop's scoring; and what theory
	// makes of both.
	Alpha     float64  `json:"alpha"`
	C         float64  `json:"c,omitempty"` // where there is an autoregressive point
	Predicted *float64 `json:"predicted,omitempty"`
	Tokens    float64  `json:"tokens"` // per completion
	Passes    float64  `json:"passes"` // of the target, one after the other, per completion
}

// NewSweep reads the jobs of a sweep: of each the speculative mode or the
// autoregressive one. There must be two, those with a lookahead that was chosen
// from loop to loop not counted.
func NewSweep(jobs []*storage.Job) (*Sweep, error) {
	s := &Sweep{}
	times, draftsMS := map[int][]sequenceTime{}, map[int]float64{}
	var overlap, positions, draftMS, drafted, scoreMS float64
	search := false
	for _, job := range jobs {
		sum, err := Summarize(job)
		if err != nil {
			return nil, err
		}
		search = search || sum.Beams != nil
		for _, t := range titles {
			m := sum.Modes[t.mode]
			if m == nil || m.CompletionTokens == 0 {
				continue
			}
			p := SweepPoint{Job: job.Name(), TokenMS: m.MeanTokenMS, TokensPerLoop: m.TokensPerLoop}
			chosen := t.mode == "sps" && sum.Lookahead == spec.AutoLookahead
			if chosen {
				p.Alpha = m.Alpha
			} else if t.mode == "sps" {
				p.K = sum.K
				overlap += m.Alpha * float64(m.Positions)
				positions += float64(m.Positions)
				if p.Alpha = m.Alpha; sum.Lossy && m.Positions > 0 {
					p.Alpha = float64(m.Accepted) / float64(m.Positions)
				}
				draftsMS[p.K] = m.DraftMS
				draftMS += m.DraftMS * float64(m.Drafted)
				drafted += float64(m.Drafted)
			} else {
				scoreMS = m.ScoreMS
			}
			if times[p.K] != nil && !chosen {
				return nil, fmt.Errorf("two jobs of the sweep have the lookahead %d", p.K)
			}
			if n := float64(m.Samples - m.Errors); n > 0 {
				p.Tokens, p.Passes = float64(m.CompletionTokens)/n, float64(m.Loops)/n
			}
			time := timing(m.times)
			p.Seconds, p.SecondsDev = time.TokenMS*sweepTokens/1000, time.TokenMSDev*sweepTokens/1000
			p.LoopMS = m.LoopDraftMS() + m.ScoreMS + m.SampleMS
			if chosen {
				s.Auto = &p
				continue
			}
			p.Efficiency = p.TokensPerLoop / float64(p.K+1)
			times[p.K] = m.times
			s.Points = append(s.Points, p)
		}
	}
	if len(s.Points) < 2 {
		return nil, fmt.Errorf("a sweep needs two lookaheads with completions, and has %d", len(s.Points))
	}
	slices.SortFunc(s.Points, func(a, b SweepPoint) int { return a.K - b.K })
	if positions > 0 {
		s.Alpha = overlap / positions
	}
	if scoreMS > 0 && drafted > 0 {
		s.C = draftMS / drafted / scoreMS
	}
	if first := s.Points[0]; first.K == 0 {
		for i := range s.Points {
			p := &s.Points[i]
			speedup, predicted := first.TokenMS/p.TokenMS, theory.Speedup(s.Alpha, s.C, p.K)
			if p.Speedup = &speedup; scoreMS > 0 {
				p.C = draftsMS[p.K] / scoreMS
			}
			if search { // theory is about tokens that are drawn
				continue
			}
			if p.Theory = &predicted; scoreMS > 0 {
				own := theory.Speedup(p.Alpha, p.C, p.K)
				p.Predicted = &own
			}
		}
		if s.Auto != nil {
			speedup := first.TokenMS / s.Auto.TokenMS
			s.Auto.Speedup = &speedup
		}
	}
	s.fit()
	s.choose(times)
	return s, nil
}

// fit draws a line through the loops' times.
func (s *Sweep) fit() {
	var n, x, y, xx, xy float64
	for _, p := range s.Points {
		k := float64(p.K)
		n, x, y, xx, xy = n+1, x+k, y+p.LoopMS, xx+k*k, xy+k*p.LoopMS
	}
	s.Slope = (n*xy - x*y) / (n*xx - x*x)
	s.Intercept = (y - s.Slope*x) / n
	if n > 2 {
		var rest float64
		for _, p := range s.Points {
			rest += square(p.LoopMS - s.Intercept - s.Slope*float64(p.K))
		}
		s.SlopeSE = math.Sqrt(rest / (n - 2) / (xx - x*x/n))
	}
}

// choose finds the lookahead of the smallest mean token time, and how far the
// choice hangs on the sequences: these are drawn with replacement, all points
// together, and the best is found again.
func (s *Sweep) choose(times map[int][]sequenceTime) {
	type cost struct{ ms, tokens float64 }
	table := map[sampleKey][]cost{}
	for i, p := range s.Points {
		for _, t := range times[p.K] {
			if t.failed {
				continue
			}
			if len(table[t.key]) == i {
				table[t.key] = append(table[t.key], cost{t.tokenMS * float64(t.tokens), float64(t.tokens)})
			}
		}
	}
	var all [][]cost
	for _, row := range ordered(table, func(a, b sampleKey) int {
		if a.row != b.row {
			return int(a.row - b.row)
		}
		return int(a.sample - b.sample)
	}) {
		if len(row) == len(s.Points) {
			all = append(all, row)
		}
	}
	best := func(pick func(n int) int) int {
		sums := make([]cost, len(s.Points))
		for n := range all {
			for i, c := range all[pick(n)] {
				sums[i].ms += c.ms
				sums[i].tokens += c.tokens
			}
		}
		at := 0
		for i := range sums {
			if sums[i].ms*sums[at].tokens < sums[at].ms*sums[i].tokens {
				at = i
			}
		}
		return s.Points[at].K
	}
	if len(all) == 0 {
		s.Best = slices.MinFunc(s.Points, func(a, b SweepPoint) int { return int(1e6 * (a.TokenMS - b.TokenMS)) }).K
		s.BestLow, s.BestHigh = s.Points[0].K, s.Points[len(s.Points)-1].K
		return
	}
	s.Best = best(func(n int) int { return n })
	const draws = 2000
	rng := rand.New(rand.NewPCG(1, draws))
	ks := make([]int, draws)
	same := 0
	for i := range ks {
		ks[i] = best(func(int) int { return rng.IntN(len(all)) })
		if ks[i] == s.Best {
			same++
		}
	}
	s.Share = float64(same) / draws
	slices.Sort(ks)
	tail := (1 - eval.IntervalLevel) / 2
	s.BestLow, s.BestHigh = ks[int(tail*draws)], ks[draws-1-int(tail*draws)]
}

// Charts are the three panels of the figure, theory beside what was measured.
func (s *Sweep) Charts() []Chart {
	times := Chart{Title: fmt.Sprintf("time for %d tokens", sweepTokens), X: "lookahead K", Y: "seconds ± deviation"}
	efficiency := Chart{Title: "tokens per loop over K + 1", X: "lookahead K", Y: "tokens per loop / (K + 1)"}
	loops := Chart{Title: "time of a loop", X: "lookahead K", Y: "ms"}
	var time, timeTheory, share, shareTheory, loop, line Curve
	time.Name, share.Name, loop.Name = "measured", "measured", "measured"
	time.Style, share.Style, loop.Style = Dots, Dots, Dots
	timeTheory.Name, shareTheory.Name = "theory", "theory"
	timeTheory.Style, shareTheory.Style, line.Style = Dashes, Dashes, Dashes
	line.Name = fmt.Sprintf("%.2f %+.2f K ms", s.Intercept, s.Slope)
	for _, p := range s.Points {
		k := float64(p.K)
		time.Points = append(time.Points, [2]float64{k, p.Seconds})
		time.Errors = append(time.Errors, p.SecondsDev)
		share.Points = append(share.Points, [2]float64{k, p.Efficiency})
		shareTheory.Points = append(shareTheory.Points, [2]float64{k, theory.TokensPerLoop(s.Alpha, p.K) / (k + 1)})
		loop.Points = append(loop.Points, [2]float64{k, p.LoopMS})
		line.Points = append(line.Points, [2]float64{k, s.Intercept + s.Slope*k})
		if p.Theory != nil && *p.Theory > 0 {
			timeTheory.Points = append(timeTheory.Points, [2]float64{k, s.Points[0].Seconds / *p.Theory})
		}
	}
	times.Curves, efficiency.Curves, loops.Curves = []Curve{time}, []Curve{share, shareTheory}, []Curve{loop, line}
	if len(timeTheory.Points) > 0 {
		times.Curves = append(times.Curves, timeTheory)
	}
	return []Chart{times, efficiency, loops}
}

// factorOr shows a factor, or a dash where there is none.
func factorOr(f *float64) string {
	if f == nil {
		return "-"
	}
	return fmt.Sprintf("%.2fx", *f)
}

// Advice is the recommended lookahead in a sentence.
func (s *Sweep) Advice() string {
	text := fmt.Sprintf("Best lookahead: K = %d (95%% interval %d to %d; best in %.0f%% of resamples of the sequences). A loop takes %.2f ms, and for each drafted token %.2f ± %.2f ms more.",
		s.Best, s.BestLow, s.BestHigh, 100*s.Share, s.Intercept, s.Slope, s.SlopeSE)
	if s.Slope < 2*s.SlopeSE { // drafting takes time: a slope that is not seen is a machine that was busy
		text += " That slope is lost in the noise: other work on the machine changed its speed, and the best K is in doubt. Run the sweep again on a quiet machine."
	}
	return text
}

// Table writes the sweep for people.
func (s *Sweep) Table(w io.Writer) error {
	var b strings.Builder // takes everything: no write to it fails
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "K\t%d tokens, s\ttoken, ms\tper loop\t/ (K+1)\tloop, ms\tspeed-up\ttheory\t\t\n", sweepTokens)
	for _, p := range s.Points {
		speedup, predicted, best := "-", "-", ""
		if p.Speedup != nil {
			speedup, predicted = fmt.Sprintf("%.2fx", *p.Speedup), factorOr(p.Theory)
		}
		if p.K == s.Best {
			best = "*"
		}
		fmt.Fprintf(t, "%d\t%.3f ± %.3f\t%.3f\t%.2f\t%.3f\t%.3f\t%s\t%s\t%s\t\n", p.K, p.Seconds, p.SecondsDev, p.TokenMS, p.TokensPerLoop, p.Efficiency, p.LoopMS, speedup, predicted, best)
	}
	if p := s.Auto; p != nil {
		speedup := "-"
		if p.Speedup != nil {
			speedup = fmt.Sprintf("%.2fx", *p.Speedup)
		}
		fmt.Fprintf(t, "auto\t%.3f ± %.3f\t%.3f\t%.2f\t-\t%.3f\t%s\t-\t\t\n", p.Seconds, p.SecondsDev, p.TokenMS, p.TokensPerLoop, p.LoopMS, speedup)
	}
	_ = t.Flush()
	fmt.Fprintf(&b, "\n%s\n", Wrap("* "+s.Advice(), TextWidth))
	_, err := io.WriteString(w, b.String())
	return err
}

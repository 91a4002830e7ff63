package spec

const (
	// Observations are forgotten: the engine's count this much less with every
	// one that follows at their position, a sequence's with every loop, so that
	// one in which drafting was given up comes back to the engine's estimate.
	engineMemory   = 1 - 1.0/128
	sequenceMemory = 1 - 1.0/64

	// A priori, drafted tokens are accepted with this chance, to which so many
	// observations are ascribed.
	priorAcceptance = 0.7
	pooledPrior     = 4
	// So many are ascribed to the mean over positions where one position is
	// estimated, and to the engine's estimate where one sequence's is.
	enginePrior   = 8
	sequencePrior = 16
)

// acceptance counts, for every position of a loop, how often verification came
// to it and how often it accepted there. Positions behind a rejection say
// nothing of the target's mind and are not counted.
type acceptance struct {
	tried, accepted []float64
}

func newAcceptance(k int) acceptance {
	return acceptance{make([]float64, k), make([]float64, k)}
}

func (a *acceptance) clear() { clear(a.tried); clear(a.accepted) }

// fade makes all observations count less.
func (a *acceptance) fade(memory float64) {
	for t := range a.tried {
		a.tried[t] *= memory
		a.accepted[t] *= memory
	}
}

// observe adds those of a loop; what was observed before at the same positions
// counts less.
func (a *acceptance) observe(drafted, accepted int, memory float64) {
	for t := range min(accepted+1, drafted, len(a.tried)) {
		a.tried[t] = memory*a.tried[t] + 1
		a.accepted[t] *= memory
		if t < accepted {
			a.accepted[t]++
		}
	}
}

// at estimates the chance at position t, with so many observations ascribed to
// a prior guess.
func (a *acceptance) at(t int, guess, weight float64) float64 {
	return (a.accepted[t] + weight*guess) / (a.tried[t] + weight)
}

// pooled is the chance at any position.
func (a *acceptance) pooled() float64 {
	tried, accepted := float64(pooledPrior), priorAcceptance*pooledPrior
	for t := range a.tried {
		tried += a.tried[t]
		accepted += a.accepted[t]
	}
	return accepted / tried
}

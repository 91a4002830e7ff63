package engine

import (
	"math"
	"time"

	"github.com/draftmill/draftmill/spec"
)

// most is how many tokens the next loop may draft for a sequence, whatever the
// policy chooses: its completion, its drafter and its positions have room for no
// more.
func (e *Engine) most(l *lane) int {
	if l.drafter == nil {
		return 0
	}
	n := len(l.tokens)
	return max(0, min(e.settings.K, l.end.limit-l.end.tokens-1, l.drafter.room(n), spec.MaxPositions-n))
}

// scores is how many tokens the next loop scores at most for a sequence.
func (e *Engine) scores(l *lane) int {
	if b := e.settings.Beams; b != nil {
		return b.Width + b.DraftWidth*e.mostSteps(l)
	}
	return e.most(l) + 1
}

// most is how many tokens the loop drafts at most for the lane.
func (l *lane) most() int { return min(l.policy.K, l.policy.Room) }

// choose begins a loop: the policy says how many tokens it is to draft for every
// sequence.
//
// It is asked before the loop draws its first uniform, and looks at lengths and
// at what earlier loops have shown. As the loop's uniforms are its own, that
// cannot bias what it draws; [spec.Policy] says why.
func (e *Engine) choose() {
	e.seen, e.round = e.seen[:0], spec.Round{}
	for _, c := range e.scoreChunks {
		e.round.Beside += c.to - c.cache.held()
	}
	for _, l := range e.batch {
		l.policy.Room, l.policy.Lag, l.policy.K = e.most(l), 0, 0
		if c := l.draft(); c != nil {
			l.policy.Lag = max(0, l.lacks(c))
		}
		e.seen = append(e.seen, &l.policy)
	}
	if e.settings.K > 0 && len(e.batch) > 0 {
		e.policy.Next(e.seen, e.round.Beside)
		e.makeDraftRoom()
	}
	for _, l := range e.batch {
		l.loop = Loop{Position: len(l.tokens), K: l.policy.K, Lanes: len(e.batch), Outcome: &l.out}
		if e.settings.Lookahead.Kind == spec.AutoLookahead {
			l.loop.K = l.most()
		}
	}
}

// learn tells the policy what the loop has shown, and how long drafting and
// scoring took.
func (e *Engine) learn(draft, score time.Duration) {
	if len(e.batch) == 0 || e.settings.K == 0 && !e.settings.AutoLanes {
		return
	}
	e.seen = e.seen[:0]
	for _, l := range e.batch {
		p := &l.policy
		p.Drafted, p.Accepted, p.Emitted = len(l.loop.Drafted), l.out.Accepted, l.loop.Emitted
		if l.err != nil {
			p.Drafted, p.Accepted, p.Emitted = 0, 0, 0
		}
		e.seen = append(e.seen, p)
	}
	e.round.Draft, e.round.Score = draft-e.beside, score
	e.policy.Observe(e.seen, e.round)
}

// softmaxAt is the probability of token x, the largest of the logits.
func softmaxAt(logits []float32, x int32) float64 {
	var sum float64
	for _, l := range logits {
		sum += math.Exp(float64(l - logits[x]))
	}
	return 1 / sum
}

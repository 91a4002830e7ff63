package verify

import (
	"fmt"
	"math"
	"slices"

	"github.com/draftmill/draftmill/storage"
)

// scoreSlack is how far the scores of modes may be apart, for one part in one. On the
// CPU they are equal to the bit, and the tokens with them. Where a graph runs as it
// was exported, or on a device, a pass over one token may round otherwise than one
// over several; then beams of nearly one score may change places.
const scoreSlack = 1e-4

// beamScores checks the score of a sequence of a beam search by itself.
func (s *sequence) beamScores() error {
	c, b := &s.c, s.replay.job.Beams
	switch {
	case b == nil && (c.Score != nil || len(c.LogProbs) > 0):
		return s.fail("it has a score, in a job that draws")
	case b == nil || c.FinishReason == storage.FinishError:
		return nil
	case c.Score == nil || len(c.LogProbs) != len(c.Tokens):
		return s.fail("%d tokens of a beam search with %d log-probabilities", len(c.Tokens), len(c.LogProbs))
	}
	sum := 0.0
	for _, l := range c.LogProbs {
		sum += l
	}
	if want := b.Score(sum, len(c.Tokens)); !(math.Abs(want-*c.Score) <= 1e-12*math.Abs(want)) {
		return s.fail("its score is %v, its log-probabilities give %v", *c.Score, want)
	}
	return nil
}

// beams checks what sequences of a mode in a shard have in common: those of a row are
// ranked and differ, and other modes have found the same.
func (r *replay) beams(order []*sequence, found map[key]storage.Completion) error {
	ranked := slices.Clone(order)
	slices.SortStableFunc(ranked, func(a, b *sequence) int {
		if a.c.Row != b.c.Row {
			return int(a.c.Row - b.c.Row)
		}
		return int(a.c.Sample - b.c.Sample)
	})
	steps := 0
	for i, s := range ranked {
		c := &s.c
		if c.Sample == 0 {
			steps = s.tokens
		} else if s.loops > 0 {
			return s.fail("it has loops; those of a search stand with sample 0")
		}
		if c.FinishReason == storage.FinishError {
			continue
		}
		if n := len(c.Tokens); n > steps || steps > r.job.MaxNewTokens {
			return s.fail("it has %d tokens, found in %d steps of %d", n, steps, r.job.MaxNewTokens)
		}
		for _, better := range ranked[:i] {
			if better.c.Row != c.Row || better.c.FinishReason == storage.FinishError {
				continue
			}
			if *better.c.Score < *c.Score {
				return s.fail("its score is %v, and that of sample %d is %v", *c.Score, better.c.Sample, *better.c.Score)
			}
			if slices.Equal(better.c.Tokens, c.Tokens) {
				return s.fail("it is sample %d again", better.c.Sample)
			}
		}
		k := key{c.Row, c.Sample}
		other, known := found[k]
		if !known {
			found[k] = *c
		} else if near := scoreSlack * max(1, math.Abs(*c.Score)); !(math.Abs(*other.Score-*c.Score) <= near) {
			return s.fail("the modes have found different sequences: %v with %v and %v with %v", other.Tokens, *other.Score, c.Tokens, *c.Score)
		}
	}
	return nil
}

// beamLoop replays the next loop of a beam search.
func (s *sequence) beamLoop(file string, l *storage.Loop) error {
	fail := func(format string, args ...any) error {
		return &Failure{File: file, Row: l.Row, RowID: l.RowID, Sample: l.Sample, Loop: l.Loop, What: fmt.Sprintf(format, args...)}
	}
	n, whole := len(l.Drafted), 0
	for whole < len(l.Overlap) && l.Overlap[whole] == 1 {
		whole++
	}
	kind := storage.KindRecovered
	if int(l.Accepted) == n {
		kind = storage.KindBonus
	}
	if what := s.follows(l); what != "" {
		return fail("%s", what)
	}
	switch {
	case len(l.P) != n || len(l.Q) != n || len(l.Coins)+len(l.Below)+len(l.Chance)+len(l.Margins) > 0:
		return fail("%d drafted steps have %d p, %d q, %d coins, %d below, %d chances and %d margins", n, len(l.P), len(l.Q), len(l.Coins), len(l.Below), len(l.Chance), len(l.Margins))
	case len(l.Overlap) > n || slices.ContainsFunc(l.Overlap, func(x float64) bool { return !(x >= 0 && x <= 1) }):
		return fail("%d drafted steps have the shares %v of the target's beams", n, l.Overlap)
	case int(l.Accepted) != whole || len(l.Overlap) > whole+1:
		return fail("%d steps are accepted, of which %v say how much of the target's beams was drafted", l.Accepted, l.Overlap)
	case int(l.Emitted) != whole+1:
		return fail("it took %d steps after %d accepted ones", l.Emitted, whole)
	case l.Kind != kind:
		return fail("%d of %d drafted steps are accepted and the last one is called %s", whole, n, l.Kind)
	case l.Scored < 1:
		return fail("%d beams are scored", l.Scored)
	}
	s.cut = len(l.Overlap) == whole && whole < n // it ended before the next was looked at
	s.take(l, len(l.Overlap))
	return nil
}

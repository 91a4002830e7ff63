package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/spec"
)

// search is the beam search of a lane's sequence. The lane's tokens are the
// prompt; what the beams have behind it is the search's.
type search struct {
	*spec.Search
	target, draft branches
	vocab         int

	from   []*spec.Beam // of the loop under way: the running beams at its begin
	drafts [][]*spec.Beam
	nodes  [][]*node   // for the target: nodes[0] of from, nodes[t] of drafts[t-1]
	last   []*node     // for the draft: of the step under way
	rows   [][]float32 // of one step; own memory
	known  [][]float32 // of the running beams that the last loop has scored: their rows; else nil
	spare  []float32
}

func newSearch(l *lane) *search {
	s := &search{target: branches{own: l.target}, draft: branches{own: l.draft()}, vocab: l.target.model.Vocab()}
	s.spare = make([]float32, s.vocab)
	return s
}

// begin sets the search to a lane's request.
func (s *search) begin(e *Engine, l *lane) {
	s.Search = spec.NewSearch(*e.settings.Beams, e.pair.EOS, max(1, l.end.limit))
	if stop := l.request.Stop; len(stop) > 0 {
		s.Stops = func(b *spec.Beam) bool {
			return End(e.pair.Tokenizer, nil, stop, math.MaxInt, b.AppendTokens(nil)).Reason == FinishStop
		}
	}
	s.known = nil
	for _, c := range slices.Concat(s.target.others, s.draft.others) {
		c.truncate(0)
	}
}

// checkBeams refuses what a beam search cannot do.
func (s *Settings) checkBeams(pair Pair) error {
	if s.Beams == nil {
		return nil
	}
	b := *s.Beams
	if b.DraftWidth == 0 {
		b.DraftWidth = b.Width
	}
	s.Beams = &b
	switch ends := len(pair.EOS); {
	case pair.Law != nil:
		return errors.New("search with beams: only a draft model can draft for them")
	case s.Lookahead.Kind != "" && s.Lookahead.Kind != spec.FixedLookahead || s.AutoLanes:
		return errors.New("search with beams: the lookahead and the lanes must be fixed")
	case (1+ends)*b.DraftWidth > pair.Target.Vocab():
		return fmt.Errorf("search with beams: %d beams and %d ends of sequence need a vocabulary of %d tokens at least; the target's has %d", b.DraftWidth, ends, (1+ends)*b.DraftWidth, pair.Target.Vocab())
	}
	return b.Validate()
}

// mostSteps is how many steps the next loop may draft for a sequence.
func (e *Engine) mostSteps(l *lane) int {
	c := l.draft()
	if c == nil {
		return 0
	}
	n := l.prompt + l.search.Steps()
	return max(0, min(e.settings.K, l.end.limit-l.search.Steps()-1, c.model.Context()-n, spec.MaxPositions-n))
}

// nodesOf are the ends of beams, as sequences.
func (l *lane) nodesOf(beams []*spec.Beam) []*node {
	nodes := make([]*node, len(beams))
	for i, b := range beams {
		nodes[i] = &node{tokens: b.AppendTokens(slices.Clip(l.tokens))}
	}
	return nodes
}

// logProbs fills row with the log-probabilities of the token after a node.
func (l *lane) logProbs(n *node, row []float32) error {
	return l.chain.LogProbs(n.logits(), n.tokens[l.target.input:], row)
}

// row is the i-th of the rows of a step.
func (s *search) row(i int) []float32 {
	for len(s.rows) <= i {
		s.rows = append(s.rows, make([]float32, s.vocab))
	}
	return s.rows[i]
}

// searchLoop is one loop of the beam searches of all sequences in the batch; those
// that end with it leave.
//
// It is beam search with drafts (Leviathan et al., A.4): the draft model searches K
// steps ahead, the target scores all beams of all these steps in one pass, and of
// its own steps those are taken that need nothing more. Without drafts it is a step
// of plain beam search.
func (e *Engine) searchLoop(ctx context.Context) error {
	for _, l := range e.batch {
		s := l.search
		s.from, s.drafts, s.nodes = s.Running, nil, [][]*node{l.nodesOf(s.Running)}
		l.loop = Loop{Position: l.prompt + s.Steps(), K: e.settings.K, Lanes: len(e.batch), Outcome: &l.out}
	}
	if err := e.proposeBeams(ctx); err != nil {
		return err
	}
	if err := e.scoreBeams(ctx); err != nil {
		return err
	}
	e.each(e.batch, sampling, func(l *lane) error { return l.advance() })
	for _, l := range e.batch {
		if l.err == nil && l.request.Loop != nil {
			if err := l.request.Loop(&l.loop); err != nil {
				return err
			}
		}
	}
	return e.leaveBeams()
}

// proposeBeams has the draft model search behind every sequence's beams, K steps,
// and feeds it chunks of the prompts that wait.
func (e *Engine) proposeBeams(ctx context.Context) error {
	e.drafting = e.drafting[:0]
	for _, l := range e.batch {
		if e.mostSteps(l) > 0 {
			l.search.last = l.nodesOf(l.search.from)
			e.drafting = append(e.drafting, l)
		}
	}
	for first := true; len(e.drafting) > 0 || first && len(e.draftChunks) > 0; first = false {
		p := &e.draft
		p.begin()
		for _, l := range e.drafting {
			// What the draft does not follow up may be where the target goes on.
			paths, ok, err := e.branch(&l.search.draft, l.search.last, func(*cache) bool { return !first })
			if err != nil {
				return err
			}
			if !ok {
				l.search.last = nil // where there is no room, nothing more is drafted
			}
			p.addPaths(paths, &l.loop.Draft)
		}
		if first {
			for _, c := range e.draftChunks {
				c.add(p)
			}
		}
		e.drafting = slices.DeleteFunc(e.drafting, func(l *lane) bool { return l.search.last == nil })
		if !p.empty() {
			if err := p.run(ctx); err != nil {
				return fmt.Errorf("draft for %d beams: %w", len(p.spans), err)
			}
		}
		e.each(e.drafting, sampling, func(l *lane) error { return l.draftStep(e) })
		e.drafting = slices.DeleteFunc(e.drafting, func(l *lane) bool {
			return l.err != nil || l.search.last == nil || len(l.search.drafts) == e.mostSteps(l)
		})
	}
	return nil
}

// draftStep takes a step of the draft's search.
func (l *lane) draftStep(e *Engine) error {
	s, beams := l.search, l.search.from
	if n := len(s.drafts); n > 0 {
		beams = s.drafts[n-1]
	}
	rows := make([][]float32, len(beams))
	for i, n := range s.last {
		rows[i] = s.row(i)
		switch err := l.logProbs(n, rows[i]); {
		case errors.Is(err, spec.ErrNoMass): // a trimmed draft of whose tokens none may come next
			s.last = nil
			return nil
		case err != nil:
			return rowError{fmt.Errorf("draft step %d: %w", len(s.drafts)+1, err)}
		}
	}
	next := spec.DraftBeams(beams, rows, *e.settings.Beams, e.pair.EOS)
	if len(next) == 0 {
		s.last = nil
		return nil
	}
	s.drafts = append(s.drafts, next)
	s.last = l.nodesOf(next)
	nodes := make([]*node, len(next))
	for i, n := range s.last {
		nodes[i] = &node{tokens: n.tokens}
	}
	s.nodes = append(s.nodes, nodes)
	return nil
}

// scoreBeams feeds the target what it has not scored of all beams, and chunks of
// the prompts that wait.
func (e *Engine) scoreBeams(ctx context.Context) error {
	ready := map[*lane][]*path{}
	for i := 0; i < len(e.batch); {
		l := e.batch[i]
		if l.err != nil {
			i++
			continue
		}
		paths, ok, err := e.branch(&l.search.target, l.search.unscored(), l.search.holdsKnown)
		switch {
		case err != nil:
			return err
		case ok:
			ready[l] = paths
			i++
		case len(l.search.drafts) > 0:
			l.search.drafts, l.search.nodes = nil, l.search.nodes[:1]
		case e.youngest(func(o *lane) bool { return o.joined && o != l }) != nil:
			e.putBack(e.youngest(func(o *lane) bool { return o.joined }))
		default:
			e.batch = e.batch[:0]
			if err := l.fail(e, l.tooLong()); err != nil {
				return err
			}
		}
	}
	p := &e.score
	p.begin()
	for _, l := range e.batch {
		before := p.rows
		p.addPaths(ready[l], &l.loop.Score)
		l.loop.Scored = p.rows - before
	}
	for _, c := range e.scoreChunks {
		c.add(p)
	}
	if p.empty() {
		return nil
	}
	if err := p.run(ctx); err != nil {
		return fmt.Errorf("score %d beams: %w", len(p.spans), err)
	}
	return nil
}

// unscored are the nodes of which the target has not been asked: the last loop may
// have scored running beams that its draft had found, too.
func (s *search) unscored() []*node {
	var nodes []*node
	for i, n := range s.nodes[0] {
		if s.known == nil || s.known[i] == nil {
			nodes = append(nodes, n)
		}
	}
	for _, step := range s.nodes[1:] {
		nodes = append(nodes, step...)
	}
	return nodes
}

// holdsKnown reports whether a cache has a beam that need not be scored again.
func (s *search) holdsKnown(c *cache) bool {
	for i, n := range s.nodes[0] {
		if s.known != nil && s.known[i] != nil && c.begins(n.tokens) == len(n.tokens) {
			return true
		}
	}
	return false
}

// advance takes the steps of the search that the scores allow.
func (l *lane) advance() error {
	s, began := l.search, l.loop.Position
	row := func(t, i int, into []float32) ([]float32, error) {
		if t == 0 && s.known != nil && s.known[i] != nil {
			return s.known[i], nil
		}
		if err := l.logProbs(s.nodes[t][i], into); err != nil {
			return nil, rowError{fmt.Errorf("score token %d: %w", began+t, err)}
		}
		return into, nil
	}
	step, used := -1, 0
	out, err := s.Advance(s.drafts, func(t, i int) ([]float32, error) {
		if t != step {
			step, used = t, 0
		}
		used++
		return row(t, i, s.row(used-1))
	})
	if err != nil {
		return err
	}
	if len(s.Running)+len(s.Found) == 0 {
		return rowError{fmt.Errorf("search behind token %d: %w", began, spec.ErrNoMass)}
	}
	o := &l.out
	*o = spec.Outcome{Accepted: out.Accepted, Kind: spec.Recovered, Overlap: out.Share, P: o.P[:0], Q: o.Q[:0]}
	if out.Accepted == len(s.drafts) {
		o.Kind = spec.Bonus
	}
	l.drafted = l.drafted[:0]
	for t, beams := range s.drafts {
		best := beams[0]
		target, err := row(t, best.From, s.spare)
		if err != nil {
			return err
		}
		l.drafted = append(l.drafted, best.Token)
		o.P, o.Q = append(o.P, math.Exp(best.Log)), append(o.Q, math.Exp(float64(target[best.Token])))
	}
	if len(s.Running) > 0 {
		o.Token = s.Running[0].Token
	} else {
		o.Token = s.Found[0].Token
	}
	l.loop.Drafted, l.loop.Emitted = l.drafted, out.Steps
	return l.keepScored(out)
}

// keepScored keeps the rows of running beams that were scored already.
func (l *lane) keepScored(out spec.BeamOutcome) error {
	s := l.search
	known := make([][]float32, len(s.Running))
	if out.Accepted < len(s.drafts) && !s.Over() {
		for i, at := range out.At {
			if at < 0 {
				continue
			}
			known[i] = make([]float32, s.vocab)
			if err := l.logProbs(s.nodes[out.Steps][at], known[i]); err != nil {
				return rowError{fmt.Errorf("score token %d: %w", l.loop.Position+out.Steps, err)}
			}
		}
	}
	s.known = known
	return nil
}

// leaveBeams ends the step: the sequences that have ended, or failed, make way.
func (e *Engine) leaveBeams() error {
	now := e.now()
	e.account(now)
	batch := e.batch
	e.batch = e.batch[:0]
	for i, l := range batch {
		if l.err == nil && !l.search.Over() {
			e.batch = append(e.batch, batch[i])
			continue
		}
		l.sequence.Err = l.err
		if err := l.finish(e, now); err != nil {
			return err
		}
	}
	return nil
}

// finishBeams hands the sequences of a search over, the best first, and leaves the
// lane. The first one has the times of all.
func (l *lane) finishBeams(e *Engine, now time.Time) error {
	s, search := l.sequence, l.search
	s.Latency = now.Sub(l.began)
	for _, c := range slices.Concat(search.target.others, search.draft.others) {
		c.truncate(0)
	}
	l.leave(e)
	if l.request.Done == nil {
		return nil
	}
	for i := range max(1, l.request.Beams) {
		out := Sequence{Beam: i, Err: s.Err, Latency: s.Latency}
		if i == 0 {
			out.Prefill, out.Decode = s.Prefill, s.Decode
		}
		switch {
		case s.Err != nil:
		case i >= len(search.Found):
			out.Err = fmt.Errorf("the search found %d sequences and no more: nothing else is possible", len(search.Found))
		default:
			found(e.pair.Tokenizer, e.pair.EOS, l.request.Stop, search.Found[i], &out)
		}
		if err := l.request.Done(&out); err != nil {
			return err
		}
	}
	return nil
}

// found makes the sequence of what a search has found.
func found(t *tokenize.Tokenizer, eos []int32, stop []string, f spec.Found, s *Sequence) {
	s.Tokens = f.AppendTokens(nil)
	s.Score, s.Logs = f.Score, f.Logs()
	end := End(t, eos, stop, len(s.Tokens), s.Tokens)
	s.Text, s.Reason, s.Stop = end.Text, end.Reason, end.Stop
}

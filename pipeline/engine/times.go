package engine

import "time"

// Parts of a loop's time.
func drafting(l *lane) *time.Duration { return &l.loop.Draft }
func sampling(l *lane) *time.Duration { return &l.loop.Sample }

// each does a part of the loop for every sequence that has not failed, and bills
// it for the time that it took.
func (e *Engine) each(lanes []*lane, bill func(*lane) *time.Duration, do func(*lane) error) {
	last := e.now()
	for _, l := range lanes {
		if l.err == nil {
			l.err = do(l)
		}
		now := e.now()
		*bill(l) += now.Sub(last)
		last = now
	}
}

// account adds the step's time to its sequences. What is billed to none of them,
// as keeping the log is, those of the loop share evenly, or the prompts where
// there was no loop: the times of all sequences add up to what was spent.
func (e *Engine) account(now time.Time) {
	rest := now.Sub(e.began)
	for _, l := range e.waiting {
		l.sequence.Prefill += l.fed
		rest -= l.fed
	}
	for _, l := range e.batch {
		took := l.loop.Draft + l.loop.Score + l.loop.Sample
		l.sequence.Decode += took
		rest -= took
	}
	for i, l := range e.batch {
		part := rest / time.Duration(len(e.batch)-i) // so that nothing is lost to rounding
		l.sequence.Decode += part
		rest -= part
	}
	if len(e.batch) == 0 && len(e.scoreChunks)+len(e.draftChunks) > 0 {
		append(e.scoreChunks, e.draftChunks...)[0].lane.sequence.Prefill += rest
	}
}

// Package report reads a finished job's tables and compares its modes: how
// much faster speculative sampling (SpS) was than autoregressive sampling
// (ArS), what acceptance it had, and what theory predicts from that.
//
// Everything is computed from the files that the job committed, nothing from
// what a process remembers: a report made later, elsewhere, says the same.
//
// The table has the figures that are looked at first; the accounting has all of
// them by every denominator, acceptance by position, and what smaller lookaheads
// would have yielded. A chart draws curves, in characters or as SVG.
//
// Definitions (storage/FORMAT.md has those of the accounting, and the columns
// that they rest on):
//
//	mean token time   sum of decode time / sum of completion tokens, prefill left out
//	acceptance rate   accepted / drafted tokens
//	alpha             mean of sum min(p, q) over the examined positions: a loop's
//	                  accepted tokens and, where there was one, its rejected one
//	c                 draft time per drafted token / target time per ArS token
//	theory            (1 - alpha^(K+1)) / ((1 - alpha)(K c + 1))
//	ceiling           tokens per loop * sequences per pass / the time of reading the
//	                  target's weights once and the draft's for each drafted token
//	certificate       what a replay of the log finds (package verify), and what the
//	                  rule guarantees
package report

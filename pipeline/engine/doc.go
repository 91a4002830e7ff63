// Package engine decodes sequences: autoregressive sampling and speculative
// sampling (Chen et al. 2023), many sequences at a time. It joins the
// mathematics of spec with models, and knows nothing of jobs, shards or queues.
//
// A sequence's life, and the file that tells it:
//
//	pair.go      what sequences are decoded with: the models, as interfaces
//	engine.go    sequences join lanes, are prefilled, and leave
//	lane.go      one lane: a sequence, its caches and buffers
//	decode.go    one round of Algorithm 2 (Chen et al. 2023), for all lanes
//	lookahead.go how many tokens a loop drafts, and what is learned from it
//	draft.go     what drafts: a model, a law without one; draft_nested.go: both
//	cache.go     one sequence's KV cache in one model, and the passes that feed them
//	calibrate.go what loops cost, measured before the first
//	finish.go    where a completion ends: end-of-sequence, stop text, limits
//
// Invariants:
//
//   - Who shares the lanes changes nothing of what a sequence draws, with a
//     lookahead that is fixed: on the CPU not even the last bit of its logits
//     (see pass).
//   - A lookahead is chosen before its loop draws, and what is drafted is
//     verified: see spec.Policy for why that keeps the target's law.
//   - An error of one sequence's numbers ends that sequence; an error of a
//     model ends the Step and drops all sequences in hand.
package engine

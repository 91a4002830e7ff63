// Package engine decodes sequences: autoregressive sampling and speculative
// sampling (Chen et al. 2023), many sequences at a time. It joins the
// mathematics of spec with models, and knows nothing of jobs, shards or queues.
//
// A sequence's life, and the file that tells it:
//
//	pair.go      what sequences are decoded with: the models, as interfaces; how prompts are built for them
//	engine.go    sequences come, and leave
//	schedule.go  who decodes and what is fed of the prompts that wait, by the room in the caches
//	lane.go      one lane: a sequence, its caches and buffers
//	decode.go    one round of Algorithm 2 (Chen et al. 2023), for all sequences
//	lookahead.go how many tokens a loop drafts, and what is learned from it
//	draft.go     what drafts: a model, a distribution without one; draft_nested.go: both
//	sampler.go   drawing and deciding for all sequences: here, or where the models are
//	beams.go     beam search with drafts (Leviathan et al. 2022, A.4); branches.go: the caches of its tree
//	cache.go     one sequence's KV cache in one model
//	pass.go      one forward pass over spans of several sequences
//	times.go     what a step took, divided among its sequences
//	calibrate.go what passes cost, measured before the first
//	finish.go    where a completion ends: end-of-sequence, stop text, limits
//
// Words: a lane is the place of one sequence. A step is one loop of all sequences
// that decode, and beside it the prefill of others, in chunks. A pass is one run of
// a model; a span is what it feeds of one sequence.
//
// Invariants:
//
//   - Who shares the passes, in what chunks a prompt is fed and whether a sequence
//     lost its cache on the way changes nothing of what it draws, with a lookahead
//     that is fixed: a row's logits depend on its own tokens alone (Decoder), and
//     its uniforms on their positions.
//   - A lookahead is chosen before its loop draws, and what is drafted is
//     verified: see spec.Policy for why that keeps the target's distribution.
//   - Where cache blocks run short, the oldest sequence goes on: what free lanes
//     still hold is taken first, then nobody joins, then the youngest is put back.
//   - An error of one sequence's numbers ends that sequence; an error of a
//     model ends the Step and drops all sequences in hand.
package engine

package spec

import "fmt"

// history counts the tokens of one sequence and indexes its n-grams. It
// follows the sequence as it grows, is rolled back and grows differently: what
// it holds is always a stack, so that taking the last token away undoes
// exactly what putting it there did.
type history struct {
	tokens []int32
	prompt int     // how many of them are the prompt
	seen   []int32 // by token: how often it is among tokens
	made   []int32 // by token: how often behind the prompt
	kinds  []int32 // the tokens with seen > 0, in the order of their first use

	gram   int     // size of the n-grams indexed; 0: none
	bucket []int32 // by hash of gram-1 tokens: the last position that followed such
	before []int32 // by position: the position before it in its bucket, or -1
}

// buckets is the size of the n-gram index: chains stay short up to contexts
// of tens of thousands of tokens. It is a power of two.
const buckets = 1 << 12

func newHistory(vocab, gram int) *history {
	h := &history{seen: make([]int32, vocab), made: make([]int32, vocab), gram: gram}
	if gram > 0 {
		h.bucket = make([]int32, buckets)
		for i := range h.bucket {
			h.bucket[i] = -1
		}
	}
	return h
}

// begin makes prompt the whole sequence.
func (h *history) begin(prompt []int32) error {
	h.pop(0)
	h.prompt = len(prompt)
	return h.push(prompt)
}

// follow makes tokens the whole sequence: it takes back what differs and adds
// what is new. tokens must begin with the prompt.
func (h *history) follow(tokens []int32) error {
	same := common(h.tokens, tokens)
	if same < h.prompt {
		return fmt.Errorf("a sequence of %d tokens differs at token %d from its prompt of %d: %w", len(tokens), same, h.prompt, ErrShape)
	}
	h.pop(same)
	return h.push(tokens[same:])
}

func (h *history) push(tokens []int32) error {
	for _, x := range tokens {
		if x < 0 || int(x) >= len(h.seen) {
			return fmt.Errorf("token %d of the sequence is %d, outside the vocabulary of %d: %w", len(h.tokens), x, len(h.seen), ErrShape)
		}
		if h.seen[x]++; h.seen[x] == 1 {
			h.kinds = append(h.kinds, x)
		}
		if len(h.tokens) >= h.prompt {
			h.made[x]++
		}
		if h.gram > 0 {
			last := int32(-1)
			if at := len(h.tokens); at >= h.gram-1 {
				b := h.hash(at)
				last, h.bucket[b] = h.bucket[b], int32(at)
			}
			h.before = append(h.before, last)
		}
		h.tokens = append(h.tokens, x)
	}
	return nil
}

// pop takes away all but the first n tokens.
func (h *history) pop(n int) {
	for at := len(h.tokens) - 1; at >= n; at-- {
		x := h.tokens[at]
		h.tokens = h.tokens[:at]
		if h.seen[x]--; h.seen[x] == 0 {
			h.kinds = h.kinds[:len(h.kinds)-1] // first used here, so last in the list
		}
		if at >= h.prompt {
			h.made[x]--
		}
		if h.gram > 0 {
			if at >= h.gram-1 {
				h.bucket[h.hash(at)] = h.before[at]
			}
			h.before = h.before[:at]
		}
	}
}

// completions calls yield with every token that has followed the sequence's
// last gram-1 tokens before.
func (h *history) completions(yield func(x int32) error) error {
	n := len(h.tokens)
	if n < h.gram {
		return nil
	}
	suffix := h.tokens[n-h.gram+1:]
	for at := h.bucket[h.hash(n)]; at >= 0; at = h.before[at] {
		if common(h.tokens[int(at)-len(suffix):at], suffix) < len(suffix) {
			continue // another n-gram of the same hash
		}
		if err := yield(h.tokens[at]); err != nil {
			return err
		}
	}
	return nil
}

// hash maps the gram-1 tokens before position at to their bucket.
func (h *history) hash(at int) uint32 {
	b := uint32(0)
	for _, x := range h.tokens[at-h.gram+1 : at] {
		b = (b ^ uint32(x)) * 0x9E3779B1
	}
	return b >> 20 & (buckets - 1)
}

// common returns the length of the common prefix of a and b, comparing 64
// tokens at a time: at the lengths of contexts this is nothing beside a row of
// logits, and it asks nothing of the caller.
func common(a, b []int32) int {
	const step = 64
	n, i := min(len(a), len(b)), 0
	for i+step <= n && *(*[step]int32)(a[i:]) == *(*[step]int32)(b[i:]) {
		i += step
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

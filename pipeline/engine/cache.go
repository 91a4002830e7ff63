package engine

import "fmt"

// cache is one lane's KV cache in one model: the model's slot, and the tokens
// that it holds.
type cache struct {
	model  Decoder
	slot   int
	tokens []int32   // held; own memory
	input  int       // the first tokens of the sequence, which an encoder reads
	logits []float32 // the rows that the last pass was asked for; valid until the model's next pass
}

func newCache(model Decoder) (*cache, error) {
	slot, err := model.Alloc()
	if err != nil {
		return nil, err
	}
	return &cache{model: model, slot: slot}, nil
}

func (c *cache) free() { c.model.Free(c.slot) }

// held is how many tokens the cache holds.
func (c *cache) held() int { return len(c.tokens) }

// rollback says that only the first n tokens still stand. What lies behind them
// is overwritten; its blocks stay, as they will be needed again.
func (c *cache) rollback(n int) { c.tokens = c.tokens[:min(n, len(c.tokens))] }

// truncate forgets all but the first n tokens and gives the blocks behind them
// back to the pool.
func (c *cache) truncate(n int) {
	c.rollback(n)
	c.model.Truncate(c.slot, len(c.tokens))
}

// reserve makes room for n tokens behind the first past ones.
func (c *cache) reserve(past, n int) bool {
	return n <= 0 || c.model.Reserve(c.slot, past, n)
}

// share takes the first n tokens of another cache of the model.
func (c *cache) share(from *cache, n int) error {
	c.truncate(0)
	if err := c.model.Share(c.slot, from.slot, n); err != nil {
		return err
	}
	c.tokens = append(c.tokens, from.tokens[:n]...)
	return nil
}

// begins is how many tokens of a sequence the cache begins with.
func (c *cache) begins(tokens []int32) int { return common(c.tokens, tokens) }

// common is the length of the common beginning.
func common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// row returns the i-th of the logits' rows; counted from the end where i is
// negative.
func (c *cache) row(i int) []float32 {
	vocab := c.model.Vocab()
	if i < 0 {
		i += len(c.logits) / vocab
	}
	return c.logits[i*vocab : (i+1)*vocab]
}

func (c *cache) String() string { return fmt.Sprintf("slot %d with %d tokens", c.slot, c.held()) }

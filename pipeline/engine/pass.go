package engine

import (
	"context"
	"fmt"
	"time"
)

// pass is one forward pass of a model over spans of several sequences, of any
// lengths, and how its time is divided among them.
type pass struct {
	model Decoder
	keep  func(context.Context, []Span) error // in place of model.Forward, where logits stay with the model; else nil
	now   func() time.Time
	spans []Span
	feeds []feed // of the same sequences
	rows  int    // tokens in all spans
}

// feed says whose span it is.
type feed struct {
	cache  *cache
	tokens []int32        // the sequence, to the last one that is fed
	bill   *time.Duration // the sequence's part of the pass's time is added here
}

// begin empties the pass.
func (p *pass) begin() { p.spans, p.feeds, p.rows = p.spans[:0], p.feeds[:0], 0 }

// add puts a sequence in: what of tokens lies behind the first past ones will be
// fed, and the logits after the last rows of them be kept. past may lie inside
// what the cache holds: that is the rollback.
func (p *pass) add(c *cache, tokens []int32, past, rows int, bill *time.Duration) {
	if past > c.held() || past >= len(tokens) || rows > len(tokens)-past {
		panic(fmt.Sprintf("pass: feed [%d:%d] for %d rows of a sequence of which %d tokens are held", past, len(tokens), rows, c.held()))
	}
	p.put(c, tokens, past, rows, 0, bill)
}

// addPaths puts the paths of a tree in.
func (p *pass) addPaths(paths []*path, bill *time.Duration) {
	first := len(p.spans)
	for _, x := range paths {
		from := 0
		if x.from > 0 {
			from = first + x.from
		}
		p.put(x.cache, x.tokens, x.past, x.rows, from, bill)
	}
}

func (p *pass) put(c *cache, tokens []int32, past, rows, from int, bill *time.Duration) {
	p.spans = append(p.spans, Span{Slot: c.slot, Past: past, Tokens: tokens[past:], Rows: rows, Input: c.input, From: from})
	p.feeds = append(p.feeds, feed{c, tokens, bill})
	p.rows += len(tokens) - past
}

func (p *pass) empty() bool { return len(p.spans) == 0 }

// run makes the pass, gives every cache its logits and divides the time among
// the sequences, by the tokens that each of them fed.
func (p *pass) run(ctx context.Context) error {
	began := p.now()
	for i, f := range p.feeds {
		f.cache.rollback(p.spans[i].Past) // until the pass has succeeded
	}
	logits, err := p.forward(ctx)
	if err != nil {
		return err
	}
	vocab := p.model.Vocab()
	if logits == nil {
		vocab = 0
	}
	for i, f := range p.feeds {
		s := &p.spans[i]
		f.cache.tokens = append(f.cache.tokens, f.tokens[f.cache.held():]...)
		f.cache.logits, logits = logits[:s.Rows*vocab], logits[s.Rows*vocab:]
	}
	p.divide(p.now().Sub(began))
	return nil
}

func (p *pass) forward(ctx context.Context) ([]float32, error) {
	if p.keep != nil {
		return nil, p.keep(ctx, p.spans)
	}
	return p.model.Forward(ctx, p.spans)
}

func (p *pass) divide(took time.Duration) {
	rows := p.rows // of the spans that are left, so that nothing is lost to rounding
	for i, f := range p.feeds {
		n := len(p.spans[i].Tokens)
		part := time.Duration(float64(took) * float64(n) / float64(rows))
		if n == rows {
			part = took
		}
		*f.bill += part
		took -= part
		rows -= n
	}
}

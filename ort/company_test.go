package ort

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// pair is one sequence in a decoder where it has company, and the same alone in
// another decoder of the model.
type pair struct {
	slot  int
	alone *sequence
	text  []int32
	past  int
}

// TestCompanyChangesNothing plays the game of company on every kind of model.
func TestCompanyChangesNothing(t *testing.T) {
	for _, name := range slices.Concat(tiny, demo) {
		t.Run(name, func(t *testing.T) {
			m := loadT(t, modelDir(name), Options{Context: 48})
			playCompany(t, decoderT(t, m), decoderT(t, m), rand.New(rand.NewPCG(4, 2)), 45)
		})
	}
}

// playCompany plays a random game: sequences join with a prompt or with the
// beginning of another's, are fed together in ever new company and order, 1 to
// 13 tokens each, roll back by different lengths and leave. Every logit must be
// the one that the sequence gets alone, in one pass and token by token: to the
// bit where passes are ragged, else within rounding.
func playCompany(t *testing.T, d, reference *Decoder, r *rand.Rand, steps int) {
	t.Helper()
	var pairs []*pair
	leave := func(p *pair) {
		d.Free(p.slot)
		reference.Free(p.alone.slot)
	}
	for range steps {
		if len(pairs) < 2 || len(pairs) < 6 && r.IntN(3) == 0 {
			p := &pair{slot: sequenceT(t, d).slot, alone: sequenceT(t, reference)}
			for range d.Context() {
				p.text = append(p.text, r.Int32N(int32(d.Vocab())))
			}
			if len(pairs) > 0 && r.IntN(2) == 0 {
				src := pairs[r.IntN(len(pairs))]
				p.past = r.IntN(src.past + 1)
				if err := d.Share(p.slot, src.slot, p.past); err != nil {
					t.Fatal(err)
				}
				copy(p.text, src.text[:p.past])
				if p.past > 0 {
					p.alone.feed(0, p.text[:p.past]...)
				}
			}
			pairs = append(pairs, p)
		}
		r.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
		const most = 13
		pairs = slices.DeleteFunc(pairs, func(p *pair) bool {
			full := p.past+most > d.Context()
			if full {
				leave(p)
			}
			return full
		})
		company := pairs[:r.IntN(len(pairs)+1)]
		if len(company) == 0 {
			continue
		}
		feedPairs(t, d, company, func() (tokens, rows int) {
			tokens = []int{1, 1, 2, 5, 1 + r.IntN(most)}[r.IntN(5)]
			return tokens, r.IntN(tokens + 1)
		})
		for _, p := range company {
			back := r.IntN(min(p.past, most) + 1)
			p.past -= back
			for i := range back { // the next tokens are others
				p.text[p.past+i] = r.Int32N(int32(d.Vocab()))
			}
			if r.IntN(4) == 0 {
				d.Truncate(p.slot, p.past)
			}
		}
	}
	for _, p := range pairs {
		leave(p)
	}
}

// feedPairs feeds each text's next tokens together, and then alone, in one pass
// and once more token by token. size says how many, and how many rows of them
// are wanted.
func feedPairs(t *testing.T, d *Decoder, pairs []*pair, size func() (tokens, rows int)) {
	t.Helper()
	var spans []Span
	total := 0
	for _, p := range pairs {
		n, rows := size()
		spans = append(spans, Span{Slot: p.slot, Past: p.past, Tokens: p.text[p.past : p.past+n], Rows: rows})
		total += rows
	}
	logits, err := d.Forward(context.Background(), spans)
	if err != nil {
		t.Fatal(err)
	}
	if len(logits) != total*d.Vocab() {
		t.Fatalf("%d logits for %d rows of %d", len(logits), total, d.Vocab())
	}
	same := func(what string, got, want []float32) {
		if t.Helper(); d.model.Exact() {
			bitEqual(t, what, got, want)
		} else if len(want) > 0 {
			near(t, what, got, want, d.model.bundle.tolerance)
		}
	}
	for i, p := range pairs {
		n, rows := len(spans[i].Tokens), spans[i].Rows
		got := logits[:rows*d.Vocab()]
		logits = logits[len(got):]
		together := p.alone.feed(p.past, spans[i].Tokens...)
		same("in company", got, together[(n-rows)*d.Vocab():])
		for j, token := range spans[i].Tokens {
			same("token by token", p.alone.feed(p.past+j, token), together[j*d.Vocab():(j+1)*d.Vocab()])
		}
		p.past += n
	}
}

// TestRewrittenEqualsExported: the rewritten graph computes what the exporter's
// graph does, within the rounding of its kernels.
func TestRewrittenEqualsExported(t *testing.T) {
	for _, name := range slices.Concat(tiny, demo) {
		t.Run(name, func(t *testing.T) {
			ours := sequenceT(t, decoderT(t, loadT(t, modelDir(name), Options{Context: 48})))
			exported := sequenceT(t, decoderT(t, loadT(t, modelDir(name), Options{Context: 48, AsExported: true})))
			tokens, past := selfTestTokens(48, ours.d.Vocab()), 0
			for _, n := range []int{20, 1, 5, 3, 1, 7} {
				near(t, "logits", ours.feed(past, tokens[past:past+n]...), exported.feed(past, tokens[past:past+n]...), ours.d.model.bundle.tolerance)
				past += max(1, n-2) // some are taken back
			}
		})
	}
}

// TestBlocksRunOut: a pool that is full says so, harms nothing, and has room
// again when something is freed.
func TestBlocksRunOut(t *testing.T) {
	b := openBundleT(t, modelDir("target"))
	m := loadT(t, modelDir("target"), Options{Context: 40})
	d, err := m.NewDecoder(4 * blockTokens * b.CacheBytesPerToken())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if got := d.Capacity(); got != 4*blockTokens {
		t.Fatalf("a capacity of %d tokens", got)
	}
	tokens := selfTestTokens(40, m.Vocab())
	one, two := sequenceT(t, d), sequenceT(t, d)
	want := one.feed(0, tokens[:33]...) // three blocks
	two.feed(0, tokens[:10]...)         // the fourth
	if d.Reserve(two.slot, 10, 7) {
		t.Error("room for a fifth block")
	}
	if _, err := d.Forward(context.Background(), whole([]int{two.slot}, []int{10}, [][]int32{tokens[10:17]})); !errors.Is(err, ErrNoBlocks) || !strings.Contains(err.Error(), "64 tokens") {
		t.Errorf("got %v", err)
	}
	if !d.Reserve(two.slot, 10, 6) || !d.Reserve(one.slot, 33, 7) {
		t.Error("no room in blocks that are there")
	}
	bitEqual(t, "afterwards", one.feed(32, tokens[32]), want[32*m.Vocab():])
	// Shared blocks count once; a copy is made by who writes first.
	d.Truncate(one.slot, 20)
	three := sequenceT(t, d)
	if err := d.Share(three.slot, one.slot, 20); err != nil {
		t.Fatal(err)
	}
	bitEqual(t, "a shared beginning", three.feed(20, tokens[20]), want[20*m.Vocab():21*m.Vocab()])
	if d.Reserve(two.slot, 10, 7) {
		t.Error("room beside a copied block")
	}
	d.Free(three.slot)
	if !d.Reserve(two.slot, 10, 7) {
		t.Error("no room although a sequence has ended")
	}
}

// TestDecodersTogether: decoders of several goroutines run at once, and one of
// them is cancelled again and again.
func TestDecodersTogether(t *testing.T) {
	m := loadT(t, modelDir("draft"), Options{Context: 64})
	var wg sync.WaitGroup
	for i := range 3 {
		d, reference := decoderT(t, m), decoderT(t, m)
		wg.Go(func() {
			var pairs []*pair
			for j := range 4 {
				pairs = append(pairs, &pair{slot: sequenceT(t, d).slot, alone: sequenceT(t, reference), text: selfTestTokens(d.Context()+j, d.Vocab())[j:]})
			}
			for step := range 12 {
				feedPairs(t, d, pairs[:2+(i+step)%3], func() (int, int) { return 1 + step%3, 1 })
				if i > 0 {
					continue
				}
				ctx, cancel := context.WithCancel(context.Background())
				go cancel()
				var err error
				for err == nil {
					_, err = d.Forward(ctx, []Span{{Slot: pairs[0].slot, Past: pairs[0].past, Tokens: []int32{1}, Rows: 1}})
				}
				if !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func TestPassesAllocateNothing(t *testing.T) {
	d := decoderT(t, loadT(t, modelDir("target"), Options{Context: 48}))
	spans := whole([]int{sequenceT(t, d).slot, sequenceT(t, d).slot}, []int{0, 0}, [][]int32{{1, 2}, {3, 4, 5}})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if n := testing.AllocsPerRun(50, func() {
		if _, err := d.Forward(ctx, spans); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per pass", n)
	}
}

func TestWeightsBehindTheEnd(t *testing.T) {
	needLibrary(t)
	dir, live := copyModel(t, "gqa"), liveBytes.Load()
	write(t, dir+"/model.onnx.data", "short")
	m, err := Load(openBundleT(t, dir), Options{})
	if err == nil {
		m.Close()
	}
	if err == nil || !strings.HasPrefix(err.Error(), "load model "+dir) || !strings.Contains(err.Error(), "behind the end of model.onnx.data") {
		t.Errorf("got %v", err)
	}
	if n := liveBytes.Load(); n != live {
		t.Errorf("%d bytes are left", n-live)
	}
}

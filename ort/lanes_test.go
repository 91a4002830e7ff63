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

// gqaModels are those whose runs take several lanes.
var gqaModels = []string{"gqa", "bfloat16", "gqa-float16", "target", "draft"}

// pair is one sequence in a decoder with lanes, and the same alone in another
// session, of the exporter's own graph.
type pair struct {
	lane  int // slot in the decoder with lanes
	alone *sequence
	text  []int32
	past  int
}

// TestLanesEqualAlone plays the game of lanes on every kind of model.
func TestLanesEqualAlone(t *testing.T) {
	for _, name := range slices.Concat(gqaModels, []string{"growing", "float16"}) {
		t.Run(name, func(t *testing.T) {
			const lanes = 4
			m := loadT(t, modelDir(name), Options{Context: 48, Lanes: lanes})
			if takes := m.Lanes(); (takes == lanes) != slices.Contains(gqaModels, name) {
				t.Fatalf("runs take %d lanes: %v", takes, m.OneLane())
			}
			d, reference := decoderT(t, m), decoderT(t, loadT(t, modelDir(name), Options{Context: 48}))
			playLanes(t, d, reference, rand.New(rand.NewPCG(4, 2)), 45)
		})
	}
}

// playLanes plays a random game: sequences join with a prompt or a copy of
// another's, run together in ever new company and order, 1 to 13 tokens at a
// time, roll back by different lengths and leave. Every logit must be the one,
// to the bit, that the sequence gets alone.
func playLanes(t *testing.T, d, reference *Decoder, r *rand.Rand, steps int) {
	t.Helper()
	var pairs []*pair
	leave := func(p *pair) {
		d.Free(p.lane)
		reference.Free(p.alone.slot)
	}
	for step := range steps {
		if len(pairs) < 2 || len(pairs) < 6 && r.IntN(3) == 0 {
			p := &pair{lane: sequenceT(t, d).slot, alone: sequenceT(t, reference)}
			for range d.Context() {
				p.text = append(p.text, r.Int32N(int32(d.Vocab())))
			}
			if len(pairs) > 0 && r.IntN(3) == 0 {
				src := pairs[r.IntN(len(pairs))]
				p.past = r.IntN(src.past + 1)
				if err := errors.Join(d.Copy(p.lane, src.lane, p.past), reference.Copy(p.alone.slot, src.alone.slot, p.past)); err != nil {
					t.Fatal(err)
				}
			}
			pairs = append(pairs, p)
		}
		r.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
		s := []int{1, 5, 1, 2, 13}[step%5]
		pairs = slices.DeleteFunc(pairs, func(p *pair) bool {
			full := p.past+s > d.Context()
			if full {
				leave(p)
			}
			return full
		})
		company := pairs[:r.IntN(len(pairs)+1)]
		if len(company) == 0 {
			continue
		}
		feedPairs(t, d, company, s)
		for _, p := range company {
			back := r.IntN(s + 1)
			p.past -= back
			for i := range back { // the next tokens are others
				p.text[p.past+i] = r.Int32N(int32(d.Vocab()))
			}
		}
	}
	for _, p := range pairs {
		leave(p)
	}
}

// feedPairs feeds the next s tokens of each text, together and alone.
func feedPairs(t *testing.T, d *Decoder, pairs []*pair, s int) {
	t.Helper()
	var slots, past []int
	var tokens [][]int32
	for _, p := range pairs {
		slots, past, tokens = append(slots, p.lane), append(past, p.past), append(tokens, p.text[p.past:p.past+s])
	}
	logits, err := d.Forward(context.Background(), slots, past, tokens)
	if err != nil {
		t.Fatal(err)
	}
	per := s * d.Vocab()
	if len(logits) != len(pairs)*per {
		t.Fatalf("%d logits for %d lanes of %d", len(logits), len(pairs), per)
	}
	for i, p := range pairs {
		bitEqual(t, "lane", logits[i*per:(i+1)*per], p.alone.feed(p.past, tokens[i]...))
		p.past += s
	}
}

// newPairs gives n sequences with prompts of different lengths, cached.
func newPairs(t *testing.T, d, reference *Decoder, n int) []*pair {
	t.Helper()
	var pairs []*pair
	for i := range n {
		p := &pair{lane: sequenceT(t, d).slot, alone: sequenceT(t, reference), text: selfTestTokens(d.Context()+i, d.Vocab())[i:]}
		feedPairs(t, d, []*pair{p}, 3+2*i)
		pairs = append(pairs, p)
	}
	return pairs
}

// TestRollbackInOneLane: what one lane takes back, the others keep.
func TestRollbackInOneLane(t *testing.T) {
	for _, name := range gqaModels {
		t.Run(name, func(t *testing.T) {
			d := decoderT(t, loadT(t, modelDir(name), Options{Lanes: 3}))
			pairs := newPairs(t, d, decoderT(t, loadT(t, modelDir(name), Options{})), 3)
			for _, back := range [][]int{{0, 5, 0}, {5, 0, 0}, {1, 2, 4}, {0, 0, 8}} {
				feedPairs(t, d, pairs, 5)
				for i, p := range pairs {
					p.past -= back[i]
					for j := range back[i] {
						p.text[p.past+j] ^= 1
					}
				}
			}
			feedPairs(t, d, pairs, 1)
		})
	}
}

// TestMoreSlotsThanLanes: they run in groups, the last as large as what is left.
func TestMoreSlotsThanLanes(t *testing.T) {
	d := decoderT(t, loadT(t, modelDir("draft"), Options{Lanes: 3}))
	pairs := newPairs(t, d, decoderT(t, loadT(t, modelDir("draft"), Options{})), 8)
	for n := 1; n <= len(pairs); n++ {
		feedPairs(t, d, pairs[:n], 1+n%3)
	}
}

// TestLanesKeepOneCopyOfWeights: further sessions take little memory. Each
// would hold the target's 29 MB again.
func TestLanesKeepOneCopyOfWeights(t *testing.T) {
	m := loadT(t, modelDir("target"), Options{Lanes: 8})
	if _, err := m.sessions.of(2); err != nil {
		t.Fatal(err)
	}
	before := residentBytes(t)
	for n := 3; n <= 8; n++ {
		if _, err := m.sessions.of(n); err != nil {
			t.Fatal(err)
		}
	}
	if grown := residentBytes(t) - before; grown > 24<<20 {
		t.Errorf("six more sessions take %d MiB", grown>>20)
	}
}

// TestLanesTogether: decoders of several goroutines ask for new sessions at
// once, run them at once, and one of them is cancelled again and again.
func TestLanesTogether(t *testing.T) {
	m, alone := loadT(t, modelDir("draft"), Options{Lanes: 4}), loadT(t, modelDir("draft"), Options{})
	var wg sync.WaitGroup
	for i := range 3 {
		d, reference := decoderT(t, m), decoderT(t, alone)
		wg.Go(func() {
			pairs := newPairs(t, d, reference, 4)
			for step := range 12 {
				company := pairs[:2+(i+step)%3]
				if i == 0 {
					ctx, cancel := context.WithCancel(context.Background())
					go cancel()
					var err error
					for err == nil {
						_, err = d.Forward(ctx, []int{pairs[0].lane, pairs[1].lane}, []int{pairs[0].past, pairs[1].past}, [][]int32{{1}, {2}})
					}
					if !errors.Is(err, context.Canceled) {
						t.Errorf("got %v", err)
					}
				}
				feedPairs(t, d, company, 1+step%3)
			}
		})
	}
	wg.Wait()
}

func TestLaneStepsAllocateNothing(t *testing.T) {
	d := decoderT(t, loadT(t, modelDir("bfloat16"), Options{Lanes: 3}))
	slots := []int{sequenceT(t, d).slot, sequenceT(t, d).slot, sequenceT(t, d).slot}
	past, tokens := []int{0, 0, 0}, [][]int32{{1, 2}, {3, 4}, {5, 6}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if n := testing.AllocsPerRun(50, func() {
		if _, err := d.Forward(ctx, slots, past, tokens); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}

// TestOpenCloseLanesStaysFlat is TestOpenCloseStaysFlat with sessions of
// several lanes.
func TestOpenCloseLanesStaysFlat(t *testing.T) {
	needLibrary(t)
	const warm, cycles, margin = 12, 45, 12 << 20
	live := liveBytes.Load()
	cycle := func(i int) {
		name := gqaModels[i%3]
		m, err := Load(openBundleT(t, modelDir(name)), Options{Threads: 2, Lanes: 3})
		if err != nil {
			t.Fatal(err)
		}
		d, err := m.NewDecoder()
		if err != nil {
			t.Fatal(err)
		}
		slots := []int{sequenceT(t, d).slot, sequenceT(t, d).slot, sequenceT(t, d).slot}
		for n := 1; n <= 3; n++ {
			if _, err := d.Forward(context.Background(), slots[:n], []int{0, 0, 0}[:n], [][]int32{{1, 2}, {3, 4}, {5, 6}}[:n]); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(m.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range warm {
		cycle(i)
	}
	start := residentBytes(t)
	for i := range cycles {
		cycle(i)
	}
	if grown := residentBytes(t) - start; grown > margin {
		t.Errorf("%d cycles grew the process by %d KiB", cycles, grown>>10)
	}
	if n := liveBytes.Load(); n != live {
		t.Errorf("%d bytes are left", n-live)
	}
}

func TestLanesOfBrokenWeights(t *testing.T) {
	needLibrary(t)
	dir, live := copyModel(t, "gqa"), liveBytes.Load()
	write(t, dir+"/model.onnx.data", "short")
	m, err := Load(openBundleT(t, dir), Options{Lanes: 2})
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

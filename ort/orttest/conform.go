package orttest

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/draftmill/draftmill/ort"
)

// Subject is a model on a device.
type Subject struct {
	// Dir is the model's folder.
	Dir string
	// Device under test: Device, ProviderOptions and Threads of its options.
	Device ort.Options
	// Tolerance is how far the device's logits may be off the CPU's, as a
	// fraction of a position's range of logits.
	Tolerance float64
	// Exact says that equal calls give logits that are equal to the bit.
	Exact bool
}

// Conform runs the whole suite. ort.Init has been called. One session stays open
// throughout, because a device may forget its compiled kernels with the last.
func Conform(t *testing.T, s Subject) {
	keep := s.open(t, s.Device, ort.Options{Context: 48})
	for _, c := range []struct {
		name string
		test func(*testing.T, Subject)
	}{
		{"SelfTest", func(t *testing.T, _ Subject) {
			if err := keep.SelfTest(5); err != nil {
				t.Error(err)
			}
		}},
		{"WholePrompt", WholePrompt},
		{"TokenByToken", TokenByToken},
		{"Verification", Verification},
		{"Rollbacks", Rollbacks},
		{"Copies", Copies},
		{"Branches", Branches},
		{"Kept", Kept},
		{"ContextFull", ContextFull},
		{"Cancel", Cancel},
		{"Company", Company},
		{"Game", Game},
		{"Concurrent", Concurrent},
		{"OpenClose", OpenClose},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
	t.Logf("%s on %s: one run for several sequences: %v", s.Dir, keep.Device(), keep.Ragged() == nil)
}

// open loads the model for the length of a test: on the device, with the lanes
// and the context of o.
func (s Subject) open(t *testing.T, device, o ort.Options) *ort.Model {
	t.Helper()
	b, err := ort.OpenBundle(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	device.Context = o.Context
	m, err := ort.Load(b, device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// WholePrompt feeds a text at once, and one in a used slot.
func WholePrompt(t *testing.T, s Subject) {
	m := s.mirror(t, ort.Options{})
	q := m.sequence(1)
	m.feed(20, q)
	m.free(q)
	q = m.sequence(2)
	m.feed(24, q)
}

// TokenByToken decodes: a prompt, then single tokens.
func TokenByToken(t *testing.T, s Subject) {
	m := s.mirror(t, ort.Options{})
	q := m.sequence(3)
	m.feed(3, q)
	for range 12 {
		m.feed(1, q)
	}
	empty := m.sequence(4)
	for range 4 {
		m.feed(1, empty)
	}
}

// Verification scores K+1 tokens at once, which must be what they are one by
// one.
func Verification(t *testing.T, s Subject) {
	m := s.mirror(t, ort.Options{})
	q := m.sequence(5)
	m.feed(7, q)
	v := m.device.Vocab()
	for _, k := range []int{1, 4, 8} {
		together := m.feed(k+1, q)
		m.s.same(t, "the same tokens again", func() []float32 { q.past -= k + 1; return m.feed(k+1, q) }(), together)
		q.past -= k + 1
		for i := range k + 1 {
			if off := distance(together[i*v:(i+1)*v], m.feed(1, q)); !(off <= s.Tolerance) {
				t.Errorf("token %d of %d alone is off by %.3g", i+1, k+1, off)
			}
		}
	}
}

// Rollbacks takes tokens back, few and many, and goes on with others.
func Rollbacks(t *testing.T, s Subject) {
	m := s.mirror(t, ort.Options{})
	q := m.sequence(6)
	m.feed(10, q)
	for _, c := range []struct{ back, feed int }{{1, 2}, {2, 5}, {5, 5}, {4, 1}, {1, 1}, {11, 3}, {3, 6}, {6, 8}} {
		m.back(q, c.back)
		m.feed(c.feed, q)
	}
	// All of it: a slot begins again.
	m.back(q, q.past)
	m.feed(4, q)
	// Two tokens, of which one is cached: a draft's first step.
	q.past--
	m.feed(2, q)
}

// Copies continue a prefix elsewhere; the original is not harmed.
func Copies(t *testing.T, s Subject) {
	m := s.mirror(t, ort.Options{})
	src := m.sequence(7)
	m.feed(12, src)
	for _, n := range []int{12, 5, 1, 0} {
		dst, original := m.sequence(8), m.sequence(7)
		m.feed(6, dst) // leaves no trace
		m.copyTo(dst, src, n)
		m.feed(12, original)
		original.past = n
		copy(original.text[n:], dst.text[n:])
		s.same(t, "what continues a copy", m.feed(3, dst), m.feed(3, original))
		m.back(dst, 2)
		m.feed(4, dst)
		m.free(dst)
		m.free(original)
	}
	one, two := m.sequence(9), m.sequence(10)
	m.copyTo(one, src, 12)
	m.copyTo(two, src, 12)
	m.feed(3, src, one, two)
	m.back(one, 2)
	m.feed(1, two, one)
	if err := m.device.Share(one.device, one.device, 1); err == nil {
		t.Error("a copy onto itself")
	}
}

// Branches feed sequences that begin alike in one pass: what they begin with is fed
// for the first of them alone.
func Branches(t *testing.T, s Subject) {
	m := s.mirror(t, ort.Options{})
	for _, n := range []int{1, 12, 17} {
		path, branch := m.sequence(13), m.sequence(14)
		m.feed(n, path)
		m.copyTo(branch, path, n)
		copy(branch.text, path.text[:n+2])
		got, err := m.device.Forward(context.Background(), []ort.Span{
			{Slot: path.device, Past: n, Tokens: path.text[n : n+4], Rows: 4},
			{Slot: branch.device, Past: n + 2, Tokens: branch.text[n+2 : n+5], Rows: 3, From: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		got = slices.Clone(got) // the next pass overwrites them
		at := 4 * m.device.Vocab()
		for _, q := range []struct {
			*sequence
			fed, rows int
			got       []float32
		}{{path, 4, 4, got[:at]}, {branch, 5, 3, got[at:]}} {
			want, err := forward(m.reference, q.reference, n, q.text[n:n+q.fed]...)
			if err != nil {
				t.Fatal(err)
			}
			m.compare(q.sequence, q.rows, q.got, want[(q.fed-q.rows)*m.device.Vocab():])
			q.past = n + q.fed
		}
		m.feed(2, path, branch)
		m.free(path)
		m.free(branch)
	}
}

// ContextFull fills a cache to the brim and is refused one token more, which
// harms nothing.
func ContextFull(t *testing.T, s Subject) {
	m := s.mirror(t, ort.Options{Context: 16})
	q := m.sequence(11)
	m.feed(12, q)
	_, err := forward(m.device, q.device, 12, 1, 2, 3, 4, 5)
	if !errors.Is(err, ort.ErrContextFull) {
		t.Errorf("got %v, want %v", err, ort.ErrContextFull)
	}
	m.feed(4, q)
	m.back(q, 1)
	m.feed(1, q)
}

// Cancel ends runs at any moment. The cache keeps what came before them.
func Cancel(t *testing.T, s Subject) {
	m := s.mirror(t, ort.Options{})
	a, b := m.sequence(12), m.sequence(13)
	m.feed(6, a)
	m.feed(9, b)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	forward := func(ctx context.Context, n int) error {
		_, err := m.device.Forward(ctx, []ort.Span{{Slot: a.device, Past: 4, Tokens: []int32{1, 2, 3}, Rows: 3}, {Slot: b.device, Past: 9, Tokens: []int32{4, 5, 6}, Rows: 3}}[:n])
		return err
	}
	if err := forward(ended, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	for i := range 10 {
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			for range i * 50 {
				runtime.Gosched()
			}
			cancel()
		}()
		var err error
		for err == nil {
			err = forward(ctx, 1+i%2)
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
	}
	a.past = 4
	m.feed(3, a)
	m.feed(3, a, b)
}

// Company feeds sequences with different pasts in one pass.
func Company(t *testing.T, s Subject) {
	m := s.mirror(t, ort.Options{})
	var all []*sequence
	for i := range 4 {
		all = append(all, m.sequence(20+i))
		m.feed(1+4*i, all[i])
	}
	m.feed(5, all[:3]...)
	for i, n := range []int{0, 5, 2} { // each takes back what it likes
		m.back(all[i], n)
	}
	m.feed(2, all[2], all[0], all[1])
	m.feed(5, all[1], all[3])
	m.feed(1, all...)
	m.feed(3, all[0])
}

// Game joins, feeds, rolls back, copies and ends sequences in random company.
func Game(t *testing.T, s Subject) {
	m := s.mirror(t, ort.Options{})
	r := rand.New(rand.NewPCG(3, 9))
	var all []*sequence
	for step := range 30 {
		if len(all) < 2 || len(all) < 5 && r.IntN(3) == 0 {
			q := m.sequence(100 + step)
			if len(all) > 0 && r.IntN(2) == 0 {
				src := all[r.IntN(len(all))]
				m.copyTo(q, src, r.IntN(src.past+1))
			}
			all = append(all, q)
		}
		n := []int{1, 5, 2, 7}[step%4]
		all = slices.DeleteFunc(all, func(q *sequence) bool {
			full := q.past+n > m.device.Context()
			if full {
				m.free(q)
			}
			return full
		})
		if len(all) == 0 {
			continue
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		company := all[:1+r.IntN(len(all))]
		m.feed(n, company...)
		for _, q := range company {
			m.back(q, r.IntN(n+1))
		}
	}
}

// Concurrent runs decoders of one model and of another at the same time, each in
// a goroutine of its own.
func Concurrent(t *testing.T, s Subject) {
	const steps, n = 8, 3
	reference := s.mirror(t, ort.Options{}).reference
	one, two := s.open(t, s.Device, ort.Options{Context: 48}), s.open(t, s.Device, ort.Options{Context: 32})
	var wg sync.WaitGroup
	for i, m := range []*ort.Model{one, one, two} {
		text := tokens(40+i, steps*n, m.Vocab())
		slot, err := reference.Alloc()
		if err != nil {
			t.Fatal(err)
		}
		var want [][]float32
		for step := range steps {
			logits, err := forward(reference, slot, step*n, text[step*n:(step+1)*n]...)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, slices.Clone(logits))
		}
		d := decoder(t, m)
		wg.Go(func() {
			slot, err := d.Alloc()
			for step := 0; err == nil && step < steps; step++ {
				// Something wrong first, which is taken back.
				_, err = forward(d, slot, step*n, 5, 4, 3, 2, 1)
				if err != nil {
					break
				}
				var got []float32
				got, err = forward(d, slot, step*n, text[step*n:(step+1)*n]...)
				if err != nil {
					break
				}
				if off := distance(want[step], got); !(off <= s.Tolerance) {
					t.Errorf("decoder %d, step %d: off by %.3g of the logits' range", i, step, off)
				}
			}
			if err != nil {
				t.Errorf("decoder %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// OpenClose makes and ends models and decoders, in either order, and ends one
// while it runs.
func OpenClose(t *testing.T, s Subject) {
	for i := range 4 {
		m := s.open(t, s.Device, ort.Options{Context: 16})
		d := decoder(t, m)
		slot, err := d.Alloc()
		if err != nil {
			t.Fatal(err)
		}
		feed := func() error {
			_, err := forward(d, slot, 0, 1, 2, 3)
			return err
		}
		if err := feed(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := errors.Join(d.Close(), m.Close()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := m.Close(); err != nil { // the decoder keeps what it needs
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		running := make(chan struct{})
		wg.Go(func() {
			for once := true; ; once = false {
				err := feed()
				if once {
					close(running)
				}
				if err != nil {
					if !errors.Is(err, ort.ErrClosed) {
						t.Errorf("got %v, want %v", err, ort.ErrClosed)
					}
					return
				}
			}
		})
		select {
		case <-running:
		case <-time.After(time.Minute):
			t.Fatal("no forward within a minute")
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

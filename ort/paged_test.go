package ort

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// TestPagedAttentionSchema: the graphs that are rewritten for CUDA are what ONNX
// Runtime's schemas want: a session of one on the CPU finds nothing wrong with it
// but that the CPU has no kernel for the attention. (In float16 it tries first to
// compute in float32, which the schema, by then satisfied, does not allow.) Damage
// that a schema forbids is found before that.
func TestPagedAttentionSchema(t *testing.T) {
	needLibrary(t)
	lacks := map[graph.ElementType]string{
		graph.BFloat16: "Could not find an implementation for PagedAttention(1) node with name ",
		graph.Float16:  "Type Error: Type 'tensor(float)' of input parameter (InsertedPrecisionFreeCast_",
	}
	for _, dir := range []string{
		"testdata/gqa", "testdata/gqa-float16", "testdata/growing", "testdata/float16", "testdata/bfloat16",
		"../testdata/models/llama-builder-fp16-cuda", "../testdata/models/qwen2-builder", "../testdata/models/qwen3-builder",
		"../testdata/models/phi3-builder", "../testdata/models/gemma2-builder", "../testdata/models/llama-builder-int4",
		"../testdata/models/llama-optimum", "../testdata/models/gpt2-optimum",
	} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			b := openBundleT(t, dir)
			for _, half := range []graph.ElementType{graph.Float16, graph.BFloat16} {
				r := pagedT(t, b, half)
				if err := openOnCPU(t, r.Model, b); err == nil || !strings.Contains(err.Error(), lacks[r.Cache]) {
					t.Errorf("a session on the CPU: got %v, want %q", err, lacks[r.Cache])
				}
				if l := b.layout.Cache; l == graph.Float32 && r.Cache != half || l != graph.Float32 && r.Cache != l {
					t.Errorf("caches of %s, want %s for a model of %s", r.Cache, half, l)
				}
			}
			r := pagedT(t, b, graph.Float16)
			for _, n := range r.Model.Graph.Node {
				if n.GetOpType() == "PagedAttention" {
					n.Input[5], n.Input[3] = n.Input[3], n.Input[5] // the lengths in the cache's place
				}
			}
			if err := openOnCPU(t, r.Model, b); err == nil || strings.Contains(err.Error(), lacks[r.Cache]) {
				t.Errorf("with its inputs confused: got %v, want an error of the schema", err)
			}
		})
	}
}

// pagedT is a bundle's graph as it is rewritten for CUDA.
func pagedT(t *testing.T, b *Bundle, half graph.ElementType) *graph.Ragged {
	t.Helper()
	m, err := graph.Read(b.Model)
	if err != nil {
		t.Fatal(err)
	}
	r, err := graph.NewRagged(m, graph.RaggedOptions{Domain: graph.MicrosoftDomain, Metadata: true, Half: half})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// openOnCPU tries to make a session of a model whose data are a bundle's.
func openOnCPU(t *testing.T, m *onnxpb.ModelProto, b *Bundle) error { return openOn(t, "cpu", m, b) }

func openOn(t *testing.T, device string, m *onnxpb.ModelProto, b *Bundle) error {
	t.Helper()
	rt, err := current()
	if err != nil {
		t.Fatal(err)
	}
	d, err := parseDevice(Options{Device: device})
	if err != nil {
		t.Fatal(err)
	}
	d.lock()
	defer d.unlock()
	options, err := newSessionOptions(Options{Threads: 1}, d)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := options.Destroy(); err != nil {
			t.Error(err)
		}
	}()
	session, err := openModel(rt, m, filepath.Dir(b.Model), options)
	if err == nil {
		freeSession(rt, session)
	}
	return err
}

// TestPagingOfDevices plays the game of company with the caches kept as devices
// want them: large blocks, few sequences a run, bounds of the lengths, which our
// operator holds against the lengths, and blocks copied by a session. Nothing
// changes a bit.
func TestPagingOfDevices(t *testing.T) {
	for _, c := range []struct {
		name   string
		paging paging
	}{
		{"one sequence a run", paging{block: 16, sequences: 1, metadata: true}},
		{"small heads", paging{block: 256, sequences: 3, metadata: true, moves: true}},
		{"blocks that are shared", paging{block: 32, sequences: 2, metadata: true, moves: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, name := range []string{"gqa", "growing", "float16"} {
				m := loadT(t, modelDir(name), Options{Context: 48, paging: &c.paging})
				if m.Ragged() != nil {
					t.Fatal(m.Ragged())
				}
				reference := loadT(t, modelDir(name), Options{Context: 48})
				playCompany(t, decoderT(t, m), decoderT(t, reference), rand.New(rand.NewPCG(7, 3)), 40)
				shareBlocks(t, decoderT(t, m), decoderT(t, reference))
			}
		})
	}
}

// shareBlocks makes sequences that hold a part of another's last block go on in
// their own way, the other one too.
func shareBlocks(t *testing.T, d, reference *Decoder) {
	t.Helper()
	first := selfTestTokens(d.Context(), d.Vocab())
	const held = 21
	pairs := []*pair{{slot: sequenceT(t, d).slot, alone: sequenceT(t, reference), text: first}}
	feedPairs(t, d, pairs, func() (int, int) { return held, 1 })
	for i, n := range []int{1, 15, 16, 17, held} {
		p := &pair{slot: sequenceT(t, d).slot, alone: sequenceT(t, reference), past: n}
		p.text = append(p.text, first[:n]...)
		for len(p.text) < d.Context() {
			p.text = append(p.text, int32((len(p.text)+3*i)%d.Vocab()))
		}
		if err := d.Share(p.slot, pairs[0].slot, n); err != nil {
			t.Fatal(err)
		}
		p.alone.feed(0, p.text[:n]...)
		pairs = append(pairs, p)
	}
	for _, n := range []int{2, 1, 4} {
		feedPairs(t, d, pairs, func() (int, int) { return n, n })
	}
}

// TestPagingOn: what the kernels of each device want.
func TestPagingOn(t *testing.T) {
	for _, c := range []struct {
		device string
		head   int
		want   paging
	}{
		{"", 64, paging{block: 16, copies: true}},
		{"cuda", 64, paging{block: 256, sequences: 256, metadata: true, moves: true}},
		{"cuda:1", 96, paging{block: 128, sequences: 256, metadata: true, moves: true}},
		{"cuda", 128, paging{block: 128, sequences: 256, metadata: true, moves: true}},
		{"cuda", 256, paging{block: 64, sequences: 256, metadata: true, moves: true}},
	} {
		d, err := parseDevice(Options{Device: c.device})
		if err != nil {
			t.Fatal(err)
		}
		if got := pagingOn(d, c.head); got != c.want {
			t.Errorf("heads of %d on %s: got %+v, want %+v", c.head, d.name, got, c.want)
		}
	}
}

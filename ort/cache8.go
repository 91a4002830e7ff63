package ort

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// checkScales sees that a cache of 8 bits has scales that can be used.
func (b *Bundle) checkScales() (err error) {
	m, dir, err := readLinked(b.Model)
	if err != nil {
		return err
	}
	scales, err := graph.CacheScales(m)
	if err != nil {
		return err
	}
	f := &initializers{dir: dir, files: map[string][]byte{}}
	defer func() { err = errors.Join(err, f.close()) }()
	for _, s := range scales {
		n := 1
		for _, d := range s.Tensor.Dims {
			n *= int(d)
		}
		if all := b.KVHeads * b.HeadSize; n != 1 && n != all {
			return fmt.Errorf("node %s: the cache's scale %s has %d numbers: want 1, or %d KV heads of size %d", s.Node, s.Tensor.GetName(), n, b.KVHeads, b.HeadSize)
		}
		values, err := f.floats(s.Tensor, n)
		if err != nil {
			return fmt.Errorf("node %s: %w", s.Node, err)
		}
		for i, v := range values {
			if !(v > 0 && v <= math.MaxFloat32) {
				return fmt.Errorf("node %s: number %d of the cache's scale %s is %g: want a positive one", s.Node, i, s.Tensor.GetName(), v)
			}
		}
	}
	return nil
}

// CacheRange is how far keys and values go: of each layer the greatest magnitude
// of each channel of each KV head, [KV heads, head size].
type CacheRange struct{ Keys, Values [][]float32 }

// NewCacheRange measures nothing yet.
func (b *Bundle) NewCacheRange() *CacheRange {
	r := &CacheRange{}
	for range b.Layers {
		r.Keys = append(r.Keys, make([]float32, b.KVHeads*b.HeadSize))
		r.Values = append(r.Values, make([]float32, b.KVHeads*b.HeadSize))
	}
	return r
}

// MeasureCache feeds a text to a sequence of its own, and widens r to the keys and
// values that the cache then holds. It is for models on the CPU whose passes are
// ragged and whose caches are of a float type.
func (d *Decoder) MeasureCache(ctx context.Context, tokens []int32, r *CacheRange) error {
	if err := d.measureCache(ctx, tokens, r); err != nil {
		return fmt.Errorf("measure keys and values: %w", err)
	}
	return nil
}

func (d *Decoder) measureCache(ctx context.Context, tokens []int32, r *CacheRange) error {
	p, ok := d.caches.(*paged)
	if !ok || !d.device().onCPU() || d.model.session.ragged.Cache != graph.Float32 {
		return fmt.Errorf("only of a model with a float cache whose passes are ragged, on the CPU: %s", d.model.bundle)
	}
	slot, err := d.Alloc()
	if err != nil {
		return err
	}
	defer d.Free(slot)
	if _, err := d.Forward(ctx, []Span{{Slot: slot, Tokens: tokens, Rows: 1}}); err != nil {
		return err
	}
	d.enter()
	defer d.leave()
	if d.closed {
		return ErrClosed
	}
	for i := range p.tensors {
		to := r.Keys[i/2]
		if i%2 == 1 {
			to = r.Values[i/2]
		}
		for t := range tokens {
			block := int(p.tables[slot][t/p.paging.block])
			for c, v := range view[float32](&p.tensors[i], (block*p.paging.block+t%p.paging.block)*p.token, len(to)) {
				if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
					return fmt.Errorf("layer %d holds %g", i/2, v)
				}
				to[c] = max(to[c], v, -v)
			}
		}
	}
	return nil
}

// CacheMargin is how much farther than what was measured a cache of 8 bits goes.
const CacheMargin = 1.1

// scales are the factors with which integers of 8 bits cover a range. A channel
// that hardly moved keeps a hundredth of the layer's widest one.
func scales(r [][]float32) (all [][]float32) {
	for _, layer := range r {
		least := slices.Max(layer) / 100
		if least < math.SmallestNonzeroFloat32*1e9 { // nothing was measured
			least = 1
		}
		var to []float32
		for _, v := range layer {
			to = append(to, CacheMargin*max(v, least)/127)
		}
		all = append(all, to)
	}
	return all
}

// CanNarrow says why WriteNarrow cannot make dst.
func (b *Bundle) CanNarrow(dst string) error {
	if _, err := os.Lstat(dst); err == nil {
		return fmt.Errorf("%s is there already: name a folder to make", dst)
	}
	if b.Contract != graph.GQA || b.layout.Cache == graph.Int8 {
		return fmt.Errorf("a cache of 8 bits is made of one of a float type in a graph with GroupQueryAttention, and this one is %s with the %s contract", b.layout.Cache, b.Contract)
	}
	return nil
}

// WriteNarrow writes the bundle's folder to dst, a folder that is not there, with a
// cache of 8 bits in place of one of a float type: scales by KV head and channel,
// CacheMargin wider than r.
func (b *Bundle) WriteNarrow(dst string, r *CacheRange) (err error) {
	if err := b.CanNarrow(dst); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(dst), "."+filepath.Base(dst)+"-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := b.copyFiles(dir); err != nil {
		return err
	}
	data, err := os.ReadFile(b.Model)
	if err != nil {
		return err
	}
	m := &onnxpb.ModelProto{}
	if err := proto.Unmarshal(data, m); err != nil {
		return fmt.Errorf("%s: %w", b.Model, err)
	}
	if err := graph.NarrowCache(m, scales(r.Keys), scales(r.Values)); err != nil {
		return fmt.Errorf("%s: %w", b.Model, err)
	}
	if data, err = proto.Marshal(m); err != nil {
		return err
	}
	name, err := filepath.Rel(b.Dir, b.Model)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	return os.Rename(dir, dst)
}

// copyFiles copies all of the folder but the graph. Links become what they lead to.
func (b *Bundle) copyFiles(to string) error {
	return filepath.WalkDir(b.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(b.Dir, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		if path == b.Model {
			return nil
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.OpenFile(filepath.Join(to, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		return errors.Join(err, out.Close())
	})
}

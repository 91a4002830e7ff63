package convert

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/draftmill/draftmill/ort/convert/tensor"
)

func slashless(name string) string { return strings.ReplaceAll(name, "/", ".") }

// matmul multiplies x by a weight and adds the bias, where there is one.
func (b *builder) matmul(at, x string, w *weight, bias []float32) string {
	return b.addBias(at, b.product(at, x, w, at+"/MatMul/output_0"), w.rows, bias)
}

func (b *builder) addBias(at, x string, size int, bias []float32) string {
	if bias == nil {
		return x
	}
	dotted := "model." + slashless(strings.TrimPrefix(at, "/model/")) + ".Add.bias"
	return b.node("Add", at+"/Add", []string{x, b.floats(dotted, bias, b.o.io, size)}, nil)
}

// product multiplies x by a weight.
func (b *builder) product(at, x string, w *weight, out string) string {
	dotted := slashless(strings.TrimPrefix(at, "/")) + ".MatMul.weight"
	if !b.o.quantized {
		return b.node("MatMul", at+"/MatMul", []string{x, b.widened(at, b.turned(dotted, w))}, nil, out)
	}
	s, kept := b.o.schemeOf(w, b.fine(at))
	inputs := append([]string{x}, b.quantized(dotted, w, s, kept, s.blocks(w.cols), s.block*s.bits/8)...)
	a := attributes{"K": w.cols, "N": w.rows, "bits": s.bits, "block_size": s.block}
	if b.o.accuracy > 0 {
		a["accuracy_level"] = b.o.accuracy
	}
	return b.node("MatMulNBits", fmt.Sprintf("%s/MatMul_Q%d", at, s.bits), inputs, a, out)
}

// fine says which weights a mixed plan stores in 8 bits: the head's, and those
// of the first and the last layer.
func (b *builder) fine(at string) bool {
	return at == "/lm_head" || strings.HasPrefix(at, "/model/layers.0/") || strings.HasPrefix(at, fmt.Sprintf("/model/layers.%d/", b.layers-1))
}

// turned is a float weight as MatMul takes it, inputs by outputs.
func (b *builder) turned(name string, w *weight) string {
	return b.initializer(name, b.o.store, func(f *filling) error { return f.turned(w, b.o.store) }, w.cols, w.rows)
}

// widened is a float weight in the type of the activations.
func (b *builder) widened(at, name string) string {
	if b.o.store == b.o.io {
		return name
	}
	return b.node("Cast", at+"/Cast", []string{name}, attributes{"to": int(b.o.io)})
}

// quantized adds the initializers of a weight in blocks: integers, scales, and
// zero points where the scheme has some.
// A row of integers has the shape row.
func (b *builder) quantized(name string, w *weight, s scheme, kept bool, row ...int) []string {
	b.count(w, kept)
	blocks := s.blocks(w.cols)
	q, scales := fmt.Sprintf("%s_Q%d", name, s.bits), name+"_scales"
	names := []string{
		b.initializer(q, uint8Type, func(f *filling) error { return f.blocks(w, s, kept, b.o.io) }, append([]int{w.rows}, row...)...),
		b.initializer(scales, b.o.io, func(f *filling) error { return nil }, w.rows, blocks),
	}
	if !s.asymmetric {
		return names
	}
	b.zeros = true
	zeros := name + "_zero_points"
	if kept { // minima, in units of the scale
		return append(names, b.initializer(zeros, b.o.io, func(f *filling) error { return nil }, w.rows, blocks))
	}
	return append(names, b.initializer(zeros, uint8Type, func(f *filling) error { return nil }, w.rows, s.zeroBytes(w.cols)))
}

// embed looks tokens up.
func (b *builder) embed() (string, error) {
	w, err := b.need(embedding, 0, b.vocab, b.hidden)
	if err != nil {
		return "", err
	}
	const at = "/model/embed_tokens"
	x := b.lookUp(at, w)
	if b.embeddingScale != 1 {
		x = b.node("Mul", at+"/Mul", []string{x, b.number(b.embeddingScale, b.o.io)}, nil)
	}
	if !b.positions {
		return x, nil
	}
	table, err := b.need(positionTable, 0, b.context, b.hidden)
	if err != nil {
		return "", err
	}
	positions := b.node("Gather", "/model/embed_positions/Gather", []string{b.table("model.embed_positions.weight", table, b.o.io), "position_ids"}, nil)
	return b.node("Add", "/model/embed_positions/Add", []string{x, positions}, nil), nil
}

// lookUp gathers rows of the embeddings. Quantized models keep them in 8 bits,
// or in the integers of the source: only the rows of a text's tokens are ever
// read, so that what counts is not their size but that they are exact.
func (b *builder) lookUp(at string, w *weight) string {
	const name = "model.embed_tokens.weight"
	s, kept := b.o.kept(w)
	if !kept || s.asymmetric {
		s, kept = scheme{bits: 8, block: 32}, false
	}
	switch {
	case b.o.quantized && w.cols%s.block == 0:
		names := b.quantized(name, w, s, kept, s.rowBytes(w.cols))
		return b.node("GatherBlockQuantized", at+"/GatherBlockQuantized", []string{names[0], "input_ids", names[1]},
			attributes{"bits": s.bits, "block_size": s.block, "gather_axis": 0, "quantize_axis": 1})
	case b.o.quantized:
		return b.node("Gather", at+"/Gather", []string{b.table(name, w, b.o.io), "input_ids"}, nil)
	case b.tied && b.o.head == nil && b.o.store == b.o.io: // the head's weight is the only copy
		flat := b.node("Transpose", at+"/Transpose", []string{b.turned("lm_head.MatMul.weight", w)}, attributes{"perm": []int64{1, 0}})
		return b.node("Gather", at+"/Gather", []string{flat, "input_ids"}, nil)
	}
	return b.widened(at, b.node("Gather", at+"/Gather", []string{b.table(name, w, b.o.store), "input_ids"}, nil))
}

// table is a float weight by rows.
func (b *builder) table(name string, w *weight, t element) string {
	return b.initializer(name, t, func(f *filling) error { return f.rows(w, t) }, w.rows, w.cols)
}

// head scores the vocabulary.
func (b *builder) head(x string) error {
	w, err := b.headWeight()
	if err != nil {
		return err
	}
	const at = "/lm_head"
	bias, err := b.plainBias(head, 0, b.vocab)
	if err != nil {
		return err
	}
	out := "logits"
	if b.logitCap > 0 || bias != nil || b.o.head != nil {
		out = at + "/MatMul/output_0"
	}
	if b.o.head != nil {
		if w, bias, err = b.trimmed(w, bias); err != nil {
			return err
		}
	}
	if b.tied && b.o.head == nil && !b.o.quantized && b.o.store != b.o.io { // the embeddings, widened and turned when the model is loaded
		wide := b.widened(at, "model.embed_tokens.weight")
		turned := b.node("Transpose", at+"/Transpose", []string{wide}, attributes{"perm": []int64{1, 0}})
		x = b.node("MatMul", at+"/MatMul", []string{x, turned}, nil, out)
	} else {
		x = b.product(at, x, w, out)
	}
	if bias != nil {
		x = b.addBias(at, x, w.rows, bias)
		if b.logitCap == 0 && b.o.head == nil {
			b.graph.Node[len(b.graph.Node)-1].Output[0] = "logits"
		}
	}
	if b.logitCap > 0 {
		limit := b.number(b.logitCap, b.o.io)
		x = b.node("Div", at+"/softcap/Div", []string{x, limit}, nil)
		x = b.node("Tanh", at+"/softcap/Tanh", []string{x}, nil)
		if b.o.head == nil {
			b.node("Mul", at+"/softcap/Mul", []string{x, limit}, nil, "logits")
			return nil
		}
		x = b.node("Mul", at+"/softcap/Mul", []string{x, limit}, nil)
	}
	if b.o.head != nil {
		b.spread(at, x, w.pick)
	}
	return nil
}

func (b *builder) headWeight() (*weight, error) {
	if b.tied {
		return b.need(embedding, 0, b.vocab, b.hidden)
	}
	return b.need(head, 0, b.vocab, b.hidden)
}

// floatBytes is values as t stores them.
func floatBytes(values []float32, t element) []byte {
	dst := make([]byte, len(values)*t.width())
	putFloats(dst, values, t)
	return dst
}

func putFloats(dst []byte, values []float32, t element) {
	switch t {
	case float16Type:
		for i, v := range values {
			binary.LittleEndian.PutUint16(dst[2*i:], tensor.ToHalf(v))
		}
	case bfloat16Type:
		for i, v := range values {
			binary.LittleEndian.PutUint16(dst[2*i:], tensor.ToBFloat(v))
		}
	default:
		float32Bytes(dst, values)
	}
}

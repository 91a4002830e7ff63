package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/draftmill/draftmill/pipeline/report"
)

// text prints the folders one after the other.
func (found *inspection) text(w io.Writer) error {
	const label = 26
	models := []*inspected{found.Target}
	if found.Draft != nil {
		models = append(models, found.Draft)
	}
	var b strings.Builder
	for i, m := range models {
		if i > 0 {
			b.WriteString("\n")
		}
		if len(models) > 1 {
			fmt.Fprintf(&b, "%s\n", []string{"target", "draft"}[i])
		}
		for _, row := range inspectRows {
			lines := strings.ReplaceAll(report.Wrap(row.of(m), report.TextWidth-label), "\n", "\n"+strings.Repeat(" ", label))
			fmt.Fprintf(&b, "%-*s%s\n", label, row.name, lines)
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the description: %w", err)
	}
	switch p := found.Pair; {
	case p == nil:
	case p.Fits:
		text := fmt.Sprintf("the pair fits: %d logits each, every token id the same token, %d tokens of context", found.Target.Vocabulary, p.Context)
		fmt.Fprintf(w, "\n%s\n", report.Wrap(text, report.TextWidth))
	default:
		fmt.Fprintln(w, "\nthe pair does not fit")
	}
	return nil
}

// inspectRows is what is printed of a model, in this order.
var inspectRows = []struct {
	name string
	of   func(m *inspected) string
}{
	{"folder", func(m *inspected) string { return m.Dir }},
	{"architecture", func(m *inspected) string { return m.Architecture }},
	{"contract", func(m *inspected) string { return m.Contract }},
	{"digest", func(m *inspected) string { return m.Digest[:12] }},
	{"files", func(m *inspected) string {
		var files []string
		for _, f := range m.Files {
			files = append(files, f.Name+" "+decimal(f.Bytes, "B"))
		}
		return strings.Join(files, ", ")
	}},
	{"parameters", func(m *inspected) string {
		return decimal(m.Parameters, "") + ", stored as " + strings.Join(m.Weights, ", ")
	}},
	{"quantization", func(m *inspected) string { return cmp.Or(m.Quantization, "none") }},
	{"vocabulary", func(m *inspected) string {
		return fmt.Sprintf("%d logits, %d tokens", m.Vocabulary, m.TokenizerEntries)
	}},
	{"context", func(m *inspected) string {
		if m.Encoder != nil {
			return fmt.Sprintf("%d tokens of input, %[1]d of the decoder", m.Encoder.Most)
		}
		return fmt.Sprintf("%d tokens", m.Context)
	}},
	{"decoder begins with", func(m *inspected) string {
		if m.Encoder == nil {
			return "the prompt"
		}
		var ids []string
		for _, id := range m.Encoder.Start {
			ids = append(ids, id.String())
		}
		return strings.Join(ids, ", ")
	}},
	{"end of text", func(m *inspected) string {
		var ids []string
		for _, id := range m.EOS {
			ids = append(ids, id.String())
		}
		return cmp.Or(strings.Join(ids, ", "), "none")
	}},
	{"begin of text", func(m *inspected) string {
		if m.BOS == nil {
			return "none"
		}
		return m.BOS.String()
	}},
	{"cache", func(m *inspected) string {
		return fmt.Sprintf("%s, layers %d, KV heads %d, head size %d", m.Cache, m.Layers, m.KVHeads, m.HeadSize)
	}},
	{"cache of a token", func(m *inspected) string { return decimal(int64(m.TokenBytes), "B") }},
	{"cache of a full sequence", func(m *inspected) string { return decimal(int64(m.ContextBytes), "B") }},
	{"logits", func(m *inspected) string { return m.Logits }},
	{"inputs", func(m *inspected) string { return strings.Join(append([]string{"input_ids"}, m.Inputs...), ", ") }},
	{"passes", func(m *inspected) string {
		if m.Ragged {
			return "several sequences in one, the same to the bit as alone (CPU)"
		}
		return "one sequence at a time: " + m.NotRagged
	}},
}

func (t token) String() string { return fmt.Sprintf("%d %q", t.ID, t.Text) }

// decimal is a number in three digits, with a prefix to the unit: 1234567 bytes
// are "1.23 MB".
func decimal(n int64, unit string) string {
	x, prefix, digits := float64(n), "", 0
	for _, next := range []string{"k", "M", "G", "T"} {
		if x < 999.5 {
			break
		}
		x, prefix, digits = x/1000, next, 2
	}
	for y := x; y >= 9.995 && digits > 0; y /= 10 {
		digits--
	}
	return strings.TrimSpace(fmt.Sprintf("%.*f %s%s", digits, x, prefix, unit))
}

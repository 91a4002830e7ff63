package chat

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// toJSON is the filter tojson as transformers has it, which is Python's
// json.dumps: a space behind commas and colons, or an indent, and no escapes but
// those that JSON demands.
func toJSON(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	w := jsonWriter{indent: -1}
	if v, ok := params.KwArgs["indent"]; ok && v.IsInteger() {
		w.indent = v.Integer()
	}
	if v, ok := params.KwArgs["sort_keys"]; ok {
		w.sorted = v.IsTrue()
	}
	if err := w.write(in.Interface(), 0); err != nil {
		return exec.AsValue(err)
	}
	return exec.AsSafeValue(w.String())
}

type jsonWriter struct {
	strings.Builder
	indent int // -1: one line
	sorted bool
}

func (w *jsonWriter) write(v any, depth int) error {
	switch v := v.(type) {
	case nil:
		w.WriteString("null")
	case *exec.Value:
		return w.write(v.Interface(), depth)
	case *exec.Dict:
		pairs := slices.Clone(v.Pairs)
		if w.sorted {
			slices.SortFunc(pairs, func(a, b *exec.Pair) int { return strings.Compare(a.Key.String(), b.Key.String()) })
		}
		return w.list("{", "}", len(pairs), depth, func(i int) error {
			w.quote(pairs[i].Key.String())
			w.WriteString(": ")
			return w.write(pairs[i].Value, depth+1)
		})
	case exec.Dict:
		return w.write(&v, depth)
	default:
		return w.reflected(reflect.ValueOf(v), depth)
	}
	return nil
}

func (w *jsonWriter) reflected(v reflect.Value, depth int) error {
	switch v.Kind() {
	case reflect.String:
		w.quote(v.String())
	case reflect.Bool:
		w.WriteString(strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.WriteString(strconv.FormatInt(v.Int(), 10))
	case reflect.Float32, reflect.Float64:
		f := v.Float()
		text := strconv.FormatFloat(f, 'g', -1, 64)
		if f == math.Trunc(f) && math.Abs(f) < 1e16 {
			text = strconv.FormatFloat(f, 'f', 1, 64)
		}
		w.WriteString(text)
	case reflect.Slice, reflect.Array:
		return w.list("[", "]", v.Len(), depth, func(i int) error { return w.write(v.Index(i).Interface(), depth+1) })
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		return w.list("{", "}", len(keys), depth, func(i int) error {
			w.quote(fmt.Sprint(keys[i]))
			w.WriteString(": ")
			return w.write(v.MapIndex(keys[i]).Interface(), depth+1)
		})
	default:
		return fmt.Errorf("tojson: a value of type %s is not JSON", v.Type())
	}
	return nil
}

// list writes n items between two brackets.
func (w *jsonWriter) list(open, shut string, n, depth int, item func(i int) error) error {
	w.WriteString(open)
	for i := range n {
		switch {
		case w.indent >= 0 && i > 0:
			w.WriteString(",")
		case i > 0:
			w.WriteString(", ")
		}
		w.line(depth + 1)
		if err := item(i); err != nil {
			return err
		}
	}
	if n > 0 {
		w.line(depth)
	}
	w.WriteString(shut)
	return nil
}

// line begins a line, where there are lines.
func (w *jsonWriter) line(depth int) {
	if w.indent >= 0 {
		w.WriteString("\n" + strings.Repeat(" ", w.indent*depth))
	}
}

func (w *jsonWriter) quote(s string) {
	w.WriteByte('"')
	for _, r := range s {
		if at := strings.IndexRune("\"\\\n\r\t\b\f", r); at >= 0 {
			w.WriteByte('\\')
			w.WriteByte(`"\nrtbf`[at])
		} else if r < 0x20 {
			fmt.Fprintf(w, `\u%04x`, r)
		} else {
			w.WriteRune(r)
		}
	}
	w.WriteByte('"')
}

package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
)

// readAll reads a dataset to its end or its first error.
func readAll(path string, cols Columns) ([]Row, Info, error) {
	d, err := OpenDataset(path, cols)
	if err != nil {
		return nil, Info{}, err
	}
	defer d.Close()
	var rows []Row
	for {
		row, err := d.Next()
		if errors.Is(err, io.EOF) {
			if _, err := d.Next(); !errors.Is(err, io.EOF) {
				return nil, Info{}, fmt.Errorf("after the end: %w", err)
			}
			return rows, d.Info(), nil
		}
		if err != nil {
			return rows, d.Info(), err
		}
		rows = append(rows, row)
	}
}

func writeFile(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// The files of testdata/make_datasets.py hold the same rows in every type and
// container that pyarrow writes.
func TestReadsWhatPyarrowWrites(t *testing.T) {
	formats := map[string]string{".parquet": FormatParquet, ".arrow": FormatArrowFile, ".feather": FormatArrowFile, ".arrows": FormatArrowStream}
	files, err := filepath.Glob("testdata/datasets/*")
	if err != nil || len(files) != 14 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			rows, info, err := readAll(path, Columns{})
			if err != nil || len(rows) != 300 {
				t.Fatalf("%d rows: %v", len(rows), err)
			}
			if info.Format != formats[filepath.Ext(path)] || info.Columns != (Columns{Prompt: "prompt", ID: "task_id"}) {
				t.Errorf("%+v", info)
			}
			if known := info.Format == FormatParquet; known != (info.Rows == 300) || !known && info.Rows != -1 {
				t.Errorf("%d rows announced", info.Rows)
			}
			for i, row := range rows {
				prompt := strings.Repeat(fmt.Sprintf("def größe_%d(x):\n", i), i%4+1)
				want := Row{Index: int64(i), ID: fmt.Sprint("Demo/", i), Prompt: []byte(prompt)}
				switch i % 50 {
				case 7:
					want.Prompt, want.Null, prompt = nil, true, ""
				case 8:
					want.Prompt, prompt = []byte{}, ""
				}
				want.Fields = map[string]string{"task_id": want.ID, "prompt": prompt}
				if len(info.All) > 2 {
					for name, text := range map[string]string{
						"number": fmt.Sprint(i), "unsigned": fmt.Sprint(uint64(1<<64-1) - uint64(i)), "ratio": fmt.Sprint(float64(i) / 8), "flag": fmt.Sprint(i%2 == 0),
						"day": "2024-01-01", "at": "2024-01-01 12:00:00Z", "price": "1.25", "nothing": "",
					} {
						want.Fields[name] = text
					}
				}
				if !reflect.DeepEqual(row, want) {
					t.Fatalf("row %d\n got %+v\nwant %+v", i, row, want)
				}
			}
		})
	}
}

// writeArrow writes columns, by name in order, as an Arrow file.
func writeArrow(t *testing.T, names []string, columns ...arrow.Array) string {
	t.Helper()
	var fields []arrow.Field
	for i, c := range columns {
		fields = append(fields, arrow.Field{Name: names[i], Type: c.DataType(), Nullable: true})
	}
	schema := arrow.NewSchema(fields, nil)
	path := filepath.Join(t.TempDir(), "x")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := ipc.NewFileWriter(f, ipc.WithSchema(schema))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(array.NewRecord(schema, columns, -1)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func texts(values ...string) arrow.Array {
	b := array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.String)
	for _, v := range values {
		b.Append([]byte(v))
	}
	return b.NewArray()
}

func integers(values ...int64) arrow.Array {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	b.AppendValues(values, nil)
	return b.NewArray()
}

func TestColumnsByConventionAndByName(t *testing.T) {
	lists := array.NewListBuilder(memory.DefaultAllocator, arrow.PrimitiveTypes.Int32)
	lists.Append(true)
	list := lists.NewArray()
	a, b, n := texts("a"), texts("b"), integers(-7)
	for _, c := range []struct {
		names []string
		cols  []arrow.Array
		ask   Columns
		want  Columns
		id    string
		fails string
	}{
		{names: []string{"task_id", "prompt"}, cols: []arrow.Array{a, b}, want: Columns{Prompt: "prompt", ID: "task_id"}, id: "a"},
		{names: []string{"document", "summary", "id"}, cols: []arrow.Array{a, b, n}, want: Columns{Prompt: "document", ID: "id"}, id: "-7"},
		{names: []string{"id", "prompt"}, cols: []arrow.Array{n, b}, want: Columns{Prompt: "prompt", ID: "id"}, id: "-7"},
		{names: []string{"prompt"}, cols: []arrow.Array{b}, want: Columns{Prompt: "prompt", ID: ""}, id: "0"},
		{names: []string{"q", "id"}, cols: []arrow.Array{b, a}, ask: Columns{Prompt: "q"}, want: Columns{Prompt: "q", ID: "id"}, id: "a"},
		{names: []string{"q", "key"}, cols: []arrow.Array{b, a}, ask: Columns{Prompt: "q", ID: "key"}, want: Columns{Prompt: "q", ID: "key"}, id: "a"},
		{names: []string{"text", "id"}, cols: []arrow.Array{b, a}, fails: `no column "prompt" or "document": name the prompt column, one of "text", "id"`},
		{names: []string{"text"}, cols: []arrow.Array{b}, ask: Columns{Prompt: "Text"}, fails: `no column "Text": it has "text"`},
		{names: []string{"prompt"}, cols: []arrow.Array{b}, ask: Columns{ID: "key"}, fails: `no column "key": it has "prompt"`},
		{names: []string{"prompt"}, cols: []arrow.Array{n}, fails: `column "prompt" is int64, not text`},
		{names: []string{"prompt"}, cols: []arrow.Array{list}, fails: `column "prompt" is list`},
		{names: []string{"prompt", "id"}, cols: []arrow.Array{a, list}, fails: `column "id" is list`},
	} {
		rows, info, err := readAll(writeArrow(t, c.names, c.cols...), c.ask)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) || strings.Contains(err.Error(), "damaged") {
				t.Errorf("%v: %v, want %s", c.names, err, c.fails)
			}
			continue
		}
		if err != nil || len(rows) != 1 || info.Columns != c.want || rows[0].ID != c.id {
			t.Errorf("%v: %+v %+v %v", c.names, rows, info, err)
		}
	}
}

// TestMessages: a column of lists is the prompt where lists are allowed, as
// JSON, in all formats alike.
func TestMessages(t *testing.T) {
	const (
		first  = `[{"role":"user","content":"Größe?"},{"role":"assistant","content":"4"}]`
		second = `[{"role":"user","content":"b"}]`
	)
	schema := arrow.ListOf(arrow.StructOf(arrow.Field{Name: "role", Type: arrow.BinaryTypes.String, Nullable: true},
		arrow.Field{Name: "content", Type: arrow.BinaryTypes.String, Nullable: true}))
	lists, _, err := array.FromJSON(allocator, schema, strings.NewReader("["+first+","+second+",null,[]]"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"before", "messages", "id"}
	columns := []arrow.Array{texts("x", "y", "z", "w"), lists, integers(7, 8, 9, 10)}
	var lines strings.Builder
	for i, m := range []string{first, second, "null", "[]"} {
		fmt.Fprintf(&lines, "{\"before\": \"xyzw\", \"messages\": %s, \"id\": %d}\n", m, 7+i)
	}
	for _, path := range []string{writeArrow(t, names, columns...), writeParquet(t, names, columns...), writeFile(t, "m.jsonl", lines.String())} {
		rows, info, err := readAll(path, Columns{Messages: true})
		if err != nil || len(rows) != 4 || (info.Columns != Columns{Prompt: "messages", ID: "id", Messages: true}) {
			t.Fatalf("%s: %+v %+v %v", path, rows, info, err)
		}
		for i, want := range []string{first, second, "", "[]"} {
			if row := rows[i]; string(row.Prompt) != want || row.Null != (i == 2) || row.ID != fmt.Sprint(7+i) || row.Fields["before"] == "" {
				t.Errorf("%s: row %d: %+v", path, i, row)
			}
			if _, has := rows[i].Fields["messages"]; has && i != 2 {
				t.Errorf("%s: a list is among the scalar fields", path)
			}
		}
		if _, _, err := readAll(path, Columns{Prompt: "messages"}); err == nil {
			t.Errorf("%s: read as texts", path)
		}
		rows, info, err = readAll(path, Columns{Prompt: "before", Messages: true})
		if err != nil || info.Columns.Messages || len(rows) != 4 || rows[0].Prompt[0] != 'x' {
			t.Errorf("%s: %+v %+v %v", path, rows, info, err)
		}
	}
}

// writeParquet writes columns as one Parquet file.
func writeParquet(t *testing.T, names []string, columns ...arrow.Array) string {
	t.Helper()
	var fields []arrow.Field
	for i, c := range columns {
		fields = append(fields, arrow.Field{Name: names[i], Type: c.DataType(), Nullable: true})
	}
	record := array.NewRecord(arrow.NewSchema(fields, nil), columns, int64(columns[0].Len()))
	defer record.Release()
	var b bytes.Buffer
	w, err := pqarrow.NewFileWriter(record.Schema(), &b, nil, pqarrow.DefaultWriterProps())
	if err == nil {
		err = errors.Join(w.Write(record), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "columns.parquet", b.String())
}

func TestPromptBytesPassAsTheyAre(t *testing.T) {
	rows, _, err := readAll(writeArrow(t, []string{"id", "prompt"}, texts("\xff", "b", "b"), texts("caf\xc3", "", "x\x00")), Columns{})
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	if string(rows[0].Prompt) != "caf\xc3" || rows[0].ID != "\uFFFD" || rows[0].Fields["prompt"] != "caf\xc3" {
		t.Errorf("%+v", rows[0])
	}
	if rows[1].Prompt == nil || rows[1].Null || string(rows[2].Prompt) != "x\x00" || rows[2].ID != "b" || rows[2].Index != 2 {
		t.Errorf("%+v", rows)
	}
}

func TestFilesThatAreNoDatasets(t *testing.T) {
	dir := t.TempDir()
	real, err := os.ReadFile("testdata/datasets/string.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "none"), "none: no such file or directory"},
		{dir, "is a folder"},
		{"/dev/null", "not a regular file"},
		{writeFile(t, "e", ""), "is empty"},
		{writeFile(t, "b", " \n\n"), "nothing but white space"},
		{writeFile(t, "x.parquet", "hello"), "not a Parquet, Arrow IPC or JSON Lines file"},
		{writeFile(t, "x.csv", "id,prompt\n1,2\n"), "not a Parquet"},
		{writeFile(t, "x.json", "[{\"prompt\": 1}]"), "JSON array"},
		{writeFile(t, "x.gz", "\x1f\x8b\x08\x00"), "gzip"},
		{writeFile(t, "x", "PAR1"), "cut off"},
		{writeFile(t, "x", string(real[:len(real)-1])), "cut off"},
		{writeFile(t, "x", "PAR1\x00\x00\x00\x00PAR1"), "damaged"},
		{writeFile(t, "x", "ARROW1\x00\x00"), "damaged"},
		{writeFile(t, "x", "\xff\xff\xff\xff\x10\x00\x00\x00"), "damaged"},
		{writeFile(t, "x", "FEA1...."), "Feather"},
	} {
		_, _, err := readAll(c.path, Columns{})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "read dataset "+c.path) {
			t.Errorf("%v\nwant %s", err, c.want)
		}
	}
}

func TestJSONLines(t *testing.T) {
	text := "\uFEFF{\"task_id\": 12345678901234567890, \"prompt\": \"a\\n\\\"\\u00e9\\ud83d\\ude00\\/\", \"tests\": [1], \"ok\": true, \"x\": null}\r\n" +
		"\n   \r\n" +
		"{\"task_id\": \"dup\", \"prompt\": \"caf\xc3\"}\n" +
		"{\"task_id\": \"dup\", \"prompt\": \"\\ud800x\\udc00\\ud83d\\n\"}\n" +
		"{\"task_id\": null, \"prompt\": null, \"new\": 1.50}\n" +
		"{\"prompt\": \"\"}\n" +
		"{\"task_id\": \"no end of line\"}"
	rows, info, err := readAll(writeFile(t, "x", text), Columns{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Row{
		{0, "12345678901234567890", []byte("a\n\"é😀/"), false, map[string]string{"task_id": "12345678901234567890", "prompt": "a\n\"é😀/", "ok": "true", "x": ""}},
		{1, "dup", []byte("caf\xc3"), false, map[string]string{"task_id": "dup", "prompt": "caf\xc3", "tests": "", "ok": "", "x": ""}},
		{2, "dup", []byte("\xed\xa0\x80x\xed\xb0\x80\xed\xa0\xbd\n"), false, map[string]string{"task_id": "dup", "prompt": "\xed\xa0\x80x\xed\xb0\x80\xed\xa0\xbd\n", "tests": "", "ok": "", "x": ""}},
		{3, "3", nil, true, map[string]string{"task_id": "", "prompt": "", "tests": "", "ok": "", "x": "", "new": "1.50"}},
		{4, "4", []byte{}, false, map[string]string{"task_id": "", "prompt": "", "tests": "", "ok": "", "x": ""}},
		{5, "no end of line", nil, true, map[string]string{"task_id": "no end of line", "prompt": "", "tests": "", "ok": "", "x": ""}},
	}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("\n got %+v\nwant %+v", rows, want)
	}
	if info.Format != FormatJSONLines || info.Rows != -1 || !reflect.DeepEqual(info.All, []string{"ok", "prompt", "task_id", "tests", "x"}) {
		t.Errorf("%+v", info)
	}
}

func TestJSONLinesErrorsNameTheLine(t *testing.T) {
	const ok = "{\"prompt\": \"x\"}\n"
	for text, want := range map[string]string{
		ok + "\n{\"prompt\": \"x\"":   "line 3: malformed JSON: unexpected end",
		ok + "{\"prompt\": \"x\"} {}": "line 2: malformed JSON",
		ok + "[1]\n":                  "line 2: not a JSON object",
		ok + "null\n":                 "line 2: not a JSON object",
		ok + "{\"prompt\": 7}\n":      "line 2: column \"prompt\" is not text: 7",
		ok + "{\"prompt\": [\"a\"]}":  "line 2: column \"prompt\" is not text",
		ok + "\x00\n":                 "line 2: malformed JSON",
		"{\"text\": \"x\"}\n":         "line 1: no column \"prompt\" or \"document\": name the prompt column, one of \"text\"",
		"{}\n":                        "one of no columns",
		"{oops}\n":                    "line 1: malformed JSON",
	} {
		_, _, err := readAll(writeFile(t, "x.jsonl", text), Columns{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

func TestJSONLinesOfLongLines(t *testing.T) {
	was := maxLine
	maxLine = 1 << 20
	defer func() { maxLine = was }()
	long := strings.Repeat("x", maxLine-len(`{"prompt": ""}`)-1)
	line := `{"prompt": "` + long + "\"}\n"
	read := func(text string) (rows []Row, err error) {
		s, err := openJSONLines(strings.NewReader(text), wanted{})
		for err == nil {
			var row Row
			if row, err = s.next(); err == nil {
				rows = append(rows, row)
			}
		}
		return rows, err
	}
	rows, err := read(line + line)
	if !errors.Is(err, io.EOF) || len(rows) != 2 || string(rows[1].Prompt) != long {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	if _, err := read(line + " " + line); err == nil || !strings.Contains(err.Error(), "line 2: longer than 1 MiB") {
		t.Errorf("%v", err)
	}
}

func TestCloseBeforeTheEnd(t *testing.T) {
	for _, path := range []string{"testdata/datasets/rich.parquet", writeFile(t, "x", strings.Repeat("{\"prompt\": \"x\"}\n", 9))} {
		d, err := OpenDataset(path, Columns{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Next(); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if _, err := d.Next(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a closed dataset went on: %v", err)
		}
	}
}

// A column of an encoding that the reader does not know spoils nothing while
// nobody asks for it.
func TestColumnsThatNobodyAsksFor(t *testing.T) {
	const path = "testdata/unread/split.parquet"
	if _, _, err := readAll(path, Columns{}); err == nil {
		t.Error("the encoding is known by now: make a file with another one")
	}
	for path, want := range map[string]int{path: 300, writeFile(t, "x", "{\"prompt\": \"x\", \"task_id\": 3, \"more\": 1.5}\n"): 1} {
		d, err := OpenDatasetFields(path, Columns{}, []string{"prompt", "nowhere"})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for {
			row, err := d.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(row.Fields) != 2 || row.ID == "" {
				t.Fatalf("%s: row %+v", path, row)
			}
			n++
		}
		if n != want || len(d.Info().All) != 3 {
			t.Errorf("%s: %d rows, columns %v", path, n, d.Info().All)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

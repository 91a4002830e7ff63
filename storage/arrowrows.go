package storage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
)

// readBatch is how many rows of a Parquet file are decoded at a time.
const readBatch = 128

// An arrowRows reads rows from Arrow record batches, wherever they come from.
// It runs in the reader's process: on a damaged file the library may panic
// here, panic in a goroutine of its own, or ask for any amount of memory.
type arrowRows struct {
	what    Info
	scalars []int                        // columns of the batches that are asked for, and text or can be written as text
	read    []int                        // these and the prompt's, where it is none of them
	prompt  int                          // column of the batches
	id      int                          // likewise, -1 if there is none
	batch   func() (arrow.Record, error) // the next one, owned by the callee until the next call; io.EOF at the end
	current arrow.Record
	at      int // next row of current
	seen    int64
}

// openArrow opens a file in one of the Arrow formats.
func openArrow(f *os.File, format string, cols wanted) (*arrowRows, error) {
	s := &arrowRows{what: Info{Format: format, Rows: -1}}
	switch format {
	case FormatParquet:
		return s, s.openParquet(f, cols)
	case FormatArrowFile:
		return s, s.openFile(f, cols)
	case FormatArrowStream:
		return s, s.openStream(f, cols)
	}
	return nil, fmt.Errorf("unknown format %q", format)
}

func (s *arrowRows) openParquet(f *os.File, cols wanted) error {
	props := parquet.NewReaderProperties(allocator)
	props.BufferedStreamEnabled = true // pages as they come, not whole columns
	pq, err := file.NewParquetReader(f, file.WithReadProps(props))
	if err != nil {
		return err
	}
	// Read the file by Parquet's own types. The Arrow schema that pyarrow stores
	// beside them asks for dictionaries, which the library cannot read in
	// batches, and perhaps for types that it does not know.
	pq.MetaData().FileMetaData.KeyValueMetadata = nil
	fr, err := pqarrow.NewFileReader(pq, pqarrow.ArrowReadProperties{BatchSize: readBatch}, allocator)
	if err != nil {
		return err
	}
	all, err := fr.Schema()
	if err != nil {
		return err
	}
	if err := s.resolve(all, cols); err != nil {
		return err
	}
	// Only what becomes text, and is asked for, is decoded: another column may
	// be nested, or of an encoding that the library does not know.
	var leaves []int
	for _, i := range s.read {
		leaves = appendLeaves(leaves, &fr.Manifest.Fields[i])
	}
	rr, err := fr.GetRecordReader(context.Background(), leaves, nil)
	if err != nil {
		return err
	}
	s.project()
	s.what.Rows = pq.NumRows()
	s.batch = func() (arrow.Record, error) {
		if rr.Next() {
			return rr.Record(), nil
		}
		if err := rr.Err(); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if s.seen != s.what.Rows {
			return nil, fmt.Errorf("it holds %d of the %d rows that it announces", s.seen, s.what.Rows)
		}
		return nil, io.EOF
	}
	return nil
}

func (s *arrowRows) openFile(f *os.File, cols wanted) error {
	r, err := ipc.NewFileReader(f, ipc.WithAllocator(allocator))
	if err != nil {
		return err
	}
	if err := s.resolve(r.Schema(), cols); err != nil {
		return err
	}
	n := 0
	s.batch = func() (arrow.Record, error) {
		if n == r.NumRecords() {
			return nil, io.EOF
		}
		n++
		return r.Record(n - 1)
	}
	return nil
}

func (s *arrowRows) openStream(f *os.File, cols wanted) error {
	in := &markReader{r: bufio.NewReader(f)}
	r, err := ipc.NewReader(in, ipc.WithAllocator(allocator))
	if err != nil {
		return err
	}
	if err := s.resolve(r.Schema(), cols); err != nil {
		return err
	}
	s.batch = func() (arrow.Record, error) {
		if r.Next() {
			return r.Record(), nil
		}
		if err := r.Err(); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		// The library takes any end between two messages for the stream's.
		if string(in.last[:]) != "\xff\xff\xff\xff\x00\x00\x00\x00" {
			return nil, errors.New("the stream has no end mark: it was cut off")
		}
		return nil, io.EOF
	}
	return nil
}

// A markReader remembers the last bytes that it gave.
type markReader struct {
	r    io.Reader
	last [8]byte
}

func (m *markReader) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	recent := append(m.last[:], p[max(0, n-len(m.last)):n]...)
	copy(m.last[:], recent[len(recent)-len(m.last):])
	return n, err
}

// resolve finds the columns in the file's schema.
func (s *arrowRows) resolve(schema *arrow.Schema, cols wanted) error {
	for _, f := range schema.Fields() {
		s.what.All = append(s.what.All, f.Name)
	}
	index := func(name string) int { return schema.FieldIndices(name)[0] }
	found, err := cols.find(s.what.All, func(name string, prompt bool) error {
		t := schema.Field(index(name)).Type
		if prompt && cols.Messages && isList(t) {
			return nil
		}
		if prompt && !isText(t) || !isScalar(t) {
			return errColumn{fmt.Sprintf("column %q is %s, not text", name, t)}
		}
		return nil
	})
	if err != nil {
		return errColumn{err.Error()}
	}
	found.Messages = isList(schema.Field(index(found.Prompt)).Type)
	s.what.Columns = found
	for i, f := range schema.Fields() {
		if isScalar(f.Type) && (wanted{found, cols.Only}).reads(f.Name) {
			s.scalars = append(s.scalars, i)
		}
	}
	s.prompt, s.id = index(found.Prompt), -1
	s.read = slices.Clone(s.scalars)
	if found.Messages {
		s.read = append(s.read, s.prompt)
		slices.Sort(s.read)
	}
	if found.ID != "" {
		s.id = index(found.ID)
	}
	return nil
}

// appendLeaves appends the columns of a Parquet file that a field consists of.
func appendLeaves(leaves []int, f *pqarrow.SchemaField) []int {
	if len(f.Children) == 0 {
		return append(leaves, f.ColIndex)
	}
	for i := range f.Children {
		leaves = appendLeaves(leaves, &f.Children[i])
	}
	return leaves
}

// project renumbers columns for batches that hold those that are read only.
func (s *arrowRows) project() {
	at := func(column int) int { return slices.Index(s.read, column) }
	for i, column := range s.scalars {
		s.scalars[i] = at(column)
	}
	s.prompt, s.id = at(s.prompt), at(s.id) // -1 stays -1
}

// errColumn is a dataset that is intact but lacks what was asked for.
type errColumn struct{ text string }

func (e errColumn) Error() string { return e.text }

func (s *arrowRows) info() Info { return s.what }

// next returns the next row, which owns its memory.
func (s *arrowRows) next() (Row, error) {
	for s.current == nil || s.at == int(s.current.NumRows()) {
		rec, err := s.batch()
		if err != nil {
			return Row{}, err
		}
		if rec.NumCols() <= int64(max(s.prompt, s.id)) {
			return Row{}, errors.New("a record batch lacks columns")
		}
		s.current, s.at = rec, 0
	}
	i := s.at
	s.at++
	s.seen++
	row := Row{Null: s.current.Column(s.prompt).IsNull(i), Fields: make(map[string]string, len(s.scalars))}
	for _, c := range s.scalars {
		name := s.current.ColumnName(c)
		if _, twice := row.Fields[name]; !twice {
			row.Fields[name] = cellText(s.current.Column(c), i)
		}
	}
	if prompts := s.current.Column(s.prompt); !row.Null && s.what.Columns.Messages {
		row.Prompt = appendJSON(nil, prompts, i)
	} else if !row.Null {
		row.Prompt = []byte(cellText(s.current.Column(s.prompt), i))
		row.Null = dictionaryNull(s.current.Column(s.prompt), i)
	}
	if s.id >= 0 {
		row.ID = cellText(s.current.Column(s.id), i)
	}
	return row, nil
}

// isText tells whether a column's cells are text or bytes.
func isText(t arrow.DataType) bool {
	switch t := t.(type) {
	case *arrow.DictionaryType:
		return isText(t.ValueType)
	case arrow.ExtensionType:
		return isText(t.StorageType())
	}
	switch t.ID() {
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW, arrow.BINARY, arrow.LARGE_BINARY, arrow.BINARY_VIEW:
		return true
	}
	return false
}

// isList tells whether a column's cells are lists.
func isList(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.LIST, arrow.LARGE_LIST, arrow.LIST_VIEW, arrow.LARGE_LIST_VIEW, arrow.FIXED_SIZE_LIST:
		return true
	}
	return false
}

// isScalar tells whether a column's cells can be written as text.
func isScalar(t arrow.DataType) bool {
	switch t := t.(type) {
	case *arrow.DictionaryType:
		return isScalar(t.ValueType)
	case arrow.ExtensionType:
		return isScalar(t.StorageType())
	}
	return !arrow.IsNested(t.ID()) && t.ID() != arrow.RUN_END_ENCODED
}

// cellText is a cell as text: text and bytes as they are, numbers in decimal,
// null as empty.
func cellText(a arrow.Array, i int) string {
	if a.IsNull(i) {
		return ""
	}
	switch a := a.(type) {
	case *array.Dictionary:
		return cellText(a.Dictionary(), a.GetValueIndex(i))
	case array.ExtensionArray:
		return cellText(a.Storage(), i)
	case *array.String:
		return strings.Clone(a.Value(i))
	case *array.LargeString:
		return strings.Clone(a.Value(i))
	case *array.StringView:
		return strings.Clone(a.Value(i))
	case *array.Binary:
		return string(a.Value(i))
	case *array.LargeBinary:
		return string(a.Value(i))
	case *array.BinaryView:
		return string(a.Value(i))
	case *array.FixedSizeBinary:
		return string(a.Value(i))
	}
	return a.ValueStr(i)
}

// appendJSON appends a cell as JSON: the members of a struct in the schema's
// order, text and bytes as text.
func appendJSON(to []byte, a arrow.Array, i int) []byte {
	if a.IsNull(i) {
		return append(to, "null"...)
	}
	switch a := a.(type) {
	case array.ListLike:
		to = append(to, '[')
		start, end := a.ValueOffsets(i)
		for at := start; at < end; at++ {
			if at > start {
				to = append(to, ',')
			}
			to = appendJSON(to, a.ListValues(), int(at))
		}
		return append(to, ']')
	case *array.Struct:
		to = append(to, '{')
		for n, f := range a.DataType().(*arrow.StructType).Fields() {
			if n > 0 {
				to = append(to, ',')
			}
			to = appendText(to, f.Name)
			to = append(to, ':')
			to = appendJSON(to, a.Field(n), i)
		}
		return append(to, '}')
	}
	t := a.DataType()
	text := cellText(a, i)
	if !isText(t) && json.Valid([]byte(text)) { // a number or a truth value
		return append(to, text...)
	}
	return appendText(to, text)
}

func appendText(to []byte, text string) []byte {
	quoted, _ := json.Marshal(text) // a text is always JSON
	return append(to, quoted...)
}

// dictionaryNull tells whether a cell refers to a null entry of a dictionary.
func dictionaryNull(a arrow.Array, i int) bool {
	d, ok := a.(*array.Dictionary)
	return ok && d.Dictionary().IsNull(d.GetValueIndex(i))
}

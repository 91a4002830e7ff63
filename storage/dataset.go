package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Columns names the columns of a dataset that hold the prompt and the id. An
// empty name is found by convention: the prompt in "prompt" (HumanEval), else
// "document" (XSum), else, with Messages, "messages"; the id in "task_id"
// (HumanEval), else "id".
type Columns struct {
	Prompt, ID string
	Messages   bool // the prompt column may hold lists, of messages say
}

// A Row is one row of a dataset. Its memory is the caller's.
type Row struct {
	Index  int64             // from 0, in the order of files and in them: the key of a row
	ID     string            // the id column as text, valid UTF-8; not necessarily unique; the index in decimal if there is none
	Prompt []byte            // as in the file: perhaps empty, perhaps not UTF-8
	Null   bool              // the file has no prompt here; Prompt is nil
	Fields map[string]string // every scalar column as text, bytes as in the file; null is empty
}

// Info describes an open dataset.
type Info struct {
	Format  string   // FormatParquet, FormatArrowFile, FormatArrowStream or FormatJSONLines
	Rows    int64    // -1 if only reading to the end tells, as with several files
	Columns Columns  // as found; ID is empty if rows are identified by their index; Messages is set if prompts are lists: Prompt is a list's JSON then
	All     []string // every column of the file; of JSON Lines, the keys of the first object, sorted
}

// A Dataset is a stream of rows in file order. It is not safe for concurrent
// use.
type Dataset struct {
	files  []*datasetFile
	at     int // the file that source reads
	wanted wanted
	info   Info
	source *childReader
	index  int64
	err    error // sticky; io.EOF at the end
}

// OpenDataset opens a Parquet, Arrow IPC (file or stream) or JSON Lines file,
// by its path or URL; its first bytes say which, not its name. A path with * or ?
// in its last part is that of several files of the same kind and columns, whose
// rows follow each other in the order of the files' names; see [IsPattern]. Rows
// are read as they are asked for; an object in a store is fetched whole, into a
// temporary file without a name. A child process with limits of memory and time
// parses a file (readermain.go), so that a damaged one is an error here and
// nothing worse. Every error is one line that names the file.
func OpenDataset(path string, cols Columns) (*Dataset, error) {
	return OpenDatasetFields(path, cols, nil)
}

// OpenDatasetFields is OpenDataset for rows whose Fields hold no other columns
// than only names, those that the file has; nil is all. A Parquet column that
// nobody asks for is not read.
func OpenDatasetFields(path string, cols Columns, only []string) (*Dataset, error) {
	files, err := openDatasetFiles(path)
	if err != nil {
		return nil, err
	}
	d := &Dataset{files: files, wanted: wanted{cols, only}}
	if d.source, err = openSource(files[0], d.wanted); err != nil {
		return nil, errors.Join(datasetError(files[0].place, err), closeFiles(files))
	}
	if d.info = d.source.info(); len(files) > 1 {
		d.info.Rows = -1
	}
	return d, nil
}

// Digest is the sha256 of the file, in lower-case hexadecimal; of several files it
// is that of the lines that sha256sum prints for them. It reads the files once
// more and leaves the rows where they are.
func (d *Dataset) Digest() (string, error) { return filesDigest(d.files) }

// wanted is what is read of a file: the prompt, the id and Only.
type wanted struct {
	Columns
	Only []string // nil: all
}

func (w wanted) reads(name string) bool {
	return w.Only == nil || name == w.Prompt || name == w.ID || slices.Contains(w.Only, name)
}

func openSource(f *datasetFile, cols wanted) (*childReader, error) {
	format, err := detectFormat(f, f.Info.Size)
	if err != nil {
		return nil, err
	}
	return startReader(f.File.File, readerRequest{Format: format, Columns: cols, Size: f.Info.Size})
}

// Info describes the dataset.
func (d *Dataset) Info() Info { return d.info }

// Next returns the next row, or io.EOF after the last. An error is final.
func (d *Dataset) Next() (Row, error) {
	if d.err != nil {
		return Row{}, d.err
	}
	row, err := d.source.next()
	for errors.Is(err, io.EOF) {
		if d.err = d.turn(); d.err != nil {
			return Row{}, d.err
		}
		row, err = d.source.next()
	}
	if err != nil {
		d.err = datasetError(d.files[d.at].place, err)
		return Row{}, d.err
	}
	row.Index = d.index
	if d.Info().Columns.ID == "" || row.ID == "" {
		row.ID = strconv.FormatInt(row.Index, 10)
	}
	row.ID = validUTF8(row.ID)
	d.index++
	return row, nil
}

// Close ends reading, before the end too.
func (d *Dataset) Close() error {
	if d.err == nil {
		d.err = errors.New("read dataset: it is closed")
	}
	return errors.Join(d.source.close(), closeFiles(d.files))
}

// datasetError names the file, once, in one line.
func datasetError(path string, err error) error {
	if bare, ok := err.(*os.PathError); ok { //nolint:errorlint // only the outermost says the path that this line says
		err = bare.Err
	}
	return fmt.Errorf("read dataset %s: %w", path, err)
}

// find resolves the columns of a file. accept says why a column cannot be
// what it is asked for, if so.
func (c Columns) find(all []string, accept func(name string, prompt bool) error) (Columns, error) {
	prompt, id := c.Prompt, c.ID
	if prompt == "" {
		names := []string{"prompt", "document"}
		if c.Messages {
			names = append(names, "messages")
		}
		prompt = firstOf(all, names...)
		if prompt == "" {
			return c, fmt.Errorf(`no column "prompt" or "document": name the prompt column, one of %s`, quoteAll(all))
		}
	}
	if id == "" {
		id = firstOf(all, "task_id", "id")
	}
	for _, name := range []string{prompt, id} {
		if name != "" && !slices.Contains(all, name) {
			return c, fmt.Errorf("no column %q: it has %s", name, quoteAll(all))
		}
	}
	if err := accept(prompt, true); err != nil {
		return c, err
	}
	if id != "" {
		if err := accept(id, false); err != nil {
			return c, err
		}
	}
	return Columns{Prompt: prompt, ID: id}, nil
}

func firstOf(all []string, names ...string) string {
	for _, name := range names {
		if slices.Contains(all, name) {
			return name
		}
	}
	return ""
}

// quoteAll lists column names for an error line of bearable length.
func quoteAll(names []string) string {
	const most = 20
	var quoted []string
	for i, name := range names {
		if i == most {
			quoted = append(quoted, fmt.Sprintf("and %d more", len(names)-most))
			break
		}
		quoted = append(quoted, oneLine(strconv.Quote(name)))
	}
	if len(quoted) == 0 {
		return "no columns"
	}
	return strings.Join(quoted, ", ")
}

// oneLine keeps the first line of a foreign message, at most 200 characters.
func oneLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(validUTF8(s)), "\n")
	if r := []rune(s); len(r) > 200 {
		return string(r[:200]) + "..."
	}
	return s
}

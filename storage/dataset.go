package storage

import "errors"

var errSoon = errors.New("storage: first signatures only")

// Columns names the columns of a dataset that hold prompt and id. An empty
// name is found by convention.
type Columns struct{ Prompt, ID string }

// A Row is one row of a dataset.
type Row struct {
	Index  int64             // from 0, in file order: the row's key
	ID     string            // text of the id column; the index in decimal if there is none
	Prompt []byte            // raw bytes, perhaps not UTF-8
	Null   bool              // the row has no prompt; Prompt is nil
	Fields map[string]string // every scalar column as text, null as empty
}

// Info describes an open dataset.
type Info struct {
	Format  string   // "parquet", "arrow file", "arrow stream" or "json lines"
	Rows    int64    // -1 if only reading tells
	Columns Columns  // resolved; ID is empty if the dataset has none
	All     []string // every column of the file
}

// A Dataset is a stream of rows.
type Dataset struct{}

func OpenDataset(path string, cols Columns) (*Dataset, error) { return nil, errSoon }
func (d *Dataset) Next() (Row, error)                         { return Row{}, errSoon }
func (d *Dataset) Info() Info                                 { return Info{} }
func (d *Dataset) Close() error                               { return nil }

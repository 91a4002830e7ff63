package storage

import (
	"errors"
	"io"
)

var errSoon = errors.New("storage: first signatures only")

// ---- datasets in
type Columns struct{ Prompt, ID string }
type Row struct {
	Index  int64
	ID     string
	Prompt []byte
	Null   bool
	Fields map[string]string
}
type Info struct {
	Format  string // "parquet", "arrow file", "arrow stream", "json lines"
	Rows    int64  // -1 if unknown before the end
	Columns Columns
	All     []string // every column of the file
}
type Dataset struct{}

func OpenDataset(path string, cols Columns) (*Dataset, error) { return nil, errSoon }
func (d *Dataset) Next() (Row, error)                         { return Row{}, io.EOF }
func (d *Dataset) Info() Info                                 { return Info{} }
func (d *Dataset) Close() error                               { return nil }

// ---- shards
type ShardRow struct {
	Row    int64
	ID     string
	Prompt []byte
	Null   bool // the dataset has no prompt for the row; Prompt is nil
}
type Shard struct {
	Index int
	Meta  map[string]string
	Rows  []ShardRow
}

func EncodeShard(s Shard) ([]byte, error)     { return nil, errSoon }
func DecodeShard(data []byte) (Shard, error) { return Shard{}, errSoon }

// ---- tables
func ReadCompletions(path, sha256 string, fn func(Completion) error) error { return errSoon }
func ReadLoops(path, sha256 string, fn func(Loop) error) error             { return errSoon }

// ---- jobs
var (
	ErrOtherJob = errors.New("the folder belongs to another job")
	ErrLocked   = errors.New("the job is already being run")
	ErrNoPlan   = errors.New("the job has no plan yet")
)

// Version goes into job.json for the reader's information; it is not part of the job's identity.
type Version struct{ Name, Value string }
type Plan struct {
	Shards int      `json:"shards"`
	Rows   int64    `json:"rows"`
	Modes  []string `json:"modes"`
}
type Job struct{}

func CreateJob(out, name string, spec []byte, versions ...Version) (*Job, error) { return nil, errSoon }
func OpenJob(dir string) (*Job, error)                                           { return nil, errSoon }
func (j *Job) Dir() string                                                       { return "" }
func (j *Job) Name() string                                                      { return "" }
func (j *Job) Spec() []byte                                                      { return nil }
func (j *Job) Lock() (unlock func() error, err error)                            { return nil, errSoon }
func (j *Job) WritePlan(shards int, rows int64, modes []string) error            { return errSoon }
func (j *Job) Plan() (Plan, error)                                               { return Plan{}, ErrNoPlan }
func (j *Job) Committed(mode string, shard int) (bool, error)                    { return false, errSoon }
func (j *Job) Recover() error                                                    { return errSoon }
func (j *Job) Finalize() (done bool, err error)                                  { return false, errSoon }
func (j *Job) Done() bool                                                        { return false }
func (j *Job) ReadCompletions(mode string, fn func(Completion) error) error      { return errSoon }
func (j *Job) ReadLoops(mode string, fn func(Loop) error) error                  { return errSoon }

type ShardWriter struct{}

func (j *Job) NewShardWriter(mode string, shard int) (*ShardWriter, error) { return nil, errSoon }
func (w *ShardWriter) AddCompletion(c Completion) error                    { return errSoon }
func (w *ShardWriter) AddLoop(l Loop) error                                { return errSoon }
func (w *ShardWriter) Commit() (won bool, err error)                       { return false, errSoon }
func (w *ShardWriter) Abort() error                                        { return nil }

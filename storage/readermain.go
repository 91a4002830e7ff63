package storage

import (
	"bufio"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// readerEnv makes this binary a reader of one dataset: it carries a
// readerRequest as JSON. Only startReader sets it.
const readerEnv = "DRAFTMILL_DATASET_READER"

// readerMemory is how much a reader may allocate.
const readerMemory = 4 << 30

// Descriptors of a reader beside the standard three.
const (
	readerFile = 3 // the dataset, open for reading
	readerRows = 4 // where its messages go
)

type readerRequest struct {
	Format  string
	Columns wanted
	Size    int64 // of the file, in bytes
}

// A readerMessage is what a reader tells its parent: first Info, then rows,
// then End; or Error at any point.
type readerMessage struct {
	Info   *Info
	Row    *Row
	End    bool
	Error  string
	Intact bool // Error is not the file's fault
}

// init turns a process that startReader began into a reader, before main and
// whatever main is: a program that can open a dataset can be its reader, test
// binaries included, and none can forget to ask.
func init() {
	if request := os.Getenv(readerEnv); request != "" {
		os.Exit(readerMain(request))
	}
}

// readerMain streams one file to the parent.
func readerMain(request string) int {
	// A Ctrl-C at the terminal is for the parent to handle. The parent's end,
	// however it came, shows as the end of standard input.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	limitMemory()
	out := bufio.NewWriterSize(os.NewFile(readerRows, "rows"), 1<<16)
	enc := gob.NewEncoder(out)
	var req readerRequest
	err := json.Unmarshal([]byte(request), &req)
	if err == nil {
		limitTime(req.Size)
		err = streamRows(os.NewFile(readerFile, "dataset"), req, enc)
	}
	if err != nil {
		var column errColumn
		intact := errors.As(err, &column) || req.Format == FormatJSONLines // whose errors name the line
		_ = enc.Encode(readerMessage{Error: oneLine(err.Error()), Intact: intact})
	}
	if out.Flush() != nil {
		return 1
	}
	return 0
}

func streamRows(f *os.File, req readerRequest, enc *gob.Encoder) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	step("reader")
	rows, err := openRows(f, req.Format, req.Columns)
	if err != nil {
		return err
	}
	what := rows.info()
	if err := enc.Encode(readerMessage{Info: &what}); err != nil {
		return err
	}
	for {
		row, err := rows.next()
		if errors.Is(err, io.EOF) {
			return enc.Encode(readerMessage{End: true})
		}
		if err != nil {
			return err
		}
		if err := enc.Encode(readerMessage{Row: &row}); err != nil {
			return err
		}
	}
}

// A source is an open file of one format, in the reader's process.
type source interface {
	info() Info
	next() (Row, error) // io.EOF at the end
}

func openRows(f *os.File, format string, cols wanted) (source, error) {
	if format == FormatJSONLines {
		return openJSONLines(f, cols)
	}
	return openArrow(f, format, cols)
}

// Processor time that a reader gets: some seconds, and one more for every
// readerPace bytes of the file, a tenth of what a slow machine reads.
var readerSeconds int64 = 60

const readerPace = 1 << 20

// limitTime ends this process with a signal when it computes for much longer
// than a file of its size can take. See readerPatience too.
func limitTime(size int64) {
	limit := uint64(readerSeconds + size/readerPace)
	over := make(chan os.Signal, 1)
	signal.Notify(over, syscall.SIGXCPU) // the runtime would ignore it
	go func() {
		<-over
		fmt.Fprintln(os.Stderr, "SIGXCPU")
		os.Exit(1)
	}()
	var now unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CPU, &now) == nil && limit < now.Cur {
		_ = unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: limit, Max: min(limit+5, now.Max)})
	}
}

// limitMemory bounds the address space of this process to what it has mapped
// already (Go reserves much that it never touches) and readerMemory. Where the
// system does not say how much that is, there is no hard limit. Large record
// batches are garbage soon: collect early, and earlier near the limit.
func limitMemory() {
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(readerMemory * 3 / 4)
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return
	}
	pages, _, _ := strings.Cut(string(statm), " ")
	n, err := strconv.ParseUint(pages, 10, 64)
	if err != nil {
		return
	}
	limit := n*uint64(os.Getpagesize()) + readerMemory
	var now unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &now) == nil && limit < now.Cur {
		_ = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: limit, Max: min(limit, now.Max)})
	}
}

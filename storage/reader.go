package storage

import (
	"bufio"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// readerPatience is how long a reader may be silent while it is waited for: a
// damaged file can send a decoder round in circles.
var readerPatience = 2 * time.Minute

// A childReader is the parent's end of a reader's process: see readermain.go.
type childReader struct {
	cmd    *exec.Cmd
	stdin  io.Closer // its end tells the child to go
	pipe   *os.File
	rows   *gob.Decoder
	stderr stderrHead
	what   Info
	ended  bool

	reap func() error
}

// startReader begins to read an open file and waits for its description. The
// child gets a descriptor of its own.
func startReader(f *os.File, req readerRequest) (*childReader, error) {
	self := "/proc/self/exe" // this binary, even after its file was replaced
	if runtime.GOOS != "linux" {
		var err error
		if self, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("start the reader: %w", err)
		}
	}
	request, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("start the reader: %w", err)
	}
	from, to, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the reader: %w", err)
	}
	r := &childReader{pipe: from, rows: gob.NewDecoder(bufio.NewReaderSize(from, 1<<16))}
	r.cmd = exec.Command(self)
	r.cmd.Args = []string{"draftmill-dataset-reader"}
	r.cmd.Env = append(os.Environ(), readerEnv+"="+string(request), "GOTRACEBACK=none")
	r.cmd.ExtraFiles = []*os.File{f, to} // readerFile, readerRows
	r.cmd.Stderr = &r.stderr             // a panic's words are for the error line, not for the terminal
	if r.stdin, err = r.cmd.StdinPipe(); err == nil {
		err = r.cmd.Start()
	}
	_ = to.Close() // the child's alone now: its death must end the pipe
	if err != nil {
		_ = from.Close()
		return nil, fmt.Errorf("start the reader: %w", err)
	}
	r.reap = sync.OnceValue(r.cmd.Wait)
	m, err := r.receive()
	if err == nil && m.Info == nil {
		err = errors.New("the reader began without a description")
	}
	if err != nil {
		_ = r.close()
		return nil, err
	}
	r.what = *m.Info
	return r, nil
}

func (r *childReader) info() Info { return r.what }

func (r *childReader) next() (Row, error) {
	if r.ended {
		return Row{}, io.EOF
	}
	m, err := r.receive()
	switch {
	case err != nil:
		return Row{}, err
	case m.End:
		r.ended = true
		return Row{}, io.EOF
	case m.Row == nil:
		return Row{}, errors.New("the reader sent an empty message")
	}
	if !m.Row.Null && m.Row.Prompt == nil {
		m.Row.Prompt = []byte{} // gob does not tell nil from empty
	}
	return *m.Row, nil
}

// receive waits for the child's next message and turns whatever else happens
// to it into an error.
func (r *childReader) receive() (readerMessage, error) {
	silence := time.AfterFunc(readerPatience, func() { _ = r.cmd.Process.Kill() })
	var m readerMessage
	err := r.rows.Decode(&m)
	if !silence.Stop() {
		return m, fmt.Errorf("the reader was silent for %v: the file is damaged, or its disk does not answer", readerPatience)
	}
	switch {
	case err != nil:
		return m, r.death()
	case m.Error != "" && m.Intact:
		return m, errors.New(m.Error)
	case m.Error != "":
		return m, fmt.Errorf("it is damaged, or uses what the reader does not know: %s", m.Error)
	}
	return m, nil
}

// death says why the child ended without a word.
func (r *childReader) death() error {
	state := r.reap()
	words := r.stderr.String()
	if strings.Contains(words, "SIGXCPU") {
		return errors.New("it is damaged: reading it takes more time than any file of its size should")
	}
	if strings.Contains(words, "out of memory") || strings.Contains(words, "cannot allocate memory") {
		return fmt.Errorf("it is damaged, or a part of it needs more than %d GiB to read: write it with smaller row groups", readerMemory>>30)
	}
	for line := range strings.Lines(words) {
		for _, mark := range []string{"panic: ", "fatal error: "} {
			if what, ok := strings.CutPrefix(line, mark); ok {
				return fmt.Errorf("it is damaged: %s", oneLine(what))
			}
		}
	}
	return fmt.Errorf("the reader ended before the file did (%w)", state)
}

func (r *childReader) close() error {
	_ = r.stdin.Close()
	_ = r.cmd.Process.Kill()
	_ = r.pipe.Close()
	_ = r.reap() // its state is of no interest after a kill
	return nil
}

// A stderrHead keeps the beginning of what a child says before it dies.
type stderrHead struct {
	mu  sync.Mutex
	buf []byte
}

func (t *stderrHead) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := 8<<10 - len(t.buf); room > 0 {
		t.buf = append(t.buf, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

func (t *stderrHead) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

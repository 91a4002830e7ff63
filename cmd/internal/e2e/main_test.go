package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/draftmill/draftmill/storage"
)

var (
	root string // of the repository
	bin  string // where submit and worker were built
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if root, err = filepath.Abs("../../.."); err != nil {
			panic(err)
		}
		if bin, err = os.MkdirTemp("", "draftmill-e2e-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(bin)
		flag.Parse()
		if err := build("./cmd/submit", "./cmd/worker"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		if err := faults.write(code == 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// patience is how long is waited for what must come, on a machine of any speed.
const patience = 5 * time.Minute

// build builds programs into bin, by their own names. Arguments are go build's.
func build(args ...string) error { return buildAs("", args...) }

// buildAs builds one program under another name.
func buildAs(name string, args ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-o", bin + "/" + name}, args...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %v: %w\n%s", args, err, out)
	}
	return nil
}

// program is one run of a built program in the repository's root.
type program struct {
	*exec.Cmd
	stdout, stderr output
	done           chan struct{} // closed when it has ended
}

// output is what a program has written so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// Bytes is a copy.
func (o *output) Bytes() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.b.Bytes())
}

func (o *output) String() string { return string(o.Bytes()) }
func (o *output) Len() int       { return len(o.Bytes()) }

// command prepares a run. Its environment has no setting of draftmill's but
// the ones given as NAME=value in front of the arguments.
func command(name string, args ...string) *program {
	p := &program{Cmd: exec.Command(filepath.Join(bin, name)), done: make(chan struct{})}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "DRAFTMILL_") || strings.HasPrefix(e, "DRAFTMILL_ORT_LIBRARY=") {
			p.Env = append(p.Env, e)
		}
	}
	for len(args) > 0 && strings.HasPrefix(args[0], "DRAFTMILL_") {
		p.Env, args = append(p.Env, args[0]), args[1:]
	}
	p.Args = append(p.Args, args...)
	p.Dir, p.Stdout, p.Stderr = root, &p.stdout, &p.stderr
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that is timed out leaves nothing behind
	return p
}

// start runs the program beside the test, and ends it with the test.
func (p *program) start(t *testing.T) *program {
	t.Helper()
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.Wait() // the exit code is looked at in code
	}()
	t.Cleanup(func() {
		if err := p.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		<-p.done
	})
	return p
}

// code waits for the end and returns the exit code, -1 after a kill.
func (p *program) code(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
		return p.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("%v does not end:\n%s", p.Args, &p.stderr)
		return 0
	}
}

// run runs submit or worker to its end, which must be a success.
func run(t *testing.T, name string, args ...string) *program {
	t.Helper()
	p := command(name, args...).start(t)
	if code := p.code(t); code != 0 {
		t.Fatalf("%s %q exits with %d:\n%s", name, args, code, &p.stderr)
	}
	return p
}

// signal sends a signal and fails the test when the program has ended.
func (p *program) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatalf("signal %v: %v\n%s", s, err, &p.stderr)
	}
}

// until polls a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	within(t, patience, what, condition)
}

// within polls a condition for so long.
func within(t *testing.T, patience time.Duration, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// committed counts a job's committed shards.
func committed(t *testing.T, dir string) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "_shards", "mode=*", "part-*.json"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// tokens reads what a finished job decoded: each (mode, row, sample) once.
func tokens(t *testing.T, dir string) map[string][]int32 {
	t.Helper()
	job, err := storage.OpenJob(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !job.Done() {
		t.Fatalf("job %s is not done", dir)
	}
	plan, err := job.Plan()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]int32{}
	for _, mode := range plan.Modes {
		loops := map[string]int32{}
		if err := job.ReadLoops(mode, func(l storage.Loop) error {
			loops[fmt.Sprintf("%s %d/%d", mode, l.Row, l.Sample)] += l.Emitted
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := job.ReadCompletions(mode, func(c storage.Completion) error {
			key := fmt.Sprintf("%s %d/%d", mode, c.Row, c.Sample)
			if _, twice := all[key]; twice {
				t.Errorf("%s is there twice", key)
			}
			if loops[key] != c.CompletionTokens {
				t.Errorf("%s has %d tokens, its loops kept %d", key, c.CompletionTokens, loops[key])
			}
			all[key] = c.Tokens
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// same compares two jobs' tokens.
func same(t *testing.T, got, want map[string][]int32) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d completions, want %d", len(got), len(want))
	}
	for key, w := range want {
		if !slices.Equal(got[key], w) {
			t.Errorf("%s: tokens %v, undisturbed %v", key, got[key], w)
		}
	}
}

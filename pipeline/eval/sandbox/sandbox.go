package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

//go:embed judge.py
var judge string

// Verdicts of a program.
const (
	Passed  = "passed"
	Failed  = "failed"  // a test's assertion did not hold
	Error   = "error"   // it raised an exception, or is not Python
	Timeout = "timeout" // it was killed for its wall-clock or CPU time
	Memory  = "memory"  // it asked for more memory than it may have
	Crashed = "crashed" // its process ended otherwise, by exit or by a signal
)

// Program is what is run and judged.
type Program struct {
	Code       string // the whole module that defines EntryPoint
	Prompt     string // what Code was to continue; the tests may use its helpers. May be empty
	Tests      string // defines check(candidate), or asserts by itself
	EntryPoint string // the function under test
}

// Limits bound one program with all that it starts.
type Limits struct {
	Wall      time.Duration // from the sandbox's start
	Memory    int64         // bytes
	Processes int
	Disk      int64 // bytes, of all files together and of each
}

// DefaultLimits are those of a scored program but for Wall, which is scaled by
// the time of the canonical solution.
var DefaultLimits = Limits{Wall: 10 * time.Second, Memory: 1 << 30, Processes: 16, Disk: 64 << 20}

// Result is what became of a program.
type Result struct {
	Verdict string
	Detail  string        // one line: the exception, or the failed assertion's message
	Wall    time.Duration // the sandbox's start included
}

// Sandbox runs programs, up to its number of slots at a time.
type Sandbox struct {
	python string
	bwrap  string // empty: none
	mounts []string
	root   bool
	slots  chan *slot
	all    []*slot
	cage   string // what holds memory and processes, for people
}

// slot is what one running program has to itself.
type slot struct {
	number int
	group  *cgroup // nil: none
}

// ErrNoSandbox is why [Open] refuses.
var ErrNoSandbox = errors.New("no sandbox")

// Open finds Python and bubblewrap, tries them, and makes cgroups where it may.
// The error wraps [ErrNoSandbox] where programs could not be shut in. Close it.
func Open(ctx context.Context, slots int) (*Sandbox, error) {
	s, err := open(ctx, slots)
	if err != nil {
		return nil, err
	}
	if s.bwrap, err = exec.LookPath("bwrap"); err != nil {
		return nil, fmt.Errorf("%w: bubblewrap is not installed (Debian, Ubuntu, Fedora: package bubblewrap); --unsafe-no-sandbox runs generated code without one", ErrNoSandbox)
	}
	for _, n := range s.all {
		group, err := newGroup(n.number)
		if err != nil {
			break // limits of the process alone; Cage says so
		}
		n.group = group
	}
	s.cage = "rlimits"
	if g := s.all[len(s.all)-1].group; g != nil {
		s.cage = "rlimits and " + g.kind()
	} else {
		s.closeGroups()
	}
	if err := s.try(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("%w: bubblewrap does not work here (%w); allow user namespaces, or run as root; --unsafe-no-sandbox runs generated code without one", ErrNoSandbox, err)
	}
	return s, nil
}

// OpenUnsafe runs programs as this user, with rlimits alone: for machines that
// are themselves thrown away.
func OpenUnsafe(ctx context.Context, slots int) (*Sandbox, error) {
	s, err := open(ctx, slots)
	if err != nil {
		return nil, err
	}
	s.cage = "rlimits, no sandbox"
	return s, s.try(ctx)
}

func open(ctx context.Context, slots int) (*Sandbox, error) {
	s := &Sandbox{root: os.Geteuid() == 0, slots: make(chan *slot, slots)}
	for n := range slots {
		s.all = append(s.all, &slot{number: n})
		s.slots <- s.all[n]
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return nil, fmt.Errorf("run generated Python: python3 is not on the PATH: install Python 3.11 or later")
	}
	// The interpreter itself: what is on the PATH may be a shim or an environment.
	out, err := exec.CommandContext(ctx, python, "-I", "-S", "-c", `import sys, os
if sys.version_info < (3, 11): sys.exit("python3 is %d.%d: want 3.11 or later" % sys.version_info[:2])
base = getattr(sys, "_base_executable", None) or sys.executable
print(os.path.realpath(base)); print(os.path.realpath(sys.base_prefix))`).Output()
	if err != nil {
		return nil, fmt.Errorf("run generated Python: %s: %s", python, lastLine(errorText(err)))
	}
	executable, prefix, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	s.python = executable
	s.mounts = mounts(prefix)
	return s, nil
}

// mounts are bubblewrap's arguments for what programs see of the machine.
func mounts(prefix string) []string {
	args := []string{"--ro-bind", "/usr", "/usr"}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64"} {
		info, err := os.Lstat(dir)
		switch {
		case err != nil:
		case info.Mode()&os.ModeSymlink != 0:
			if to, err := os.Readlink(dir); err == nil {
				args = append(args, "--symlink", to, dir)
			}
		default:
			args = append(args, "--ro-bind", dir, dir)
		}
	}
	if prefix != "/usr" && !strings.HasPrefix(prefix, "/usr/") {
		for i, c := range prefix { // its parents, which bubblewrap would make for root alone
			if c == '/' && i > 0 {
				args = append(args, "--perms", "0755", "--dir", prefix[:i])
			}
		}
		args = append(args, "--ro-bind", prefix, prefix)
	}
	return append(args, "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache", "--ro-bind-try", "/nix/store", "/nix/store")
}

// Cage says in a few words what holds the programs.
func (s *Sandbox) Cage() string {
	if s.bwrap == "" {
		return s.cage
	}
	return "bubblewrap, " + s.cage
}

// Python is the interpreter that runs the programs.
func (s *Sandbox) Python() string { return s.python }

// Slots is how many programs run at a time.
func (s *Sandbox) Slots() int { return cap(s.slots) }

// Close removes the cgroups. No program may be running.
func (s *Sandbox) Close() { s.closeGroups() }

func (s *Sandbox) closeGroups() {
	for _, n := range s.all {
		if n.group != nil {
			n.group.remove()
			n.group = nil
		}
	}
}

// try runs a program that passes.
func (s *Sandbox) try(ctx context.Context) error {
	r, stderr, err := s.run(ctx, Program{Code: "def f(x):\n    return x + 1\n", Tests: "assert f(1) == 2\n", EntryPoint: "f"}, DefaultLimits)
	if err == nil && r.Verdict != Passed {
		err = errors.New(lastLine(r.Verdict + " " + r.Detail + " " + stderr))
	}
	return err
}

// Run runs a program and waits for it and everything that it started. The error
// is the sandbox's or ctx's, never the program's.
func (s *Sandbox) Run(ctx context.Context, p Program, l Limits) (Result, error) {
	r, _, err := s.run(ctx, p, l)
	return r, err
}

func (s *Sandbox) run(ctx context.Context, p Program, l Limits) (r Result, stderr string, err error) {
	var n *slot
	select {
	case n = <-s.slots:
	case <-ctx.Done():
		return r, "", ctx.Err()
	}
	defer func() { s.slots <- n }()
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // never fails
	nonce := hex.EncodeToString(secret[:])

	var dir string
	if s.bwrap == "" {
		if dir, err = os.MkdirTemp("", "draftmill-program-"); err != nil {
			return r, "", fmt.Errorf("run a program: %w", err)
		}
		defer os.RemoveAll(dir)
	}
	said, verdict, err := os.Pipe()
	if err != nil {
		return r, "", fmt.Errorf("run a program: %w", err)
	}
	defer said.Close()
	about, info, err := os.Pipe()
	if err != nil {
		return r, "", fmt.Errorf("run a program: %w", err)
	}
	defer about.Close()
	cmd := exec.Command(s.command(n, l)[0], s.command(n, l)[1:]...) //nolint:noctx // ended by kill below, which waits for all of it
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/tmp", "PYTHONHASHSEED=0"}
	cmd.Stdin = input(p, nonce)
	var words tail
	cmd.Stderr = &words
	cmd.ExtraFiles = []*os.File{verdict, info} // 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // what holds our pipes open after the end has no more to say

	kills := n.group.kills()
	began := time.Now()
	err = cmd.Start()
	_ = errors.Join(verdict.Close(), info.Close())
	if err != nil {
		return r, "", fmt.Errorf("run a program: %w", err)
	}
	late := false
	ended := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		wall := time.NewTimer(l.Wall)
		defer wall.Stop()
		select {
		case <-ended:
			return
		case <-wall.C:
			late = true
		case <-ctx.Done():
		}
		s.end(cmd.Process.Pid, about)
		n.group.kill()
	}()
	line, _ := io.ReadAll(io.LimitReader(said, 4096)) // ends with the judge, or with the kill
	if s.bwrap == "" {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what the program left behind
	}
	_ = cmd.Wait() // the exit status says nothing that the verdict does not
	close(ended)
	<-stopped
	r.Wall = time.Since(began)
	if err := n.group.empty(); err != nil {
		return r, "", err
	}
	if err := ctx.Err(); err != nil {
		return r, "", err
	}
	r.Verdict, r.Detail = Crashed, "the judge's process ended"
	if told, ok := strings.CutPrefix(string(line), nonce+" "); ok {
		r.Verdict, r.Detail, _ = strings.Cut(told, " ")
		r.Detail = firstLine(r.Detail)
	}
	switch {
	case r.Verdict == Passed:
	case late:
		r.Verdict, r.Detail = Timeout, fmt.Sprintf("killed after %v", l.Wall.Round(10*time.Millisecond))
	case n.group.kills() > kills:
		r.Verdict, r.Detail = Memory, fmt.Sprintf("killed: more than %d MiB", l.Memory>>20)
	}
	return r, words.String(), nil
}

// end kills all that a run has started. The first process of the namespace goes
// first: when its parent, bubblewrap, has seen it end, no other is left, which
// could not be said if the parent were killed.
func (s *Sandbox) end(pid int, about *os.File) {
	if s.bwrap != "" {
		var info struct {
			Child int `json:"child-pid"`
		}
		_ = about.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if err := json.NewDecoder(about).Decode(&info); err == nil && info.Child > 1 && syscall.Kill(info.Child, syscall.SIGKILL) == nil {
			return
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
}

// uids of programs and their judges where this process is root: two for each
// slot, which no user of a machine should have.
const firstUID = 61184

// command is the command line of one run.
func (s *Sandbox) command(n *slot, l Limits) []string {
	var args []string
	judgeUID, programUID := 0, 0
	if n.group != nil { // a shell that enters the cgroups and becomes what follows
		args = append(args, "/bin/sh", "-c", `n=$1; shift; while [ $n -gt 0 ]; do echo 0 > "$1" || exit 125; shift; n=$((n-1)); done; exec "$@"`, "sh")
		files := n.group.enter(l)
		args = append(args, strconv.Itoa(len(files)))
		args = append(args, files...)
	}
	if s.bwrap != "" {
		args = append(args, s.bwrap, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
			"--die-with-parent", "--new-session", "--as-pid-1", "--info-fd", "4", "--hostname", "sandbox", "--cap-drop", "ALL")
		if s.root {
			// Root of the machine takes users of its own, whom limits of processes bind
			// and who own nothing. The capabilities end with the change of user.
			judgeUID, programUID = firstUID+2*n.number, firstUID+2*n.number+1
			args = append(args, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
		} else {
			args = append(args, "--unshare-user", "--uid", "65534", "--gid", "65534")
		}
		args = append(args, s.mounts...)
		args = append(args, "--dev", "/dev", "--remount-ro", "/dev", "--perms", "1777", "--size", strconv.FormatInt(l.Disk, 10), "--tmpfs", "/tmp",
			"--chdir", "/tmp", "--remount-ro", "/", "--")
	}
	seconds := int(l.Wall/time.Second) + 2
	return append(args, s.python, "-s", "-S", "-B", "-c", judge,
		strconv.Itoa(judgeUID), strconv.Itoa(programUID), strconv.FormatInt(l.Memory, 10), strconv.Itoa(l.Processes), strconv.FormatInt(l.Disk, 10), strconv.Itoa(seconds))
}

// input is what the judge reads, in its order.
func input(p Program, nonce string) io.Reader {
	var b bytes.Buffer
	for _, field := range []string{p.Code, p.EntryPoint, p.Prompt, p.Tests, p.EntryPoint, nonce} {
		fmt.Fprintf(&b, "%d\n%s", len(field), field)
	}
	return &b
}

// tail keeps the last bytes of a stream.
type tail struct{ buf []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if n := len(t.buf) - 4096; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.buf) }

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD")), "\n")
	return s
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// errorText is what a failed command said, or else its error.
func errorText(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		return string(exit.Stderr)
	}
	return err.Error()
}

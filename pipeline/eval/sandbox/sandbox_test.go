package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// opened is a sandbox for one test. Without bubblewrap a test is skipped, but
// not in continuous integration.
func opened(t *testing.T, slots int) *Sandbox {
	t.Helper()
	s, err := Open(t.Context(), slots)
	if errors.Is(err, ErrNoSandbox) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

const double = "\n\ndef check(candidate):\n    assert candidate(2) == 4, 'two'\n    assert candidate(0) == 0, 'none'\n"

func limits() Limits {
	l := DefaultLimits
	l.Wall = time.Minute // of a machine that is slow
	l.Memory = 256 << 20
	return l
}

func TestVerdicts(t *testing.T) {
	s := opened(t, 2)
	t.Log(s.Cage())
	for _, c := range []struct{ name, code, verdict, detail string }{
		{"right", "def f(x):\n    return 2 * x\n", Passed, ""},
		{"wrong", "def f(x):\n    return x * x + 1\n", Failed, "two"},
		{"wrong later", "def f(x):\n    return x + 2\n", Failed, "none"},
		{"raises", "def f(x):\n    return x[0]\n", Error, "TypeError: 'int' object is not subscriptable"},
		{"no Python", "def f(x):\n  return )\n", Error, "SyntaxError"},
		{"another name", "def g(x):\n    return 2 * x\n", Error, "KeyError: 'f'"},
		{"endless", "def f(x):\n    while True: pass\n", Timeout, "killed after"},
		{"endless at once", "while True: pass\n", Timeout, "killed after"},
		{"sleeps", "import time\ntime.sleep(100)\n", Timeout, "killed after"},
		{"recursion", "def f(x):\n    return f(x)\n", Error, "RecursionError"},
		{"memory", "def f(x):\n    return len(bytearray(10 << 30))\n", Memory, "MemoryError"},
		{"exits", "import os\ndef f(x):\n    os._exit(0)\n", Crashed, "ended"},
		{"fault", "import os, signal\ndef f(x):\n    os.kill(os.getpid(), signal.SIGSEGV)\n", Crashed, "ended"},
		{"no answer that can be compared", "def f(x):\n    return f\n", Error, "cannot be compared"},
		{"subclass of a plain value", "class N(int): pass\ndef f(x):\n    return N(2 * x)\n", Passed, ""},
		{"prints", "def f(x):\n    print('passed' * 100000)\n    return 2 * x\n", Passed, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := limits()
			if c.verdict == Timeout {
				l.Wall = 500 * time.Millisecond
			}
			r, err := s.Run(t.Context(), Program{Code: c.code, Tests: double, EntryPoint: "f"}, l)
			if err != nil {
				t.Fatal(err)
			}
			if r.Verdict != c.verdict || !strings.Contains(r.Detail, c.detail) {
				t.Errorf("%s (%s), want %s (%s)", r.Verdict, r.Detail, c.verdict, c.detail)
			}
		})
	}
}

// TestPlainValuesPassBothWays: what the tests hand over and get back is equal
// to what it was.
func TestPlainValuesPassBothWays(t *testing.T) {
	s := opened(t, 1)
	tests := `
values = [None, True, 3, 10**40, -2.5, float("inf"), 1j, "text", "\ud800", b"b", [1, [2]], (1, (2,)), {1, 2}, frozenset([3]), {"a": {1: [2]}}, ...]
def check(candidate):
    for v in values:
        got = candidate(v)
        assert got == v and type(got) is type(v), repr(v)
    assert candidate(v=7) == 7
    changed = [3, 1, 2]
    candidate(changed)
    assert changed == [1, 2, 3]
    try:
        candidate("raise")
    except ValueError as e:
        assert str(e) == "no"
    else:
        assert False, "no exception"
`
	code := "def f(v):\n    if v == 'raise':\n        raise ValueError('no')\n    if isinstance(v, list) and len(v) == 3:\n        v.sort()\n    return v\n"
	r, err := s.Run(t.Context(), Program{Code: code, Tests: tests, EntryPoint: "f"}, limits())
	if err != nil || r.Verdict != Passed {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestHelpersOfThePrompt: tests may call what the prompt defines beside the
// function, as HumanEval/32 does, and may be without a function check.
func TestHelpersOfThePrompt(t *testing.T) {
	s := opened(t, 1)
	prompt := "def half(x):\n    return x / 2\n\n\ndef f(x):\n    \"\"\"Doubles.\"\"\"\n"
	for _, tests := range []string{"def check(candidate):\n    assert half(candidate(3)) == 3\n", "assert half(f(3)) == 3\n"} {
		r, err := s.Run(t.Context(), Program{Code: prompt + "    return 2 * x\n", Prompt: prompt, Tests: tests, EntryPoint: "f"}, limits())
		if err != nil || r.Verdict != Passed {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// forgeries are programs that do not double and try to pass all the same.
var forgeries = map[string]string{
	"exit before the tests":   "import sys\nsys.exit(0)\n",
	"exit in the function":    "import os\ndef f(x):\n    os._exit(0)\n",
	"equal to everything":     "class E(int):\n    def __eq__(self, o): return True\n    __hash__ = None\ndef f(x):\n    return E(7)\n",
	"own check":               "def check(candidate): pass\ndef f(x): return 7\n",
	"patched builtins":        "import builtins\nbuiltins.AssertionError = None\nbuiltins.__build_class__ = None\nbuiltins.abs = builtins.len = lambda *a: 0\ndef f(x): return 7\n",
	"the judge's frames":      "import sys\nfr = sys._getframe()\nwhile fr:\n    for k in list(fr.f_globals):\n        if k in ('judge', 'field', 'exception', 'Gone'): fr.f_globals[k] = lambda *a: ('passed', '', '')\n    fr = fr.f_back\ndef f(x): return 7\n",
	"verdict on all files":    "import os\nfor fd in range(64):\n    try: os.write(fd, b'x passed ')\n    except OSError: pass\ndef f(x): return 7\n",
	"reply in the tests' way": "import os, marshal\nd = marshal.dumps(('ready',), 2)\nfor fd in range(64):\n    for _ in range(9):\n        try: os.write(fd, len(d).to_bytes(8, 'little') + d)\n        except OSError: pass\ndef f(x): return 7\n",
	"attach to the judge":     "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nfor pid in (1, 2, 3, os.getppid()):\n    assert libc.ptrace(16, pid, 0, 0) == -1\ndef f(x): return 7\n",
	"kill the judge":          "import os, signal\nfor pid in (os.getppid(), 1, -1):\n    try: os.kill(pid, signal.SIGKILL)\n    except OSError: pass\ndef f(x): return 7\n",
	"huge reply":              "import os\nfor fd in range(64):\n    try: os.write(fd, b'\\xff' * 8)\n    except OSError: pass\ndef f(x): return 7\n",
	"endless trace":           "import sys\nsys.settrace(lambda *a: None)\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)\n",
}

func TestNoForgeryPasses(t *testing.T) {
	s := opened(t, 1)
	for name, code := range forgeries {
		t.Run(name, func(t *testing.T) {
			l := limits()
			l.Wall = 3 * time.Second
			r, err := s.Run(t.Context(), Program{Code: code, Tests: double, EntryPoint: "f"}, l)
			if err != nil {
				t.Fatal(err)
			}
			if r.Verdict == Passed {
				t.Errorf("passed")
			}
			t.Log(r.Verdict, r.Detail)
		})
	}
}

// TestNoEscape: programs try to get out, and say in their answer how far they
// got; the tests expect that they got nowhere. Nothing of them is left.
func TestNoEscape(t *testing.T) {
	s := opened(t, 1)
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	if err := os.Chmod(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	held := "1" // seconds for which a process holds its memory; for ever where they are counted together
	if s.all[0].group != nil {
		held = "1000"
	}

	for _, c := range []struct{ name, body, answer string }{
		{"socket", fmt.Sprintf("import socket\n    try: socket.create_connection(('127.0.0.1', %d), 1); return 'connected'\n    except OSError as e: return 'no'", port), "'no'"},
		{"name lookup", "import socket\n    try: socket.getaddrinfo('localhost', 80); socket.create_connection(('1.1.1.1', 53), 1); return 'connected'\n    except OSError as e: return 'no'", "'no'"},
		{"home", fmt.Sprintf("import os\n    try: return sorted(f for f in os.listdir(%q) if f != '.pyenv')\n    except OSError: return []", home), "[]"},
		{"password file", "import os\n    return [p for p in ('/etc/passwd', '/etc/shadow', '/root/.ssh', '/sys', '/proc/self') if os.path.exists(p)]", "[]"},
		{"write outside", fmt.Sprintf("import os\n    done = []\n    for p in (%q, '/', '/usr', '/etc', '/dev', '/dev/shm', os.path.dirname(os.__file__), '/var', '/run'):\n        try:\n            os.makedirs(p, exist_ok=True)\n            open(os.path.join(p, 'draftmill-escape'), 'w').write('x')\n            if not p.startswith('/tmp/'): done.append(p)\n        except OSError: pass\n    return done", outside), "[]"},
		{"fill the disk", "n = 0\n    try:\n        for i in range(40):\n            with open(f'/tmp/{i}', 'wb') as f:\n                for _ in range(16): n += f.write(bytes(1 << 20))\n    except OSError: pass\n    return n <= 65 << 20", "True"},
		{"fork bomb", "import os, time\n    n = 0\n    for _ in range(10000):\n        try:\n            if os.fork() == 0:\n                while True:\n                    try:\n                        os.fork()\n                    except OSError: time.sleep(0.01)\n        except OSError: break\n        n += 1\n    return n < 100", "True"},
		{"threads", "import threading, time\n    n = 0\n    try:\n        for _ in range(10000): threading.Thread(target=time.sleep, args=(9,), daemon=True).start(); n += 1\n    except RuntimeError: pass\n    return n < 100", "True"},
		{"become root", "import os\n    done = []\n    for name in ('setuid', 'setgid', 'seteuid'):\n        try: getattr(os, name)(0); done.append(name)\n        except OSError: pass\n    return done + [os.getuid() == 0]", "[False]"},
		{"mount and chroot", "import os, ctypes\n    libc = ctypes.CDLL(None)\n    done = []\n    try: os.chroot('/tmp'); done.append('chroot')\n    except OSError: pass\n    if libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0: done.append('mount')\n    if libc.umount2(b'/tmp', 2) == 0: done.append('umount')\n    return done", "[]"},
		{"left behind", "import os, time\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            time.sleep(1000)\n        os._exit(0)\n    return 1", "1"},
		{"ignore SIGTERM", "import signal, time\n    for n in range(1, 65):\n        try: signal.signal(n, signal.SIG_IGN)\n        except (OSError, ValueError): pass\n    while True: time.sleep(1)", "timeout"},
		{"memory of many processes", "import os, time\n    for _ in range(8):\n        if os.fork() == 0:\n            a = bytearray(150 << 20)\n            for i in range(0, len(a), 4096): a[i] = 1\n            time.sleep(" + held + "); os._exit(0)\n    assert not any(os.wait()[1] for _ in range(8))", "any"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mark := "draftmill-escape-" + strconv.Itoa(os.Getpid()) + "-" + strings.ReplaceAll(c.name, " ", "-")
			code := "MARK = " + strconv.Quote(mark) + "\ndef f():\n    " + c.body + "\n"
			tests := "def check(candidate):\n    got = candidate()\n    assert got == " + c.answer + ", repr(got)\n"
			l := limits()
			switch c.answer {
			case "timeout":
				l.Wall, tests = time.Second, "def check(candidate):\n    candidate()\n"
			case "any":
				tests = "def check(candidate):\n    candidate()\n"
			}
			r, err := s.Run(t.Context(), Program{Code: code, Tests: tests, EntryPoint: "f"}, l)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(r.Verdict, r.Detail, r.Wall)
			switch {
			case c.answer == "timeout":
				if r.Verdict != Timeout {
					t.Errorf("%s (%s), want a timeout", r.Verdict, r.Detail)
				}
			case c.answer == "any":
				if s.all[0].group != nil && r.Verdict != Memory {
					t.Errorf("%s (%s), want memory", r.Verdict, r.Detail)
				}
			case r.Verdict != Passed:
				t.Errorf("%s: %s", r.Verdict, r.Detail)
			}
			if left := leftovers(t); len(left) > 0 {
				t.Errorf("processes left behind: %v", left)
			}
			if found, _ := filepath.Glob(filepath.Join(outside, "*")); len(found) > 0 {
				t.Errorf("written outside: %v", found)
			}
		})
	}
}

// leftovers are processes that still run a judge. One that was killed is gone in a moment, which is waited for.
func leftovers(t *testing.T) []string {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		left := judges()
		if len(left) == 0 {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			return left
		}
	}
}

// judges are the lines of the process table of those that run one.
func judges() []string {
	var left []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !strings.Contains(string(line), "Runs one generated program against its tests") {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join(dir, "stat"))
		left = append(left, string(environ))
	}
	return left
}

// TestManyAtOnce: slots do not meet, and there are no more at a time than
// slots.
func TestManyAtOnce(t *testing.T) {
	s := opened(t, 3)
	results := make(chan string, 12)
	for n := range 12 {
		go func() {
			code := fmt.Sprintf("import os\nopen('/tmp/mine', 'x').write('%d')\ndef f(x): return 2 * x\n", n)
			r, err := s.Run(context.Background(), Program{Code: code, Tests: double, EntryPoint: "f"}, limits())
			results <- fmt.Sprint(r.Verdict, r.Detail, err)
		}()
	}
	for range 12 {
		if got := <-results; got != "passed<nil>" {
			t.Error(got)
		}
	}
}

func TestCancelled(t *testing.T) {
	s := opened(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := s.Run(ctx, Program{Code: "import time\ntime.sleep(60)\n", Tests: double, EntryPoint: "f"}, limits())
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("processes left behind: %v", left)
	}
}

func TestWithoutBubblewrapItRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/usr/bin/true", filepath.Join(dir, "nothing")); err != nil {
		t.Fatal(err)
	}
	python, err := open(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(python.Python(), filepath.Join(dir, "python3")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	if _, err := Open(t.Context(), 1); !errors.Is(err, ErrNoSandbox) || !strings.Contains(err.Error(), "--unsafe-no-sandbox") {
		t.Errorf("error %v", err)
	}
	s, err := OpenUnsafe(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for code, want := range map[string]string{"def f(x): return 2 * x\n": Passed, "def f(x): return 5\n": Failed, "import time\ntime.sleep(60)\n": Timeout} {
		l := limits()
		if want == Timeout {
			l.Wall = 2 * time.Second
		}
		if r, err := s.Run(t.Context(), Program{Code: code, Tests: double, EntryPoint: "f"}, l); err != nil || r.Verdict != want {
			t.Errorf("%q: %+v, %v", code, r, err)
		}
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("processes left behind: %v", left)
	}
}

// TestGroupsOfBothVersions: the folders and files of cgroups, on a stand-in for
// the file system.
func TestGroupsOfBothVersions(t *testing.T) {
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	v2 := t.TempDir()
	write(filepath.Join(v2, "cgroup.controllers"), "cpu memory pids\n")
	write(filepath.Join(v2, "user.slice", "cgroup.subtree_control"), "memory pids\n")
	g, err := newGroupAt(v2, "0::/user.slice\n", "x")
	if err != nil {
		t.Fatal(err)
	}
	files := g.enter(Limits{Memory: 100, Processes: 10})
	if want := []string{filepath.Join(v2, "user.slice", "x", "cgroup.procs")}; !slices.Equal(files, want) {
		t.Errorf("joins by %v", files)
	}
	write(filepath.Join(v2, "user.slice", "x", "memory.events"), "low 0\noom 3\noom_kill 2\n")
	max, _ := os.ReadFile(filepath.Join(v2, "user.slice", "x", "pids.max"))
	if g.kills() != 2 || string(max) != "14" {
		t.Errorf("%d kills, pids.max %s", g.kills(), max)
	}

	v1 := t.TempDir()
	for _, dir := range []string{"memory/a", "pids"} {
		if err := os.MkdirAll(filepath.Join(v1, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if g, err = newGroupAt(v1, "4:memory:/a\n8:pids:/b\n0::/\n", "x"); err != nil {
		t.Fatal(err)
	}
	if g.memory != filepath.Join(v1, "memory/a/x") || g.pids != filepath.Join(v1, "pids/x") {
		t.Errorf("%+v", g)
	}
	if _, err := newGroupAt(t.TempDir(), "0::/\n", "x"); err == nil {
		t.Error("a group was made of nothing")
	}
}

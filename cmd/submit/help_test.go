package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/pipeline/queue"
	"github.com/draftmill/draftmill/storage"
)

// commands are all that a user can name, by their path, root included.
func commands(of *cobra.Command) map[string]*cobra.Command {
	all := map[string]*cobra.Command{of.CommandPath(): of}
	for _, c := range of.Commands() {
		for path, one := range commands(c) {
			all[path] = one
		}
	}
	return all
}

// called runs submit as main does.
func called(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, err bytes.Buffer
	cmd := command()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&err)
	code = app.Execute(cmd)
	return out.String(), err.String(), code
}

// fits reports lines that a terminal of 80 columns breaks.
func fits(t *testing.T, what, text string) {
	t.Helper()
	if text == "" {
		t.Errorf("%s prints nothing", what)
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); len([]rune(line)) > 80 {
			t.Errorf("%s: %d columns: %s", what, len([]rune(line)), line)
		}
	}
}

// TestHelp: every command says what it does, with examples, its exit codes and,
// where it prints results, --json; in 80 columns.
func TestHelp(t *testing.T) {
	silent := []string{"submit export", "submit serve", "submit setup"} // print files, a page and a path
	for path, c := range commands(command()) {
		text, _, code := called(t, append(strings.Fields(path)[1:], "--help")...)
		if code != 0 {
			t.Errorf("%s --help exits with %d", path, code)
		}
		fits(t, path+" --help", text)
		for _, wanted := range []string{"Examples:\n  ", "Exit codes: 0 done; 1 something failed"} {
			if !strings.Contains(text, wanted) {
				t.Errorf("%s --help lacks %q", path, wanted)
			}
		}
		if !strings.HasPrefix(strings.TrimSpace(c.Example), "submit ") {
			t.Errorf("%s has the example %q", path, c.Example)
		}
		if f := c.Flags().Lookup("json"); (f == nil || f.Hidden) != slices.Contains(silent, path) {
			t.Errorf("%s: --json is %+v", path, f)
		}
	}
}

// TestCompletion: scripts for the shells, and the names of what can follow.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if script, _, code := called(t, "completion", shell); code != 0 || !strings.Contains(script, "__complete") {
			t.Errorf("%s: exit code %d, %d bytes", shell, code, len(script))
		}
	}
	for _, c := range []struct{ args, want string }{{"rep", "report"}, {"report --html x.html --js", "--json"}, {"--mod", "--mode"}} {
		words := strings.Fields(c.args)
		if out, _, _ := called(t, append([]string{"__complete"}, words...)...); !strings.Contains(out, c.want) {
			t.Errorf("%s: %s", c.args, out)
		}
	}
	out := t.TempDir()
	for _, name := range []string{"first", "second"} {
		if _, err := storage.CreateJob(out, name, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if names, _, _ := called(t, "__complete", "report", "--out", out, "s"); !strings.HasPrefix(names, "second\n:") {
		t.Errorf("jobs: %s", names)
	}
	if out, _, _ := called(t, "__complete", "--mode", ""); !strings.Contains(out, "ars\n") {
		t.Errorf("values of --mode: %s", out)
	}
}

// TestExitCodes are the ones that help states.
func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"plan", "--alpha", "0.8", "--c", "0.1"}, 0},
		{[]string{"inspect", t.TempDir()}, 1},
		{[]string{"inspect"}, 2},
		{[]string{"plan", "--alpha", "2", "--c", "0.1"}, 2},
		{[]string{"plan", "--no-such-flag"}, 2},
		{[]string{"report", "no-such-job"}, 2},
		{[]string{"serve", "no-such-job", "--addr", "0.0.0.0:80"}, 2},
	} {
		if _, stderr, code := called(t, c.args...); code != c.code {
			t.Errorf("submit %q exits with %d, not %d: %s", c.args, code, c.code, stderr)
		}
	}
}

// TestTablesFitATerminal: what needs no job; the end-to-end tests have the rest.
func TestTablesFitATerminal(t *testing.T) {
	for _, args := range [][]string{
		{"plan", "--alpha", "0.8", "--c", "0.1", "--k-max", "64"},
		{"plan", "--alpha", "0.01", "--c", "3"},
		{"inspect", demo + "target", "--draft", demo + "draft"},
	} {
		out, stderr, code := called(t, args...)
		if code != 0 {
			t.Errorf("%q: %s", args, stderr)
		}
		fits(t, strings.Join(args, " "), out)
		if strings.Contains(out+stderr, "\x1b[") {
			t.Errorf("%q: colours where no terminal is", args)
		}
		asJSON, _, _ := called(t, append(args, "--json")...)
		if !json.Valid([]byte(asJSON)) {
			t.Errorf("%q --json: %s", args, asJSON)
		}
	}
}

// TestStatusFitsATerminal: with names as long as they may be.
func TestStatusFitsATerminal(t *testing.T) {
	name := strings.Repeat("n", 64)
	list := []jobStatus{
		{JobState: queue.JobState{Scope: name + "/0123456789ab-0123456789ab", Queued: 12345, Dead: 12}, Committed: map[string]int{"ars": 99999, "sps": 99999}, Shards: 100000, State: "not queued"},
		{JobState: queue.JobState{Scope: "short/0123456789ab-0123456789ab", Queued: 1}, State: "queued"},
	}
	var out bytes.Buffer
	r := jobRequest{stdout: &out}
	if err := r.print(list); err != nil {
		t.Fatal(err)
	}
	fits(t, "status", out.String())
	for _, wanted := range []string{"committed ars 99999/100000, sps 99999/100000\n  queued 12345, in hand 0, set aside 12; priority 0", "run 0123456789ab-0123456789ab", "short: queued"} {
		if !strings.Contains(out.String(), wanted) {
			t.Errorf("no %q in\n%s", wanted, &out)
		}
	}
}

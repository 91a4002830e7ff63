//go:build python

package hub

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// script fetches a file of a repository, or finds it in the cache, and prints its
// path.
const script = `
import sys
from huggingface_hub import hf_hub_download
for name in sys.argv[2:]:
    print(hf_hub_download(sys.argv[1], name))
`

// TestPythonSharesTheCache: what this package has fetched huggingface_hub finds
// offline, under the same paths, and the other way round. PYTHON names an
// interpreter that has huggingface_hub (.ci/hub.sh makes one).
func TestPythonSharesTheCache(t *testing.T) {
	s, ours, _ := fixture(t)
	files := []string{large, "config.json", "sub/empty"}
	python := func(cache, offline string) []string {
		t.Helper()
		cmd := exec.Command(os.Getenv("PYTHON"), append([]string{"-c", script, "owner/repo"}, files...)...)
		cmd.Env = append(os.Environ(), "HF_ENDPOINT="+s.URL, "HF_HUB_CACHE="+cache, "HF_HUB_OFFLINE="+offline, "HF_HOME="+t.TempDir())
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, err.(*exec.ExitError).Stderr) //nolint:errorlint // Output's own
		}
		return strings.Fields(string(out))
	}
	agree := func(got []string, dir string) {
		t.Helper()
		for i, file := range files {
			if i >= len(got) || got[i] != dir+"/"+file {
				t.Errorf("python has %q, want %s in %s", got, file, dir)
			}
		}
	}
	r := fetch(t, s, ours, "hf:owner/repo", files...)
	agree(python(ours.Cache, "1"), r.Dir())

	theirs := &Hub{Endpoint: s.URL, Cache: t.TempDir(), Offline: true}
	found := python(theirs.Cache, "0")
	s.Requests()
	agree(found, fetch(t, s, theirs, "hf:owner/repo", files...).Dir())
	if asked := s.Requests(); len(asked) > 0 {
		t.Errorf("offline, and asked for %q", asked)
	}
	// Online again, neither fetches what the other has.
	theirs.Offline = false
	fetch(t, s, theirs, "hf:owner/repo", files...)
	python(ours.Cache, "0")
	for _, line := range s.Requests() {
		if strings.HasPrefix(line, "GET /") && !strings.HasPrefix(line, "GET /api/") {
			t.Errorf("fetched again: %s", line)
		}
	}
}

package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/draftmill/draftmill/storage/hub/hubtest"
)

const (
	repoKey = "models/owner/repo"
	large   = "model.safetensors"
)

// fixture is a server with one repository of a large and a small file, and a Hub
// that notes its pauses in place of taking them.
func fixture(t *testing.T) (*hubtest.Server, *Hub, *[]time.Duration) {
	s := hubtest.New(t)
	rng := rand.New(rand.NewPCG(1, 2))
	weights := make([]byte, 300_000)
	for i := range weights {
		weights[i] = byte(rng.Uint32())
	}
	s.Add(repoKey, map[string][]byte{large: weights, "config.json": []byte(`{"a":1}`), "sub/empty": {}}, large)
	var mu sync.Mutex
	pauses := &[]time.Duration{}
	h := &Hub{Endpoint: s.URL, Cache: t.TempDir(), pause: func(ctx context.Context, d time.Duration) error {
		mu.Lock()
		defer mu.Unlock()
		*pauses = append(*pauses, d)
		return ctx.Err()
	}}
	return s, h, pauses
}

func name(t *testing.T, text string) Name {
	t.Helper()
	n, err := Parse(Model, text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// fetch fetches files and checks what they hold.
func fetch(t *testing.T, s *hubtest.Server, h *Hub, text string, files ...string) *Repo {
	t.Helper()
	r, err := h.Open(t.Context(), name(t, text))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := r.Fetch(t.Context(), files...)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		got, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		if want := s.Repos[repoKey].Files[file]; !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d", file, len(got), len(want))
		}
	}
	return r
}

func TestParse(t *testing.T) {
	for text, want := range map[string]Name{
		"hf:a/b":                              {Model, "a/b", "", ""},
		"hf:a/b@v1":                           {Model, "a/b", "", "v1"},
		"hf:a/b/c/d.gguf":                     {Model, "a/b", "c/d.gguf", ""},
		"hf:a/b/c.gguf@refs/convert/parquet":  {Model, "a/b", "c.gguf", "refs/convert/parquet"},
		"hf:Qwen/Qwen2.5-Coder-1.5B-Instruct": {Model, "Qwen/Qwen2.5-Coder-1.5B-Instruct", "", ""},
	} {
		got, err := Parse(Model, text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"hf:", "hf:a", "hf:/b", "hf:a/", "a/b", "hf:a/../b", "hf:a/b/../../c", "hf:a/b//c", "hf:a/b@", "hf:a/b@../x", "hf:a--b/c", "hf:a/b/", "hf:a/b@x\ny", `hf:a/b/c\d`, "hf:./b"} {
		if got, err := Parse(Model, text); err == nil {
			t.Errorf("%q was taken: %+v", text, got)
		}
	}
}

// TestLayout: the cache is laid out as the Hub's own tools do it, nothing is
// asked for twice, and only what is wanted is fetched.
func TestLayout(t *testing.T) {
	s, h, _ := fixture(t)
	s.Repos[repoKey].Refs = []string{"refs/pr/1"}
	r := fetch(t, s, h, "hf:owner/repo", large, "config.json", "sub/empty")
	fetch(t, s, h, "hf:owner/repo@refs/pr/1", "config.json")
	root := filepath.Join(h.Cache, "models--owner--repo")
	for path, to := range map[string]string{
		"snapshots/" + r.Revision + "/config.json": "../../blobs/" + hubtest.GitDigest([]byte(`{"a":1}`)),
		"snapshots/" + r.Revision + "/sub/empty":   "../../../blobs/" + hubtest.GitDigest(nil),
	} {
		if got, err := os.Readlink(filepath.Join(root, path)); err != nil || got != to {
			t.Errorf("%s leads to %q, %v, want %q", path, got, err, to)
		}
	}
	for _, ref := range []string{"main", "refs/pr/1"} {
		if got, err := os.ReadFile(filepath.Join(root, "refs", ref)); err != nil || string(got) != r.Revision {
			t.Errorf("refs/%s is %q, %v", ref, got, err)
		}
	}
	blobs, err := os.ReadDir(filepath.Join(root, "blobs"))
	if err != nil || len(blobs) != 3 {
		t.Errorf("blobs %v, %v", blobs, err)
	}
	s.Requests()
	fetch(t, s, h, "hf:owner/repo", large, "config.json")
	if got := s.Requests(); !slices.Equal(got, []string{"GET /api/models/owner/repo/revision/main"}) {
		t.Errorf("asked for again: %q", got)
	}
	// A link whose blob somebody has removed is made again.
	if err := os.RemoveAll(filepath.Join(root, "blobs")); err != nil {
		t.Fatal(err)
	}
	fetch(t, s, h, "hf:owner/repo", large, "config.json")
	if s.Leaked() {
		t.Error("the token was sent to another host")
	}
}

// TestOffline: the cache is enough, by branch and by commit; and what it lacks is
// said.
func TestOffline(t *testing.T) {
	s, h, _ := fixture(t)
	r := fetch(t, s, h, "hf:owner/repo", "config.json")
	s.Requests()
	h.Offline = true
	fetch(t, s, h, "hf:owner/repo", "config.json")
	fetch(t, s, h, "hf:owner/repo@"+r.Revision, "config.json")
	for _, text := range []string{"hf:owner/repo", "hf:owner/repo@other", "hf:owner/other"} {
		r, err := h.Open(t.Context(), name(t, text))
		if err == nil {
			_, err = r.Fetch(t.Context(), large)
		}
		if !errors.Is(err, ErrOffline) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if got := s.Requests(); len(got) > 0 {
		t.Errorf("offline, and asked for %q", got)
	}
}

// TestUnreachable: a server that is not there is one clear error, unless the
// cache has the repository.
func TestUnreachable(t *testing.T) {
	s, h, pauses := fixture(t)
	if _, err := h.Open(t.Context(), name(t, "hf:owner/repo")); err != nil {
		t.Fatal(err)
	}
	fetch(t, s, h, "hf:owner/repo", "config.json")
	h.Endpoint = "http://127.0.0.1:1"
	warned := ""
	h.Warn = func(line string) { warned = line }
	fetch(t, s, h, "hf:owner/repo", "config.json")
	if !strings.Contains(warned, "as it is in the cache") {
		t.Errorf("warned of %q", warned)
	}
	h.Cache = t.TempDir()
	if _, err := h.Open(t.Context(), name(t, "hf:owner/repo")); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	if len(*pauses) != 2*(tries-1) {
		t.Errorf("paused %v", *pauses)
	}
}

// TestRefusals: each is one line that names the thing and the remedy.
func TestRefusals(t *testing.T) {
	s, h, pauses := fixture(t)
	s.Add("models/owner/gated", map[string][]byte{"config.json": []byte("{}")}).Gated = true
	s.Add("models/owner/hidden", map[string][]byte{"config.json": []byte("{}")}).Hidden = true
	for _, c := range []struct{ text, file, token, want string }{
		{"hf:owner/none", "", "", "hf:owner/none: there is no such repository, or it is private"},
		{"hf:owner/none", "", "hf_good", "the account of HF_TOKEN has no access"},
		{"hf:owner/hidden", "", "", "set HF_TOKEN"},
		{"hf:owner/hidden", "config.json", "hf_good", ""},
		{"hf:owner/gated", "config.json", "", "accept it at " + s.URL + "/owner/gated, and set HF_TOKEN"},
		{"hf:owner/gated", "config.json", "hf_good", ""},
		{"hf:owner/gated", "config.json", "hf_bad", "does not know the token"},
		{"hf:owner/repo@v9", "", "", "hf:owner/repo@v9: the repository has no such revision"},
		{"hf:owner/repo", "nothing.txt", "", "nothing.txt@"},
	} {
		h.Token, h.Cache = c.token, t.TempDir()
		r, err := h.Open(t.Context(), name(t, c.text))
		if err == nil && c.file != "" {
			_, err = r.Fetch(t.Context(), c.file)
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.text, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s %s: %v, want %q", c.text, c.file, err, c.want)
		}
	}
	h.Token, h.Cache = "", t.TempDir()
	r, err := h.Open(t.Context(), name(t, "hf:owner/repo"))
	if err != nil {
		t.Fatal(err)
	}
	s.Requests()
	if _, err := r.Fetch(t.Context(), "config.json", "nothing.txt"); err == nil || len(s.Requests()) > 0 {
		t.Errorf("one of two files is not there: %v; the other must not be asked for", err)
	}
	s.Fault = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("X-Error-Message", "Your IP is blocked.")
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	_, err = h.Open(t.Context(), name(t, "hf:owner/repo"))
	var refused *Error
	if !errors.As(err, &refused) || refused.Status != http.StatusForbidden || !strings.Contains(err.Error(), "Your IP is blocked") {
		t.Error(err)
	}
	if len(*pauses) > 0 {
		t.Errorf("a refusal was waited for: %v", *pauses)
	}
}

// TestBusy: 429 and 5xx are waited for, as long as the server says, but not for ever.
func TestBusy(t *testing.T) {
	s, h, pauses := fixture(t)
	answers := []struct {
		status      int
		key, value  string
		least, most time.Duration
	}{
		{429, "Retry-After", "7", 7 * time.Second, 7 * time.Second},
		{429, "Retry-After", time.Now().Add(200 * time.Second).UTC().Format(http.TimeFormat), 100 * time.Second, 200 * time.Second},
		{429, "RateLimit", `"api";r=0;t=55`, 55 * time.Second, 55 * time.Second},
		{503, "", "", 8 * time.Second, 8 * time.Second},
	}
	n := 0
	s.Fault = func(w http.ResponseWriter, _ *http.Request) bool {
		if n == len(answers) {
			return false
		}
		a := answers[n]
		n++
		if a.key != "" {
			w.Header().Set(a.key, a.value)
		}
		w.WriteHeader(a.status)
		return true
	}
	fetch(t, s, h, "hf:owner/repo", "config.json")
	if len(*pauses) != len(answers) {
		t.Fatalf("paused %v", *pauses)
	}
	for i, a := range answers {
		if got := (*pauses)[i]; got < a.least || got > a.most {
			t.Errorf("pause %d is %v", i, got)
		}
	}
	h.Cache = t.TempDir()
	s.Fault = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "86400")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	if _, err := h.Open(t.Context(), name(t, "hf:owner/repo")); err == nil || !strings.Contains(err.Error(), "too many requests") {
		t.Error(err)
	}
}

// TestBroken: a transfer that breaks off goes on where it was, in the same call
// and in the next one, by the range that is missing; progress is told.
func TestBroken(t *testing.T) {
	s, h, _ := fixture(t)
	s.Break = 70_000
	var most Step
	h.Progress = func(p Step) {
		if p.Done < most.Done {
			t.Errorf("went back from %v to %v", most, p)
		}
		most = p
	}
	fetch(t, s, h, "hf:owner/repo", large)
	ranges := 0
	for _, line := range s.Requests() {
		if strings.Contains(line, "bytes=") && !strings.HasPrefix(line, "GET /owner") {
			ranges++
		}
	}
	if ranges != 4 || most.Done != 300_000 || most.Total != 300_000 || most.File != large {
		t.Errorf("%d ranges, told %+v", ranges, most)
	}

	h.Cache, most = t.TempDir(), Step{}
	ctx, cancel := context.WithCancel(t.Context())
	h.pause = func(context.Context, time.Duration) error { cancel(); return ctx.Err() } // killed behind the first part
	r, err := h.Open(ctx, name(t, "hf:owner/repo"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Fetch(ctx, large); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	s.Break = 0
	s.Requests()
	fetch(t, s, h, "hf:owner/repo", large)
	if got := s.Requests(); !slices.ContainsFunc(got, func(line string) bool { return strings.HasSuffix(line, " bytes=70000-") }) {
		t.Errorf("did not go on: %q", got)
	}
}

// TestNoRanges: a server that knows no ranges sends all again, and that is right.
func TestNoRanges(t *testing.T) {
	s, h, _ := fixture(t)
	s.NoRanges = true
	partial(t, s, h, []byte("something else"))
	fetch(t, s, h, "hf:owner/repo", large)
}

// partial leaves what an earlier download might have.
func partial(t *testing.T, s *hubtest.Server, h *Hub, data []byte) {
	t.Helper()
	r, err := h.Open(t.Context(), name(t, "hf:owner/repo"))
	if err != nil {
		t.Fatal(err)
	}
	n := r.Name
	n.Path = large
	d := &download{hub: h, name: n}
	if err := d.head(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(h.dir(n, "blobs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.dir(n, "blobs", d.blob+".incomplete"), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDamage: what is left of another file, too long or just wrong, is fetched
// anew; a server that sends other bytes than it promised is an error each time,
// and nothing is left that would be taken for the file.
func TestDamage(t *testing.T) {
	s, h, _ := fixture(t)
	for _, old := range []int{1, 299_999, 300_000, 300_001, 400_000} {
		h.Cache = t.TempDir()
		partial(t, s, h, make([]byte, old))
		fetch(t, s, h, "hf:owner/repo", large)
	}
	for what, fault := range map[string]func(w http.ResponseWriter, r *http.Request){
		"digest": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 300_000)) },
		"more than the 300000 bytes": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 300_001))
		},
		"broken off": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) },
		"another range": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 5-9/300000")
			w.WriteHeader(http.StatusPartialContent)
		},
	} {
		h.Cache = t.TempDir()
		s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet && len(r.URL.Path) == 65 {
				fault(w, r)
				return true
			}
			return false
		}
		r, err := h.Open(t.Context(), name(t, "hf:owner/repo"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Fetch(t.Context(), large)
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), large) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Lstat(filepath.Join(r.Dir(), large)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the file is there: %v", what, err)
		}
	}
}

// TestHostile: names that lead elsewhere, digests that are none, and answers that
// are no Hub's.
func TestHostile(t *testing.T) {
	s, h, _ := fixture(t)
	for _, file := range []string{"../x", "/etc/passwd", "a/../../b", `a\..\b`, ""} {
		s.Add("models/owner/bad", map[string][]byte{file: []byte("x")})
		if _, err := h.Open(t.Context(), name(t, "hf:owner/bad")); err == nil || !strings.Contains(err.Error(), "leads out") {
			t.Errorf("%q: %v", file, err)
		}
	}
	for _, answer := range []string{"", "<html>", `{"sha":"../../x"}`, `{"sha":5}`} {
		s.Fault = func(w http.ResponseWriter, _ *http.Request) bool { fmt.Fprint(w, answer); return true }
		if _, err := h.Open(t.Context(), name(t, "hf:owner/repo")); err == nil || !strings.Contains(err.Error(), "HF_ENDPOINT") {
			t.Errorf("%q: %v", answer, err)
		}
	}
	s.Fault = nil
	r, err := h.Open(t.Context(), name(t, "hf:owner/repo"))
	if err != nil {
		t.Fatal(err)
	}
	for _, etag := range []string{"", `"../../x"`, `"abc"`} {
		s.Fault = func(w http.ResponseWriter, _ *http.Request) bool { w.Header().Set("Etag", etag); return true }
		if _, err := r.Fetch(t.Context(), "config.json"); err == nil || !strings.Contains(err.Error(), "no digest") {
			t.Errorf("%q: %v", etag, err)
		}
	}
}

// TestMoved: a repository that was renamed is found; the token goes to no other host.
func TestMoved(t *testing.T) {
	s, h, _ := fixture(t)
	s.Moved["old/name"], h.Token = "owner/repo", s.Token
	fetch(t, s, h, "hf:old/name", large, "config.json")
	if s.Leaked() {
		t.Error("the token was sent to another host")
	}
}

// TestStalled: a server that says nothing any more is left and asked again.
func TestStalled(t *testing.T) {
	s, h, _ := fixture(t)
	h.stall = time.Second
	first := true
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if !first || len(r.URL.Path) != 65 {
			return false
		}
		first = false
		w.Header().Set("Content-Length", "300000")
		_, _ = w.Write(s.Repos[repoKey].Files[large][:1000])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	fetch(t, s, h, "hf:owner/repo", large)
}

// TestTogether: many that fetch the same file at a time transfer it once.
func TestTogether(t *testing.T) {
	s, h, _ := fixture(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			r, err := h.Open(t.Context(), name(t, "hf:owner/repo"))
			if err == nil {
				_, err = r.Fetch(t.Context(), large)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	transfers := 0
	for _, line := range s.Requests() {
		if strings.HasPrefix(line, "GET /") && len(line) == len("GET /")+64 {
			transfers++
		}
	}
	if transfers != 1 {
		t.Errorf("%d transfers", transfers)
	}
}

func TestFromEnv(t *testing.T) {
	for _, v := range []string{"HF_ENDPOINT", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "XDG_CACHE_HOME", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		t.Setenv(v, "")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	get := func() *Hub {
		t.Helper()
		h, err := FromEnv()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if h := get(); h.Cache != filepath.Join(home, ".cache/huggingface/hub") || h.endpoint() != publicEndpoint || h.Token != "" || h.Offline {
		t.Errorf("%+v", h)
	}
	t.Setenv("XDG_CACHE_HOME", "/xdg")
	if h := get(); h.Cache != "/xdg/huggingface/hub" {
		t.Error(h.Cache)
	}
	t.Setenv("HF_HOME", filepath.Join(home, "hf"))
	if err := os.MkdirAll(filepath.Join(home, "hf"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "hf/token"), []byte("hf_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if h := get(); h.Cache != filepath.Join(home, "hf/hub") || h.Token != "hf_file" {
		t.Errorf("%+v", h)
	}
	t.Setenv("HF_HUB_CACHE", "~/elsewhere")
	t.Setenv("HF_TOKEN", "hf_env")
	t.Setenv("HF_ENDPOINT", "https://mirror/")
	t.Setenv("HF_HUB_OFFLINE", "yes")
	if h := get(); h.Cache != filepath.Join(home, "elsewhere") || h.Token != "hf_env" || h.endpoint() != "https://mirror" || !h.Offline {
		t.Errorf("%+v", h)
	}
}

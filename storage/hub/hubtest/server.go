// Package hubtest is a server on the loopback that speaks the Hugging Face Hub's
// protocol, for tests: the list of a repository's files, their digests, redirects
// of large files to another host, ranges, refusals, and what goes wrong in
// between.
package hubtest

import (
	"crypto/sha1" //nolint:gosec // git's object ids
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Repo is a repository with one commit.
type Repo struct {
	Commit string            // 40 hexadecimal digits
	Refs   []string          // branches and tags of it; main is one always
	Files  map[string][]byte // by path
	Large  map[string]bool   // those that lie on the other host, by SHA-256
	Gated  bool              // needs Token
	Hidden bool              // needs Token, and is not there without
}

// Server is a Hub. Its fields may be changed between requests, under Lock.
type Server struct {
	sync.Mutex
	URL   string
	Token string            // that opens what is gated
	Repos map[string]*Repo  // by models/OWNER/REPO or datasets/OWNER/REPO
	Moved map[string]string // OWNER/REPO to its new name

	// Fault, where it is set, answers a request instead, and returns true.
	Fault func(w http.ResponseWriter, r *http.Request) bool
	// Break cuts every transfer of a large file off behind so many bytes; 0: none.
	Break int
	// NoRanges sends files whole whatever is asked for.
	NoRanges bool

	requests []string // METHOD path [range]
	leaked   bool
	storage  string // URL of the other host
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	s := &Server{Repos: map[string]*Repo{}, Moved: map[string]string{}, Token: "hf_good"}
	front := httptest.NewServer(http.HandlerFunc(s.front))
	t.Cleanup(front.Close)
	s.URL = front.URL
	back := httptest.NewServer(http.HandlerFunc(s.back))
	t.Cleanup(back.Close)
	_, port, err := net.SplitHostPort(back.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s.storage = "http://localhost:" + port // another name than 127.0.0.1, that is another host
	return s
}

// Add makes a repository of files and returns it.
func (s *Server) Add(key string, files map[string][]byte, large ...string) *Repo {
	s.Lock()
	defer s.Unlock()
	sum := sha256.New()
	for _, name := range slices.Sorted(keysOf(files)) {
		fmt.Fprintf(sum, "%s %x\n", name, sha256.Sum256(files[name]))
	}
	r := &Repo{Commit: hex.EncodeToString(sum.Sum(nil))[:40], Files: files, Large: map[string]bool{}}
	for _, name := range large {
		r.Large[name] = true
	}
	s.Repos[key] = r
	return r
}

// AddFolder is Add of the files in dir; those of weights and tables are large.
func (s *Server) AddFolder(t testing.TB, key, dir string) *Repo {
	files, large := map[string][]byte{}, []string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if files[name], err = os.ReadFile(path); err != nil {
			return err
		}
		switch filepath.Ext(name) {
		case ".safetensors", ".gguf", ".parquet", ".data":
			large = append(large, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.Add(key, files, large...)
}

func keysOf(files map[string][]byte) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range files {
			if !yield(name) {
				return
			}
		}
	}
}

// Requests returns what was asked for since the last call.
func (s *Server) Requests() []string {
	s.Lock()
	defer s.Unlock()
	all := s.requests
	s.requests = nil
	return all
}

// Leaked reports whether the other host was ever sent a token.
func (s *Server) Leaked() bool {
	s.Lock()
	defer s.Unlock()
	return s.leaked
}

// begin notes a request, and reports whether it is answered already.
func (s *Server) begin(w http.ResponseWriter, r *http.Request) bool {
	line := r.Method + " " + r.URL.Path
	if v := r.Header.Get("Range"); v != "" {
		line += " " + v
	}
	s.requests = append(s.requests, line)
	return s.Fault != nil && s.Fault(w, r)
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Error-Code", code)
	w.Header().Set("X-Error-Message", message)
	w.WriteHeader(status)
}

// front is huggingface.co.
func (s *Server) front(w http.ResponseWriter, r *http.Request) {
	s.Lock()
	defer s.Unlock()
	if s.begin(w, r) {
		return
	}
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/")
	for old, now := range s.Moved {
		if strings.Contains(path, old+"/") {
			w.Header().Set("Location", "/"+strings.Replace(path, old, now, 1))
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
	}
	api := strings.HasPrefix(path, "api/")
	path = strings.TrimPrefix(path, "api/")
	kind := "models"
	for _, k := range []string{"models", "datasets"} {
		if rest, ok := strings.CutPrefix(path, k+"/"); ok {
			kind, path = k, rest
		}
	}
	parts := strings.SplitN(path, "/", 5)
	if len(parts) < 4 {
		refuse(w, http.StatusNotFound, "", "no page")
		return
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	repo := s.Repos[kind+"/"+parts[0]+"/"+parts[1]]
	switch {
	case token != "" && token != s.Token:
		refuse(w, http.StatusUnauthorized, "", "Invalid credentials in Authorization header")
		return
	case repo == nil || repo.Hidden && token == "":
		status := http.StatusNotFound
		if token == "" {
			status = http.StatusUnauthorized
		}
		refuse(w, status, "RepoNotFound", "Repository not found")
		return
	case repo.Gated && token == "" && !api: // the list is public
		refuse(w, http.StatusUnauthorized, "GatedRepo", "Access to this model is restricted. You must be authenticated to access it.")
		return
	}
	revision := strings.ReplaceAll(parts[3], "%2F", "/")
	if revision != "main" && revision != repo.Commit && !slices.Contains(repo.Refs, revision) {
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
		return
	}
	w.Header().Set("X-Repo-Commit", repo.Commit)
	if api {
		list(w, repo)
		return
	}
	if len(parts) < 5 || repo.Files[parts[4]] == nil {
		refuse(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		return
	}
	data := repo.Files[parts[4]]
	if repo.Large[parts[4]] {
		digest := fmt.Sprintf("%x", sha256.Sum256(data))
		w.Header().Set("X-Linked-Etag", `"`+digest+`"`)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(data)))
		w.Header().Set("Location", s.storage+"/"+digest)
		w.WriteHeader(http.StatusFound)
		return
	}
	w.Header().Set("Etag", `W/"`+GitDigest(data)+`"`)
	http.ServeContent(w, r, parts[4], time.Time{}, strings.NewReader(string(data)))
}

// GitDigest is the id that git gives a file.
func GitDigest(data []byte) string {
	return fmt.Sprintf("%x", sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))) //nolint:gosec // git's
}

func list(w http.ResponseWriter, repo *Repo) {
	type sibling struct {
		Name string `json:"rfilename"`
	}
	said := struct {
		SHA      string    `json:"sha"`
		Siblings []sibling `json:"siblings"`
	}{SHA: repo.Commit, Siblings: []sibling{}}
	for _, name := range slices.Sorted(keysOf(repo.Files)) {
		said.Siblings = append(said.Siblings, sibling{name})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(said)
}

// back is where large files lie.
func (s *Server) back(w http.ResponseWriter, r *http.Request) {
	s.Lock()
	defer s.Unlock()
	s.leaked = s.leaked || r.Header.Get("Authorization") != ""
	if s.begin(w, r) {
		return
	}
	digest := strings.TrimPrefix(r.URL.Path, "/")
	for _, repo := range s.Repos {
		for name, data := range repo.Files {
			if fmt.Sprintf("%x", sha256.Sum256(data)) != digest || !repo.Large[name] {
				continue
			}
			if s.NoRanges {
				r.Header.Del("Range")
			}
			out := w
			if s.Break > 0 {
				out = &broken{w, s.Break}
			}
			http.ServeContent(out, r, name, time.Time{}, strings.NewReader(string(data)))
			return
		}
	}
	w.WriteHeader(http.StatusNotFound)
}

// broken cuts an answer off.
type broken struct {
	http.ResponseWriter
	left int
}

func (b *broken) Write(p []byte) (int, error) {
	if len(p) <= b.left {
		b.left -= len(p)
		return b.ResponseWriter.Write(p)
	}
	_, _ = b.ResponseWriter.Write(p[:b.left])
	if f, ok := b.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
	panic(http.ErrAbortHandler)
}

package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// FromEnv makes a Hub of the environment.
func FromEnv() (*Hub, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("find the Hub's cache: %w", err)
	}
	path := func(standard string, variables ...string) string {
		for _, v := range variables {
			if p := os.ExpandEnv(os.Getenv(v)); p != "" {
				if rest, ok := strings.CutPrefix(p, "~/"); ok {
					p = filepath.Join(home, rest)
				}
				return p
			}
		}
		return standard
	}
	hf := path(filepath.Join(path(filepath.Join(home, ".cache"), "XDG_CACHE_HOME"), "huggingface"), "HF_HOME")
	h := &Hub{
		Endpoint: strings.TrimRight(os.Getenv("HF_ENDPOINT"), "/"),
		Cache:    path(filepath.Join(hf, "hub"), "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"),
		Offline:  isTrue("HF_HUB_OFFLINE") || isTrue("TRANSFORMERS_OFFLINE"),
	}
	if h.Cache, err = filepath.Abs(h.Cache); err != nil {
		return nil, fmt.Errorf("find the Hub's cache: %w", err)
	}
	if h.Token = os.Getenv("HF_TOKEN"); h.Token == "" {
		h.Token = os.Getenv("HUGGING_FACE_HUB_TOKEN")
	}
	if h.Token == "" && !isTrue("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
		data, err := os.ReadFile(path(filepath.Join(hf, "token"), "HF_TOKEN_PATH"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the Hub's token: %w", err)
		}
		h.Token = string(data)
	}
	h.Token = strings.TrimSpace(h.Token)
	return h, nil
}

// isTrue reads a switch as the Python tools do.
func isTrue(variable string) bool {
	return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(os.Getenv(variable)))
}

// dir is a path in the repository's folder of the cache.
func (h *Hub) dir(n Name, elem ...string) string {
	return filepath.Join(append([]string{h.Cache, n.folder()}, elem...)...)
}

// ref is the commit that the cache knows for a name; empty for none.
func (h *Hub) ref(n Name) string {
	if commitName.MatchString(n.revision()) {
		return n.revision()
	}
	data, err := os.ReadFile(h.dir(n, "refs", filepath.FromSlash(n.revision())))
	if commit := strings.TrimSpace(string(data)); err == nil && commitName.MatchString(commit) {
		return commit
	}
	return ""
}

// note keeps the commit of a branch or a tag.
func (h *Hub) note(n Name, commit string) error {
	if n.revision() == commit || h.ref(n) == commit {
		return nil
	}
	path := h.dir(n, "refs", filepath.FromSlash(n.revision()))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(commit)
	if err = errors.Join(err, temp.Chmod(0o644), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

// cached lists the files of a snapshot, and reports whether it is there.
func (h *Hub) cached(n Name, commit string) (files []string, ok bool) {
	root := h.dir(n, "snapshots", commit)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if _, err := os.Stat(path); err != nil {
			return nil //nolint:nilerr // a link whose blob is gone
		}
		name, err := filepath.Rel(root, path)
		files = append(files, filepath.ToSlash(name))
		return err
	})
	return files, err == nil && len(files) > 0
}

// lock waits until nobody else, Python's tools included, fetches a blob.
func (h *Hub) lock(ctx context.Context, n Name, blob string) (unlock func() error, err error) {
	path := filepath.Join(h.Cache, ".locks", n.folder(), blob+".lock")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	l := flock.New(path)
	if _, err := l.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return nil, err
	}
	return l.Unlock, nil
}

// link makes a snapshot's file a link to its blob.
func (r *Repo) link(file, blob string) error {
	path := filepath.Join(r.Dir(), filepath.FromSlash(file))
	to, err := filepath.Rel(filepath.Dir(path), r.hub.dir(r.Name, "blobs", blob))
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err != nil {
		return err
	}
	for {
		err := os.Symlink(to, path)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		if _, err := os.Stat(path); err == nil {
			return nil // by somebody else, meanwhile
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // its blob is gone
			return err
		}
	}
}

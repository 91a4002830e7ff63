package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Repo is a repository at one commit.
type Repo struct {
	Name           // with that commit as its Revision
	Files []string // all of them, with slashes; of the cache alone where the server was not asked

	hub    *Hub
	cached bool // the server was not asked
}

const (
	maxListing = 64 << 20 // bytes of a repository's description
	maxFiles   = 1 << 17
	parallel   = 4 // downloads
)

// Open finds the commit of a name's revision, and its files. Offline, and where
// the server cannot be reached, the cache's last one is taken.
func (h *Hub) Open(ctx context.Context, n Name) (*Repo, error) {
	known := h.ref(n)
	if h.Offline {
		if known == "" {
			return nil, fmt.Errorf("%s: %w", n, ErrOffline)
		}
		return h.fromCache(n, known, ErrOffline)
	}
	r, err := h.describe(ctx, n)
	if errors.Is(err, ErrUnreachable) && known != "" {
		old, e := h.fromCache(n, known, err)
		if e == nil {
			h.warn(fmt.Sprintf("%v; taking %s as it is in the cache", err, old.Name))
		}
		return old, e
	}
	if err != nil {
		return nil, err
	}
	if err := h.note(n, r.Revision); err != nil {
		return nil, fmt.Errorf("note the commit of %s: %w", n, err)
	}
	return r, nil
}

func (h *Hub) fromCache(n Name, commit string, why error) (*Repo, error) {
	files, ok := h.cached(n, commit)
	if !ok {
		return nil, fmt.Errorf("%s: %w", n, why)
	}
	n.Revision = commit
	return &Repo{Name: n, Files: files, hub: h, cached: true}, nil
}

// describe asks the server.
func (h *Hub) describe(ctx context.Context, n Name) (*Repo, error) {
	whole := n
	whole.Path = ""
	address := fmt.Sprintf("%s/api/%ss/%s/revision/%s", h.endpoint(), n.Kind, escaped(n.Repo), url.PathEscape(n.revision()))
	answer, err := h.request(ctx, whole, http.MethodGet, address, nil, follow)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxListing))
	if err != nil {
		return nil, fmt.Errorf("%w: read the list of files of %s: %w", ErrUnreachable, n, err)
	}
	var said struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(data, &said); err != nil || !commitName.MatchString(said.SHA) || len(said.Siblings) > maxFiles {
		return nil, fmt.Errorf("%s: what answers at %s is not a Hub: check HF_ENDPOINT", n, h.endpoint())
	}
	r := &Repo{Name: n, hub: h}
	r.Revision = said.SHA
	for _, s := range said.Siblings {
		if !inside(s.Name) {
			return nil, fmt.Errorf("%s: the file name %q leads out of the repository", n, s.Name)
		}
		r.Files = append(r.Files, s.Name)
	}
	return r, nil
}

// Dir is the folder of the snapshot. It has the files that somebody has fetched.
func (r *Repo) Dir() string { return r.hub.dir(r.Name, "snapshots", r.Revision) }

// Fetch makes sure that files are in Dir, and returns it.
func (r *Repo) Fetch(ctx context.Context, files ...string) (dir string, err error) {
	var lacking []string // all are looked for before the first is fetched
	for _, file := range files {
		path := filepath.Join(r.Dir(), filepath.FromSlash(file))
		if _, err := os.Stat(path); err == nil {
			continue
		}
		name := r.Name
		name.Path = file
		if !slices.Contains(r.Files, file) {
			if r.cached {
				err = ErrOffline
				if !r.hub.Offline {
					err = ErrUnreachable
				}
				return "", fmt.Errorf("%s: %w", name, err)
			}
			return "", fmt.Errorf("%s: the repository has no such file", name)
		}
		lacking = append(lacking, file)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, file := range lacking {
		name := r.Name
		name.Path = file
		group.Go(func() error {
			d := &download{hub: r.hub, name: name}
			blob, err := d.run(ctx)
			if err == nil {
				err = r.link(file, blob)
			}
			return err
		})
	}
	return r.Dir(), group.Wait()
}

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/convert"
	"github.com/draftmill/draftmill/storage/hub"
)

// Located is a model, or a dataset's file, on this machine.
type Located struct {
	Path string // what was asked for; of the Hub, in its cache
	// Name is hf:OWNER/REPO[/PATH]@COMMIT for what is of the Hub, and Short a name
	// for people; both are empty for what is not.
	Name, Short string
}

// LocateModel finds a model: what is named hf:OWNER/REPO[/PATH][@REVISION] is
// fetched, what of it the Hub's cache lacks; anything else is a path.
func LocateModel(ctx context.Context, log *slog.Logger, text string) (Located, error) {
	if !hub.Is(text) {
		return Located{Path: text}, nil
	}
	r, name, err := openHub(ctx, log, hub.Model, text)
	if err != nil {
		return Located{}, fmt.Errorf("model %w", err)
	}
	l := convert.Listing{
		Files: r.Files, At: name.Path,
		Get:  func(files ...string) (string, error) { return r.Fetch(ctx, files...) },
		ONNX: ort.FetchONNX,
	}
	local, err := l.Bring()
	if err != nil {
		if !strings.HasPrefix(err.Error(), hub.Prefix) {
			err = fmt.Errorf("%s: %w", r.Name, err)
		}
		return Located{}, fmt.Errorf("model %w", err)
	}
	return Located{Path: local, Name: r.String(), Short: short(name)}, nil
}

// short is the last part of a name.
func short(name hub.Name) string {
	if name.Path == "" {
		return path.Base(name.Repo)
	}
	return strings.TrimSuffix(path.Base(name.Path), path.Ext(name.Path))
}

// LocateDataset finds a dataset's file, as LocateModel does a model. A repository
// that has one Parquet file needs no path.
func LocateDataset(ctx context.Context, log *slog.Logger, text string) (Located, error) {
	if !hub.Is(text) {
		return Located{Path: text}, nil
	}
	r, name, err := openHub(ctx, log, hub.Dataset, text)
	if err != nil {
		return Located{}, fmt.Errorf("dataset %w", err)
	}
	file := name.Path
	if path.Ext(file) == "" {
		if file, err = onlyParquet(r.Files, file); err != nil {
			return Located{}, fmt.Errorf("dataset %s: %w", r.Name, err)
		}
	}
	dir, err := r.Fetch(ctx, file)
	if err != nil {
		return Located{}, fmt.Errorf("dataset %w", err)
	}
	r.Path = file
	return Located{Path: filepath.Join(dir, filepath.FromSlash(file)), Name: r.String(), Short: path.Base(name.Repo)}, nil
}

// onlyParquet is the one Parquet file in a folder of a repository.
func onlyParquet(files []string, at string) (string, error) {
	var found []string
	for _, file := range files {
		if path.Ext(file) == ".parquet" && (at == "" || strings.HasPrefix(file, at+"/")) {
			found = append(found, file)
		}
	}
	switch len(found) {
	case 0:
		return "", errors.New("it has no Parquet file; name another file behind a slash, or try @refs/convert/parquet, where the Hub keeps what it has converted")
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("it has %d Parquet files; name one of them behind a slash: %s", len(found), strings.Join(found[:min(8, len(found))], ", "))
}

func openHub(ctx context.Context, log *slog.Logger, kind hub.Kind, text string) (*hub.Repo, hub.Name, error) {
	name, err := hub.Parse(kind, text)
	if err != nil {
		return nil, name, configs.Usagef("%w", err)
	}
	h, err := hub.FromEnv()
	if err != nil {
		return nil, name, err
	}
	h.Progress = downloads(log, text)
	h.Warn = func(line string) { log.Warn(line) }
	r, err := h.Open(ctx, name)
	return r, name, err
}

// downloads logs how far downloads have come, once a second.
func downloads(log *slog.Logger, text string) func(hub.Step) {
	var mu sync.Mutex
	last := time.Now()
	return func(s hub.Step) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(last) >= time.Second || s.Done == s.Total {
			last = now
			log.Info("downloading", "from", text, "file", s.File, "MB", s.Total/1e6, "done", s.Done/1e6)
		}
	}
}

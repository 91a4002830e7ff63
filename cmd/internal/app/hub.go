package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/convert"
	"github.com/draftmill/draftmill/storage"
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

// LocateDataset finds a dataset, as LocateModel does a model: a file, or several
// as storage.OpenDataset takes them. A repository, or a folder of it, that has one
// Parquet file or one numbered series needs no name of it.
func LocateDataset(ctx context.Context, log *slog.Logger, text string) (Located, error) {
	if !hub.Is(text) {
		return Located{Path: text}, nil
	}
	r, name, err := openHub(ctx, log, hub.Dataset, text)
	if err != nil {
		return Located{}, fmt.Errorf("dataset %w", err)
	}
	file, files := name.Path, []string{name.Path}
	switch {
	case storage.IsPattern(file):
		files, err = matching(r.Files, file)
	case path.Ext(file) == "":
		file, files, err = onlyParquet(r.Files, file)
	}
	if err != nil {
		return Located{}, fmt.Errorf("dataset %s: %w", r.Name, err)
	}
	dir, err := r.Fetch(ctx, files...)
	if err != nil {
		return Located{}, fmt.Errorf("dataset %w", err)
	}
	r.Path = file
	return Located{Path: filepath.Join(dir, filepath.FromSlash(file)), Name: r.String(), Short: path.Base(name.Repo)}, nil
}

// matching are the files of a repository that a pattern names.
func matching(files []string, pattern string) ([]string, error) {
	var found []string
	for _, file := range files {
		ok, err := path.Match(pattern, file)
		if err != nil {
			return nil, fmt.Errorf("the pattern %q is not closed", pattern)
		}
		if ok && path.Dir(file) == path.Dir(pattern) { // as storage finds them
			found = append(found, file)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("the repository has no such file")
	}
	return found, nil
}

// numbered is the name of one of a series of files: train-00000-of-00002.parquet,
// perhaps with a digest behind it, or 0000.parquet.
var numbered = regexp.MustCompile(`^(.*?)[0-9]+(?:(-of-)([0-9]+))?((?:-[0-9a-f]{8,})?)\.parquet$`)

// series is the pattern of the series that a file belongs to, and how many files
// it has where the name says so; of another file its name.
func series(file string) (pattern string, of int) {
	dir, base := path.Split(file)
	m := numbered.FindStringSubmatch(base)
	if m == nil {
		return file, 1
	}
	pattern = dir + m[1] + "*" + m[2] + m[3]
	if m[4] != "" {
		pattern += "-*"
	}
	of, _ = strconv.Atoi(m[3])
	return pattern + ".parquet", of
}

// onlyParquet is the one Parquet file, or the one series, in a folder of a
// repository.
func onlyParquet(files []string, at string) (name string, found []string, err error) {
	all := map[string][]string{} // by pattern
	for _, file := range files {
		if path.Ext(file) == ".parquet" && (at == "" || strings.HasPrefix(file, at+"/")) {
			pattern, _ := series(file)
			all[pattern] = append(all[pattern], file)
		}
	}
	names := slices.Sorted(maps.Keys(all))
	for i, name := range names {
		if len(all[name]) == 1 {
			names[i] = all[name][0]
		}
	}
	switch len(names) {
	case 0:
		return "", nil, errors.New("it has no Parquet file; name another file behind a slash, or try @refs/convert/parquet, where the Hub keeps what it has converted")
	case 1:
	default:
		return "", nil, fmt.Errorf("it has %d Parquet datasets; name one of them behind a slash: %s", len(names), strings.Join(names[:min(8, len(names))], ", "))
	}
	for _, found = range all {
	}
	if _, of := series(found[0]); of > len(found) {
		return "", nil, fmt.Errorf("it has %d of %d files of %s", len(found), of, path.Base(names[0]))
	}
	return names[0], found, nil
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

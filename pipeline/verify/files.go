package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/storage"
	"github.com/draftmill/draftmill/storage/bucket"
)

// files is what the manifests of a job list.
type files struct {
	complete bool
	plan     storage.Plan // zero where there is none yet
	planned  bool
	shards   []shardFiles // ascending
}

// shardFiles is one shard in the modes in which it is committed.
type shardFiles struct {
	shard int
	parts map[pipeline.Mode]parts
}

// parts are the files of one shard in one mode: completions and loops.
type parts [2]storage.File

// commit is the part of a shard's manifest that is read here. It is read as
// FORMAT.md has it, not through the code that wrote it.
type commit struct {
	Job   string `json:"job"`
	Mode  string `json:"mode"`
	Shard int    `json:"shard"`
	Files []struct {
		Table  string `json:"table"`
		Rows   int64  `json:"rows"`
		Bytes  int64  `json:"bytes"`
		SHA256 string `json:"sha256"`
	} `json:"files"`
}

var tables = []string{"completions", "loops"}

// inventory reads the plan and all manifests, and checks that they agree with
// each other and with what lies in the folder.
func inventory(folder *storage.Job, job *pipeline.Job) (*files, error) {
	f := &files{complete: folder.Done()}
	var err error
	switch f.plan, err = folder.Plan(); {
	case err == nil:
		f.planned = true
	case !errors.Is(err, storage.ErrNoPlan):
		return nil, failed("_plan.json", "%v", err)
	case f.complete:
		return nil, failed("_plan.json", "the job is marked complete and has no plan")
	}
	if f.planned {
		if err := checkPlan(f.plan, job); err != nil {
			return nil, err
		}
	}
	listed, err := f.readCommits(folder, job)
	if err != nil {
		return nil, err
	}
	if err := checkNoOthers(folder, listed); err != nil {
		return nil, err
	}
	if f.complete {
		return f, f.checkManifest(folder, job, listed)
	}
	return f, nil
}

// checkPlan holds the plan against the specification.
func checkPlan(plan storage.Plan, job *pipeline.Job) error {
	modes := make([]string, len(job.Modes))
	for i, m := range job.Modes {
		modes[i] = string(m)
	}
	if !slices.Equal(plan.Modes, modes) {
		return failed("_plan.json", "its modes are %v, the job's are %v", plan.Modes, modes)
	}
	if want := (plan.Rows + int64(job.ShardRows) - 1) / int64(job.ShardRows); int64(plan.Shards) != want {
		return failed("_plan.json", "%d rows in shards of %d are %d shards, not %d", plan.Rows, job.ShardRows, want, plan.Shards)
	}
	return nil
}

// readCommits reads the manifests of the shards and returns the files that
// they list, by path.
func (f *files) readCommits(folder *storage.Job, job *pipeline.Job) (map[string]storage.File, error) {
	listed := map[string]storage.File{}
	shards := map[int]map[pipeline.Mode]parts{}
	for _, m := range job.Modes {
		list, err := folder.Bucket().List(context.Background(), "_shards/mode="+string(m))
		if err != nil {
			return nil, fmt.Errorf("list the shards of job %s: %w", job.Name, err)
		}
		for _, e := range list {
			name := e.Key
			if base := path.Base(name); !strings.HasPrefix(base, "part-") || !strings.HasSuffix(base, ".json") {
				continue
			}
			c, err := readCommit(folder, name)
			if err != nil {
				return nil, failed(name, "%v", err)
			}
			switch {
			case c.Job != job.Name || c.Mode != string(m) || name != commitPath(m, c.Shard):
				return nil, failed(name, "it commits shard %d of job %s in mode %s", c.Shard, c.Job, c.Mode)
			case f.planned && c.Shard >= f.plan.Shards:
				return nil, failed(name, "the plan has %d shards", f.plan.Shards)
			case len(c.Files) != len(tables) || c.Files[0].Table != tables[0] || c.Files[1].Table != tables[1]:
				return nil, failed(name, "it does not list completions and loops")
			}
			var p parts
			for i, file := range c.Files {
				p[i] = storage.File{
					Table: file.Table, Mode: c.Mode, Shard: c.Shard, Path: partPath(file.Table, m, c.Shard),
					Rows: file.Rows, Bytes: file.Bytes, SHA256: file.SHA256,
				}
				listed[p[i].Path] = p[i]
			}
			if shards[c.Shard] == nil {
				shards[c.Shard] = map[pipeline.Mode]parts{}
			}
			shards[c.Shard][m] = p
		}
	}
	for shard, p := range shards {
		f.shards = append(f.shards, shardFiles{shard, p})
	}
	slices.SortFunc(f.shards, func(a, b shardFiles) int { return a.shard - b.shard })
	return listed, nil
}

func readCommit(folder *storage.Job, name string) (c commit, err error) {
	data, err := folder.Bucket().Get(context.Background(), name)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	return c, err
}

// checkNoOthers looks for files that a reader's glob would take for results
// and that no shard has committed.
func checkNoOthers(folder *storage.Job, listed map[string]storage.File) error {
	for _, table := range tables {
		list, err := folder.Bucket().List(context.Background(), table)
		if err != nil {
			return fmt.Errorf("list the files of job %s: %w", folder.Name(), err)
		}
		for _, e := range list {
			if strings.HasSuffix(e.Key, ".parquet") && listed[e.Key].Path == "" {
				return failed(e.Key, "no shard has committed this file")
			}
		}
	}
	return nil
}

// checkManifest holds a complete job's manifest against its plan and the
// shards' own manifests.
func (f *files) checkManifest(folder *storage.Job, job *pipeline.Job, listed map[string]storage.File) error {
	const name = "manifest.json"
	m, err := folder.Manifest()
	if err != nil {
		return failed(name, "%v", err)
	}
	if m.Job != job.Name || m.Plan.Shards != f.plan.Shards || m.Plan.Rows != f.plan.Rows || !slices.Equal(m.Plan.Modes, f.plan.Modes) {
		return failed(name, "job and plan are not those of job.json and _plan.json")
	}
	if want := f.plan.Shards * len(job.Modes) * len(tables); len(m.Files) != want || len(listed) != want {
		return failed(name, "%d shards in %d modes have %d files; %d are listed and %d committed", f.plan.Shards, len(job.Modes), want, len(m.Files), len(listed))
	}
	seen := map[string]bool{}
	for _, file := range m.Files {
		if listed[file.Path] != file || seen[file.Path] {
			return failed(file.Path, "%s lists %d rows in %d bytes with sha256 %s; its shard did not commit this", name, file.Rows, file.Bytes, file.SHA256)
		}
		seen[file.Path] = true
	}
	var identity bytes.Buffer
	if err := json.Compact(&identity, m.Spec); err != nil || !bytes.Equal(identity.Bytes(), folder.Spec()) {
		return failed(name, "its specification is not that of job.json")
	}
	return nil
}

// checkSize holds a file's size against its manifest; the digest is checked by
// whoever reads it.
func checkSize(folder *storage.Job, f storage.File) error {
	info, err := folder.Bucket().Stat(context.Background(), f.Path)
	switch {
	case bucket.NotExist(err):
		return failed(f.Path, "the file is missing")
	case err != nil:
		return err
	case info.Size != f.Bytes:
		return failed(f.Path, "it has %d bytes, the manifest says %d", info.Size, f.Bytes)
	}
	return nil
}

// read calls fn for the rows of a file, its size, digest and number of rows
// checked.
func read[T any](folder *storage.Job, f storage.File, table func(b bucket.Bucket, key, sha256 string, fn func(T) error) error, fn func(T) error) error {
	if err := checkSize(folder, f); err != nil {
		return err
	}
	var rows int64
	err := table(folder.Bucket(), f.Path, f.SHA256, func(row T) error {
		rows++
		return fn(row)
	})
	if own, ok := errors.AsType[*Failure](err); ok {
		return own
	}
	if err != nil {
		if sum, herr := digest(folder, f); herr == nil && sum != f.SHA256 {
			return failed(f.Path, "its sha256 is %s, the manifest says %s: the file was changed or damaged", sum, f.SHA256)
		}
		return failed(f.Path, "%v", err)
	}
	if rows != f.Rows {
		return failed(f.Path, "it has %d rows, the manifest says %d", rows, f.Rows)
	}
	return nil
}

// digest is the sha256 of a file.
func digest(folder *storage.Job, f storage.File) (string, error) {
	file, err := folder.Bucket().Open(context.Background(), f.Path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func commitPath(m pipeline.Mode, shard int) string {
	return fmt.Sprintf("_shards/mode=%s/part-%05d.json", m, shard)
}

func partPath(table string, m pipeline.Mode, shard int) string {
	return fmt.Sprintf("%s/mode=%s/part-%05d.parquet", table, m, shard)
}

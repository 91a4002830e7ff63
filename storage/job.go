package storage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/draftmill/draftmill/storage/bucket"
)

var (
	// ErrOtherJob is a folder that another job, or no job at all, has filled.
	ErrOtherJob = errors.New("the folder belongs to something else")
	// ErrLocked is a job that another process is running.
	ErrLocked = errors.New("the job is being run by another process")
	// ErrNoPlan is a job whose number of shards is not known yet.
	ErrNoPlan = errors.New("the job has no plan yet")
)

// Files and folders of a job. What begins with an underscore is not data;
// Spark, pyarrow and DuckDB's globs pass it by.
const (
	jobFile      = "job.json"
	planFile     = "_plan.json"
	manifestFile = "manifest.json"
	successFile  = "_SUCCESS"
	stagingDir   = bucket.Staging
	shardsDir    = "_shards"
	locksDir     = "_locks"
)

// A Job is the folder of one job's results, in a file system or an object
// store. Its methods may be called by
// several goroutines, and by several processes on the same folder.
type Job struct {
	b    bucket.Bucket
	name string
	spec []byte

	file bucket.Info // job.json as it was opened

	mu     sync.Mutex
	plan   *Plan             // as read
	hashed map[string]string // digests already computed, by bucket.Info.ID
	seen   map[string]int    // by mode: the shards below are known to be committed
}

// A Version names the software that made a job. Versions are recorded for
// people; they are not part of the job's identity.
type Version struct{ Name, Value string }

type jobJSON struct {
	Format   int               `json:"format"`
	Job      string            `json:"job"`
	Spec     json.RawMessage   `json:"spec"`
	Versions map[string]string `json:"versions"`
}

var (
	jobName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	modeName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
)

// CheckName reports why name is no job's, or nil. It is a folder's name, and a
// part of a NATS subject.
func CheckName(name string) error {
	if !jobName.MatchString(name) {
		return fmt.Errorf("%q is not a job name: use 1 to 64 letters, digits, '_' and '-', the first a letter or digit", name)
	}
	return nil
}

// CreateJob makes the folder out/name, out a path or a URL, for a job with this specification, a
// JSON object, or opens it again if it holds the same job: two specifications
// are the same if they are equal as JSON values. Otherwise the error wraps
// ErrOtherJob and names the keys that differ; nothing in the folder is
// touched. Processes may call it at the same time.
func CreateJob(out, name string, spec []byte, versions ...Version) (*Job, error) {
	if err := CheckName(name); err != nil {
		return nil, fmt.Errorf("create job: %w", err)
	}
	var object map[string]any
	if err := json.Unmarshal(spec, &object); err != nil || object == nil {
		return nil, fmt.Errorf("create job %s: the specification is not a JSON object", name)
	}
	ctx := context.Background()
	dir := bucket.Join(out, name)
	b, err := bucket.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("create job %s: %w", name, err)
	}
	there, err := bucket.Exists(ctx, b, jobFile)
	if err != nil {
		return nil, fmt.Errorf("create job %s: %w", name, err)
	}
	if !there {
		if err := checkUnused(ctx, b); err != nil {
			return nil, err
		}
		data := jsonBytes(jobJSON{Format: Format, Job: name, Spec: spec, Versions: versionMap(versions)})
		if _, err := b.CreateOnce(ctx, jobFile, data); err != nil {
			return nil, fmt.Errorf("create job %s: %w", name, err)
		}
	}
	j, err := OpenJob(dir)
	if err != nil {
		return nil, err
	}
	if j.name != name {
		return nil, fmt.Errorf("open job folder %s: %w: its %s is of job %s; choose another output folder", dir, ErrOtherJob, jobFile, j.name)
	}
	if diff := j.DiffSpec(spec); len(diff) > 0 {
		return nil, fmt.Errorf("open job folder %s: %w: a job that differs in %s; choose another job name or output folder", dir, ErrOtherJob, strings.Join(diff, ", "))
	}
	return j, nil
}

// OpenJob opens a folder, a path or a URL, that CreateJob made.
func OpenJob(dir string) (*Job, error) {
	ctx := context.Background()
	b, err := bucket.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open job folder: %w", err)
	}
	stat, err := b.Stat(ctx, jobFile)
	if bucket.NotExist(err) {
		return nil, fmt.Errorf("open job folder %s: it has no %s: %w", dir, jobFile, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("open job folder: %w", err)
	}
	data, err := b.Get(ctx, jobFile)
	if err != nil {
		return nil, fmt.Errorf("open job folder: %w", err)
	}
	var file jobJSON
	if err := json.Unmarshal(data, &file); err != nil || file.Format < 1 || CheckName(file.Job) != nil {
		return nil, fmt.Errorf("open job folder %s: %w: its %s is not one of draftmill's", dir, ErrOtherJob, jobFile)
	}
	if file.Format > Format {
		return nil, fmt.Errorf("open job folder %s: its format %d is newer than %d, which this draftmill knows: %w", dir, file.Format, Format, ErrNewer)
	}
	var spec bytes.Buffer
	if err := json.Compact(&spec, file.Spec); err != nil {
		return nil, fmt.Errorf("open job folder %s: specification in %s: %w", dir, jobFile, err)
	}
	return &Job{b: b, name: file.Job, spec: spec.Bytes(), file: stat, hashed: map[string]string{}, seen: map[string]int{}}, nil
}

// Current tells whether the folder still holds the job that was opened: it may have been removed, and another job
// made in its place. An error says that nobody can tell now.
func (j *Job) Current(ctx context.Context) (bool, error) {
	stat, err := j.b.Stat(ctx, jobFile)
	if bucket.NotExist(err) {
		return false, nil
	}
	return stat.ID == j.file.ID, wrapf(err, "look at job %s", j.name)
}

// Dir is the job's folder: a path or a URL.
func (j *Job) Dir() string { return j.b.String() }

// Bucket holds the job's files, by the names that FORMAT.md gives them.
func (j *Job) Bucket() bucket.Bucket { return j.b }

// Name is the job's name.
func (j *Job) Name() string { return j.name }

// Spec is the job's specification as compact JSON.
func (j *Job) Spec() []byte { return bytes.Clone(j.spec) }

// DiffSpec lists where spec, a JSON object, differs from the job's specification; nothing if they are equal as JSON
// values.
func (j *Job) DiffSpec(spec []byte) []string {
	return diffJSON("", decodeJSON(j.spec), decodeJSON(spec))
}

// Done tells whether the job is complete: _SUCCESS is there, and the manifest
// that is written before it.
func (j *Job) Done() bool {
	for _, name := range []string{successFile, manifestFile} {
		if there, err := bucket.Exists(context.Background(), j.b, name); !there || err != nil {
			return false
		}
	}
	return true
}

// Lock keeps other submits of the same job away, on this machine and on any
// other that sees the folder: with working flock, or an object store. It gives
// an error that wraps ErrLocked if one is running. The lock ends with unlock, or
// with the process.
func (j *Job) Lock(ctx context.Context) (unlock func() error, err error) {
	lock, err := j.b.TryLock(ctx, path.Join(locksDir, "run"), holder())
	if errors.Is(err, bucket.ErrLocked) {
		return nil, fmt.Errorf("lock job %s: %w: %w; wait for it, stop it, or choose another job name", j.name, ErrLocked, err)
	}
	if err != nil {
		return nil, fmt.Errorf("lock job %s: %w", j.name, err)
	}
	return lock.Release, nil
}

// checkUnused refuses to make a job of a folder in which something lies
// already. Another process may be making the same job at this moment.
func checkUnused(ctx context.Context, b bucket.Bucket) error {
	list, err := b.List(ctx, "")
	if err != nil {
		return fmt.Errorf("open job folder: %w", err)
	}
	other := ""
	for _, e := range list {
		if e.Key == jobFile {
			return nil // just made
		}
		if !strings.HasPrefix(e.Key, stagingDir+"/") {
			other = e.Key
		}
	}
	if other != "" {
		return fmt.Errorf("open job folder %s: %w: it holds %s but no %s; choose another job name or output folder", b, ErrOtherJob, other, jobFile)
	}
	return nil
}

// versionMap adds what the binary knows of itself.
func versionMap(versions []Version) map[string]string {
	m := map[string]string{"go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		m["draftmill"] = info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				m["revision"] = s.Value
			}
		}
	}
	for _, v := range versions {
		m[v.Name] = v.Value
	}
	return m
}

// decodeJSON keeps numbers as written, so that large integers compare exactly.
func decodeJSON(data []byte) any {
	var v any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// diffJSON lists where two JSON values differ, as "k (4 there, 5 here)".
func diffJSON(at string, there, here any) []string {
	a, aok := there.(map[string]any)
	b, bok := here.(map[string]any)
	if aok && bok {
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		var diff []string
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			name := k
			if at != "" {
				name = at + "." + k
			}
			va, ina := a[k]
			vb, inb := b[k]
			switch {
			case !ina:
				diff = append(diff, name+" (absent there, "+shortJSON(vb)+" here)")
			case !inb:
				diff = append(diff, name+" ("+shortJSON(va)+" there, absent here)")
			default:
				diff = append(diff, diffJSON(name, va, vb)...)
			}
		}
		return diff
	}
	sa, sb := shortJSON(there), shortJSON(here)
	if string(jsonBytes(there)) == string(jsonBytes(here)) {
		return nil
	}
	return []string{at + " (" + sa + " there, " + sb + " here)"}
}

func shortJSON(v any) string {
	s := []rune(strings.TrimSpace(string(must(json.Marshal(v)))))
	if len(s) > 60 {
		return string(s[:57]) + "..."
	}
	return string(s)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic("storage: " + err.Error())
	}
	return v
}

package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
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
	stagingDir   = "_staging"
	shardsDir    = "_shards"
	locksDir     = "_locks"
)

// A Job is the folder of one job's results. Its methods may be called by
// several goroutines, and by several processes on the same folder.
type Job struct {
	dir  string
	name string
	spec []byte

	file fs.FileInfo // job.json as it was opened

	mu     sync.Mutex
	plan   *Plan              // as read
	hashed map[fileKey]string // digests already computed
	seen   map[string]int     // by mode: the shards below are known to be committed
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

// CreateJob makes the folder out/name for a job with this specification, a
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
	dir := filepath.Join(out, name)
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("create job %s: %w", name, err)
	}
	path := filepath.Join(dir, jobFile)
	there, err := exists(path)
	if err != nil {
		return nil, fmt.Errorf("create job %s: %w", name, err)
	}
	if !there {
		if err := checkUnused(dir); err != nil {
			return nil, err
		}
		data := jsonBytes(jobJSON{Format: Format, Job: name, Spec: spec, Versions: versionMap(versions)})
		if _, err := createOnce(path, data, dir); err != nil {
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

// OpenJob opens a folder that CreateJob made.
func OpenJob(dir string) (*Job, error) {
	path := filepath.Join(dir, jobFile)
	stat, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open job folder %s: it has no %s: %w", dir, jobFile, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("open job folder: %w", err)
	}
	data, err := os.ReadFile(path)
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
	return &Job{dir: dir, name: file.Job, spec: spec.Bytes(), file: stat, hashed: map[fileKey]string{}, seen: map[string]int{}}, nil
}

// Current tells whether the folder still holds the job that was opened: it may have been removed, and another job
// made in its place.
func (j *Job) Current() bool {
	stat, err := os.Stat(j.path(jobFile))
	return err == nil && os.SameFile(stat, j.file) && stat.ModTime().Equal(j.file.ModTime())
}

// Dir is the job's folder.
func (j *Job) Dir() string { return j.dir }

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
		if there, err := exists(j.path(name)); !there || err != nil {
			return false
		}
	}
	return true
}

// Lock keeps other submits of the same job away, on this machine and on any
// other that shares the folder with working flock. It gives an error that
// wraps ErrLocked at once if one is running. The lock ends with unlock, or
// with the process.
func (j *Job) Lock() (unlock func() error, err error) {
	if err := makeDir(j.path(locksDir)); err != nil {
		return nil, fmt.Errorf("lock job %s: %w", j.name, err)
	}
	path := j.path(locksDir, "run")
	f, err := tryLock(path)
	if errors.Is(err, unix.EWOULDBLOCK) {
		holder, _ := os.ReadFile(path)
		return nil, fmt.Errorf("lock job %s: %w (%s); wait for it, stop it, or choose another job name", j.name, ErrLocked, strings.TrimSpace(string(holder)))
	}
	if err != nil {
		return nil, fmt.Errorf("lock job %s: %w", j.name, err)
	}
	// Who holds it, for the other's error line; the lock itself needs no content.
	host, _ := os.Hostname()
	if err := errors.Join(f.Truncate(0), writeAt(f, fmt.Sprintf("process %d on %s\n", os.Getpid(), host))); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock job %s: %w", j.name, err)
	}
	return f.Close, nil
}

func writeAt(f io.WriterAt, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// path joins elements to the job's folder.
func (j *Job) path(elem ...string) string {
	return filepath.Join(append([]string{j.dir}, elem...)...)
}

// checkUnused refuses to make a job of a folder in which something lies
// already. Another process may be making the same job at this moment.
func checkUnused(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("open job folder: %w", err)
	}
	for _, e := range entries {
		if e.Name() == jobFile {
			return nil // just made
		}
		if !strings.HasPrefix(e.Name(), "."+jobFile) {
			return fmt.Errorf("open job folder %s: %w: it holds %s but no %s; choose another job name or output folder", dir, ErrOtherJob, e.Name(), jobFile)
		}
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

package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow/go/v17/parquet/file"
)

const spec = `{"k": 4, "temperature": 0.8, "seed": 18446744073709551615, "model": {"target": "ab", "draft": "cd"}}`

func newJob(t *testing.T) *Job {
	t.Helper()
	j, err := CreateJob(filepath.Join(t.TempDir(), "out"), "he", []byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// shardRows is what every writer in these tests puts into a shard.
const shardRows = 5

func fillShard(t testing.TB, j *Job, mode string, shard int, worker string) *ShardWriter {
	t.Helper()
	w, err := j.NewShardWriter(mode, shard)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(shardRows) {
		c := fakeCompletion(int64(shard)*shardRows + i)
		c.Worker = worker
		if err := w.AddCompletion(c); err != nil {
			t.Fatal(err)
		}
		if err := w.AddLoop(fakeLoop(i)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func commitShard(t testing.TB, j *Job, mode string, shard int, worker string) bool {
	t.Helper()
	w := fillShard(t, j, mode, shard, worker)
	won, err := w.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return won
}

// tree lists the files below a folder, locks and folders left out.
func tree(t testing.TB, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && filepath.Base(filepath.Dir(path)) != locksDir {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A job from its creation to _SUCCESS.
func TestLifeOfAJob(t *testing.T) {
	checkAlloc(t)
	j := newJob(t)
	if _, err := j.Plan(); !errors.Is(err, ErrNoPlan) {
		t.Errorf("plan of a new job: %v", err)
	}
	if done, err := j.Finalize(t.Context()); done || err != nil {
		t.Errorf("a job without a plan: %v %v", done, err)
	}
	for range 2 {
		if err := j.WritePlan(2, 10, []string{"ars", "sps"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.WritePlan(3, 10, []string{"ars", "sps"}); err == nil || !strings.Contains(err.Error(), "2 shards") {
		t.Errorf("another plan: %v", err)
	}
	for _, mode := range []string{"ars", "sps"} {
		for shard := range 2 {
			if ok, err := j.Committed(t.Context(), mode, shard); ok || err != nil {
				t.Fatalf("committed before: %v %v", ok, err)
			}
			if done, err := j.Finalize(t.Context()); done || err != nil || j.Done() {
				t.Fatalf("done before: %v %v", done, err)
			}
			if !commitShard(t, j, mode, shard, "w") {
				t.Fatal("the only writer lost")
			}
			if ok, err := j.Committed(t.Context(), mode, shard); !ok || err != nil {
				t.Fatalf("not committed after: %v %v", ok, err)
			}
		}
	}
	os.WriteFile(j.path(stagingDir, "orphan.parquet"), []byte("x"), 0o644)
	for range 2 {
		if done, err := j.Finalize(t.Context()); !done || err != nil || !j.Done() {
			t.Fatalf("finalize: %v %v", done, err)
		}
	}
	want := []string{
		"_SUCCESS", "_plan.json",
		"_shards/mode=ars/part-00000.json", "_shards/mode=ars/part-00001.json", "_shards/mode=sps/part-00000.json", "_shards/mode=sps/part-00001.json",
		"completions/mode=ars/part-00000.parquet", "completions/mode=ars/part-00001.parquet", "completions/mode=sps/part-00000.parquet", "completions/mode=sps/part-00001.parquet",
		"job.json",
		"loops/mode=ars/part-00000.parquet", "loops/mode=ars/part-00001.parquet", "loops/mode=sps/part-00000.parquet", "loops/mode=sps/part-00001.parquet",
		"manifest.json",
	}
	if got := tree(t, j.Dir()); !slices.Equal(got, want) {
		t.Errorf("files\n got %q\nwant %q", got, want)
	}
	m, err := j.Manifest()
	if err != nil || len(m.Files) != 8 || m.Plan.Rows != 10 {
		t.Fatalf("manifest %+v: %v", m, err)
	}
	var identity bytes.Buffer
	if err := json.Compact(&identity, m.Spec); err != nil || !bytes.Equal(identity.Bytes(), j.Spec()) {
		t.Errorf("the manifest's specification is %s, the job's %s", &identity, j.Spec())
	}
	for _, f := range m.Files {
		if got := metaOf(t, j.path(filepath.FromSlash(f.Path))); got[metaSpec] != identity.String() || got[metaMode] != f.Mode || got[metaShard] != fmt.Sprint(f.Shard) {
			t.Errorf("%s: its metadata is %v", f.Path, got)
		}
		stat, err := os.Stat(j.path(filepath.FromSlash(f.Path)))
		if err != nil || stat.Size() != f.Bytes || f.Rows != shardRows {
			t.Errorf("%+v: %v %v", f, stat, err)
		}
	}
	// Another process sees the same.
	again, err := OpenJob(j.Dir())
	if err != nil {
		t.Fatal(err)
	}
	var rows []int64
	if err := again.ReadCompletions("sps", func(c Completion) error { rows = append(rows, c.Row); return nil }); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(rows, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("rows %v", rows)
	}
	loops := 0
	if err := again.ReadLoops("ars", func(Loop) error { loops++; return nil }); err != nil || loops != 10 {
		t.Errorf("%d loops: %v", loops, err)
	}
	if err := again.ReadCompletions("*", func(Completion) error { return nil }); err == nil {
		t.Error("a pattern was taken for a mode")
	}
}

// metaOf is the metadata of a Parquet file.
func metaOf(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := file.OpenParquetFile(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	kv, meta := f.MetaData().KeyValueMetadata(), map[string]string{}
	for i, key := range kv.Keys() {
		meta[key] = kv.Values()[i]
	}
	return meta
}

func TestEmptyJobIsDone(t *testing.T) {
	j := newJob(t)
	if err := j.WritePlan(0, 0, []string{"ars"}); err != nil {
		t.Fatal(err)
	}
	if done, err := j.Finalize(t.Context()); !done || err != nil {
		t.Fatalf("%v %v", done, err)
	}
}

func TestCreateJobOpensTheSameJobOnly(t *testing.T) {
	out := t.TempDir()
	first, err := CreateJob(out, "he", []byte(spec), Version{"onnxruntime", "1.30.0"})
	if err != nil {
		t.Fatal(err)
	}
	same := `{"model":{"draft":"cd","target":"ab"},"seed":18446744073709551615,"temperature":0.8,"k":4}`
	again, err := CreateJob(out, "he", []byte(same), Version{"onnxruntime", "1.31.0"})
	if err != nil {
		t.Fatalf("the same specification in another order: %v", err)
	}
	if again.Dir() != first.Dir() || again.Name() != "he" || string(again.Spec()) != string(first.Spec()) {
		t.Errorf("%+v", again)
	}
	before := tree(t, out)
	for other, want := range map[string]string{
		strings.Replace(spec, "4", "5", 1):                                       "differs in k (4 there, 5 here)",
		strings.Replace(spec, "18446744073709551615", "18446744073709551614", 1): "differs in seed (18446744073709551615 there",
		strings.Replace(spec, `"cd"`, `"ef"`, 1):                                 `model.draft ("cd" there, "ef" here)`,
		strings.Replace(spec, `"k"`, `"lookahead"`, 1):                           "k (4 there, absent here), lookahead (absent there, 4 here)",
	} {
		_, err := CreateJob(out, "he", []byte(other))
		if !errors.Is(err, ErrOtherJob) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	if after := tree(t, out); !slices.Equal(before, after) {
		t.Errorf("a refused job changed the folder: %q", after)
	}
	os.Mkdir(filepath.Join(out, "photos"), 0o755)
	os.WriteFile(filepath.Join(out, "photos", "cat.jpg"), nil, 0o644)
	if _, err := CreateJob(out, "photos", []byte(spec)); !errors.Is(err, ErrOtherJob) || !strings.Contains(err.Error(), "cat.jpg") {
		t.Errorf("a foreign folder: %v", err)
	}
	os.WriteFile(filepath.Join(out, "photos", jobFile), []byte("{}"), 0o644)
	if _, err := CreateJob(out, "photos", []byte(spec)); !errors.Is(err, ErrOtherJob) {
		t.Errorf("a foreign job.json: %v", err)
	}
	os.WriteFile(filepath.Join(out, "photos", jobFile), []byte(`{"format":2,"job":"photos","spec":{}}`), 0o644)
	if _, err := OpenJob(filepath.Join(out, "photos")); err == nil || !strings.Contains(err.Error(), "newer than 1") {
		t.Errorf("a later format: %v", err)
	}
	for _, name := range []string{"", "..", "a/b", "-x", ".hidden"} {
		if _, err := CreateJob(out, name, []byte(spec)); err == nil {
			t.Errorf("job name %q was accepted", name)
		}
	}
	for _, bad := range []string{"", "null", "[]", "{"} {
		if _, err := CreateJob(out, "new", []byte(bad)); err == nil {
			t.Errorf("specification %q was accepted", bad)
		}
	}
	if _, err := OpenJob(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("open a folder that is no job: %v", err)
	}
	file := filepath.Join(out, "file")
	os.WriteFile(file, nil, 0o644)
	if _, err := CreateJob(file, "he", []byte(spec)); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("out is a file: %v", err)
	}
}

// Of many processes that create a job at once, all get the same one.
func TestCreateJobConcurrently(t *testing.T) {
	out := t.TempDir()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, err := CreateJob(out, "he", []byte(spec)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := tree(t, out); !slices.Equal(got, []string{"he/job.json"}) {
		t.Errorf("files %q", got)
	}
}

func TestLockIsExclusive(t *testing.T) {
	j := newJob(t)
	unlock, err := j.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other, err := OpenJob(j.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Lock(t.Context()); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "process ") {
		t.Errorf("second lock: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	unlock, err = other.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

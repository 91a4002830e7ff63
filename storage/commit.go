package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// A shardManifest is the commit record of one shard in one mode. Once it has
// its name, the shard's result is decided: these files and no others.
type shardManifest struct {
	Format int         `json:"format"`
	Job    string      `json:"job"`
	Mode   string      `json:"mode"`
	Shard  int         `json:"shard"`
	Files  []shardFile `json:"files"`
}

// A shardFile is one table of a shard.
type shardFile struct {
	Table   string `json:"table"`
	Staging string `json:"staging"` // name in _staging until the file is moved
	Rows    int64  `json:"rows"`
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
}

// tables of a shard, in the order in which its files are written and moved.
var tables = []string{completionTable.name, loopTable.name}

// shardPart is the name of a shard's files, without extension.
func shardPart(shard int) string { return fmt.Sprintf("part-%05d", shard) }

// finalPath is where readers find a table of a shard, relative to the job.
func finalPath(table, mode string, shard int) string {
	return filepath.Join(table, "mode="+mode, shardPart(shard)+".parquet")
}

func (j *Job) shardManifestPath(mode string, shard int) string {
	return j.path(shardsDir, "mode="+mode, shardPart(shard)+".json")
}

// A ShardWriter writes the tables of one shard in one mode, out of readers'
// sight, until Commit. It is not safe for concurrent use. End it with Commit
// or Abort; Abort after Commit does nothing, so that it may be deferred.
type ShardWriter struct {
	job         *Job
	mode        string
	shard       int
	staging     []string // names in _staging, as in tables
	completions *tableWriter[Completion]
	loops       *tableWriter[Loop]
	ended       bool
}

// NewShardWriter begins to write a shard. Any number of writers of the same
// shard may exist, in any processes: the first to commit wins.
func (j *Job) NewShardWriter(mode string, shard int) (*ShardWriter, error) {
	w := &ShardWriter{job: j, mode: mode, shard: shard}
	if err := checkShard(mode, shard); err != nil {
		return nil, w.wrap(err)
	}
	for _, dir := range []string{j.path(stagingDir), filepath.Dir(j.shardManifestPath(mode, shard))} {
		if err := makeDir(dir); err != nil {
			return nil, w.wrap(err)
		}
	}
	id := unique()
	for _, table := range tables {
		if err := makeDir(filepath.Dir(j.path(finalPath(table, mode, shard)))); err != nil {
			return nil, w.wrap(err)
		}
		w.staging = append(w.staging, fmt.Sprintf("%s-%s-%s.%s.parquet", mode, shardPart(shard), id, table))
	}
	meta := map[string]string{metaJob: j.name, metaSpec: string(j.spec), metaMode: mode, metaShard: strconv.Itoa(shard)}
	var err error
	if w.completions, err = newTableWriter(completionTable, j.path(stagingDir, w.staging[0]), meta); err != nil {
		return nil, w.wrap(err)
	}
	if w.loops, err = newTableWriter(loopTable, j.path(stagingDir, w.staging[1]), meta); err != nil {
		_, _ = w.completions.close()
		_ = w.removeStaging()
		return nil, w.wrap(err)
	}
	return w, nil
}

func checkShard(mode string, shard int) error {
	if !modeName.MatchString(mode) {
		return fmt.Errorf("%q is not a mode", mode)
	}
	if shard < 0 {
		return errors.New("the shard's number is negative")
	}
	return nil
}

// AddCompletion appends a completion. After an error only Abort makes sense.
func (w *ShardWriter) AddCompletion(c Completion) error { return w.wrap(w.completions.add(&c)) }

// AddLoop appends a loop. After an error only Abort makes sense.
func (w *ShardWriter) AddLoop(l Loop) error { return w.wrap(w.loops.add(&l)) }

// Commit makes the rows the shard's result, unless another writer has
// committed the shard before: then it removes what this one wrote and returns
// won == false. Either way the shard is committed and in place when err is
// nil. With an error and won == false nothing was committed by this writer
// and nothing of it is left; with an error and won == true the shard is
// committed, but moving its files did not end: Committed or Recover continue.
func (w *ShardWriter) Commit(ctx context.Context) (won bool, err error) {
	if w.ended {
		return false, w.wrap(errors.New("the writer has ended"))
	}
	w.ended = true
	defer func() {
		if !won {
			_ = w.removeStaging()
		}
	}()
	m, err := w.finish()
	if err != nil {
		return false, w.wrap(err)
	}
	path := w.job.shardManifestPath(w.mode, w.shard)
	// A manifest in the way may prove to be damaged, and go: then try again.
	for range 3 {
		step("before link")
		if !w.job.Current() {
			return false, w.wrap(fmt.Errorf("%w: it was removed, or made anew, while the shard was decoded", ErrOtherJob))
		}
		won, err = createOnce(path, jsonBytes(m), w.job.path(stagingDir))
		if err != nil {
			return won, w.wrap(err)
		}
		step("link synced")
		committed, err := w.job.settle(ctx, w.mode, w.shard)
		if err != nil {
			return won, w.wrap(err)
		}
		if committed != nil {
			return won, nil
		}
		if won {
			return false, w.wrap(errors.New("its files were damaged or removed while it was committed"))
		}
	}
	return false, w.wrap(errors.New("other writers' damaged commits keep coming back"))
}

// finish closes both files, durably, and describes them.
func (w *ShardWriter) finish() (shardManifest, error) {
	m := shardManifest{Format: Format, Job: w.job.name, Mode: w.mode, Shard: w.shard}
	step("before staging")
	completions, err := w.completions.close()
	step("completions staged")
	loops, lerr := w.loops.close() // always: it holds a file and buffers
	step("loops staged")
	if err == nil {
		err = lerr
	}
	if err == nil {
		err = syncDir(w.job.path(stagingDir))
	}
	if err != nil {
		return m, err
	}
	for i, info := range []fileInfo{completions, loops} {
		if err := w.job.know(w.job.path(stagingDir, w.staging[i]), info.sha256); err != nil {
			return m, err
		}
		m.Files = append(m.Files, shardFile{Table: tables[i], Staging: w.staging[i], Rows: info.rows, Bytes: info.bytes, SHA256: info.sha256})
	}
	return m, nil
}

// Abort gives up and removes what was written.
func (w *ShardWriter) Abort() error {
	if w.ended {
		return nil
	}
	w.ended = true
	_, _ = w.completions.close()
	_, _ = w.loops.close()
	return w.wrap(w.removeStaging())
}

func (w *ShardWriter) removeStaging() error {
	var first error
	for _, name := range w.staging {
		if err := remove(w.job.path(stagingDir, name)); first == nil {
			first = err
		}
	}
	return first
}

// roomWanted is how much a disk must take before it has room again.
const roomWanted = 4 << 20

// Room tries whether the folder's disk takes data: nil says that it does.
func (j *Job) Room() error {
	if err := makeDir(j.path(stagingDir)); err != nil {
		return fmt.Errorf("look for room in %s: %w", j.dir, err)
	}
	path := j.path(stagingDir, ".room."+unique())
	defer os.Remove(path)
	if err := writeSynced(path, make([]byte, roomWanted)); err != nil {
		return fmt.Errorf("look for room in %s: %w", j.dir, err)
	}
	return nil
}

// remove removes a file that may be gone already.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (w *ShardWriter) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("write shard %d of mode %s: %w", w.shard, w.mode, err)
}

package storage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"

	"github.com/draftmill/draftmill/storage/bucket"
)

// A shardManifest is the commit record of one shard in one mode. Once it has
// its name, the shard's result is decided: these files and no others.
type shardManifest struct {
	Format  int         `json:"format"`
	Job     string      `json:"job"`
	Mode    string      `json:"mode"`
	Shard   int         `json:"shard"`
	Attempt int         `json:"attempt,omitempty"`
	Files   []shardFile `json:"files"`
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

// Keys within the job: where readers find a table of a shard, the shard's
// manifest, and a file that is being written.
func finalKey(table, mode string, shard int) string {
	return path.Join(table, "mode="+mode, shardPart(shard)+".parquet")
}

func shardManifestKey(mode string, shard int) string {
	return path.Join(shardsDir, "mode="+mode, shardPart(shard)+".json")
}

func stagingKey(name string) string { return path.Join(stagingDir, name) }

// A ShardWriter writes the tables of one shard in one mode, out of readers'
// sight, until Commit. It is not safe for concurrent use. End it with Commit
// or Abort; Abort after Commit does nothing, so that it may be deferred.
type ShardWriter struct {
	// Attempt goes into the commit record: how often the shard had been handed
	// out when it was decoded, this time included; 0 is unknown.
	Attempt int

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
	id := unique()
	for _, table := range tables {
		w.staging = append(w.staging, fmt.Sprintf("%s-%s-%s.%s.parquet", mode, shardPart(shard), id, table))
	}
	meta := map[string]string{metaJob: j.name, metaSpec: string(j.spec), metaMode: mode, metaShard: strconv.Itoa(shard)}
	var err error
	if w.completions, err = createTable(j.b, stagingKey(w.staging[0]), completionTable, meta); err != nil {
		return nil, w.wrap(err)
	}
	if w.loops, err = createTable(j.b, stagingKey(w.staging[1]), loopTable, meta); err != nil {
		w.completions.abort()
		return nil, w.wrap(err)
	}
	return w, nil
}

// createTable begins a file. The writer outlives whatever began it: it ends with
// close or abort.
func createTable[T any](b bucket.Bucket, key string, t *table[T], meta map[string]string) (*tableWriter[T], error) {
	to, err := b.Create(context.Background(), key)
	if err != nil {
		return nil, err
	}
	return newTableWriter(t, to, meta)
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
			_ = w.removeStaging(ctx)
		}
	}()
	m, err := w.finish()
	if err != nil {
		return false, w.wrap(err)
	}
	key := shardManifestKey(w.mode, w.shard)
	// A manifest in the way may prove to be damaged, and go: then try again.
	for range 3 {
		step("before link")
		if current, err := w.job.Current(ctx); err != nil || !current {
			if err == nil {
				err = fmt.Errorf("%w: it was removed, or made anew, while the shard was decoded", ErrOtherJob)
			}
			return false, w.wrap(err)
		}
		won, err = w.job.b.CreateOnce(ctx, key, jsonBytes(m))
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
	m := shardManifest{Format: Format, Job: w.job.name, Mode: w.mode, Shard: w.shard, Attempt: w.Attempt}
	step("before staging")
	completions, err := w.completions.close()
	step("completions staged")
	loops, lerr := w.loops.close() // always: it holds a file and buffers
	step("loops staged")
	if err == nil {
		err = lerr
	}
	if err != nil {
		return m, err
	}
	for i, info := range []fileInfo{completions, loops} {
		w.job.know(info.id, info.sha256)
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
	w.completions.abort()
	w.loops.abort()
	return nil
}

func (w *ShardWriter) removeStaging(ctx context.Context) error {
	var first error
	for _, name := range w.staging {
		if err := w.job.b.Remove(ctx, stagingKey(name)); first == nil {
			first = err
		}
	}
	return first
}

func (w *ShardWriter) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("write shard %d of mode %s: %w", w.shard, w.mode, err)
}

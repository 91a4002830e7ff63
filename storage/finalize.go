package storage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/draftmill/draftmill/storage/bucket"
)

// A Plan says what a complete job consists of: so many shards in each mode.
type Plan struct {
	Shards int      `json:"shards"`
	Rows   int64    `json:"rows"` // rows of the dataset over all shards
	Modes  []string `json:"modes"`
}

type planJSON struct {
	Format int    `json:"format"`
	Job    string `json:"job"`
	Plan
}

// WritePlan records how many shards the job has, once: any worker can then
// tell when the job is complete. The same plan again is no error; another one
// is, because the dataset was not the one of the first run.
func (j *Job) WritePlan(shards int, rows int64, modes []string) error {
	plan := Plan{Shards: shards, Rows: rows, Modes: slices.Clone(modes)}
	if err := plan.check(); err != nil {
		return fmt.Errorf("plan job %s: %w", j.name, err)
	}
	created, err := j.b.CreateOnce(context.Background(), planFile, jsonBytes(planJSON{Format, j.name, plan}))
	if err != nil || created {
		return wrapf(err, "plan job %s", j.name)
	}
	was, err := j.Plan()
	if err != nil {
		return err
	}
	if was.Shards != shards || was.Rows != rows || !slices.Equal(was.Modes, plan.Modes) {
		return fmt.Errorf("plan job %s: it has %d shards of %d rows in modes %v, now %d of %d in %v: the dataset or the shard size changed; choose another job name",
			j.name, was.Shards, was.Rows, was.Modes, shards, rows, modes)
	}
	return nil
}

// Plan returns what WritePlan recorded, or an error that wraps ErrNoPlan.
func (j *Job) Plan() (Plan, error) {
	j.mu.Lock()
	known := j.plan
	j.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	data, err := j.b.Get(context.Background(), planFile)
	if bucket.NotExist(err) {
		return Plan{}, fmt.Errorf("read plan of job %s: %w", j.name, ErrNoPlan)
	}
	if err != nil {
		return Plan{}, fmt.Errorf("read plan of job %s: %w", j.name, err)
	}
	var p planJSON
	if err := json.Unmarshal(data, &p); err != nil || p.Format < 1 || p.Format > Format || p.check() != nil {
		return Plan{}, fmt.Errorf("read plan of job %s: %s is not a plan that this draftmill can read", j.name, bucket.Join(j.Dir(), planFile))
	}
	j.mu.Lock()
	j.plan = &p.Plan
	j.mu.Unlock()
	return p.Plan, nil
}

func (p Plan) check() error {
	if p.Shards < 0 || p.Rows < 0 || len(p.Modes) == 0 {
		return fmt.Errorf("%d shards of %d rows in %d modes is not a plan", p.Shards, p.Rows, len(p.Modes))
	}
	for i, mode := range p.Modes {
		if !modeName.MatchString(mode) || slices.Contains(p.Modes[:i], mode) {
			return fmt.Errorf("%v are not modes", p.Modes)
		}
	}
	return nil
}

// A Manifest is the content of a complete job's manifest.json.
type Manifest struct {
	Format int             `json:"format"`
	Job    string          `json:"job"`
	Plan   Plan            `json:"plan"`
	Files  []File          `json:"files"` // by table, mode and shard
	Spec   json.RawMessage `json:"spec"`  // job.json's
}

// A File is one Parquet file of a job.
type File struct {
	Table  string `json:"table"` // "completions" or "loops"
	Mode   string `json:"mode"`
	Shard  int    `json:"shard"`
	Path   string `json:"path"` // relative to the job's folder, with slashes
	Rows   int64  `json:"rows"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Finalize completes the job if every planned shard is committed: it writes
// manifest.json, then _SUCCESS, then removes what abandoned writers left. If
// something is missing, or the plan is, it changes nothing and returns false.
// Anyone may call it at any time, any number of times; ctx ends the wait for
// another process that completes the job.
//
// A call looks on from where the last one found a shard missing. Only one that
// finds none missing looks into the files, each once.
func (j *Job) Finalize(ctx context.Context) (done bool, err error) {
	plan, err := j.Plan()
	if errors.Is(err, ErrNoPlan) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if missing, err := j.missing(ctx, plan); missing || err != nil {
		return false, wrapf(err, "finalize job %s", j.name)
	}
	was := j.Done()
	lock, err := j.wait(ctx, completeLock)
	if err != nil {
		return false, wrapf(err, "finalize job %s", j.name)
	}
	defer release(lock)
	if !was && j.Done() { // by whoever held the lock
		return true, nil
	}
	for range 3 {
		var again bool
		done, again, err = j.finalize(ctx, plan)
		if !again || err != nil {
			break
		}
	}
	return done, wrapf(err, "finalize job %s", j.name)
}

// missing tells whether a planned shard is known to be not committed.
func (j *Job) missing(ctx context.Context, plan Plan) (bool, error) {
	for _, mode := range plan.Modes {
		j.mu.Lock()
		shard := j.seen[mode]
		j.mu.Unlock()
		for ; shard < plan.Shards; shard++ {
			note("look")
			there, err := bucket.Exists(ctx, j.b, shardManifestKey(mode, shard))
			if err != nil || !there {
				return true, err
			}
			j.mu.Lock()
			j.seen[mode] = shard + 1
			j.mu.Unlock()
		}
	}
	return false, nil
}

// finalize writes the job's marks. again is true when a shard was withdrawn meanwhile.
func (j *Job) finalize(ctx context.Context, plan Plan) (done, again bool, err error) {
	withdrawals, err := j.withdrawals(ctx)
	if err != nil {
		return false, false, err
	}
	manifest := Manifest{Format: Format, Job: j.name, Plan: plan, Files: []File{}, Spec: j.spec}
	files := make([][]File, len(tables))
	for _, mode := range plan.Modes {
		found, err := j.settleAll(ctx, mode, plan.Shards)
		if found == nil || err != nil {
			return false, false, err
		}
		for shard, m := range found {
			for i, table := range tables {
				f := m.Files[i]
				files[i] = append(files[i], File{table, mode, shard, finalKey(table, mode, shard), f.Rows, f.Bytes, f.SHA256})
			}
		}
	}
	manifest.Files = append(manifest.Files, slices.Concat(files...)...)
	lock, err := j.wait(ctx, marksLock)
	if err != nil {
		return false, false, err
	}
	defer release(lock)
	if now, err := j.withdrawals(ctx); err != nil || now != withdrawals {
		return false, true, err
	}
	return true, false, j.mark(ctx, manifest, lock)
}

// settleAll settles the shards of a mode and gives their manifests, or nil if
// one has none. An object store is asked for many at once.
func (j *Job) settleAll(ctx context.Context, mode string, shards int) ([]*shardManifest, error) {
	all := make([]*shardManifest, shards)
	missing := shards
	var mu sync.Mutex
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(1)
	if bucket.IsURL(j.Dir()) {
		g.SetLimit(32)
	}
	for shard := range shards {
		if within.Err() != nil {
			break
		}
		g.Go(func() error {
			m, err := j.settle(within, mode, shard)
			if m == nil && err == nil {
				mu.Lock()
				missing = min(missing, shard)
				mu.Unlock()
				return errMissing // the others need not be looked at
			}
			all[shard] = m
			return err
		})
	}
	err := g.Wait()
	if errors.Is(err, errMissing) {
		j.mu.Lock()
		j.seen[mode] = min(j.seen[mode], missing)
		j.mu.Unlock()
		return nil, nil
	}
	if err == nil && slices.Contains(all, nil) {
		err = ctx.Err()
	}
	return all, err
}

var errMissing = errors.New("a shard is not committed")

// mark writes manifest.json and _SUCCESS, and clears away.
func (j *Job) mark(ctx context.Context, manifest Manifest, lock bucket.Lock) error {
	data := jsonBytes(manifest)
	if old, err := j.b.Get(ctx, manifestFile); err != nil || !bytes.Equal(old, data) {
		if err := errors.Join(lock.Held(), j.b.Remove(ctx, successFile), j.b.Remove(ctx, signatureFile)); err != nil {
			return err
		}
		step("before manifest")
		if err := j.b.Replace(ctx, manifestFile, data); err != nil {
			return err
		}
		step("manifest written")
	}
	if !j.Done() {
		if err := errors.Join(lock.Held(), j.b.Replace(ctx, successFile, nil)); err != nil {
			return err
		}
	}
	step("success written")
	return j.sweep(ctx)
}

// sweep removes what interrupted or beaten writers left. It is safe only
// here, with every shard in place and the lock held: whoever still writes has
// lost already, and will find its shard committed.
func (j *Job) sweep(ctx context.Context) error {
	left, err := j.b.List(ctx, stagingDir)
	if err != nil {
		return err
	}
	for _, e := range left {
		if err := j.b.Remove(ctx, e.Key); err != nil {
			return err
		}
	}
	return nil
}

// Manifest reads manifest.json of a complete job.
func (j *Job) Manifest() (Manifest, error) {
	data, err := j.b.Get(context.Background(), manifestFile)
	if err != nil {
		return Manifest{}, fmt.Errorf("read manifest of job %s: %w", j.name, err)
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil || m.Format < 1 || m.Format > Format {
		return Manifest{}, fmt.Errorf("read manifest of job %s: %s is not a manifest that this draftmill can read", j.name, bucket.Join(j.Dir(), manifestFile))
	}
	return m, nil
}

// ReadCompletions calls fn for every completion that is committed in a mode,
// by shard, each file's digest checked before. It stops at fn's first error.
// The job need not be complete, and the folder may be read-only; after an
// interrupted run, call Recover first.
func (j *Job) ReadCompletions(mode string, fn func(Completion) error) error {
	return readShards(j, completionTable, mode, fn)
}

// ReadLoops is ReadCompletions for the loops.
func (j *Job) ReadLoops(mode string, fn func(Loop) error) error {
	return readShards(j, loopTable, mode, fn)
}

func readShards[T any](j *Job, t *table[T], mode string, fn func(T) error) error {
	if err := checkShard(mode, 0); err != nil {
		return fmt.Errorf("read %s of job %s: %w", t.name, j.name, err)
	}
	ctx := context.Background()
	shards, err := j.committedShards(ctx, mode)
	if err != nil {
		return fmt.Errorf("read %s of job %s: %w", t.name, j.name, err)
	}
	for _, shard := range shards {
		m, err := j.readShardManifest(ctx, mode, shard)
		if err != nil {
			return fmt.Errorf("read %s of job %s: shard %d: %w", t.name, j.name, shard, err)
		}
		if m == nil {
			continue // withdrawn meanwhile
		}
		f := m.Files[slices.Index(tables, t.name)]
		if err := readTable(t, j.b, finalKey(t.name, mode, shard), f.SHA256, fn); err != nil {
			return err
		}
	}
	return nil
}

func wrapf(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

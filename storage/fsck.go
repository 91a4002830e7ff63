package storage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/draftmill/draftmill/storage/bucket"
)

// Kinds of findings.
const (
	FindMissing = "missing" // a planned shard is not committed, or a committed file is not there
	FindDamaged = "damaged" // content that is not what was committed
	FindDoubled = "doubled" // what a reader would find beside the result
	FindStray   = "stray"   // what an interrupted writer left
	FindMarks   = "marks"   // _SUCCESS or manifest.json do not say what is there
)

// A Finding is one thing in a job's folder that is not as it should be.
type Finding struct {
	Kind  string `json:"kind"`
	Path  string `json:"path"` // within the job's folder
	Mode  string `json:"mode,omitempty"`
	Shard int    `json:"shard"` // -1 where it is of none
	What  string `json:"what"`
}

// An Examination is the state of a job's folder.
type Examination struct {
	Job      string    `json:"job"`
	Dir      string    `json:"dir"`
	Complete bool      `json:"complete"` // _SUCCESS and manifest.json are there
	Planned  int       `json:"planned"`  // shards over all modes; 0 without a plan
	Whole    int       `json:"whole"`    // of them, committed and intact
	Files    int       `json:"files"`    // read to their ends
	Bytes    int64     `json:"bytes"`    // of them
	Findings []Finding `json:"findings"`
}

// damagedDir is where Repair puts what is damaged, for people to look at.
const damagedDir = "_damaged"

// temporary are names of files that are being written.
var temporary = regexp.MustCompile(`^\..*\.[0-9a-f]{16}$`)

// Examine reads everything in the job's folder, every result to its end, and
// changes nothing. Of a job that is being run it may find what is only under way.
func (j *Job) Examine(ctx context.Context) (*Examination, error) {
	x := &examiner{job: j, e: &Examination{Job: j.name, Dir: j.Dir(), Complete: j.Done(), Findings: []Finding{}}}
	if err := x.run(ctx); err != nil {
		return nil, fmt.Errorf("examine job %s: %w", j.name, err)
	}
	slices.SortStableFunc(x.e.Findings, func(a, b Finding) int { return strings.Compare(a.Path, b.Path) })
	return x.e, nil
}

// examiner collects an Examination.
type examiner struct {
	job     *Job
	there   map[string]bucket.Info // all objects, by key
	claimed map[string]bool        // those that belong to a shard
	plan    Plan

	mu sync.Mutex
	e  *Examination
}

func (x *examiner) find(kind, key, mode string, shard int, format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.e.Findings = append(x.e.Findings, Finding{kind, key, mode, shard, fmt.Sprintf(format, args...)})
}

func (x *examiner) run(ctx context.Context) error {
	list, err := x.job.b.List(ctx, "")
	if err != nil {
		return err
	}
	x.there, x.claimed = map[string]bucket.Info{}, map[string]bool{}
	for _, e := range list {
		x.there[e.Key] = e
	}
	switch x.plan, err = x.job.Plan(); {
	case errors.Is(err, ErrNoPlan):
		x.find(FindMissing, planFile, "", -1, "the dataset was not cut into shards to its end; submit the job again")
	case bucket.Unreachable(err):
		return err
	case err != nil:
		x.find(FindDamaged, planFile, "", -1, "%v", err)
	}
	if err := x.shards(ctx); err != nil {
		return err
	}
	x.others()
	return x.marks()
}

// shards looks at every shard that is planned or committed.
func (x *examiner) shards(ctx context.Context) error {
	modes := map[string]map[int]bool{} // true: planned
	for _, mode := range x.plan.Modes {
		modes[mode] = map[int]bool{}
		for shard := range x.plan.Shards {
			modes[mode][shard] = true
		}
		x.e.Planned += x.plan.Shards
	}
	var objects []bucket.Info
	for key := range x.there {
		if strings.HasPrefix(key, shardsDir+"/") && strings.HasSuffix(key, ".json") {
			objects = append(objects, bucket.Info{Key: key})
		}
	}
	for _, e := range objects {
		found, err := manifests([]bucket.Info{e})
		if err != nil || len(found) == 0 {
			continue // others names it
		}
		for mode, shards := range found {
			if modes[mode] == nil {
				modes[mode] = map[int]bool{}
			}
			planned := modes[mode][shards[0]]
			modes[mode][shards[0]] = planned // now it is looked at, planned or not
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2)
	if bucket.IsURL(x.job.Dir()) {
		g.SetLimit(32)
	}
	for mode, shards := range modes {
		for shard, planned := range shards {
			x.mu.Lock()
			for _, table := range tables {
				x.claimed[finalKey(table, mode, shard)] = true
			}
			x.claimed[shardManifestKey(mode, shard)] = true
			x.mu.Unlock()
			if !planned && len(x.plan.Modes) > 0 {
				x.find(FindDoubled, shardManifestKey(mode, shard), mode, shard, "a shard that the plan does not have is committed")
				continue
			}
			g.Go(func() error { return x.shard(ctx, mode, shard) })
		}
	}
	return g.Wait()
}

// shard looks at one planned shard.
func (x *examiner) shard(ctx context.Context, mode string, shard int) error {
	key := shardManifestKey(mode, shard)
	m, err := x.job.readShardManifest(ctx, mode, shard)
	switch {
	case errors.Is(err, errDamaged):
		x.find(FindDamaged, key, mode, shard, "%v", err)
		return nil
	case err != nil:
		return err
	case m == nil:
		x.find(FindMissing, key, mode, shard, "the shard is not committed")
		for _, table := range tables {
			if final := finalKey(table, mode, shard); x.has(final) {
				x.find(FindDoubled, final, mode, shard, "a result of a shard that is not committed")
			}
		}
		return nil
	}
	whole := true
	for _, f := range m.Files {
		ok, err := x.file(ctx, mode, shard, f)
		if err != nil {
			return err
		}
		whole = whole && ok
	}
	if whole {
		x.mu.Lock()
		x.e.Whole++
		x.mu.Unlock()
	}
	return nil
}

func (x *examiner) has(key string) bool { _, ok := x.there[key]; return ok }

// file reads one committed file.
func (x *examiner) file(ctx context.Context, mode string, shard int, f shardFile) (bool, error) {
	final, staging := finalKey(f.Table, mode, shard), stagingKey(f.Staging)
	x.mu.Lock()
	x.claimed[staging] = true
	x.mu.Unlock()
	digest, err := x.job.hash(ctx, final)
	switch {
	case bucket.NotExist(err):
		if d, err := x.job.hash(ctx, staging); err == nil && d == f.SHA256 {
			x.find(FindStray, staging, mode, shard, "a committed file was not moved to %s", final)
		} else if err != nil && !bucket.NotExist(err) && !errors.Is(err, bucket.ErrDamaged) {
			return false, err
		} else {
			x.find(FindMissing, final, mode, shard, "a committed file is not there")
		}
		return false, nil
	case bucket.Unreachable(err), ctx.Err() != nil:
		return false, err
	case err != nil:
		x.find(FindDamaged, final, mode, shard, "%v", err)
		return false, nil
	case digest != f.SHA256:
		x.find(FindDamaged, final, mode, shard, "%v", errDigest)
		return false, nil
	}
	if x.has(staging) {
		x.find(FindStray, staging, mode, shard, "a second copy of %s", final)
	}
	x.mu.Lock()
	x.e.Files++
	x.e.Bytes += f.Bytes
	x.mu.Unlock()
	return true, nil
}

// others looks for what belongs to no shard.
func (x *examiner) others() {
	for key := range x.there {
		top, _, _ := strings.Cut(key, "/")
		switch {
		case x.claimed[key], top == damagedDir, top == locksDir:
		case top == stagingDir, temporary.MatchString(path.Base(key)):
			x.find(FindStray, key, "", -1, "a temporary file: of a writer that works now, or was interrupted")
		case slices.Contains(tables, top) && strings.HasSuffix(key, ".parquet"):
			x.find(FindDoubled, key, "", -1, "no shard has committed this file; a reader's glob finds it")
		case top == shardsDir:
			x.find(FindDamaged, key, "", -1, "it is not a shard's manifest")
		}
	}
}

// marks holds _SUCCESS and manifest.json against the shards.
func (x *examiner) marks() error {
	success, all := x.has(successFile), x.e.Planned > 0 && x.e.Whole == x.e.Planned
	if !x.has(manifestFile) {
		switch {
		case success:
			x.find(FindMarks, successFile, "", -1, "there is no %s", manifestFile)
		case all:
			x.find(FindMarks, successFile, "", -1, "every shard is committed, and the job is not marked complete")
		}
		return nil
	}
	m, err := x.job.Manifest()
	if bucket.Unreachable(err) {
		return err
	}
	switch {
	case err != nil:
		x.find(FindMarks, manifestFile, "", -1, "%v", err)
	case success && !all:
		x.find(FindMarks, successFile, "", -1, "the job is marked complete, and %d of %d shards are whole", x.e.Whole, x.e.Planned)
	case len(m.Files) != x.e.Planned*len(tables):
		x.find(FindMarks, manifestFile, "", -1, "it lists %d files of %d", len(m.Files), x.e.Planned*len(tables))
	case !success && all:
		x.find(FindMarks, successFile, "", -1, "every shard is committed, and the job is not marked complete")
	}
	for _, f := range m.Files {
		c, err := x.job.readShardManifest(context.Background(), f.Mode, f.Shard)
		i := slices.Index(tables, f.Table)
		if err != nil || c == nil || i < 0 {
			continue // said already
		}
		if c.Files[i].SHA256 != f.SHA256 || f.Path != finalKey(f.Table, f.Mode, f.Shard) {
			x.find(FindMarks, manifestFile, f.Mode, f.Shard, "it lists another %s than the shard committed", f.Path)
		}
	}
	return nil
}

// Repair brings the folder into an order in which the job can be completed:
// damaged and doubled files are put aside into _damaged, commits that lost a file
// are withdrawn, interrupted ones completed, wrong marks removed. Temporary files
// are removed where idle says that nobody writes. The caller holds the job's
// Lock. What is not committed then has to be decoded again.
func (j *Job) Repair(ctx context.Context, e *Examination, idle bool) error {
	for _, f := range e.Findings {
		if err := j.repair(ctx, f, idle); err != nil {
			return fmt.Errorf("repair %s of job %s: %w", f.Path, j.name, err)
		}
	}
	_, err := j.Finalize(ctx)
	return err
}

func (j *Job) repair(ctx context.Context, f Finding, idle bool) error {
	manifest := f.Shard >= 0 && f.Path == shardManifestKey(f.Mode, f.Shard)
	switch {
	case f.Kind == FindMarks:
		return j.unmark(ctx)
	case f.Kind == FindStray && f.Shard >= 0: // of a committed shard
		if m, err := j.settle(ctx, f.Mode, f.Shard); m == nil || err != nil {
			return err
		}
		return j.b.Remove(ctx, f.Path)
	case f.Kind == FindStray:
		if !idle {
			return nil
		}
		return j.b.Remove(ctx, f.Path)
	case f.Kind == FindMissing:
	case manifest: // without its files the commit is withdrawn below
		for _, table := range tables {
			if err := j.putAside(ctx, finalKey(table, f.Mode, f.Shard)); err != nil {
				return err
			}
		}
		data, err := j.b.Get(ctx, f.Path)
		if err == nil {
			err = j.b.Replace(ctx, path.Join(damagedDir, f.Path+"."+unique()), data)
		}
		if err != nil && !bucket.NotExist(err) {
			return err
		}
	default:
		if err := j.putAside(ctx, f.Path); err != nil {
			return err
		}
	}
	if f.Shard < 0 {
		return nil
	}
	_, err := j.settle(ctx, f.Mode, f.Shard)
	return err
}

// putAside moves a file where no reader looks; one that is gone is no error.
func (j *Job) putAside(ctx context.Context, key string) error {
	_, err := j.b.Move(ctx, key, path.Join(damagedDir, key+"."+unique()))
	if bucket.NotExist(err) {
		return nil
	}
	return err
}

// unmark removes the marks of a complete job; Finalize makes them again.
func (j *Job) unmark(ctx context.Context) error {
	lock, err := j.wait(ctx, marksLock)
	if err != nil {
		return err
	}
	defer release(lock)
	for _, key := range []string{successFile, manifestFile, signatureFile} {
		if err := errors.Join(lock.Held(), j.b.Remove(ctx, key)); err != nil {
			return err
		}
	}
	return nil
}

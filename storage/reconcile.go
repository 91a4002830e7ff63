package storage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/draftmill/draftmill/storage/bucket"
)

// Committed tells whether a shard has a result, whole and where readers look.
// It first completes what an interrupted commit left: files of a committed
// shard are moved to their places, and a commit whose files are gone or
// changed is withdrawn, so that the answer is false and the shard is decoded
// again. A digest is computed once per file and Job.
func (j *Job) Committed(ctx context.Context, mode string, shard int) (bool, error) {
	if err := checkShard(mode, shard); err != nil {
		return false, fmt.Errorf("look up shard %d of mode %s: %w", shard, mode, err)
	}
	there, err := bucket.Exists(ctx, j.b, shardManifestKey(mode, shard))
	if err != nil || !there {
		return false, err
	}
	m, err := j.settle(ctx, mode, shard)
	if err != nil {
		return false, fmt.Errorf("look up shard %d of mode %s: %w", shard, mode, err)
	}
	return m != nil, nil
}

// Recover does what Committed does for every shard of the job. Call it when a
// job is opened again. It leaves files that are being written alone.
func (j *Job) Recover(ctx context.Context) error {
	modes, err := j.committedModes(ctx)
	if err != nil {
		return fmt.Errorf("recover job %s: %w", j.name, err)
	}
	for mode, shards := range modes {
		for _, shard := range shards {
			if _, err := j.settle(ctx, mode, shard); err != nil {
				return fmt.Errorf("recover shard %d of mode %s: %w", shard, mode, err)
			}
		}
	}
	return nil
}

// committedShards lists the shards of a mode that have a manifest, ascending.
func (j *Job) committedShards(ctx context.Context, mode string) ([]int, error) {
	list, err := j.b.List(ctx, path.Join(shardsDir, "mode="+mode))
	if err != nil {
		return nil, err
	}
	modes, err := manifests(list)
	return modes[mode], err
}

// committedModes lists the shards of all modes that have a manifest, ascending.
func (j *Job) committedModes(ctx context.Context) (map[string][]int, error) {
	list, err := j.b.List(ctx, shardsDir)
	if err != nil {
		return nil, err
	}
	return manifests(list)
}

// manifests finds the shards' manifests among objects.
func manifests(list []bucket.Info) (map[string][]int, error) {
	modes := map[string][]int{}
	for _, e := range list {
		dir, name := path.Split(e.Key)
		mode, isMode := strings.CutPrefix(path.Base(dir), "mode=")
		if !isMode || !strings.HasPrefix(name, "part-") || !strings.HasSuffix(name, ".json") {
			continue
		}
		number := strings.TrimSuffix(strings.TrimPrefix(name, "part-"), ".json")
		shard, err := strconv.Atoi(number)
		if err != nil || checkShard(mode, shard) != nil || shardManifestKey(mode, shard) != e.Key {
			return nil, fmt.Errorf("%s is not a shard's manifest; move it away", e.Key)
		}
		modes[mode] = append(modes[mode], shard)
	}
	for _, shards := range modes {
		slices.Sort(shards)
	}
	return modes, nil
}

// settle brings a shard to one of two states and returns its manifest, or nil
// without error if it has no result.
//
// Moves and withdrawals of a shard happen under one lock, so that nobody
// withdraws what another has just committed anew. The link that commits needs no
// lock: it can only fill a name that is free. Nor does a look at a shard that is
// whole. A lock is for one in shardLocks shards, so that a holder that stands
// still holds up few.
func (j *Job) settle(ctx context.Context, mode string, shard int) (*shardManifest, error) {
	if m, err := j.whole(ctx, mode, shard); m != nil || err != nil {
		return m, err
	}
	lock, err := j.wait(ctx, fmt.Sprintf("shard-%02d", shard%shardLocks))
	if err != nil {
		return nil, err
	}
	defer release(lock)
	return j.settleLocked(ctx, mode, shard, lock)
}

const shardLocks = 64

// whole returns the manifest of a shard whose files are all in their places, else nil.
func (j *Job) whole(ctx context.Context, mode string, shard int) (*shardManifest, error) {
	m, err := j.readShardManifest(ctx, mode, shard)
	if errors.Is(err, errDamaged) {
		return nil, nil
	}
	if err != nil || m == nil {
		return nil, err
	}
	for _, f := range m.Files {
		if ok, err := j.intact(ctx, finalKey(f.Table, mode, shard), f); !ok || err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Locks of the whole job.
const (
	completeLock = "complete" // who completes the job
	marksLock    = "marks"    // manifest.json, _SUCCESS and the file withdrawn
)

// withdrawnFile grows with every withdrawal: who completes a job sees by its size that one came between.
const withdrawnFile = "withdrawn"

func (j *Job) withdrawals(ctx context.Context) (int64, error) {
	info, err := j.b.Stat(ctx, path.Join(locksDir, withdrawnFile))
	if bucket.NotExist(err) {
		return 0, nil
	}
	return info.Size, err
}

func (j *Job) settleLocked(ctx context.Context, mode string, shard int, lock bucket.Lock) (*shardManifest, error) {
	m, err := j.readShardManifest(ctx, mode, shard)
	if errors.Is(err, errDamaged) {
		return nil, j.withdraw(ctx, mode, shard, nil, lock)
	}
	if err != nil || m == nil {
		return nil, err
	}
	for _, f := range m.Files {
		ok, err := j.moveIn(ctx, m, f, lock)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, j.withdraw(ctx, mode, shard, m, lock)
		}
	}
	return m, nil
}

// moveIn brings one committed file to its place and tells whether it is there
// and intact.
func (j *Job) moveIn(ctx context.Context, m *shardManifest, f shardFile, lock bucket.Lock) (bool, error) {
	final := finalKey(f.Table, m.Mode, m.Shard)
	if ok, err := j.intact(ctx, final, f); ok || err != nil {
		return ok, err
	}
	staging := stagingKey(f.Staging)
	if ok, err := j.intact(ctx, staging, f); !ok || err != nil {
		return false, err
	}
	step("before rename " + f.Table)
	if err := lock.Held(); err != nil {
		return false, err
	}
	moved, err := j.b.Move(ctx, staging, final)
	if err != nil {
		return false, err
	}
	j.know(moved.ID, f.SHA256)
	step("renamed " + f.Table)
	return true, nil
}

// withdraw takes back a commit that lost its files. The job's own marks go
// first: at no instant does _SUCCESS stand over a missing shard. The shard's
// manifest goes last: until then the next caller withdraws again.
func (j *Job) withdraw(ctx context.Context, mode string, shard int, m *shardManifest, lock bucket.Lock) error {
	marks, err := j.wait(ctx, marksLock)
	if err != nil {
		return err
	}
	defer release(marks)
	count, err := j.withdrawals(ctx)
	if err == nil {
		err = j.b.Replace(ctx, path.Join(locksDir, withdrawnFile), bytes.Repeat([]byte{'.'}, int(count)+1))
	}
	if err != nil {
		return err
	}
	j.mu.Lock()
	j.seen[mode] = min(j.seen[mode], shard)
	j.mu.Unlock()
	keys := []string{successFile, manifestFile, signatureFile}
	for _, table := range tables {
		keys = append(keys, finalKey(table, mode, shard))
	}
	if m != nil {
		for _, f := range m.Files {
			keys = append(keys, stagingKey(f.Staging))
		}
	}
	keys = append(keys, shardManifestKey(mode, shard))
	for i, key := range keys {
		if err := errors.Join(lock.Held(), marks.Held()); err != nil {
			return err
		}
		if err := j.b.Remove(ctx, key); err != nil {
			return err
		}
		step("withdraw " + strconv.Itoa(i))
	}
	return nil
}

// errDamaged is a shard's manifest that cannot be used.
var errDamaged = errors.New("the shard's manifest is damaged")

// readShardManifest returns nil if there is none, and errDamaged if it is not
// one that commits this shard.
func (j *Job) readShardManifest(ctx context.Context, mode string, shard int) (*shardManifest, error) {
	key := shardManifestKey(mode, shard)
	data, err := j.b.Get(ctx, key)
	if bucket.NotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var m shardManifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, errDamaged
	}
	if m.Format > Format {
		return nil, fmt.Errorf("%s: its format %d is newer than %d, which this draftmill knows: %w", bucket.Join(j.Dir(), key), m.Format, Format, ErrNewer)
	}
	if m.Job != j.name || m.Mode != mode || m.Shard != shard || len(m.Files) != len(tables) {
		return nil, errDamaged
	}
	for i, f := range m.Files {
		if f.Table != tables[i] || f.Staging == "" || path.Base(f.Staging) != f.Staging || f.Staging == ".." {
			return nil, errDamaged
		}
	}
	return &m, nil
}

// know remembers the digest of content that this process has written or read.
func (j *Job) know(id, digest string) {
	j.mu.Lock()
	j.hashed[id] = digest
	j.mu.Unlock()
}

// intact tells whether an object holds exactly the bytes of f; a missing one
// does not, and is no error. A store that noted the digest when the object was
// written is believed; other content is hashed once. Readers check the bytes.
func (j *Job) intact(ctx context.Context, key string, f shardFile) (bool, error) {
	info, err := j.b.Stat(ctx, key)
	switch {
	case bucket.NotExist(err):
		return false, nil
	case err != nil:
		return false, err
	case info.Size != f.Bytes:
		return false, nil
	case info.SHA256 != "":
		return info.SHA256 == f.SHA256, nil
	}
	j.mu.Lock()
	digest, known := j.hashed[info.ID]
	j.mu.Unlock()
	if known {
		return digest == f.SHA256, nil
	}
	digest, err = j.hash(ctx, key)
	if bucket.NotExist(err) || errors.Is(err, bucket.ErrDamaged) {
		return false, nil
	}
	return digest == f.SHA256, err
}

// hash reads an object to its end.
func (j *Job) hash(ctx context.Context, key string) (string, error) {
	note("hash")
	file, err := j.b.Open(ctx, key)
	if err != nil {
		return "", err
	}
	defer file.Close()
	digest, err := fileDigest(file, file.Info.Size)
	if err != nil {
		return "", err
	}
	j.know(file.Info.ID, digest)
	return digest, nil
}

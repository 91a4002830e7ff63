package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
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
	there, err := exists(j.shardManifestPath(mode, shard))
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
	modes, err := filepath.Glob(j.path(shardsDir, "mode=*"))
	if err != nil {
		return fmt.Errorf("recover job %s: %w", j.name, err)
	}
	for _, dir := range modes {
		mode := strings.TrimPrefix(filepath.Base(dir), "mode=")
		shards, err := j.committedShards(mode)
		if err != nil {
			return fmt.Errorf("recover job %s: %w", j.name, err)
		}
		for _, shard := range shards {
			if _, err := j.settle(ctx, mode, shard); err != nil {
				return fmt.Errorf("recover shard %d of mode %s: %w", shard, mode, err)
			}
		}
	}
	return nil
}

// committedShards lists the shards of a mode that have a manifest, ascending.
func (j *Job) committedShards(mode string) ([]int, error) {
	paths, err := filepath.Glob(j.path(shardsDir, "mode="+mode, "part-*.json"))
	if err != nil {
		return nil, err
	}
	var shards []int
	for _, path := range paths {
		number := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "part-"), ".json")
		shard, err := strconv.Atoi(number)
		if err != nil || checkShard(mode, shard) != nil || shardPart(shard) != "part-"+number {
			return nil, fmt.Errorf("%s is not a shard's manifest; move it away", path)
		}
		shards = append(shards, shard)
	}
	slices.Sort(shards)
	return shards, nil
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
	if m, err := j.whole(mode, shard); m != nil || err != nil {
		return m, err
	}
	unlock, err := j.wait(ctx, fmt.Sprintf("shard-%02d", shard%shardLocks))
	if err != nil {
		return nil, err
	}
	defer unlock()
	return j.settleLocked(ctx, mode, shard)
}

const shardLocks = 64

// whole returns the manifest of a shard whose files are all in their places, else nil.
func (j *Job) whole(mode string, shard int) (*shardManifest, error) {
	m, err := j.readShardManifest(mode, shard)
	if errors.Is(err, errDamaged) {
		return nil, nil
	}
	if err != nil || m == nil {
		return nil, err
	}
	for _, f := range m.Files {
		if ok, err := j.intact(j.path(finalPath(f.Table, mode, shard)), f); !ok || err != nil {
			return nil, err
		}
	}
	return m, nil
}

// wait takes one of the job's locks. They are taken in this order: that of completing the job, a shard's, that of the
// job's own marks.
func (j *Job) wait(ctx context.Context, lock string) (unlock func(), err error) {
	if err := makeDir(j.path(locksDir)); err != nil {
		return nil, err
	}
	f, err := waitLock(ctx, j.path(locksDir, lock))
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// Locks of the whole job.
const (
	completeLock = "complete" // who completes the job
	marksLock    = "marks"    // manifest.json, _SUCCESS and the file withdrawn
)

// withdrawnFile grows with every withdrawal: who completes a job sees by its size that one came between.
const withdrawnFile = "withdrawn"

func (j *Job) withdrawals() (int64, error) {
	stat, err := os.Stat(j.path(locksDir, withdrawnFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return stat.Size(), nil
}

func (j *Job) settleLocked(ctx context.Context, mode string, shard int) (*shardManifest, error) {
	m, err := j.readShardManifest(mode, shard)
	if errors.Is(err, errDamaged) {
		return nil, j.withdraw(ctx, mode, shard, nil)
	}
	if err != nil || m == nil {
		return nil, err
	}
	for _, f := range m.Files {
		ok, err := j.moveIn(m, f)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, j.withdraw(ctx, mode, shard, m)
		}
	}
	return m, nil
}

// moveIn brings one committed file to its place and tells whether it is there
// and intact.
func (j *Job) moveIn(m *shardManifest, f shardFile) (bool, error) {
	final := j.path(finalPath(f.Table, m.Mode, m.Shard))
	if ok, err := j.intact(final, f); ok || err != nil {
		return ok, err
	}
	staging := j.path(stagingDir, f.Staging)
	if ok, err := j.intact(staging, f); !ok || err != nil {
		return false, err
	}
	if err := makeDir(filepath.Dir(final)); err != nil {
		return false, err
	}
	step("before rename " + f.Table)
	if err := os.Rename(staging, final); err != nil {
		return false, err
	}
	step("renamed " + f.Table)
	return true, syncDir(filepath.Dir(final))
}

// withdraw takes back a commit that lost its files. The job's own marks go
// first: at no instant does _SUCCESS stand over a missing shard. The shard's
// manifest goes last: until then the next caller withdraws again.
func (j *Job) withdraw(ctx context.Context, mode string, shard int, m *shardManifest) error {
	unlock, err := j.wait(ctx, marksLock)
	if err != nil {
		return err
	}
	defer unlock()
	if err := appendByte(j.path(locksDir, withdrawnFile)); err != nil {
		return err
	}
	j.mu.Lock()
	j.seen[mode] = min(j.seen[mode], shard)
	j.mu.Unlock()
	paths := []string{j.path(successFile), j.path(manifestFile)}
	for _, table := range tables {
		paths = append(paths, j.path(finalPath(table, mode, shard)))
	}
	if m != nil {
		for _, f := range m.Files {
			paths = append(paths, j.path(stagingDir, f.Staging))
		}
	}
	paths = append(paths, j.shardManifestPath(mode, shard))
	for i, path := range paths {
		if err := remove(path); err != nil {
			return err
		}
		step("withdraw " + strconv.Itoa(i))
		dir := filepath.Dir(path)
		if err := syncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func appendByte(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte{'.'})
	return errors.Join(err, f.Close())
}

// errDamaged is a shard's manifest that cannot be used.
var errDamaged = errors.New("the shard's manifest is damaged")

// readShardManifest returns nil if there is none, and errDamaged if it is not
// one that commits this shard.
func (j *Job) readShardManifest(mode string, shard int) (*shardManifest, error) {
	path := j.shardManifestPath(mode, shard)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
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
		return nil, fmt.Errorf("%s: its format %d is newer than %d, which this draftmill knows: %w", path, m.Format, Format, ErrNewer)
	}
	if m.Job != j.name || m.Mode != mode || m.Shard != shard || len(m.Files) != len(tables) {
		return nil, errDamaged
	}
	for i, f := range m.Files {
		if f.Table != tables[i] || f.Staging == "" || filepath.Base(f.Staging) != f.Staging || f.Staging == ".." {
			return nil, errDamaged
		}
	}
	return &m, nil
}

// fileKey names a file's content as long as nobody writes to it in place: a
// rename keeps all of it.
type fileKey struct {
	device, inode uint64
	size          int64
	modified      time.Time
}

func keyOf(stat fs.FileInfo) fileKey {
	key := fileKey{size: stat.Size(), modified: stat.ModTime()}
	if s, ok := stat.Sys().(*syscall.Stat_t); ok {
		key.device, key.inode = uint64(s.Dev), s.Ino
	}
	return key
}

// know remembers the digest of a file that this process has written.
func (j *Job) know(path, digest string) error {
	stat, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) { // swept: the job is complete
		return nil
	}
	if err != nil {
		return err
	}
	j.mu.Lock()
	j.hashed[keyOf(stat)] = digest
	j.mu.Unlock()
	return nil
}

// intact tells whether path holds exactly the bytes of f; a missing file does
// not, and is no error.
func (j *Job) intact(path string, f shardFile) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return false, err
	}
	if stat.Size() != f.Bytes || !stat.Mode().IsRegular() {
		return false, nil
	}
	key := keyOf(stat)
	j.mu.Lock()
	digest, known := j.hashed[key]
	j.mu.Unlock()
	if !known {
		note("hash")
		if digest, err = fileDigest(file, stat.Size()); err != nil {
			return false, err
		}
		j.mu.Lock()
		j.hashed[key] = digest
		j.mu.Unlock()
	}
	return digest == f.SHA256, nil
}

package storage

import (
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
func (j *Job) Committed(mode string, shard int) (bool, error) {
	if err := checkShard(mode, shard); err != nil {
		return false, fmt.Errorf("look up shard %d of mode %s: %w", shard, mode, err)
	}
	there, err := exists(j.shardManifestPath(mode, shard))
	if err != nil || !there {
		return false, err
	}
	m, err := j.settle(mode, shard)
	if err != nil {
		return false, fmt.Errorf("look up shard %d of mode %s: %w", shard, mode, err)
	}
	return m != nil, nil
}

// Recover does what Committed does for every shard of the job. Call it when a
// job is opened again. It leaves files that are being written alone.
func (j *Job) Recover() error {
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
			if _, err := j.settle(mode, shard); err != nil {
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
// All moves and withdrawals happen under one lock, so that nobody withdraws
// what another has just committed anew. The link that commits needs no lock:
// it can only fill a name that is free.
func (j *Job) settle(mode string, shard int) (*shardManifest, error) {
	unlock, err := j.lockShards()
	if err != nil {
		return nil, err
	}
	defer func() { _ = unlock() }()
	return j.settleLocked(mode, shard)
}

func (j *Job) lockShards() (unlock func() error, err error) {
	if err := makeDir(j.path(locksDir)); err != nil {
		return nil, err
	}
	f, err := lockFile(j.path(locksDir, "shards"), true)
	if err != nil {
		return nil, err
	}
	return f.Close, nil
}

func (j *Job) settleLocked(mode string, shard int) (*shardManifest, error) {
	m, err := j.readShardManifest(mode, shard)
	if errors.Is(err, errDamaged) {
		return nil, j.withdraw(mode, shard, nil)
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
			return nil, j.withdraw(mode, shard, m)
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
func (j *Job) withdraw(mode string, shard int, m *shardManifest) error {
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
		return nil, fmt.Errorf("%s: its format %d is newer than %d, which this draftmill knows: update draftmill", path, m.Format, Format)
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
	key := fileKey{size: stat.Size(), modified: stat.ModTime()}
	if s, ok := stat.Sys().(*syscall.Stat_t); ok {
		key.device, key.inode = uint64(s.Dev), s.Ino
	}
	j.mu.Lock()
	digest, known := j.hashed[key]
	j.mu.Unlock()
	if !known {
		if digest, err = fileDigest(file, stat.Size()); err != nil {
			return false, err
		}
		j.mu.Lock()
		j.hashed[key] = digest
		j.mu.Unlock()
	}
	return digest == f.SHA256, nil
}

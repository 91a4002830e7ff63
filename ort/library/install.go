package library

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Options of Install.
type Options struct {
	// Progress is told each step in a line; nil keeps silent.
	Progress func(line string)
}

// Install makes sure that the pinned library is in the cache and returns its
// path. The first call downloads about 110 MB with npm; later ones nothing.
func Install(ctx context.Context, o Options) (string, error) {
	i, err := pinned()
	if err != nil {
		return "", err
	}
	return i.install(ctx, o)
}

// installation is one library in a cache.
type installation struct {
	dir       string // the version's folder in the cache
	platform  string // its subfolder there
	member    string // the library in the archive
	integrity string // of the archive
	title     string // what it is, for errors
	command   string // that installs it
}

const spec = "onnxruntime-node@" + Version

// remedy ends every error of a download.
const remedy = "or name your own library in " + EnvVar

func (i *installation) path() string {
	return filepath.Join(i.dir, i.platform, path.Base(i.member))
}

func (i *installation) installed() bool {
	info, err := os.Stat(i.path())
	return err == nil && info.Mode().IsRegular()
}

func (i *installation) install(ctx context.Context, o Options) (string, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if i.installed() {
		return i.path(), nil
	}
	if err := i.locked(ctx, o); err != nil {
		return "", fmt.Errorf("install onnx runtime %s: %w", Version, err)
	}
	return i.path(), nil
}

// locked installs while no other process or goroutine does.
func (i *installation) locked(ctx context.Context, o Options) (err error) {
	if err := os.MkdirAll(filepath.Dir(i.path()), 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, filepath.Join(i.dir, "lock"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if i.installed() {
		return nil // by the one that held the lock
	}
	// What installers that were killed have left.
	if old, err := filepath.Glob(filepath.Join(i.dir, "install-*")); err == nil {
		for _, dir := range old {
			os.RemoveAll(dir)
		}
	}
	temp, err := os.MkdirTemp(i.dir, "install-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)

	o.Progress("downloading " + spec + " with npm (about 110 MB)")
	archive, err := download(ctx, temp)
	if err != nil {
		return err
	}
	o.Progress("checking its digest")
	if err := i.verify(archive); err != nil {
		return err
	}
	o.Progress("unpacking " + i.path())
	return i.unpack(archive, filepath.Join(temp, "library"))
}

// download runs npm pack in dir and returns the archive that it wrote.
func download(ctx context.Context, dir string) (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("npm is not in PATH: install Node.js with npm, %s", remedy)
	}
	cmd := exec.CommandContext(ctx, npm, "pack", spec, "--no-update-notifier", "--no-audit", "--no-fund")
	cmd.Dir = dir
	cmd.WaitDelay = 2 * time.Second
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("npm pack %s: %s (%w): check the network and npm's registry setting, %s", spec, npmReason(output.String()), err, remedy)
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return "", fmt.Errorf("npm pack %s left %d archives, want one: update npm, %s", spec, len(archives), remedy)
	}
	return archives[0], nil
}

// npmReason picks from npm's output the lines that tell what went wrong.
func npmReason(output string) string {
	var reasons []string
	for line := range strings.Lines(output) {
		for _, prefix := range []string{"npm error ", "npm ERR! "} {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok && len(reasons) < 2 {
				reasons = append(reasons, strings.TrimSpace(text))
			}
		}
	}
	if len(reasons) == 0 {
		return "failed"
	}
	return strings.Join(reasons, ", ")
}

func (i *installation) verify(archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha512.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(h.Sum(nil)); got != i.integrity {
		return fmt.Errorf("the archive of %s has the digest %s, not %s, and was not unpacked: check npm's registry setting and cache (npm cache verify), %s", spec, got, i.integrity, remedy)
	}
	return nil
}

// unpack writes the library to temp and, once it is complete and on disk,
// renames it to its place.
func (i *installation) unpack(archive, temp string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", spec, err)
	}
	tr := tar.NewReader(z)
	for {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("unpack %s: no %s inside", spec, i.member)
		}
		if err != nil {
			return fmt.Errorf("unpack %s: %w", spec, err)
		}
		if header.Name == i.member {
			break
		}
	}
	out, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, tr)
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		return fmt.Errorf("unpack %s: %w", spec, err)
	}
	return os.Rename(temp, i.path())
}

// lock waits for the lock file at path. The system drops a lock whose holder
// dies.
func lock(ctx context.Context, path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

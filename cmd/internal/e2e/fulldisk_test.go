//go:build linux

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestInterruptOnAFullDisk: with queue and results on a disk that has become full,
// Ctrl-C ends submit within a second, with the folder and what to do.
func TestInterruptOnAFullDisk(t *testing.T) {
	out := t.TempDir()
	err := syscall.Mount("tmpfs", out, "tmpfs", 0, "size=24m")
	if errors.Is(err, syscall.EPERM) && os.Getenv("CI") == "" {
		t.Skip("only root may mount a small disk")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(out, 0); err != nil {
			t.Error(err)
		}
	})
	p := command("submit", small(out)...).start(t)
	t.Cleanup(func() { _ = p.Process.Kill(); <-p.done })
	until(t, "a commit", func() bool { return committed(t, filepath.Join(out, "small")) >= 1 })
	fillDisk(t, filepath.Join(out, "filler"))
	until(t, "a word about it", func() bool { return strings.Contains(p.stderr.String(), "no space left on device") })
	begun := time.Now()
	p.signal(t, syscall.SIGINT)
	code := p.code(t)
	took := time.Since(begun)
	t.Logf("it ended %v after Ctrl-C", took)
	last := strings.TrimSpace(p.stderr.String())
	last = last[strings.LastIndex(last, "\n")+1:]
	if code != 1 || !strings.Contains(last, "no space left on device") || !strings.Contains(last, out) {
		t.Errorf("exit code %d, and at last %q\n%s", code, last, &p.stderr)
	}
	if took > 15*time.Second { // a second where nothing else runs; what it must not do is try for minutes
		t.Errorf("it ended %v after Ctrl-C:\n%s", took, &p.stderr)
	}
	if err := os.Remove(filepath.Join(out, "filler")); err != nil {
		t.Fatal(err)
	}
	run(t, "submit", small(out)...)
	if n := len(tokens(t, filepath.Join(out, "small"))); n != 24 {
		t.Errorf("%d completions, want 24", n)
	}
}

// fillDisk writes until the disk is full.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 1<<16))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

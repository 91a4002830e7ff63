package library

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

const content = "not really a library"

// fakePackage writes an archive like npm's and returns its path and digest.
func fakePackage(t *testing.T, member string) (path, digest string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "onnxruntime-node.tgz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	for _, name := range []string{"package/package.json", member} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, content)
	}
	if err := errors.Join(w.Close(), z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(data)
	return path, "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// fakeNPM puts a shell script in npm's place, alone in PATH but for the system's
// tools, and returns the file in which it counts its calls, a line each.
func fakeNPM(t *testing.T, script string) (calls string) {
	t.Helper()
	dir := t.TempDir()
	calls = filepath.Join(dir, "calls")
	text := "#!/bin/sh\nPATH=/usr/bin:/bin\necho \"$@\" >> " + calls + "\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	return calls
}

func countLines(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(data), "\n")
}

func testInstallation(t *testing.T, digest string) *installation {
	t.Helper()
	i, err := newInstallation(filepath.Join(t.TempDir(), Version), "linux/amd64")
	if err != nil {
		t.Fatal(err)
	}
	i.integrity = digest
	return i
}

// leftovers are the files in the cache but for the lock.
func leftovers(t *testing.T, i *installation) (files []string) {
	t.Helper()
	err := filepath.WalkDir(i.dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != "lock" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestInstallOnceForManyAtOnce(t *testing.T) {
	archive, digest := fakePackage(t, members["linux/amd64"])
	calls := fakeNPM(t, "cp "+archive+" onnxruntime-node-1.30.0.tgz")
	i := testInstallation(t, digest)
	// A killed installer's leftovers do not disturb.
	if err := os.MkdirAll(filepath.Join(i.dir, "install-old"), 0o755); err != nil {
		t.Fatal(err)
	}

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			path, err := i.install(context.Background(), Options{})
			if err != nil {
				t.Error(err)
				return
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != content {
				t.Errorf("installed %q, %v", data, err)
			}
		})
	}
	wg.Wait()
	if _, err := i.install(context.Background(), Options{}); err != nil {
		t.Error(err)
	}
	if n := countLines(t, calls); n != 1 {
		t.Errorf("npm was called %d times, want once", n)
	}
	if files := leftovers(t, i); len(files) != 1 || files[0] != i.path() {
		t.Errorf("the cache holds %v", files)
	}
	if _, err := os.Stat(filepath.Join(i.dir, "install-old")); !os.IsNotExist(err) {
		t.Errorf("old temporary folder: %v", err)
	}
}

func TestInstallErrors(t *testing.T) {
	good, digest := fakePackage(t, members["linux/amd64"])
	other, otherDigest := fakePackage(t, "package/else")
	for _, c := range []struct {
		name, npm, digest string
		want              []string
	}{
		{"wrong digest", "cp " + good + " a.tgz", otherDigest, []string{"digest", "not unpacked", EnvVar}},
		{"no library inside", "cp " + other + " a.tgz", otherDigest, []string{"no package/bin/napi-v6/linux/x64/libonnxruntime.so.1 inside"}},
		{"npm fails", "echo 'npm error code ENOTFOUND' >&2; echo 'npm error network request failed' >&2; exit 1", digest,
			[]string{"npm pack onnxruntime-node@1.30.0: code ENOTFOUND, network request failed (exit status 1)", "check the network", EnvVar}},
		{"npm writes nothing", "true", digest, []string{"left 0 archives", EnvVar}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fakeNPM(t, c.npm)
			i := testInstallation(t, c.digest)
			_, err := i.install(context.Background(), Options{})
			checkError(t, err, c.want...)
			if files := leftovers(t, i); len(files) != 0 {
				t.Errorf("left %v in the cache", files)
			}
		})
	}
}

func TestInstallWithoutNPM(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := testInstallation(t, "").install(context.Background(), Options{})
	checkError(t, err, "npm is not in PATH", "install Node.js", EnvVar)
}

func TestInstallCancelled(t *testing.T) {
	calls := fakeNPM(t, "exec tail -f /dev/null")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	i := testInstallation(t, "")
	go func() {
		_, err := i.install(ctx, Options{})
		done <- err
	}()
	for deadline := time.Now().Add(2 * time.Minute); countLines(t, calls) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("npm was never called")
		}
	}
	// A second one waits for the lock, and gives up when it is told to.
	waiting, stop := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer stop()
	if _, err := i.install(waiting, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for the lock: %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestUnsupportedPlatform(t *testing.T) {
	_, err := newInstallation(t.TempDir(), "plan9/mips")
	checkError(t, err, "no prebuilt library for plan9/mips", EnvVar)
}

func TestFind(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	t.Setenv(EnvVar, "")
	_, err := Find("")
	if !errors.Is(err, ErrNotInstalled) {
		t.Errorf("got %v, want %v", err, ErrNotInstalled)
	}
	checkError(t, err, "make ort", EnvVar)

	i, err := pinned()
	if err != nil {
		t.Fatal(err)
	}
	own, env := filepath.Join(t.TempDir(), "own.so"), filepath.Join(t.TempDir(), "env.so")
	for _, path := range []string{i.path(), own, env} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ override, env, want string }{
		{"", "", i.path()},
		{"", env, env},
		{own, env, own},
	} {
		t.Setenv(EnvVar, c.env)
		if got, err := Find(c.override); err != nil || got != c.want {
			t.Errorf("Find(%q) with %s=%q: got %q, %v, want %q", c.override, EnvVar, c.env, got, err, c.want)
		}
	}
	_, err = Find("/no/such/file")
	checkError(t, err, "/no/such/file", "configuration")
	t.Setenv(EnvVar, t.TempDir())
	_, err = Find("")
	checkError(t, err, EnvVar, "no such file")
}

// TestInstalled checks what `make ort` has installed: it is found, and
// installing it again does not ask npm.
func TestInstalled(t *testing.T) {
	t.Setenv(EnvVar, "")
	want, err := Find("")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "")
	if got, err := Install(context.Background(), Options{}); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// TestFindForCUDA: device cuda has a library of its own, with a command of its
// own to install it, and an override goes before it.
func TestFindForCUDA(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	t.Setenv(EnvVar, "")
	i, err := pinnedCUDA()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		checkError(t, err, "no prebuilt library with CUDA", EnvVar)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range []string{"cuda", "cuda:1"} {
		_, err := FindFor(device, "")
		if !errors.Is(err, ErrNotInstalled) {
			t.Errorf("got %v, want %v", err, ErrNotInstalled)
		}
		checkError(t, err, "with CUDA", "make ort-cuda", i.path())
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(i.path()), 0o755), os.WriteFile(i.path(), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if got, err := FindFor("cuda:1", ""); err != nil || got != i.path() {
		t.Errorf("got %q, %v, want %q", got, err, i.path())
	}
	for _, device := range []string{"cpu", "webgpu", ""} {
		if got, err := FindFor(device, ""); err == nil {
			t.Errorf("device %q found %q", device, got)
		}
	}
	own := i.path()
	if got, err := FindFor("cpu", own); err != nil || got != own {
		t.Errorf("got %q, %v, want %q", got, err, own)
	}
}

// TestCUDAScript: the script agrees with this package on version and place, and
// installs nothing that has another digest.
func TestCUDAScript(t *testing.T) {
	cache, bin := t.TempDir(), t.TempDir()
	// A Python whose pip brings a wheel of the right name and wrong contents.
	python := filepath.Join(bin, "python")
	text := "#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in --dest) dest=$2;; esac; shift; done\n" +
		"[ -z \"$dest\" ] || echo bad > \"$dest/onnxruntime_gpu-" + CUDAVersion + "-cp312-cp312-manylinux_2_28_x86_64.whl\"\n"
	if err := os.WriteFile(python, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("./cuda.sh")
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache, "PYTHON="+python)
	out, err := cmd.CombinedOutput()
	want := "digest is not"
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		want = "there is a build for Linux on x86-64 only"
	}
	if err == nil || !strings.Contains(string(out), want) {
		t.Errorf("got %v, want %q:\n%s", err, want, out)
	}
	left, err := filepath.Glob(filepath.Join(cache, "draftmill", "onnxruntime", CUDAVersion, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range left {
		if filepath.Base(path) != "lock" {
			t.Errorf("left %s", path)
		}
	}

	// What is installed already is named, and nothing is fetched.
	place := filepath.Join(cache, "draftmill", "onnxruntime", CUDAVersion, "linux-x64-cuda")
	if want != "digest is not" {
		return
	}
	if err := errors.Join(os.MkdirAll(place, 0o755), os.WriteFile(filepath.Join(place, "libonnxruntime.so.1"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command("./cuda.sh")
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache, "PYTHON=/no/such/python")
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != place {
		t.Errorf("got %q, %v, want %q", out, err, place)
	}
}

func checkError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q has several lines", err)
	}
}

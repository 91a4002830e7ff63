package library

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Version of the pinned ONNX Runtime, and of the one with CUDA: each is the newest
// that its package has.
const (
	Version     = "1.30.0"
	CUDAVersion = "1.31.1"
)

// EnvVar names an own library, in place of the pinned one.
const EnvVar = "DRAFTMILL_ORT_LIBRARY"

// integrity is the digest of the npm package's archive, in npm's notation.
const integrity = "sha512-twhs1C2C/BFkz1yc5OY0KIU2GUq6DURO7hD4bx5Q2Qy3nAMJwRXW8xU3NVczE29VA9lolLOYepoD8fjTGOfIqw=="

// ErrNotInstalled is wrapped by Find when no library is named and the cache has
// none.
var ErrNotInstalled = errors.New("not installed")

// members are the platforms that the package carries a library for, and where.
var members = map[string]string{
	"linux/amd64":  "package/bin/napi-v6/linux/x64/libonnxruntime.so.1",
	"linux/arm64":  "package/bin/napi-v6/linux/arm64/libonnxruntime.so.1",
	"darwin/arm64": "package/bin/napi-v6/darwin/arm64/libonnxruntime.1.dylib",
}

// Find returns the path of the library to load: override (a configuration's
// value) where it is not empty, else what DRAFTMILL_ORT_LIBRARY names, else the
// pinned one in the cache. It downloads nothing.
func Find(override string) (string, error) { return FindFor("cpu", override) }

// FindFor is Find for a device of package ort. The pinned library runs cpu and
// webgpu; for cuda and cuda:N it is the one that `make ort-cuda` has put into the
// cache, which runs cpu too, so that a process with several devices, which can
// load but one library, takes that of its GPU.
func FindFor(device, override string) (string, error) {
	if kind, _, _ := strings.Cut(device, ":"); kind == "cuda" {
		return find(override, pinnedCUDA)
	}
	return find(override, pinned)
}

func find(override string, pinned func() (*installation, error)) (string, error) {
	i, err := pinned()
	for _, own := range []struct{ path, from string }{
		{override, "named in the configuration"},
		{os.Getenv(EnvVar), "named in " + EnvVar},
	} {
		if own.path == "" {
			continue
		}
		if info, err := os.Stat(own.path); err != nil || info.IsDir() {
			return "", fmt.Errorf("onnx runtime library %s (%s): no such file", own.path, own.from)
		}
		return own.path, nil
	}
	if err != nil {
		return "", err
	}
	if !i.installed() {
		return "", fmt.Errorf("%s: %w (looked for %s): run `%s`, or name your own library in %s", i.title, ErrNotInstalled, i.path(), i.command, EnvVar)
	}
	return i.path(), nil
}

// pinnedCUDA describes what `make ort-cuda` has installed, if it has. That is
// built for one platform.
func pinnedCUDA() (*installation, error) {
	i, err := pinnedVersion(CUDAVersion)
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("onnx runtime: no prebuilt library with CUDA for %s/%s: build version 1.24 or later with CUDA and name it in %s", runtime.GOOS, runtime.GOARCH, EnvVar)
	}
	i.platform, i.member = "linux-x64-cuda", "libonnxruntime.so.1"
	i.title, i.command = "onnx runtime "+CUDAVersion+" with CUDA", "make ort-cuda"
	return i, nil
}

// pinned describes the installation for this user and platform.
func pinned() (*installation, error) { return pinnedVersion(Version) }

func pinnedVersion(version string) (*installation, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("onnx runtime: no folder for caches: %w", err)
	}
	platform := runtime.GOOS + "/" + runtime.GOARCH
	return newInstallation(filepath.Join(cache, "draftmill", "onnxruntime", version), platform)
}

func newInstallation(dir, platform string) (*installation, error) {
	member, ok := members[platform]
	if !ok {
		return nil, fmt.Errorf("onnx runtime: no prebuilt library for %s: build version 1.24 or later and name it in %s", platform, EnvVar)
	}
	return &installation{
		dir: dir, member: member, integrity: integrity,
		title: "onnx runtime " + Version, command: "make ort",
		platform: filepath.Base(filepath.Dir(filepath.Dir(member))) + "-" + filepath.Base(filepath.Dir(member)),
	}, nil
}

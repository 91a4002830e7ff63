// Package buckettest runs a real S3 server for tests, and a proxy before it
// that answers as badly as networks and stores do.
package buckettest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// version of versitygw (Apache-2.0), an S3 server on a folder.
const version = "v1.8.0"

// The server's only user.
const (
	accessKey = "draftmill-test"
	secretKey = "draftmill-test-secret"
)

// Bucket is the name of the server's bucket.
const Bucket = "jobs"

// An S3 is a server that runs until the test ends.
type S3 struct {
	Endpoint string // http://127.0.0.1:PORT
	Dir      string // the folder behind the bucket: the file of each object
}

// Env is what a process needs to use the server.
func Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + accessKey, "AWS_SECRET_ACCESS_KEY=" + secretKey, "AWS_EC2_METADATA_DISABLED=true"}
}

// Start starts a server with an empty bucket, and sets the credentials in this
// process's environment.
func Start(tb testing.TB) *S3 {
	tb.Helper()
	for _, e := range Env() {
		key, value, _ := strings.Cut(e, "=")
		if err := os.Setenv(key, value); err != nil {
			tb.Fatal(err)
		}
	}
	program := build(tb)
	root, side := tb.TempDir(), tb.TempDir()
	s := &S3{Dir: filepath.Join(root, Bucket)}
	if err := os.Mkdir(s.Dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	address := freeAddress(tb)
	s.Endpoint = "http://" + address
	cmd := exec.Command(program, "--access", accessKey, "--secret", secretKey, "--port", address, "--quiet", "posix", "--sidecar", side, root)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(side, "log"))
	if err != nil {
		tb.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = log.Close()
	})
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
			return s
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			tb.Fatalf("versitygw ended: %s", text)
		case <-ctx.Done():
			tb.Fatalf("versitygw does not listen: %v", err)
		}
	}
}

// URL is a place in the server's bucket, reached directly or, with another
// endpoint, through a proxy.
func URL(endpoint, prefix string) string {
	query := url.Values{"endpoint": {endpoint}, "region": {"us-east-1"}, "use_path_style": {"true"}, "hostname_immutable": {"true"}}
	return "s3://" + Bucket + "/" + prefix + "?" + query.Encode()
}

// URL is a place in the server's bucket.
func (s *S3) URL(prefix string) string { return URL(s.Endpoint, prefix) }

func freeAddress(tb testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

var building sync.Mutex

// build makes the server's program once, in the user's cache. Where that cannot
// be done the test is skipped, and fails in continuous integration.
func build(tb testing.TB) string {
	tb.Helper()
	building.Lock()
	defer building.Unlock()
	program, err := install()
	if err != nil {
		if os.Getenv("CI") != "" {
			tb.Fatalf("build versitygw %s: %v", version, err)
		}
		tb.Skipf("versitygw %s is not there and cannot be built: %v", version, err)
	}
	return program
}

func install() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "draftmill", "tools", "versitygw-"+version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(dir, ".lock")) // other packages' tests run beside this one
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "versitygw")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	cmd := exec.Command("go", "install", "github.com/versity/versitygw/cmd/versitygw@"+version)
	cmd.Dir = dir // not a module: the program's own versions
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
}

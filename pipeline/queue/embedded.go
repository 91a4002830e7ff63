package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"
)

const (
	lockFile     = "draftmill.lock"
	readyTimeout = 30 * time.Second // from the end of recovery to the first client
)

// EmbedOptions shape the embedded server. The zero value serves this process alone and syncs every write.
type EmbedOptions struct {
	Listen       string        // "host:port" for workers elsewhere, port -1 for any; "": no listener, this process only
	SyncInterval time.Duration // how often writes reach the disk; 0: each one before it is confirmed
	MaxPayload   int           // the largest message in bytes; 0: NATS's default, 1 MiB
	Logger       *slog.Logger  // gets the server's log at debug level; nil: slog.Default()
}

// Server is a NATS server inside this process, with JetStream on a folder that it holds locked.
type Server struct {
	ns     *server.Server
	lock   dirLock
	once   sync.Once
	adopts sync.Once // of what an earlier process left in its hands
}

// Embed starts a server whose JetStream keeps its files in dir, made when absent. Close it when done. A folder that
// another process uses, that cannot be read back whole, or a port in use is an error.
func Embed(dir string, o EmbedOptions) (*Server, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("start the embedded queue: make its folder: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	ns, err := startServer(dir, o)
	if err != nil {
		return nil, both(err, lock.release())
	}
	return &Server{ns: ns, lock: lock}, nil
}

func startServer(dir string, o EmbedOptions) (*server.Server, error) {
	opts := &server.Options{
		ServerName:             "draftmill",
		JetStream:              true,
		StoreDir:               dir,
		SyncAlways:             o.SyncInterval == 0,
		SyncInterval:           o.SyncInterval,
		MaxPayload:             int32(o.MaxPayload),
		DontListen:             o.Listen == "",
		NoSigs:                 true,
		DisableJetStreamBanner: true,
	}
	if o.Listen != "" {
		host, port, err := net.SplitHostPort(o.Listen)
		if err == nil {
			opts.Host = host
			opts.Port, err = strconv.Atoi(port)
		}
		if err != nil {
			return nil, fmt.Errorf("start the embedded queue: the address %q is not host:port: %w", o.Listen, err)
		}
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("start the embedded queue: %w", err)
	}
	log := &serverLog{to: o.Logger}
	if log.to == nil {
		log.to = slog.Default()
	}
	ns.SetLoggerV2(log, log.to.Enabled(context.Background(), slog.LevelDebug), false, false)
	ns.Start() // returns when the store is recovered and clients are accepted, or after a fatal line in the log
	err = log.fatal()
	switch {
	case err != nil && strings.Contains(err.Error(), "address already in use"):
		err = fmt.Errorf("start the embedded queue: %s is in use; stop what listens there or choose another port: %w", o.Listen, err)
	case err != nil:
		err = fmt.Errorf("start the embedded queue in %s: %w", dir, err)
	case !ns.ReadyForConnections(readyTimeout):
		err = fmt.Errorf("start the embedded queue in %s: not ready within %v", dir, readyTimeout)
	default:
		err = checkRecovered(ns, dir, log)
	}
	if err != nil {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, err
	}
	return ns, nil
}

// checkRecovered compares the streams on disk with those that the server took up. It skips, with a warning in its log,
// what it cannot read; made anew, such a stream would be empty and its shards forgotten.
func checkRecovered(ns *server.Server, dir string, log *serverLog) error {
	folders, err := os.ReadDir(filepath.Join(dir, server.JetStreamStoreDir, ns.GlobalAccount().Name, "streams"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("start the embedded queue: read its store: %w", err)
	}
	detail, err := ns.JszAccount(&server.JSzOptions{Account: ns.GlobalAccount().Name, Streams: true})
	if err != nil {
		return fmt.Errorf("start the embedded queue: ask for its streams: %w", err)
	}
	have := map[string]bool{}
	for _, s := range detail.Streams {
		have[s.Name] = true
	}
	for _, f := range folders {
		if f.IsDir() && !strings.HasPrefix(f.Name(), ".") && !have[f.Name()] {
			return fmt.Errorf("start the embedded queue: the stream %s in %s is damaged (%s); restore the folder, or move it away and submit again",
				f.Name(), dir, log.warned())
		}
	}
	return nil
}

// dirLock is a file descriptor and no os.File: the garbage collector would close that, and free the folder, under a
// server that runs on when its owner keeps no reference.
type dirLock int

func (l dirLock) release() error { return unix.Close(int(l)) }

// lockDir takes the folder for this process; the kernel gives it back when the process ends, however it ends.
func lockDir(dir string) (dirLock, error) {
	path := filepath.Join(dir, lockFile)
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o640)
	if err != nil {
		return 0, fmt.Errorf("start the embedded queue: open its lock %s: %w", path, err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = unix.Close(fd) // holds nothing
		if errors.Is(err, unix.EWOULDBLOCK) {
			return 0, fmt.Errorf("start the embedded queue: the folder %s is in use by another queue; wait for it, or give each its own folder", dir)
		}
		return 0, fmt.Errorf("start the embedded queue: lock its folder %s: %w", dir, err)
	}
	return dirLock(fd), nil
}

// Connect opens the queue of this server without going through the network.
func (s *Server) Connect(ctx context.Context, o Options) (*Queue, error) {
	q, err := connect(ctx, "nats://embedded", o, nats.InProcessServer(s.ns))
	if err != nil || s.ns.Addr() != nil {
		return q, err
	}
	// Nobody else reaches the server: what was in hand when it started is in nobody's.
	s.adopts.Do(func() { err = q.adopt(ctx) })
	if err != nil {
		return nil, both(fmt.Errorf("open the embedded queue: %w", err), q.Close())
	}
	return q, nil
}

// URL is where clients elsewhere reach the server, "" when it does not listen.
func (s *Server) URL() string {
	if s.ns.Addr() == nil {
		return ""
	}
	return s.ns.ClientURL()
}

// Close stops the server and returns when its files are closed and the folder is free. Close the queues first.
func (s *Server) Close() error {
	var err error
	s.once.Do(func() {
		s.ns.Shutdown()
		s.ns.WaitForShutdown()
		err = s.lock.release()
	})
	return err
}

// serverLog hands the server's log to slog and remembers the lines that say why it did not start. The server's own
// logger would print, and end the process on a fatal line.
type serverLog struct {
	to *slog.Logger

	mu    sync.Mutex
	died  error
	worry string
}

func (l *serverLog) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.died
}

func (l *serverLog) warned() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.worry == "" {
		return "the server says nothing about it"
	}
	return l.worry
}

func (l *serverLog) log(level, format string, v []any) string {
	line := strings.TrimSpace(fmt.Sprintf(format, v...))
	l.to.Debug("nats: "+line, "severity", level)
	return line
}

func (l *serverLog) Noticef(format string, v ...any) { l.log("notice", format, v) }
func (l *serverLog) Debugf(format string, v ...any)  { l.log("debug", format, v) }
func (l *serverLog) Tracef(format string, v ...any)  { l.log("trace", format, v) }
func (l *serverLog) Errorf(format string, v ...any)  { l.log("error", format, v) }

func (l *serverLog) Warnf(format string, v ...any) {
	line := l.log("warning", format, v)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.worry = line
}

func (l *serverLog) Fatalf(format string, v ...any) {
	line := l.log("fatal", format, v)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.died == nil {
		l.died = errors.New(line)
	}
}

package queue

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestARestartLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const shards = 20
	server, err := Embed(dir, EmbedOptions{MaxPayload: 64 << 10})
	check(t, err)
	q, err := server.Connect(t.Context(), Options{})
	check(t, err)
	for i := range shards {
		publish(t, q, true, fmt.Sprintf("job/ars/%02d", i))
	}
	large := noise(200 << 10)
	_, err = q.Publish(t.Context(), "job/sps/00", large)
	check(t, err)
	check(t, q.Close())
	check(t, server.Close())

	q = open(t, embed(t, dir, EmbedOptions{MaxPayload: 64 << 10}), 0)
	publish(t, q, false, "job/ars/00")
	s := source(t, q)
	for i := range shards {
		check(t, take(t, s, fmt.Sprintf("job/ars/%02d", i), 1).Ack(t.Context()))
	}
	d := take(t, s, "job/sps/00", 1)
	if !bytes.Equal(d.Data(), large) {
		t.Fatal("the large shard changed")
	}
	check(t, d.Ack(t.Context()))
	leftovers(t, q)
}

func TestKillLosesNothingThatWasConfirmed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, lines := child(t, dir)
	confirmed := map[string]bool{}
	for len(confirmed) < 40 && lines.Scan() {
		confirmed[lines.Text()] = true
	}
	if len(confirmed) < 40 {
		t.Fatalf("the publisher ended: %v", confirmed)
	}
	if _, err := Embed(dir, EmbedOptions{}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("a second server on a folder in use: %v", err)
	}
	check(t, cmd.Process.Kill())
	for lines.Scan() { // what it said until the kill
		confirmed[lines.Text()] = true
	}
	_ = cmd.Wait() // "killed"

	q := open(t, embed(t, dir, EmbedOptions{}), time.Second)
	s := source(t, q)
	for {
		queued, err := q.Queued(t.Context(), "job")
		check(t, err)
		if len(queued) == 0 {
			break
		}
		d, err := s.Next(t.Context())
		check(t, err)
		if string(d.Data()) != d.Key() {
			t.Fatalf("%s holds %q", d.Key(), d.Data())
		}
		if d.Key() == "job/ars/00000" && d.Attempt() != 4 {
			t.Errorf("the shard that was tried three times is at attempt %d", d.Attempt())
		}
		delete(confirmed, d.Key())
		check(t, d.Ack(t.Context()))
	}
	if len(confirmed) > 0 {
		t.Fatalf("confirmed and lost: %v", confirmed)
	}
}

// Nobody keeps a reference to this server: its folder must stay locked all the same.
func TestTheFolderStaysLockedWithoutAReference(t *testing.T) {
	dir := t.TempDir()
	var shut func()
	func() {
		s, err := Embed(dir, EmbedOptions{})
		check(t, err)
		ns, lock := s.ns, s.lock
		shut = func() {
			ns.Shutdown()
			ns.WaitForShutdown()
			check(t, lock.release())
		}
	}()
	for range 3 {
		runtime.GC()
	}
	if lock, err := lockDir(dir); err == nil {
		check(t, lock.release())
		t.Error("the folder is free while its server runs")
	}
	shut()
}

func TestEmbedSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer taken.Close()
	inUse := t.TempDir()
	embed(t, inUse, EmbedOptions{})
	file := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(file, nil, 0o600))

	for name, c := range map[string]struct {
		dir  string
		o    EmbedOptions
		want string
	}{
		"port in use":   {t.TempDir(), EmbedOptions{Listen: taken.Addr().String()}, taken.Addr().String() + " is in use"},
		"folder in use": {inUse, EmbedOptions{}, "is in use by another queue"},
		"a file":        {file, EmbedOptions{}, "make its folder"},
		"no address":    {t.TempDir(), EmbedOptions{Listen: "localhost"}, "is not host:port"},
		"no port":       {t.TempDir(), EmbedOptions{Listen: "localhost:http"}, "is not host:port"},
		"damaged":       {damaged(t), EmbedOptions{}, "the stream " + streamName},
	} {
		s, err := Embed(c.dir, c.o)
		if err == nil {
			s.Close()
			t.Errorf("%s: no error", name)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want one line with %q", name, err, c.want)
		}
		if c.dir != inUse && c.dir != file { // the folder is free again
			if lock, err := lockDir(c.dir); err != nil {
				t.Errorf("%s: %v", name, err)
			} else {
				lock.release()
			}
		}
	}
}

// damaged is the folder of a queue with a shard on it whose stream's description was overwritten.
func damaged(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	server, err := Embed(dir, EmbedOptions{})
	check(t, err)
	q, err := server.Connect(t.Context(), Options{})
	check(t, err)
	publish(t, q, true, "job/ars/1")
	check(t, q.Close())
	check(t, server.Close())
	meta, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", streamName, "meta.inf"))
	check(t, err)
	if len(meta) != 1 {
		t.Fatalf("the stream's description: %v", meta)
	}
	check(t, os.WriteFile(meta[0], []byte("garbage"), 0o600))
	return dir
}

func TestTheServersLogGoesToSlogAtDebug(t *testing.T) {
	t.Parallel()
	var out syncBuffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	s := embed(t, t.TempDir(), EmbedOptions{Logger: log})
	open(t, s, 0)
	if text := out.String(); text != "" {
		t.Fatalf("logged above debug level: %s", text)
	}
	log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	embed(t, t.TempDir(), EmbedOptions{Logger: log})
	if text := out.String(); !strings.Contains(text, "nats: ") || strings.Contains(text, "level=INFO") || strings.Contains(text, "level=WARN") {
		t.Fatalf("the server's log: %s", text)
	}
}

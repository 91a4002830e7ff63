package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/draftmill/draftmill/storage/bucket/buckettest"
)

// hurry shortens what a store is given, for the rest of the test.
func hurry(t *testing.T) {
	t.Helper()
	p, a, f, l, b, e := patience, attempt, firstPause, lastPause, leaseBeat, leaseTime
	t.Cleanup(func() { patience, attempt, firstPause, lastPause, leaseBeat, leaseTime = p, a, f, l, b, e })
	patience, attempt, firstPause, lastPause = 2*time.Minute, 20*time.Second, time.Millisecond, 20*time.Millisecond
	leaseBeat, leaseTime = 100*time.Millisecond, 20*time.Second // a slow machine is not a dead one
}

func open(t *testing.T, place string) Bucket {
	t.Helper()
	b, err := Open(place)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// everywhere runs a test on every kind of bucket.
func everywhere(t *testing.T, test func(t *testing.T, b Bucket)) {
	hurry(t)
	t.Run("folder", func(t *testing.T) { test(t, open(t, filepath.Join(t.TempDir(), "x"))) })
	t.Run("mem", func(t *testing.T) { test(t, open(t, "mem://"+unique()+"/some/where")) })
	t.Run("s3", func(t *testing.T) { test(t, open(t, buckettest.Start(t).URL("some/where"))) })
}

func TestABucket(t *testing.T) {
	everywhere(t, func(t *testing.T, b Bucket) {
		ctx := t.Context()
		for _, key := range []string{"a", "dir/b", "x/mode=sps/part-00000.json"} {
			if _, err := b.Stat(ctx, key); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("stat of %s in an empty bucket: %v", key, err)
			}
			if _, err := b.Get(ctx, key); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("get: %v", err)
			}
			if _, err := b.Open(ctx, key); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("open: %v", err)
			}
			if _, err := b.Move(ctx, key, "y"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("move: %v", err)
			}
			if err := b.Remove(ctx, key); err != nil {
				t.Errorf("remove: %v", err)
			}
			for n, want := range []bool{true, false, false} {
				if created, err := b.CreateOnce(ctx, key, fmt.Append(nil, key, n)); created != want || err != nil {
					t.Errorf("create %s, %d: %v %v", key, n, created, err)
				}
			}
			if data, err := b.Get(ctx, key); string(data) != key+"0" || err != nil {
				t.Errorf("get: %q %v", data, err)
			}
		}
		was, err := b.Stat(ctx, "a")
		if err != nil || was.Size != 2 || was.Key != "a" || was.ID == "" {
			t.Errorf("%+v %v", was, err)
		}
		if err := b.Replace(ctx, "a", []byte("other")); err != nil {
			t.Error(err)
		}
		if now, err := b.Stat(ctx, "a"); err != nil || now.ID == was.ID || now.Size != 5 {
			t.Errorf("%+v %v", now, err)
		}
		if err := b.Replace(ctx, "empty", nil); err != nil {
			t.Error(err)
		}
		if data, err := b.Get(ctx, "empty"); len(data) > 0 || err != nil {
			t.Errorf("%q %v", data, err)
		}
		sub := b.Sub("x").Sub("mode=sps")
		if data, err := sub.Get(ctx, "part-00000.json"); err != nil || len(data) == 0 {
			t.Errorf("%q %v", data, err)
		}
		if err := b.Room(ctx); err != nil {
			t.Error(err)
		}
		for dir, want := range map[string]string{"": "[a dir/b empty x/mode=sps/part-00000.json]", "x": "[x/mode=sps/part-00000.json]", "di": "[]", "dir": "[dir/b]"} {
			list, err := b.List(ctx, dir)
			var keys []string
			for _, e := range list {
				keys = append(keys, e.Key)
			}
			if got := fmt.Sprint(keys); got != want || err != nil {
				t.Errorf("list %q: %s %v", dir, got, err)
			}
		}
		if b := open(t, b.String()); b == nil {
			t.Error("a bucket's name does not open it")
		} else if there, err := Exists(ctx, b, "dir/b"); !there || err != nil {
			t.Errorf("through its name: %v %v", there, err)
		}
	})
}

func TestWritersAndMoves(t *testing.T) {
	everywhere(t, func(t *testing.T, b Bucket) {
		ctx := t.Context()
		data := bytes.Repeat([]byte("0123456789"), 700_000) // two parts of an S3 upload
		digest := sha256.Sum256(data)
		sum := hex.EncodeToString(digest[:])
		w, err := b.Create(ctx, Staging+"/one")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		info, err := w.Close(sum)
		if err != nil || info.Size != int64(len(data)) {
			t.Fatalf("%+v %v", info, err)
		}
		w.Abort()
		moved, err := b.Move(ctx, Staging+"/one", "there/two")
		if err != nil || moved.Size != info.Size {
			t.Fatalf("%+v %v", moved, err)
		}
		if IsURL(b.String()) && moved.SHA256 != sum {
			t.Errorf("the digest is lost: %+v", moved)
		}
		if there, _ := Exists(ctx, b, Staging+"/one"); there {
			t.Error("moved, and still there")
		}
		f, err := b.Open(ctx, "there/two")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Info.ID != moved.ID {
			t.Errorf("opened %+v, moved %+v", f.Info, moved)
		}
		if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		w, err = b.Create(ctx, Staging+"/never")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, "x")
		w.Abort()
		if _, err := w.Close(""); err == nil {
			t.Error("closed after abort")
		}
		if list, err := b.List(ctx, Staging); len(list) > 0 || err != nil {
			t.Errorf("left: %v %v", list, err)
		}
	})
}

// Of many that create one object with different data, one does, and its data is
// what all find.
func TestOneCreates(t *testing.T) {
	everywhere(t, func(t *testing.T, b Bucket) {
		for round := range 5 {
			key := fmt.Sprint("once/", round)
			var won atomic.Int64
			won.Store(-1)
			var wg sync.WaitGroup
			for n := range 8 {
				wg.Go(func() {
					created, err := b.CreateOnce(t.Context(), key, fmt.Append(nil, n))
					if err != nil {
						t.Error(err)
					}
					if created && won.Swap(int64(n)) != -1 {
						t.Error("two have created it")
					}
				})
			}
			wg.Wait()
			if data, err := b.Get(t.Context(), key); err != nil || string(data) != fmt.Sprint(won.Load()) {
				t.Errorf("%d won, and %q is there: %v", won.Load(), data, err)
			}
		}
	})
}

func TestLocks(t *testing.T) {
	everywhere(t, func(t *testing.T, b Bucket) {
		ctx := t.Context()
		lock, err := b.TryLock(ctx, "_locks/run", "me")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.TryLock(ctx, "_locks/run", "you"); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "(me)") {
			t.Errorf("taken twice: %v", err)
		}
		other, err := b.TryLock(ctx, "_locks/other", "")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(lock.Held(), lock.Release(), other.Release()); err != nil {
			t.Error(err)
		}
		again, err := b.TryLock(ctx, "_locks/run", "you")
		if err != nil {
			t.Fatal(err)
		}
		again.Release()

		var inside atomic.Int32
		var taken int32
		var wg sync.WaitGroup
		for n := range 6 {
			wg.Go(func() {
				for range 4 {
					for {
						lock, err := b.TryLock(ctx, "_locks/busy", fmt.Sprint(n))
						if errors.Is(err, ErrLocked) {
							if err := pause(ctx, time.Millisecond); err != nil {
								t.Error(err)
								return
							}
							continue
						}
						if err != nil {
							t.Error(err)
							return
						}
						if inside.Add(1) != 1 {
							t.Error("two are inside")
						}
						taken++
						inside.Add(-1)
						if err := lock.Release(); err != nil {
							t.Error(err)
						}
						break
					}
				}
			})
		}
		wg.Wait()
		if taken != 24 {
			t.Errorf("taken %d times", taken)
		}
	})
}

// A holder that is gone, or stands still, loses its lease, and learns of it.
func TestALeaseEnds(t *testing.T) {
	hurry(t)
	leaseTime = 2 * time.Second
	b := open(t, "mem://"+unique())
	lock, err := b.TryLock(t.Context(), "_locks/a", "the dead")
	if err != nil {
		t.Fatal(err)
	}
	lock.(*lease).stop() // as a kill would
	begun := time.Now()
	next, err := b.TryLock(t.Context(), "_locks/a", "the next")
	if err != nil || next.Held() != nil {
		t.Fatalf("%v", err)
	}
	if took := time.Since(begun); took < leaseTime {
		t.Errorf("taken after %v", took)
	}
	if err := lock.Held(); !errors.Is(err, ErrUnreachable) {
		t.Errorf("the old holder believes in its lock: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
	if _, err := b.TryLock(t.Context(), "_locks/a", "third"); !errors.Is(err, ErrLocked) {
		t.Errorf("after the old one's release: %v", err)
	}
	if err := next.Release(); err != nil {
		t.Error(err)
	}
}

// A record that is read while it is written is no error: who wants the lock looks
// again. A damaged one that stays so is of a holder who is gone.
func TestALeaseThatCannotBeRead(t *testing.T) {
	hurry(t)
	p := buckettest.NewProxy(t, buckettest.Start(t), nil)
	b := open(t, buckettest.URL(p.Endpoint, "damaged-lease"))
	lock, err := b.TryLock(t.Context(), "_locks/a", "the holder")
	if err != nil {
		t.Fatal(err)
	}
	record := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "_locks/a/0")
	}
	seen := 0
	p.Set(func(r *http.Request) (f buckettest.Fault) {
		if record(r) {
			seen++
			f.Spoil = seen <= mostWrong // then it is whole
		}
		return f
	})
	if _, err := b.TryLock(t.Context(), "_locks/a", "you"); !errors.Is(err, ErrLocked) {
		t.Errorf("while the holder lives: %v", err)
	}
	lock.(*lease).stop() // as a kill would
	p.Set(every(1, record, buckettest.Fault{Spoil: true}))
	next, err := b.TryLock(t.Context(), "_locks/a", "you")
	if err != nil {
		t.Fatalf("after the holder's end: %v", err)
	}
	if err := next.Release(); err != nil {
		t.Error(err)
	}
}

// every makes a fault of each nth request that concerns.
func every(n int, concerns func(*http.Request) bool, f buckettest.Fault) func(*http.Request) buckettest.Fault {
	seen := 0
	return func(r *http.Request) buckettest.Fault {
		if !concerns(r) {
			return buckettest.Fault{}
		}
		if seen++; seen%n != 0 {
			return buckettest.Fault{}
		}
		return f
	}
}

// What a store answers badly is asked again; who created an object is told so,
// even when the answer that said it was lost.
func TestBadAnswers(t *testing.T) {
	hurry(t)
	s := buckettest.Start(t)
	all := func(*http.Request) bool { return true }
	reads := func(r *http.Request) bool { return r.Method == http.MethodGet }
	for name, fault := range map[string]func(*http.Request) buckettest.Fault{
		"500":                every(7, all, buckettest.Fault{Status: 500}),
		"503":                every(8, all, buckettest.Fault{Status: 503}),
		"500 after it did":   every(2, buckettest.Creates, buckettest.Fault{Status: 500, After: true}),
		"409 before":         every(2, buckettest.Creates, buckettest.Fault{Status: 409}),
		"409 after it did":   every(2, buckettest.Creates, buckettest.Fault{Status: 409, After: true}),
		"412 after it did":   every(2, buckettest.Creates, buckettest.Fault{Status: 412, After: true}),
		"412 for no reason":  every(2, buckettest.Creates, buckettest.Fault{Status: 412}),
		"slower than allows": every(9, all, buckettest.Fault{Delay: 10 * time.Second}),
		"cut off":            every(2, reads, buckettest.Fault{Cut: true}),
		"changed on its way": every(2, reads, buckettest.Fault{Spoil: true}),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "slower than allows" {
				was := attempt
				attempt = time.Second
				defer func() { attempt = was }()
			}
			p := buckettest.NewProxy(t, s, fault)
			b := open(t, buckettest.URL(p.Endpoint, strings.ReplaceAll(name, " ", "-")))
			direct := open(t, s.URL(strings.ReplaceAll(name, " ", "-")))
			ctx := t.Context()
			data := bytes.Repeat([]byte("some text "), 10_000)
			digest := sha256.Sum256(data)
			for n := range 2 {
				key := fmt.Sprint("k", n)
				if created, err := b.CreateOnce(ctx, key, fmt.Append(nil, "first", n)); !created || err != nil {
					t.Errorf("create: %v %v", created, err)
				}
				if created, err := b.CreateOnce(ctx, key, fmt.Append(nil, "second", n)); created || err != nil {
					t.Errorf("create again: %v %v", created, err)
				}
				w, err := b.Create(ctx, "big"+key)
				if err != nil {
					t.Fatal(err)
				}
				w.Write(data)
				if _, err := w.Close(hex.EncodeToString(digest[:])); err != nil {
					t.Errorf("write: %v", err)
				}
				if _, err := b.Move(ctx, "big"+key, "moved"+key); err != nil {
					t.Errorf("move: %v", err)
				}
				f, err := b.Open(ctx, "moved"+key)
				if err != nil {
					t.Errorf("open: %v", err)
					continue
				}
				got, err := io.ReadAll(f)
				f.Close()
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d of %d bytes, or others: %v", len(got), len(data), err)
				}
				if text, err := direct.Get(ctx, key); string(text) != fmt.Sprint("first", n) || err != nil {
					t.Errorf("%q %v", text, err)
				}
			}
			if p.Faults() == 0 {
				t.Error("nothing was disturbed")
			}
		})
	}
}

// A store that stays silent, or refuses, is an error that says so, in bounded
// time and one line.
func TestAStoreThatFails(t *testing.T) {
	hurry(t)
	patience, attempt = time.Second, 3*time.Second
	s := buckettest.Start(t)
	p := buckettest.NewProxy(t, s, func(*http.Request) buckettest.Fault { return buckettest.Fault{Status: 500} })
	b := open(t, buckettest.URL(p.Endpoint, "x"))
	oneLine := func(err error) {
		t.Helper()
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "s3://jobs/x") || len(err.Error()) > 700 {
			t.Errorf("%v", err)
		}
	}
	_, err := b.Stat(t.Context(), "a")
	if oneLine(err); !errors.Is(err, ErrUnreachable) {
		t.Errorf("silent: %v", err)
	}
	short := patience
	patience = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := b.Replace(ctx, "a", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("interrupted: %v", err)
	}
	patience = short
	p.Set(func(*http.Request) buckettest.Fault { return buckettest.Fault{Status: 403} })
	_, err = b.CreateOnce(t.Context(), "a", nil)
	if oneLine(err); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("refused: %v", err)
	}
	p.Set(func(r *http.Request) buckettest.Fault {
		if buckettest.Creates(r) {
			return buckettest.Fault{Status: 412}
		}
		return buckettest.Fault{}
	})
	if _, err = b.CreateOnce(t.Context(), "a", nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("412 and nothing there: %v", err)
	}
}

func TestPlaces(t *testing.T) {
	for place, want := range map[string]string{
		"s3://b/p/q/?region=eu-west-1": "s3://b/p/q?region=eu-west-1", "s3://b": "s3://b", "gs://b/a//c/../d/": "gs://b/a/d",
		"file:///tmp/x/": "/tmp/x", "/a/b/../c": "/a/c", "s3://b/with space": "s3://b/with%20space",
	} {
		got, err := Clean(place)
		if got != want || err != nil {
			t.Errorf("%s: %s %v", place, got, err)
		}
		again, err := Clean(got)
		if again != got || err != nil {
			t.Errorf("%s: twice %s %v", place, again, err)
		}
		parent, name := Split(Join(place, "job-1"))
		if p, err := Clean(parent); name != "job-1" || p != want || err != nil {
			t.Errorf("%s: %s %s %v", place, parent, name, err)
		}
	}
	for _, place := range []string{"", "s3://", "s3:///x", "ftp://x/y", "s3://user:planted@b/x", "s3://b/x#y", "file://host/x", "file://", "s3://a b\x00/", "http://u:planted@x:y/"} {
		if _, err := Clean(place); err == nil || strings.Contains(err.Error(), "planted") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", place, err)
		}
	}
	if _, err := Open("s3://b/x?unknown=1"); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

func TestMain(m *testing.M) {
	os.Exit(m.Run())
}

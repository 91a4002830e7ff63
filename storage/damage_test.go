package storage

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// mutate damages a file in a way that depends on n alone.
func mutate(data []byte, n int) []byte {
	r := rand.New(rand.NewPCG(5, uint64(n)))
	bad := bytes.Clone(data)
	at := r.IntN(len(bad))
	if r.IntN(2) == 0 {
		at = len(bad) - 1 - r.IntN(min(len(bad), 600)) // footers are where readers believe what they read
	}
	switch n % 5 {
	case 0: // one bit
		bad[at] ^= 1 << r.IntN(8)
	case 1: // a number that became huge or negative
		for i := range min(4, len(bad)-at) {
			bad[at+i] = 0xff >> (r.IntN(2) * i)
		}
	case 2: // a lost block
		clear(bad[at:min(len(bad), at+64)])
	case 3: // noise
		for range 1 + r.IntN(20) {
			bad[r.IntN(len(bad))] = byte(r.UintN(256))
		}
	case 4: // a hole: what follows moved
		end := min(len(bad), at+1+r.IntN(30))
		bad = append(bad[:at], bad[end:]...)
	}
	return bad
}

// mutations is how often files are damaged in all: MUTATIONS, or few.
func mutations(t *testing.T) int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("MUTATIONS"), "320"))
	if err != nil {
		t.Fatalf("MUTATIONS: %v", err)
	}
	return n
}

// A damagedFile is one that TestDamagedFiles reads.
type damagedFile struct {
	name string
	data func() []byte // made when it is its turn: ten thousand files at a time are too many
	part bool          // nothing but an error may come of it
}

// damaged names the files to read.
func damaged(t *testing.T) (files []damagedFile) {
	bases, err := filepath.Glob("testdata/[dl]*s/*.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, base := range bases {
		data, err := os.ReadFile(base)
		if err != nil {
			t.Fatal(err)
		}
		for n := range (mutations(t) + len(bases) - 1) / len(bases) {
			files = append(files, damagedFile{name: fmt.Sprint(filepath.Base(base), " mutation ", n), data: func() []byte { return mutate(data, n) }})
		}
		for i := range 8 {
			if strings.HasSuffix(base, ".jsonl") { // one that ends with a line is whole
				break
			}
			files = append(files, damagedFile{fmt.Sprint(filepath.Base(base), " cut ", i), func() []byte { return data[:len(data)*(i+1)/9] }, true})
		}
	}
	r := rand.New(rand.NewPCG(6, 7))
	for i := range 12 {
		noise := make([]byte, 1000)
		for j := range noise {
			noise[j] = byte(r.UintN(256))
		}
		for name, data := range map[string][]byte{
			"noise ":         noise,
			"parquet noise ": slices.Concat([]byte("PAR1"), noise, []byte{byte(100 * i), 0, 0, 0}, []byte("PAR1")),
			"arrow noise ":   slices.Concat([]byte("ARROW1\x00\x00"), noise, []byte{byte(100 * i), 0, 0, 0}, []byte("ARROW1")),
			"stream noise ":  slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, byte(100 * i), 0, 0, 0}, noise),
		} {
			files = append(files, damagedFile{fmt.Sprint(name, i), func() []byte { return data }, true})
		}
	}
	return files
}

// Every way that a file can be damaged ends in rows or in one line of error,
// and a file that was cut off never passes for a shorter one.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	files := damaged(t)
	dir := t.TempDir()
	var mu sync.Mutex
	var refused int
	var slowest time.Duration
	var wg sync.WaitGroup
	next := make(chan damagedFile)
	for range runtime.NumCPU() + 1 { // a new process waits now and then
		wg.Go(func() {
			for f := range next {
				path := filepath.Join(dir, f.name)
				if err := os.WriteFile(path, f.data(), 0o644); err != nil {
					t.Error(err)
					continue
				}
				begun := time.Now()
				_, _, err := readAll(path, Columns{})
				took := time.Since(begun)
				mu.Lock()
				slowest = max(slowest, took)
				if err != nil {
					refused++
				}
				mu.Unlock()
				os.Remove(path)
				if err == nil {
					if f.part {
						t.Errorf("%s was read as if whole", f.name)
					}
					continue
				}
				if s := err.Error(); strings.Contains(s, "\n") || len(s) > 600 || !strings.HasPrefix(s, "read dataset ") {
					t.Errorf("%s: %s", f.name, s)
				}
			}
		})
	}
	for _, f := range files {
		next <- f
	}
	close(next)
	wg.Wait()
	t.Logf("%d of %d damaged files were refused; the slowest took %v", refused, len(files), slowest)
}

// readerFault, in the environment, makes a reader's process fail in a way that
// no file of ours can be relied on to cause. The test binary is the reader, and
// this variable is set before package storage makes it one.
const readerFault = "STORAGE_TEST_READER_FAULT"

var _ = func() bool {
	fault := os.Getenv(readerFault)
	if os.Getenv(readerEnv) == "" || fault == "" {
		return false
	}
	if fault == "time" {
		readerSeconds = 1
	}
	step = func(string) {
		switch fault {
		case "time":
			for n := 0; ; n++ {
				runtime.KeepAlive(n)
			}
		case "panic":
			go func() { panic("index out of range\n\tin a goroutine of the library") }()
			select {}
		case "memory":
			for hold := [][]byte{}; len(hold) < 1<<20; {
				hold = append(hold, make([]byte, 64<<20))
			}
		case "exit":
			os.Exit(7)
		case "silence":
			select {}
		}
	}
	return true
}()

func TestReaderThatFails(t *testing.T) {
	was := readerPatience
	defer func() { readerPatience = was }()
	for fault, want := range map[string]string{
		"panic":   "it is damaged: index out of range",
		"memory":  "needs more than 4 GiB to read|exit status 66", // the race detector's way to run out of memory
		"exit":    "the reader ended before the file did .exit status 7",
		"silence": "the reader was silent for",
		"time":    "more time than any file of its size should",
	} {
		t.Setenv(readerFault, fault)
		readerPatience = was
		if fault == "silence" {
			readerPatience = 50 * time.Millisecond
		}
		_, err := OpenDataset("testdata/datasets/string.parquet", Columns{})
		if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v\nwant %s", fault, err, want)
		}
	}
}

// A reader must not outlive its parent: the end of its input is the sign.
func TestReaderEndsWithItsParent(t *testing.T) {
	long := strings.Repeat("x", 1<<20) // more than a pipe holds: it cannot just finish
	d, err := OpenDataset(writeArrow(t, []string{"prompt"}, texts(long, long, long)), Columns{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := d.source
	r.stdin.Close()
	ended := make(chan error, 1)
	go func() { ended <- r.reap() }()
	select {
	case err := <-ended:
		if err == nil || err.Error() != "exit status 1" {
			t.Errorf("the reader ended with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the reader lives on")
	}
}

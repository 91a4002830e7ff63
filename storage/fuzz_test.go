package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/draftmill/draftmill/storage/bucket"
)

// JSON Lines end in rows or in one line of error; a prompt is the text that
// encoding/json reads, where that is Unicode.
func FuzzJSONLines(f *testing.F) {
	files, err := filepath.Glob("testdata/lines/*")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"prompt":"\ud83d\ude00\ud83d","id":1e400}`))
	f.Add([]byte("{\"prompt\":\"\xff\"}\n{\"prompt\":{}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := openJSONLines(bytes.NewReader(data), wanted{})
		for err == nil {
			head := s.head
			var row Row
			if row, err = s.next(); err != nil {
				break
			}
			if row.Null != (row.Prompt == nil) {
				t.Errorf("null %v, prompt %q", row.Null, row.Prompt)
			}
			if raw := head[s.what.Columns.Prompt]; len(raw) > 0 && raw[0] == '"' && utf8.Valid(row.Prompt) {
				var want string
				if json.Unmarshal(raw, &want) == nil && !strings.Contains(want, "\uFFFD") && want != string(row.Prompt) {
					t.Errorf("%s is %q, want %q", raw, row.Prompt, want)
				}
			}
		}
		if !errors.Is(err, io.EOF) && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q", err)
		}
	})
}

// Whatever a queue delivers is a shard or an error; a shard's bytes are its own.
func FuzzDecodeShard(f *testing.F) {
	for _, s := range []Shard{{}, {Index: 3, Meta: map[string]string{"job": "{}"}, Rows: []ShardRow{{Row: 1, ID: "a", Prompt: []byte("x\xff")}, {Row: 2, Null: true}}}} {
		data, err := EncodeShard(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)/2])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := DecodeShard(data)
		if err != nil {
			if !errors.Is(err, ErrShard) {
				t.Errorf("%v", err)
			}
			return
		}
		again, err := EncodeShard(s)
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("decoded, and encoded to %d other bytes: %v", len(again), err)
		}
	})
}

func FuzzDetectFormat(f *testing.F) {
	files, err := filepath.Glob("testdata/[dl]*s/*.*")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:min(len(data), 200)])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		format, err := detectFormat(bytes.NewReader(data), int64(len(data)))
		if (format == "") == (err == nil) {
			t.Errorf("%q %v", format, err)
		}
	})
}

// A job's own JSON files, whatever is in them, are read or refused, and never
// name a file outside of their folders.
func FuzzJobFiles(f *testing.F) {
	j, err := CreateJob(f.TempDir(), "seed", []byte(`{"a":1}`))
	if err != nil {
		f.Fatal(err)
	}
	if err := j.WritePlan(1, 1, []string{"sps"}); err != nil {
		f.Fatal(err)
	}
	for _, key := range []string{jobFile, planFile} {
		data, err := j.b.Get(f.Context(), key)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"format":1,"job":"fuzz","mode":"sps","shard":0,"files":[{"table":"completions","staging":"../x"},{"table":"loops","staging":"y"}]}`))
	f.Add([]byte(`{"format":1,"job":"fuzz","plan":{"shards":-1,"rows":1,"modes":["a","a"]},"files":null,"spec":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := bucket.Open("mem://fuzz-" + unique())
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{jobFile, planFile, manifestFile, shardManifestKey("sps", 0)} {
			if err := b.Replace(t.Context(), key, data); err != nil {
				t.Fatal(err)
			}
		}
		if j, err := OpenJob(b.String()); err == nil && CheckName(j.Name()) != nil {
			t.Errorf("a job named %q", j.Name())
		}
		j := &Job{b: b, name: "fuzz", hashed: map[string]string{}, seen: map[string]int{}}
		if plan, err := j.Plan(); err == nil && plan.check() != nil {
			t.Errorf("the plan %+v", plan)
		}
		if m, err := j.readShardManifest(t.Context(), "sps", 0); err == nil && m != nil {
			for _, f := range m.Files {
				if strings.ContainsAny(f.Staging, "/\x00") || f.Staging == ".." || f.Staging == "" {
					t.Errorf("a file %q", f.Staging)
				}
			}
		}
		_, _ = j.Manifest()
	})
}

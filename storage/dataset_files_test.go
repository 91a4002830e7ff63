package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/storage/bucket"
	"github.com/draftmill/draftmill/storage/bucket/buckettest"
)

// TestSeveralFiles: rows follow each other in the order of the files' names, and
// the digest is that of what sha256sum says of the files.
func TestSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	put := func(name, from string) {
		t.Helper()
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	prompts := func(of ...string) string { return writeParquet(t, []string{"prompt"}, texts(of...)) }
	put("train-00001-of-00003.parquet", prompts("c"))
	put("train-00000-of-00003.parquet", prompts("a", "b"))
	put("train-00002-of-00003.parquet", prompts("d", "e"))
	put("test-00000-of-00001.parquet", prompts("z"))
	pattern := filepath.Join(dir, "train-*.parquet")

	rows, info, err := readAll(pattern, Columns{})
	got := ""
	for i, row := range rows {
		got += string(row.Prompt)
		if row.Index != int64(i) || row.ID != fmt.Sprint(i) {
			t.Errorf("row %d: %+v", i, row)
		}
	}
	if err != nil || got != "abcde" || info.Rows != -1 || info.Format != FormatParquet {
		t.Errorf("%q %+v %v", got, info, err)
	}

	sums := sha256.New()
	for i := range 3 {
		name := fmt.Sprintf("train-%05d-of-00003.parquet", i)
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(sums, "%x  %s\n", sha256.Sum256(data), name)
	}
	digest := func(path string) string {
		t.Helper()
		d, err := OpenDataset(path, Columns{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		digest, err := d.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	if want := hex.EncodeToString(sums.Sum(nil)); digest(pattern) != want {
		t.Errorf("digest %s, want %s", digest(pattern), want)
	}
	if one := digest(filepath.Join(dir, "test-*")); one != digest(filepath.Join(dir, "test-00000-of-00001.parquet")) {
		t.Errorf("the digest of one file is %s when it is found by a pattern", one)
	}

	put("train-00003-of-00003.parquet", writeParquet(t, []string{"document"}, texts("x")))
	bad := filepath.Join(dir, "train-00003-of-00003.parquet")
	for _, c := range []struct{ change, want string }{
		{"columns", bad + `: it is a parquet file of "document"; the first one is a parquet file of "prompt"`},
		{"more columns", bad + `: it is a parquet file of "prompt", "document"; the first one is a parquet file of "prompt"`},
		{"format", bad + ": it is a json lines file of"},
		{"damage", bad + ": it begins as a Parquet file"},
		{"empty", bad + ": it is empty"},
	} {
		switch c.change {
		case "more columns":
			put(filepath.Base(bad), writeParquet(t, []string{"prompt", "document"}, texts("x"), texts("y")))
		case "format":
			put(filepath.Base(bad), writeFile(t, "x", `{"prompt": "x"}`))
		case "damage":
			put(filepath.Base(bad), writeFile(t, "x", "PAR1 and no more"))
		case "empty":
			put(filepath.Base(bad), writeFile(t, "x", ""))
		}
		rows, _, err := readAll(pattern, Columns{})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || len(rows) != 5 && c.change != "empty" {
			t.Errorf("%s: %d rows, %v", c.change, len(rows), err)
		}
	}
}

// TestPatternsOfFiles: what is the name of a file is no pattern.
func TestPatternsOfFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a*.jsonl", "ab.jsonl"} {
		if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, `{"prompt": %q}`, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, want := range map[string]string{"a*.jsonl": "a*.jsonl", "a?.jsonl": "a*.jsonl ab.jsonl", "*": "a*.jsonl ab.jsonl", "?b*": "ab.jsonl"} {
		rows, _, err := readAll(filepath.Join(dir, pattern), Columns{})
		var got []string
		for _, row := range rows {
			got = append(got, string(row.Prompt))
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q %v", pattern, got, err)
		}
	}
	for pattern, want := range map[string]string{
		"c*":      "c*: no file there has a name like c*",
		"[a*":     "is not closed",
		"none/*":  "none/*: no such file or directory",
		"none/ab": "no such file or directory",
	} {
		if _, err := OpenDataset(filepath.Join(dir, pattern), Columns{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// TestSeveralObjects: a pattern names objects of a store, too, those that lie where
// it says and no deeper; their rows and digest are those of the same files in a
// folder.
func TestSeveralObjects(t *testing.T) {
	t.Parallel()
	s := buckettest.Start(t)
	for _, url := range []string{s.URL("data/of a job"), s.URL("")} {
		b, err := bucket.Open(url)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for name, prompts := range map[string][]string{
			"train-00001-of-00002.parquet": {"c"}, "train-00000-of-00002.parquet": {"a", "b"}, "test-00000-of-00001.parquet": {"z"},
			"deeper/train-00002-of-00002.parquet": {"y"}, "train-list.txt": {"x"}, "odd*.parquet": {"o"}, "odd1.parquet": {"p"},
		} {
			data, err := os.ReadFile(writeParquet(t, []string{"prompt"}, texts(prompts...)))
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Replace(t.Context(), name, data); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(name, "/") {
				if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		for pattern, want := range map[string]string{"*.parquet": "opzabc", "train-*-of-*.parquet": "abc", "test-*": "z", "odd*.parquet": "o"} {
			var digests []string
			for _, place := range []string{bucket.Join(url, pattern), filepath.Join(dir, pattern)} {
				d, err := OpenDataset(place, Columns{})
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				for row, err := d.Next(); err != io.EOF; row, err = d.Next() { //nolint:errorlint // as it is
					if err != nil {
						t.Fatal(err)
					}
					got += string(row.Prompt)
				}
				digest, err := d.Digest()
				digests = append(digests, digest)
				if got != want || err != nil {
					t.Errorf("%s: %q, want %q; %v", place, got, want, err)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
			if digests[0] != digests[1] {
				t.Errorf("%s: digest %s in the store, %s in a folder", pattern, digests[0], digests[1])
			}
		}
		for pattern, want := range map[string]string{"none-*.parquet": "no file there has a name like none-*.parquet", "none/*": "no file there has a name like *", "[a*": "is not closed"} {
			_, err := OpenDataset(bucket.Join(url, pattern), Columns{})
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", pattern, err)
			}
		}
	}
}

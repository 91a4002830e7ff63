package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
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

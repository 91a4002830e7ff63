package app

import (
	"slices"
	"strings"
	"testing"
)

func TestOnlyParquet(t *testing.T) {
	for _, c := range []struct{ files, at, name, found, err string }{
		{"README.md test.parquet", "", "test.parquet", "test.parquet", ""},
		{"data/a-00000-of-00001.parquet", "", "data/a-00000-of-00001.parquet", "data/a-00000-of-00001.parquet", ""},
		{"data/a-00000-of-00002.parquet data/a-00001-of-00002.parquet x.json", "", "data/a-*-of-00002.parquet", "data/a-00000-of-00002.parquet data/a-00001-of-00002.parquet", ""},
		{"a-00000-of-00002-0123456789abcdef.parquet a-00001-of-00002-fedcba9876543210.parquet", "", "a-*-of-00002-*.parquet", "a-00000-of-00002-0123456789abcdef.parquet a-00001-of-00002-fedcba9876543210.parquet", ""},
		{"d/train/0000.parquet d/train/0001.parquet d/test/0000.parquet", "d/train", "d/train/*.parquet", "d/train/0000.parquet d/train/0001.parquet", ""},
		{"d/train/0000.parquet d/train/0001.parquet d/test/0000.parquet", "", "", "", "2 Parquet datasets; name one of them behind a slash: d/test/0000.parquet, d/train/*.parquet"},
		{"train.parquet test.parquet", "", "", "", "name one of them behind a slash: test.parquet, train.parquet"},
		{"a-00000-of-00003.parquet a-00002-of-00003.parquet", "", "", "", "it has 2 of 3 files of a-*-of-00003.parquet"},
		{"README.md x.json", "", "", "", "it has no Parquet file"},
		{"ab/0000.parquet", "a", "", "", "it has no Parquet file"},
	} {
		name, found, err := onlyParquet(strings.Fields(c.files), c.at)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", c.files, err, c.err)
			}
			continue
		}
		if err != nil || name != c.name || !slices.Equal(found, strings.Fields(c.found)) {
			t.Errorf("%s: %s %q %v", c.files, name, found, err)
		}
		again, err := matching(strings.Fields(c.files), name)
		if err != nil || !slices.Equal(again, found) {
			t.Errorf("%s names %q, %v", name, again, err)
		}
	}
	if _, err := matching([]string{"a.parquet"}, "b*"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

package storage

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// writeTable writes rows through a table writer and returns path and digest.
func writeTable[T any](t *testing.T, tab *table[T], rows []T) (string, fileInfo) {
	t.Helper()
	path := filepath.Join(t.TempDir(), tab.name+".parquet")
	w, err := createFile(tab, path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if err := w.add(&rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	info, err := w.close()
	if err != nil {
		t.Fatal(err)
	}
	return path, info
}

func roundTrip[T any](t *testing.T, tab *table[T], fake func(int64) T, n int) {
	t.Helper()
	checkAlloc(t)
	rows := make([]T, n)
	for i := range rows {
		rows[i] = fake(int64(i))
	}
	path, info := writeTable(t, tab, rows)
	if info.rows != int64(n) {
		t.Fatalf("%d rows reported, %d written", info.rows, n)
	}
	if stat, err := os.Stat(path); err != nil || stat.Size() != info.bytes {
		t.Fatalf("%d bytes reported: %v %v", info.bytes, stat, err)
	}
	i := 0
	err := readFile(tab, path, info.sha256, func(got T) error {
		if !reflect.DeepEqual(got, rows[i]) {
			t.Fatalf("row %d\n got %+v\nwant %+v", i, got, rows[i])
		}
		i++
		return nil
	})
	if err != nil || i != n {
		t.Fatalf("read %d of %d rows: %v", i, n, err)
	}
}

func TestTablesRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512, 513, 5000} {
		roundTrip(t, completionTable, fakeCompletion, n)
		roundTrip(t, loopTable, fakeLoop, n)
	}
}

// Several row groups, so that batches cross their borders.
func TestTableOfManyRowGroups(t *testing.T) {
	long := strings.Repeat("x = 1\n", 20000)
	roundTrip(t, completionTable, func(n int64) Completion {
		c := fakeCompletion(n)
		if c.Error == "" {
			c.Completion = long[:n%100*1000]
		}
		return c
	}, 900)
	empty := func(n int64) Loop {
		l := Loop{Row: n, Kind: KindNone, Token: -1}
		if n%97 == 0 {
			return fakeLoop(n)
		}
		return l
	}
	roundTrip(t, loopTable, empty, 70000)
}

func TestTableRefusesWhatNoReaderUnderstands(t *testing.T) {
	checkAlloc(t)
	inf := math.Inf(1)
	nan := math.NaN()
	n := int64(0)
	for fakeLoop(n).K < 3 || fakeLoop(n).Kind == KindNone || len(fakeLoop(n).Margins) == 0 {
		n++
	}
	good := fakeLoop(n)
	loops := map[string]func(*Loop){
		"q":       func(l *Loop) { l.Q = append([]float64{nan}, l.Q[1:]...) },
		"coins":   func(l *Loop) { l.Coins = append([]float64{inf}, l.Coins[1:]...) },
		"margin":  func(l *Loop) { l.Margin = &nan },
		"margins": func(l *Loop) { l.Margins[0] = nan },
		"1 p":     func(l *Loop) { l.P = l.P[:1]; l.Drafted = l.Drafted[:2]; l.Q = l.Q[:2] },
		"kind":    func(l *Loop) { l.Kind = "lucky" },
		"token":   func(l *Loop) { l.Kind = KindNone },
		"overlap": func(l *Loop) { l.Overlap[0] = nan },
	}
	for want, spoil := range loops {
		l := fakeLoop(n)
		spoil(&l)
		w, err := createFile(loopTable, filepath.Join(t.TempDir(), "x"))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.add(&l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if err := w.add(&good); err == nil {
			t.Errorf("%s: the writer went on after a refused row", want)
		}
		if _, err := w.close(); err == nil {
			t.Errorf("%s: the file was closed as if whole", want)
		}
	}
	for _, c := range []Completion{{FinishReason: "tired"}, {FinishReason: FinishError}, {FinishReason: FinishEOS, Error: "x"}} {
		if c.check() == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

// One byte that is not UTF-8 would make DuckDB refuse the file.
func TestTextIsAlwaysUTF8(t *testing.T) {
	c := fakeCompletion(0)
	c.Completion, c.RowID = "caf\xc3", "\xff"
	path, info := writeTable(t, completionTable, []Completion{c})
	err := readFile(completionTable, path, info.sha256, func(got Completion) error {
		if got.Completion != "caf\uFFFD" || got.RowID != "\uFFFD" {
			t.Errorf("%q %q", got.Completion, got.RowID)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestReadTableChecksFirst(t *testing.T) {
	path, info := writeTable(t, loopTable, []Loop{fakeLoop(1)})
	none := func(Loop) error { t.Error("a row was read"); return nil }
	data, _ := os.ReadFile(path)
	for i := 0; i < len(data); i += 53 {
		bad := bytes.Clone(data)
		bad[i] ^= 1 << (i % 8)
		if err := os.WriteFile(path, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := readFile(loopTable, path, info.sha256, none); !errors.Is(err, errDigest) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
	os.WriteFile(path, data, 0o644)
	if err := readFile(completionTable, path, info.sha256, func(Completion) error { return nil }); err == nil || !strings.Contains(err.Error(), "holds the table loops") {
		t.Errorf("loops read as completions: %v", err)
	}
	stop := errors.New("stop")
	if err := readFile(loopTable, path, "", func(Loop) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the caller's error came back as %v", err)
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	meta := func(kv map[string]string) func(string) *string {
		return func(k string) *string {
			if v, ok := kv[k]; ok {
				return &v
			}
			return nil
		}
	}
	for want, kv := range map[string]map[string]string{
		"":              {metaTable: "loops", metaFormat: "1"},
		"newer than 1":  {metaTable: "loops", metaFormat: "2"},
		"not a version": {metaTable: "loops", metaFormat: "one"},
		"not a file of": {metaTable: "loops"},
		"not loops":     {metaTable: "completions", metaFormat: "1"},
	} {
		err := checkTableMeta("loops", meta(kv))
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", kv, err, want)
		}
	}
}

// A full disk is one clear error, whichever write it hits.
func TestTableOnFullDisk(t *testing.T) {
	checkAlloc(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w, err := createFile(completionTable, filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	w.sink.file.Reset(full)
	c := fakeCompletion(0)
	c.Completion = strings.Repeat("lorem ipsum ", 100000)
	for range 20 {
		w.add(&c)
	}
	_, err = w.close()
	if err == nil || !strings.Contains(err.Error(), "no space left on device") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("%v", err)
	}
}

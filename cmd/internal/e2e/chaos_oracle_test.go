package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/draftmill/draftmill/storage"
)

// trial is a job that is disturbed.
type trial struct {
	t       *testing.T
	servers *cluster
	data    dataset
	out     string // the output folder, or an object store's
	here    string // the job's folder on this machine's disk
	fault   *fault
	without *regexp.Regexp // what of a row an earlier worker did not write; nil is nothing
	workers []*program     // that were not killed
	all     []*program
}

// dataset is a file of rows, and how a job decodes them.
type dataset struct {
	path    string
	rows    int
	samples int
	flags   []string
	real    bool // decoded by the product's worker with the demo pair
}

const chaosJob = "chaos"

// dir is the job's folder as commands are told it.
func (tr *trial) dir() string {
	if place, query, remote := strings.Cut(tr.out, "?"); remote {
		return place + "/" + chaosJob + "?" + query
	}
	return filepath.Join(tr.out, chaosJob)
}

// content is what a job wrote, by key: (mode, row, sample) and (mode, row,
// sample, loop), all columns but those of times and the worker's name.
type content map[string]string

// readContent reads a job's tables. twice has the keys that are there more than once.
func readContent(dir string) (all content, twice []string, err error) {
	job, err := storage.OpenJob(dir)
	if err != nil {
		return nil, nil, err
	}
	plan, err := job.Plan()
	if err != nil {
		return nil, nil, err
	}
	all = content{}
	put := func(key string, row any) error {
		text, err := json.Marshal(row)
		if _, there := all[key]; there {
			twice = append(twice, key)
		}
		all[key] = string(text)
		return err
	}
	for _, mode := range plan.Modes {
		if err := job.ReadCompletions(mode, func(c storage.Completion) error {
			c.Worker = ""
			c.PrefillNS, c.DecodeNS, c.DraftNS, c.ScoreNS, c.SampleNS, c.TotalNS, c.LatencyNS = 0, 0, 0, 0, 0, 0, 0
			return put(fmt.Sprintf("%s %d %d", mode, c.Row, c.Sample), c)
		}); err != nil {
			return nil, nil, err
		}
		if err := job.ReadLoops(mode, func(l storage.Loop) error {
			l.DraftNS, l.ScoreNS, l.SampleNS = 0, 0, 0
			for i, m := range l.Margins { // JSON has no infinity
				l.Margins[i] = min(m, 1e300)
			}
			if l.Margin != nil {
				*l.Margin = min(*l.Margin, 1e300)
			}
			return put(fmt.Sprintf("%s %d %d loop %d", mode, l.Row, l.Sample, l.Loop), l)
		}); err != nil {
			return nil, nil, err
		}
	}
	return all, twice, nil
}

// holds is the oracle. The job is complete; its keys are exactly rows x samples x
// modes; every row, and every loop behind it, is that of an undisturbed run; a
// reader's glob finds the manifest's files and no others; the log replays;
// nothing of the job is left on the queue; and fsck finds nothing wrong.
func (tr *trial) holds(want content) {
	t := tr.t
	t.Helper()
	got, twice, err := readContent(tr.dir())
	if err != nil {
		t.Error(err)
		return
	}
	tr.fault.Doubled += len(twice)
	if len(twice) > 0 {
		t.Errorf("%d keys are there twice: %q", len(twice), twice[:min(5, len(twice))])
	}
	for _, mode := range []string{"ars", "sps"} {
		for row := range tr.data.rows {
			for sample := range tr.data.samples {
				key := fmt.Sprintf("%s %d %d", mode, row, sample)
				tr.fault.Rows++
				if _, ok := got[key]; !ok {
					tr.fault.Lost++
					t.Errorf("%s is lost", key)
				}
			}
		}
	}
	differ := 0
	for key, text := range want {
		have := got[key]
		if tr.without != nil {
			have, text = tr.without.ReplaceAllString(have, ""), tr.without.ReplaceAllString(text, "")
		}
		if have != text {
			if differ++; differ < 4 {
				t.Errorf("%s:\n%s\nundisturbed\n%s", key, have, text)
			}
		}
	}
	if len(got) != len(want) {
		differ = max(1, differ)
		t.Errorf("%d keys, undisturbed %d", len(got), len(want))
	}
	tr.fault.Different += differ
	tr.noStrays()
	if p := run(t, "submit", "verify", tr.dir()); !strings.Contains(p.stdout.String(), "holds (complete)") {
		t.Errorf("verify says\n%s", &p.stdout)
	}
	tr.nothingQueued()
	run(t, "submit", "fsck", tr.dir(), "--nats", tr.servers.url()) // exit code 0: nothing is wrong
}

// noStrays compares the files with the manifest.
func (tr *trial) noStrays() {
	t := tr.t
	t.Helper()
	job, err := storage.OpenJob(tr.dir())
	if err != nil {
		t.Error(err)
		return
	}
	manifest, err := job.Manifest()
	if err != nil {
		t.Error(err)
		return
	}
	want := []string{"_SUCCESS", "_place.json", "_plan.json", "job.json", "manifest.json"}
	for _, f := range manifest.Files {
		want = append(want, f.Path)
		if f.Table == "loops" {
			want = append(want, strings.Replace(strings.Replace(f.Path, "loops/", "_shards/", 1), ".parquet", ".json", 1))
		}
	}
	var got []string
	if err := filepath.WalkDir(tr.here, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(tr.here, path)
		if !strings.HasPrefix(name, "_locks/") && !strings.HasPrefix(name, "_hosts/") {
			got = append(got, name)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	for _, name := range got {
		if !slices.Contains(want, name) {
			tr.fault.Strays++
			t.Errorf("a stray file: %s", name)
		}
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("%s is missing", name)
		}
	}
}

// nothingQueued waits until the queue is empty: what a killed worker had in hand
// comes back after AckWait, is found committed and acknowledged. Counts of
// attempts may stay behind a worker or a server that was killed between an ack
// and its tidying up; the server forgets them by their age.
func (tr *trial) nothingQueued() {
	t := tr.t
	t.Helper()
	var last queueState
	var err error
	for end := time.Now().Add(patience); ; {
		if last, err = tr.servers.state(); err == nil && last.shards+last.inFlight+last.dead+last.exhausted+last.payloads == 0 {
			break
		}
		if time.Now().After(end) {
			t.Errorf("left on the queue: %+v (%v)", last, err)
			return
		}
		<-time.After(50 * time.Millisecond)
	}
	tr.fault.Counts += last.counts
}

// jsonRows writes a dataset that lives as long as the tests.
func jsonRows(rows []map[string]any) string {
	var b bytes.Buffer
	encode := json.NewEncoder(&b)
	for _, row := range rows {
		if err := encode.Encode(row); err != nil {
			panic(err)
		}
	}
	f, err := os.CreateTemp(bin, "rows-*.jsonl")
	if err == nil {
		_, err = f.Write(b.Bytes())
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		panic(err)
	}
	return f.Name()
}

package verify

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// Failure is the first thing of a job that does not hold.
type Failure struct {
	File   string // relative to the job's folder, with slashes
	Row    int64  // index in the dataset; -1 where it is no row's fault
	RowID  string // the dataset's own id of the row
	Sample int32
	Loop   int32 // -1 where it is no loop's fault
	What   string
}

// Error is one line: file, row, loop and what differs.
func (f *Failure) Error() string {
	s := f.File
	if f.Row >= 0 {
		s += fmt.Sprintf(": row %d (%s) sample %d", f.Row, f.RowID, f.Sample)
		if f.Loop >= 0 {
			s += fmt.Sprintf(" loop %d", f.Loop)
		}
	}
	return s + ": " + f.What
}

// Counts is what was replayed and holds.
type Counts struct {
	Job      string `json:"job"`
	Rule     string `json:"rule"`     // by which drafted tokens were accepted
	Bound    string `json:"bound"`    // what the rule guarantees: lossless, or LOSSY and how far
	Complete bool   `json:"complete"` // every planned shard is committed and _SUCCESS is written
	Rows     int64  `json:"rows"`     // of the dataset, where the job is complete
	Shards   int    `json:"shards"`   // committed, over all modes
	Files    int    `json:"files"`
	Bytes    int64  `json:"bytes"` // digests checked
	Modes    []Mode `json:"modes"` // in the job's order
}

// Mode is what was replayed of one mode.
type Mode struct {
	Mode        pipeline.Mode `json:"mode"`
	Completions int64         `json:"completions"`
	Errors      int64         `json:"errors"` // of them, rows that could not be decoded
	Tokens      int64         `json:"tokens"`
	Loops       int64         `json:"loops"`
	Drafted     int64         `json:"drafted"`
	Examined    int64         `json:"examined"` // drafted tokens whose accept or reject was decided again
	Accepted    int64         `json:"accepted"`
}

// Job replays every committed loop of a job. The error is a *[Failure] where
// something does not hold, and another where the job cannot be read.
func Job(folder *storage.Job) (*Counts, error) {
	job, err := specification(folder)
	if err != nil {
		return nil, err
	}
	files, err := inventory(folder, job)
	if err != nil {
		return nil, err
	}
	rule := job.EffectiveRule()
	counts := &Counts{Job: job.Name, Rule: rule.String(), Bound: rule.Bound(), Complete: files.complete, Modes: make([]Mode, len(job.Modes))}
	if files.complete {
		counts.Rows = files.plan.Rows
	}
	r := &replay{
		folder: folder, job: job, files: files, rule: job.EffectiveRule(), chosen: job.Lookahead == spec.AutoLookahead,
		ends: ends{job: job, last: map[int32]place{}},
	}
	if err := r.learn(); err != nil {
		return nil, err
	}
	for i, m := range job.Modes {
		counts.Modes[i].Mode = m
	}
	for _, s := range files.shards {
		ids := rowIDs{}
		for i, m := range job.Modes {
			parts, ok := s.parts[m]
			if !ok {
				continue
			}
			if err := r.shard(s.shard, m, parts, ids, &counts.Modes[i]); err != nil {
				return nil, err
			}
			counts.Shards++
			for _, p := range parts {
				counts.Files++
				counts.Bytes += p.Bytes
			}
		}
	}
	return counts, nil
}

// specification reads the job's. A setting that this code does not know might
// change what a loop decides, so that a replay without it would prove nothing.
func specification(folder *storage.Job) (*pipeline.Job, error) {
	var job pipeline.Job
	d := json.NewDecoder(bytes.NewReader(folder.Spec()))
	d.DisallowUnknownFields()
	if err := d.Decode(&job); err != nil {
		return nil, fmt.Errorf("read the specification of job %s: %w", folder.Name(), err)
	}
	if err := job.Validate(); err != nil {
		return nil, fmt.Errorf("read the specification of job %s: %w", folder.Name(), err)
	}
	if job.Name != folder.Name() {
		return nil, failed("job.json", "it is of job %s, its specification of job %s", folder.Name(), job.Name)
	}
	if rule := job.EffectiveRule(); rule.Lossy() != (job.Lossy != "") {
		return nil, failed("job.json", "its rule %s is %s; its specification says %q", job.Rule, rule.Bound(), job.Lossy)
	}
	return &job, nil
}

// replay is one run over a job.
type replay struct {
	folder *storage.Job
	job    *pipeline.Job
	files  *files
	rule   spec.Rule // as it applies to the job's sampling
	chosen bool      // the lookahead is chosen for every loop
	ends   ends
}

// failed is a Failure of a file as a whole.
func failed(file, format string, args ...any) *Failure {
	return &Failure{File: file, Row: -1, Loop: -1, What: fmt.Sprintf(format, args...)}
}

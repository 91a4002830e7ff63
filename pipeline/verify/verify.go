package verify

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/tokenize"
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
	Bytes    int64  `json:"bytes"`  // digests checked
	Texts    bool   `json:"texts"`  // every text was derived from its tokens again
	Signed   bool   `json:"signed"` // the manifest's signature was checked
	Modes    []Mode `json:"modes"`  // in the job's order
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

// Options say what is at hand beside the job's folder.
type Options struct {
	// Tokenizer is the target's, EOS the tokens that end its sequences: then every
	// text, and where and why it ends, is derived from its tokens again. Nil:
	// believed.
	Tokenizer *tokenize.Tokenizer
	EOS       []int32
	// PublicKey, if not nil, is of whoever must have signed the manifest.
	PublicKey ed25519.PublicKey
	// Shard, if not nil, is called with all sequences of a shard, over all modes,
	// once its log holds: by row, sample and mode. Its error ends the replay.
	Shard func(shard int, all []Sequence) error
}

// Sequence is one completion and its loops, in order.
type Sequence struct {
	Mode       pipeline.Mode
	File       string // of the completion; relative, as a Failure's
	Completion storage.Completion
	Loops      []storage.Loop
}

// Fail is a Failure of the sequence.
func (s *Sequence) Fail(format string, args ...any) *Failure {
	c := &s.Completion
	return &Failure{File: s.File, Row: c.Row, RowID: c.RowID, Sample: c.Sample, Loop: -1, What: fmt.Sprintf(format, args...)}
}

// Job replays every committed loop of a job. The error is a *[Failure] where
// something does not hold, and another where the job cannot be read.
func Job(folder *storage.Job, o Options) (*Counts, error) {
	job, err := Specification(folder)
	if err != nil {
		return nil, err
	}
	files, err := inventory(folder, job)
	if err != nil {
		return nil, err
	}
	if o.PublicKey != nil {
		if !files.complete {
			return nil, failed("manifest.json", "the job is not complete: there is nothing signed yet")
		}
		if err := folder.CheckSignature(o.PublicKey); err != nil {
			return nil, failed("manifest.sig", "%v", err)
		}
	}
	rule := job.EffectiveRule()
	counts := &Counts{
		Job: job.Name, Rule: rule.String(), Bound: rule.Bound(), Complete: files.complete, Texts: o.Tokenizer != nil, Signed: o.PublicKey != nil,
		Modes: make([]Mode, len(job.Modes)),
	}
	if job.Beams != nil {
		counts.Rule, counts.Bound = job.Beams.Rule()
	}
	if files.complete {
		counts.Rows = files.plan.Rows
	}
	r := &replay{
		options: o,
		folder:  folder, job: job, files: files, rule: job.EffectiveRule(), chosen: job.Lookahead == spec.AutoLookahead,
		ends: ends{job: job, last: map[int32]place{}},
	}
	if err := r.learn(); err != nil {
		return nil, err
	}
	for i, m := range job.Modes {
		counts.Modes[i].Mode = m
	}
	for _, s := range files.shards {
		ids, found := rowIDs{}, map[key]storage.Completion{}
		var all []Sequence
		for i, m := range job.Modes {
			parts, ok := s.parts[m]
			if !ok {
				continue
			}
			sequences, err := r.shard(s.shard, m, parts, ids, found, &counts.Modes[i])
			if err != nil {
				return nil, err
			}
			all = append(all, sequences...)
			counts.Shards++
			for _, p := range parts {
				counts.Files++
				counts.Bytes += p.Bytes
			}
		}
		if o.Shard == nil {
			continue
		}
		slices.SortStableFunc(all, func(a, b Sequence) int {
			return cmp.Or(cmp.Compare(a.Completion.Row, b.Completion.Row), cmp.Compare(a.Completion.Sample, b.Completion.Sample))
		})
		if err := o.Shard(s.shard, all); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// Specification reads a job's. A setting that this code does not know might
// change what a loop decides, so that a replay without it would prove nothing.
func Specification(folder *storage.Job) (*pipeline.Job, error) {
	var given struct {
		Given *json.RawMessage `json:"given"`
	}
	if json.Unmarshal(folder.Spec(), &given) == nil && given.Given != nil {
		return nil, fmt.Errorf("job %s has the completions of another system: there is no log to hold them to", folder.Name())
	}
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
	options Options
	folder  *storage.Job
	job     *pipeline.Job
	files   *files
	rule    spec.Rule // as it applies to the job's sampling
	chosen  bool      // the lookahead is chosen for every loop
	ends    ends
}

// failed is a Failure of a file as a whole.
func failed(file, format string, args ...any) *Failure {
	return &Failure{File: file, Row: -1, Loop: -1, What: fmt.Sprintf(format, args...)}
}

package pipeline

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// Mode says how a job's rows are decoded.
type Mode string

const (
	// ArS is autoregressive sampling: Algorithm 1 of Chen et al.
	ArS Mode = "ars"
	// SpS is speculative sampling: their Algorithm 2.
	SpS Mode = "sps"
)

// Job is the specification of a job: everything that decides its tokens, and
// nothing else. Two submissions with equal jobs are the same job. Where its
// files and models lie is a [Place].
type Job struct {
	Name         string        `json:"name"`
	Dataset      Dataset       `json:"dataset"`
	Modes        []Mode        `json:"modes"`
	ShardRows    int           `json:"shard_rows"`
	Chat         *Chat         `json:"chat,omitempty"` // nil: prompts are taken as they are
	Target       Model         `json:"target"`
	Draft        *Model        `json:"draft,omitempty"`     // nil when Modes has no SpS, or Drafter does without
	Drafter      *Drafter      `json:"drafter,omitempty"`   // nil: the draft model alone
	K            int           `json:"k"`                   // lookahead of SpS, or the largest one
	Lookahead    string        `json:"lookahead,omitempty"` // see spec.ParseLookahead; empty: fixed
	Sampling     spec.Sampling `json:"sampling"`
	Beams        *spec.Beams   `json:"beams,omitempty"` // nil: tokens are drawn; else searched for, and Samples of what is found are returned
	Rule         spec.Rule     `json:"rule,omitzero"`   // how SpS accepts what was drafted; the zero value is rejection
	Lossy        string        `json:"lossy,omitempty"` // what a lossy Rule guarantees still; Spec fills it in, for readers
	Seed         uint64        `json:"seed"`
	Samples      int           `json:"samples"` // per row
	MaxNewTokens int           `json:"max_new_tokens"`
	Context      int           `json:"context,omitempty"` // most tokens of a sequence; 0: what the models hold
	Stop         []string      `json:"stop,omitempty"`
	Margin       float64       `json:"margin,omitempty"` // of scores: decides no token, but is to be fixed before there are any
}

// Dataset names the rows of a job.
type Dataset struct {
	Name         string `json:"name"`             // base name of the file, or of its repository
	SHA256       string `json:"sha256"`           // of the file, or of several as sha256sum prints them
	Source       string `json:"source,omitempty"` // hf:OWNER/REPO/PATH@COMMIT, where it is of the Hugging Face Hub
	PromptColumn string `json:"prompt_column"`
	IDColumn     string `json:"id_column,omitempty"`
	Template     string `json:"template,omitempty"`
	Limit        int    `json:"limit,omitempty"` // 0: all rows
}

// Model names a model by what it is, not by where it lies.
type Model struct {
	Name   string `json:"name"`             // base name of its folder
	Digest string `json:"digest"`           // of its files
	Source string `json:"source,omitempty"` // hf:OWNER/REPO[/PATH]@COMMIT, where it is of the Hugging Face Hub
}

// Place says where a job's files and models are, for workers that see the same
// file system as the submitter; or which of the Hub's they are, for all workers. A worker's own configuration goes before it.
type Place struct {
	Out    string `json:"out"` // an absolute path, or a URL; the job's folder is Out/Name
	Target string `json:"target"`
	Draft  string `json:"draft,omitempty"`
	Table  string `json:"table,omitempty"` // the drafter's n-gram table
}

// Has reports whether the job decodes in mode m.
func (j *Job) Has(m Mode) bool {
	return slices.Contains(j.Modes, m)
}

// Validate checks the settings that decoding relies on.
func (j *Job) Validate() error {
	if err := storage.CheckName(j.Name); err != nil {
		return err
	}
	switch {
	case len(j.Modes) == 0:
		return fmt.Errorf("job %s has no mode", j.Name)
	case j.Has(SpS) && j.Draft == nil && j.Drafter == nil:
		return fmt.Errorf("job %s: mode sps needs a draft model, or another drafter", j.Name)
	case j.K > spec.MaxLookahead:
		return fmt.Errorf("job %s: lookahead k = %d is more than %d", j.Name, j.K, spec.MaxLookahead)
	case j.K < 0 || j.Has(SpS) && j.K < 1:
		return fmt.Errorf("job %s: lookahead k = %d is not positive", j.Name, j.K)
	case j.Context < 0 || j.Context == 1:
		return fmt.Errorf("job %s: a context of %d tokens does not hold a prompt and a completion", j.Name, j.Context)
	case j.ShardRows < 1 || j.MaxNewTokens < 1:
		return fmt.Errorf("job %s: shard_rows %d and max_new_tokens %d must be positive", j.Name, j.ShardRows, j.MaxNewTokens)
	case j.Samples < 1 || j.Samples > spec.MaxSamples:
		return fmt.Errorf("job %s: %d samples a row are not between 1 and %d", j.Name, j.Samples, spec.MaxSamples)
	}
	for _, s := range j.Stop {
		if s == "" {
			return fmt.Errorf("job %s: a stop sequence is empty", j.Name)
		}
	}
	if j.Chat != nil {
		if _, err := j.Chat.compile(); err != nil {
			return fmt.Errorf("job %s: %w", j.Name, err)
		}
	}
	if _, err := spec.ParseLookahead(j.Lookahead); err != nil {
		return fmt.Errorf("job %s: %w", j.Name, err)
	}
	if j.Drafter != nil {
		if err := j.Drafter.check(); err != nil {
			return fmt.Errorf("job %s: %w", j.Name, err)
		}
	}
	if err := j.checkBeams(); err != nil {
		return fmt.Errorf("job %s: %w", j.Name, err)
	}
	if err := j.Sampling.Validate(); err != nil {
		return fmt.Errorf("job %s: %w", j.Name, err)
	}
	return nil
}

// checkBeams refuses what a beam search has no use for.
func (j *Job) checkBeams() error {
	b, s := j.Beams, &j.Sampling
	if b == nil {
		return nil
	}
	switch {
	case j.Samples > b.Width:
		return fmt.Errorf("%d sequences of a search with %d beams", j.Samples, b.Width)
	case !s.Greedy() || s.TopK != 0 || s.TopP != 1 && s.TopP != 0 || s.MinP != 0:
		return errors.New("a beam search draws nothing: temperature 0, and no truncation")
	case j.Drafter != nil || j.Rule != (spec.Rule{}) || j.Lookahead != "" && j.Lookahead != spec.FixedLookahead:
		return errors.New("a beam search has a draft model, a fixed lookahead and no rule")
	case j.Has(SpS) && b.DraftWidth == 0:
		return errors.New("the draft's beam search has no width")
	}
	return b.Validate()
}

// Spec is the job's canonical JSON: what job.json keeps and compares.
func (j *Job) Spec() ([]byte, error) {
	stated := *j
	stated.Lossy = ""
	if rule := j.EffectiveRule(); rule.Lossy() {
		stated.Lossy = rule.Bound()
	}
	return json.MarshalIndent(stated, "", "  ")
}

// EffectiveRule is Rule as it applies to the job's sampling. In a job
// that does not speculate only coupled has a part: it says how tokens are drawn.
func (j *Job) EffectiveRule() spec.Rule {
	if !j.Has(SpS) {
		return j.Rule.Autoregressive()
	}
	return j.Rule.For(j.Sampling)
}

var unnameable = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// DefaultName derives a name from the dataset's and from everything else in
// the job, so that the same command is the same job.
func (j *Job) DefaultName() (string, error) {
	unnamed := *j
	unnamed.Name = ""
	b, err := unnamed.Spec()
	if err != nil {
		return "", fmt.Errorf("name the job: %w", err)
	}
	base, _, _ := strings.Cut(j.Dataset.Name, ".")
	base = strings.Trim(unnameable.ReplaceAllString(base, "-"), "-_")
	if base == "" {
		base = "job"
	}
	if len(base) > 40 {
		base = base[:40]
	}
	sum := sha256.Sum256(b)
	return base + "-" + hex.EncodeToString(sum[:4]), nil
}

// Run names what a job with this specification writes to this place: twelve
// digits of a digest of the output folder, twelve of the specification's. Jobs
// of one name that differ in either are different runs, and share nothing on a
// queue.
func Run(spec []byte, out string) string {
	var compact bytes.Buffer
	if json.Compact(&compact, spec) == nil { // however it is indented
		spec = compact.Bytes()
	}
	return RunPlace(out) + "-" + shortDigest(spec)
}

// RunPlace is the part of a run's name that names the output folder.
func RunPlace(out string) string { return shortDigest([]byte(filepath.Clean(out))) }

func shortDigest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// Key names one shard of one mode on the queue: job/run/mode/shard.
func Key(job, run string, m Mode, shard int) string {
	return fmt.Sprintf("%s/%s/%s/%05d", job, run, m, shard)
}

// Keys of the metadata that travels in a shard's Arrow schema.
const (
	metaJob   = "job"
	metaPlace = "place"
	metaMode  = "mode"
)

// encodeShard makes the message of one shard in one mode.
func encodeShard(spec []byte, place Place, m Mode, shard int, rows []storage.ShardRow) ([]byte, error) {
	where, err := json.Marshal(place)
	if err != nil {
		return nil, fmt.Errorf("encode shard %d: %w", shard, err)
	}
	return storage.EncodeShard(storage.Shard{
		Index: shard,
		Rows:  rows,
		Meta:  map[string]string{metaJob: string(spec), metaPlace: string(where), metaMode: string(m)},
	})
}

// task is a decoded message: one shard of one mode.
type task struct {
	job   Job
	place Place
	mode  Mode
	shard int
	rows  []storage.ShardRow
	spec  []byte // of the job, as published
	run   string // see Run
}

// decodeTask reads the message that was published under key. An error blames
// the message, unless it is of a newer draftmill than this worker.
func decodeTask(key string, data []byte) (*task, error) {
	t, err := readTask(data)
	switch {
	case errors.Is(err, storage.ErrNewer):
		return nil, blame(BlameWorker, err)
	case err != nil:
		return nil, blame(BlameMessage, err)
	}
	if want := Key(t.job.Name, t.run, t.mode, t.shard); key != want {
		return nil, blame(BlameMessage, fmt.Errorf("the shard %s was queued as %s; submit the job again", want, key))
	}
	return t, nil
}

func readTask(data []byte) (*task, error) {
	shard, err := storage.DecodeShard(data)
	if err != nil {
		return nil, err
	}
	t := &task{mode: Mode(shard.Meta[metaMode]), shard: shard.Index, rows: shard.Rows}
	if err := json.Unmarshal([]byte(shard.Meta[metaJob]), &t.job); err != nil {
		return nil, fmt.Errorf("read the job in the metadata of shard %d: %w", t.shard, err)
	}
	if err := json.Unmarshal([]byte(shard.Meta[metaPlace]), &t.place); err != nil {
		return nil, fmt.Errorf("read the place in the metadata of shard %d: %w", t.shard, err)
	}
	t.spec = []byte(shard.Meta[metaJob])
	t.run = Run(t.spec, t.place.Out)
	if err := t.job.Validate(); err != nil {
		return nil, err
	}
	if !t.job.Has(t.mode) {
		return nil, fmt.Errorf("shard %d is of mode %q, which job %s does not have", t.shard, t.mode, t.job.Name)
	}
	return t, nil
}

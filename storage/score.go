package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	"github.com/draftmill/draftmill/storage/bucket"
)

// A Score is what one measure says of one sample: a row of the scores table,
// whose key is (mode, Row, Sample, Metric).
type Score struct {
	Job    string
	Row    int64
	RowID  string
	Sample int32
	Metric string  // "pass", "exact", "rouge1", "rouge2", "rougeL", "rougeLsum" or "likelihood"
	Score  float64 // 0 to 1; of pass and exact, 0 or 1
	Reason string  // of pass, why: "passed", "failed", "error", "timeout", "memory", "crashed"; of a sample that was not decoded "none"; else empty
	Detail string  // one line more about the score, or empty
	WallNS int64   // that a program ran, the sandbox's start included
}

var scoreTable = &table[Score]{
	name: "scores",
	cols: []column[Score]{
		labelColumn("job", func(s *Score) *string { return &s.Job }),
		int64Column("row", func(s *Score) *int64 { return &s.Row }),
		textColumn("row_id", func(s *Score) *string { return &s.RowID }),
		int32Column("sample", func(s *Score) *int32 { return &s.Sample }),
		labelColumn("metric", func(s *Score) *string { return &s.Metric }),
		float64Column("score", func(s *Score) *float64 { return &s.Score }),
		maybeTextColumn("reason", func(s *Score) *string { return &s.Reason }),
		maybeTextColumn("detail", func(s *Score) *string { return &s.Detail }),
		int64Column("wall_ns", func(s *Score) *int64 { return &s.WallNS }),
	},
	size: func(s *Score) int { return 96 + len(s.RowID) + len(s.Detail) },
	check: func(s *Score) error {
		if s.Metric == "" || !(s.Score >= 0 && s.Score <= 1) {
			return fmt.Errorf("score of row %d: %v of metric %q is not between 0 and 1", s.Row, s.Score, s.Metric)
		}
		return nil
	},
}

// scoresDir is where scores lie. They are made from completions, again and
// again if need be, and are no part of the manifest.
const (
	scoresDir   = "scores"
	scoresFile  = "scores.parquet"
	summaryFile = "summary.json"
)

// WriteScores replaces the scores of a mode by these.
func (j *Job) WriteScores(mode string, scores []Score) error {
	if err := checkShard(mode, 0); err != nil {
		return fmt.Errorf("write the scores of job %s: %w", j.name, err)
	}
	return wrapf(j.writeScores(context.Background(), mode, scores), "write the scores of job %s, mode %s", j.name, mode)
}

func (j *Job) writeScores(ctx context.Context, mode string, scores []Score) error {
	temp := path.Join(scoresDir, "mode="+mode, "."+scoresFile+"."+unique())
	to, err := j.b.Create(ctx, temp)
	if err != nil {
		return err
	}
	w, err := newTableWriter(scoreTable, to, map[string]string{metaJob: j.name, metaSpec: string(j.spec), metaMode: mode})
	if err != nil {
		return err
	}
	for i := range scores {
		if err := w.add(&scores[i]); err != nil {
			w.abort()
			return err
		}
	}
	if _, err := w.close(); err != nil {
		return err
	}
	_, err = j.b.Move(ctx, temp, scoresKey(mode))
	return err
}

func scoresKey(mode string) string { return path.Join(scoresDir, "mode="+mode, scoresFile) }

// ReadScores calls fn for every score of a mode, by row, sample and metric as
// they were written. Without scores it calls nothing.
func (j *Job) ReadScores(mode string, fn func(Score) error) error {
	if there, err := bucket.Exists(context.Background(), j.b, scoresKey(mode)); err != nil || !there {
		return wrapf(err, "read the scores of job %s", j.name)
	}
	return readTable(scoreTable, j.b, scoresKey(mode), "", fn)
}

// WriteScoreSummary keeps a JSON object beside the scores.
func (j *Job) WriteScoreSummary(data []byte) error {
	return wrapf(j.b.Replace(context.Background(), path.Join(scoresDir, summaryFile), data), "write the scores of job %s", j.name)
}

// ScoreSummary is what WriteScoreSummary kept, or nil.
func (j *Job) ScoreSummary() ([]byte, error) {
	data, err := j.b.Get(context.Background(), path.Join(scoresDir, summaryFile))
	if bucket.NotExist(err) {
		return nil, nil
	}
	return data, wrapf(err, "read the scores of job %s", j.name)
}

// placeFile says where things were when the job was submitted last.
const placeFile = "_place.json"

// A Place says where a job's dataset and models were, as absolute paths, for
// commands that want the dataset's other columns, the texts of tokens, or to run
// the models again. It is no part of the job: the specification has their digests.
type Place struct {
	Dataset string `json:"dataset"`
	Target  string `json:"target"`
	Draft   string `json:"draft,omitempty"`
	Table   string `json:"table,omitempty"` // of n-grams
}

// NotePlace keeps a place.
func (j *Job) NotePlace(p Place) error {
	return wrapf(j.b.Replace(context.Background(), placeFile, jsonBytes(p)), "note the place of job %s", j.name)
}

// Place is what NotePlace kept last; the zero value without it.
func (j *Job) Place() (p Place) {
	data, err := j.b.Get(context.Background(), placeFile)
	if err != nil || json.Unmarshal(data, &p) != nil {
		return Place{}
	}
	return p
}

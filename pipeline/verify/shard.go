package verify

import (
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/storage"
)

// key names a completion within a mode.
type key struct {
	row    int64
	sample int32
}

// rowIDs are the ids and the lengths of the prompts that one mode of a shard
// gives its rows; the other modes must give the same.
type rowIDs map[int64]struct {
	id     string
	prompt int32
}

// shard replays one shard in one mode, and returns its sequences where the
// options want them. found is what a beam search found in other modes.
func (r *replay) shard(shard int, m pipeline.Mode, p parts, ids rowIDs, found map[key]storage.Completion, n *Mode) (all []Sequence, err error) {
	sequences := map[key]*sequence{}
	var order []*sequence
	if err := read(r.folder, p[0], storage.ReadCompletions, func(c storage.Completion) error {
		s := &sequence{replay: r, mode: m, c: c, file: p[0].Path}
		k := key{c.Row, c.Sample}
		if sequences[k] != nil {
			return s.fail("it is there twice")
		}
		if err := r.belongs(shard, s); err != nil {
			return err
		}
		row, known := ids[c.Row]
		if !known && c.FinishReason != storage.FinishError {
			row.id, row.prompt = c.RowID, c.PromptTokens
			ids[c.Row] = row
		} else if known && row.id != c.RowID {
			return s.fail("its id is %q, and %q in another place of the job", c.RowID, row.id)
		} else if known && row.prompt != c.PromptTokens && c.FinishReason != storage.FinishError {
			return s.fail("its prompt has %d tokens, and %d in another place of the job", c.PromptTokens, row.prompt)
		}
		if err := s.begin(); err != nil {
			return err
		}
		sequences[k] = s
		order = append(order, s)
		return nil
	}); err != nil {
		return nil, err
	}
	if err := r.wholeShard(shard, p[0], sequences); err != nil {
		return nil, err
	}
	if err := read(r.folder, p[1], storage.ReadLoops, func(l storage.Loop) error {
		s := sequences[key{l.Row, l.Sample}]
		if s == nil {
			return &Failure{File: p[1].Path, Row: l.Row, RowID: l.RowID, Sample: l.Sample, Loop: l.Loop, What: "the shard has no such completion"}
		}
		return s.loop(p[1].Path, &l)
	}); err != nil {
		return nil, err
	}
	for _, s := range order {
		if err := s.end(); err != nil {
			return nil, err
		}
		s.count(n)
		if r.options.Shard != nil {
			all = append(all, Sequence{m, s.file, s.c, s.kept})
		}
	}
	if r.job.Beams != nil {
		return all, r.beams(order, found)
	}
	return all, nil
}

// belongs checks that a row is one of the shard's: shard i has the rows from
// i * ShardRows on.
func (r *replay) belongs(shard int, s *sequence) error {
	first := int64(shard) * int64(r.job.ShardRows)
	beyond := first + int64(r.job.ShardRows)
	if r.files.planned {
		beyond = min(beyond, r.files.plan.Rows)
	}
	switch {
	case s.c.Row < first || s.c.Row >= beyond:
		return s.fail("the rows of this shard are %d to %d", first, beyond-1)
	case s.c.Sample < 0 || int(s.c.Sample) >= r.job.Samples:
		return s.fail("the job has %d samples a row", r.job.Samples)
	}
	return nil
}

// wholeShard checks that no row is missing: with every key in range and none
// there twice, the number says so. Before the plan is known, the last shard is
// as long as it is, without gaps.
func (r *replay) wholeShard(shard int, f storage.File, sequences map[key]*sequence) error {
	first := int64(shard) * int64(r.job.ShardRows)
	rows := int64(r.job.ShardRows)
	if r.files.planned {
		rows = min(rows, r.files.plan.Rows-first)
	} else {
		rows = int64(len(sequences)) / int64(r.job.Samples)
	}
	for row := first; row < first+rows; row++ {
		for sample := range int32(r.job.Samples) {
			if sequences[key{row, sample}] == nil {
				return failed(f.Path, "row %d sample %d is missing", row, sample)
			}
		}
	}
	if want := rows * int64(r.job.Samples); int64(len(sequences)) != want {
		return failed(f.Path, "it holds %d completions, not %d for %d rows", len(sequences), want, rows)
	}
	return nil
}

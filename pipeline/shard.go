package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// writer takes what decoding a shard brings.
type writer interface {
	AddCompletion(storage.Completion) error
	AddLoop(storage.Loop) error
}

// Errors of rows. Each becomes a completion with finish reason "error".
var (
	errNullPrompt  = errors.New("the prompt is null")
	errEmptyPrompt = errors.New("the prompt is empty")
	errUTF8        = errors.New("the prompt is not valid UTF-8")
)

// shardRun is a shard being decoded. Its samples begin in the order of rows and
// end in any; they are written in the order in which they began, whatever else
// was decoded meanwhile, so that the files of a shard are the same each time.
type shardRun struct {
	task    *task
	worker  string
	to      writer
	done    func(*storage.Completion) // told of every sample, in the order of ends
	looped  func(*engine.Loop)        // told of every loop; may be nil
	samples []*sample                 // begun and not yet written, in order
	begun   int                       // of all samples of the shard
	written int

	encode  Encoder
	encoded int // row of the task that prompt is of; -1 before the first
	prompt  []int32
	bad     error // why the row has no prompt
}

// sample is one sample of one row on its way to the files.
type sample struct {
	completion storage.Completion
	loops      []storage.Loop // while an earlier sample is not yet written
	sum        tally
	over       bool
}

func newShardRun(t *task, worker string, to writer, done func(*storage.Completion)) *shardRun {
	return &shardRun{task: t, worker: worker, to: to, done: done, encode: t.job.Encoder(), encoded: -1}
}

func (r *shardRun) total() int { return len(r.task.rows) * r.task.job.Samples }

// pending reports whether there are samples that have not begun.
func (r *shardRun) pending() bool { return r.begun < r.total() }

// finished reports whether every sample is written.
func (r *shardRun) finished() bool { return r.written == r.total() }

// admit begins the next sample; of a beam search, all samples of the row.
func (r *shardRun) admit(e *engine.Engine) error {
	job, index := &r.task.job, r.begun/r.task.job.Samples
	row, began := &r.task.rows[index], time.Now()
	if index != r.encoded {
		r.encoded = index
		r.prompt, r.bad = r.encode(e.Pair(), e.Context(), row)
	}
	together := 1
	if job.Beams != nil {
		together = job.Samples
	}
	all := make([]*sample, together)
	for i := range all {
		all[i] = &sample{completion: storage.Completion{
			Job: job.Name, Row: row.Row, RowID: row.ID, Sample: int32(r.begun % job.Samples),
			Seed: job.Seed, Worker: r.worker, PromptTokens: int32(len(r.prompt)),
		}}
		r.begun++
	}
	r.samples = append(r.samples, all...)
	s := all[0]
	c := &s.completion
	// Making tokens of the prompt comes before the engine has it.
	c.PrefillNS = time.Since(began).Nanoseconds()
	c.LatencyNS = c.PrefillNS
	if r.bad != nil {
		for _, s := range all {
			if err := r.end(s, &engine.Sequence{Err: r.bad}); err != nil {
				return err
			}
		}
		return nil
	}
	err := e.Admit(engine.Request{
		Prompt: r.prompt, Stop: job.Stop, Limit: job.MaxNewTokens, Beams: together,
		Coins: spec.Coins{Seed: job.Seed, Row: uint64(row.Row), Sample: uint32(c.Sample)},
		Loop:  func(l *engine.Loop) error { return r.loop(s, l) },
		Done:  func(done *engine.Sequence) error { return r.end(all[done.Beam], done) },
	})
	if err != nil {
		return fmt.Errorf("decode row %d sample %d: %w", c.Row, c.Sample, err)
	}
	return nil
}

// loop takes one loop of a sample.
func (r *shardRun) loop(s *sample, l *engine.Loop) error {
	c := &s.completion
	s.sum.add(l)
	if r.looped != nil {
		r.looped(l)
	}
	c.DraftNS += l.Draft.Nanoseconds()
	c.ScoreNS += l.Score.Nanoseconds()
	c.SampleNS += l.Sample.Nanoseconds()
	c.Drafted += int32(len(l.Drafted))
	c.Accepted += int32(l.Accepted)
	c.Loops++
	record := record(c, l)
	if s == r.samples[0] {
		return r.to.AddLoop(record)
	}
	s.loops = append(s.loops, keep(record))
	return nil
}

// end takes the end of a sample and writes what need not wait any longer.
func (r *shardRun) end(s *sample, done *engine.Sequence) error {
	c := &s.completion
	c.Tokens = slices.Clone(done.Tokens)
	c.CompletionTokens = int32(len(c.Tokens))
	c.Completion, c.FinishReason, c.StopReason = done.Text, done.Reason, done.Stop
	if done.Err != nil {
		c.FinishReason, c.StopReason, c.Error = storage.FinishError, "", done.Err.Error()
	}
	c.PrefillNS += done.Prefill.Nanoseconds()
	c.DecodeNS = done.Decode.Nanoseconds()
	c.TotalNS = c.PrefillNS + c.DecodeNS
	c.LatencyNS += done.Latency.Nanoseconds()
	if r.task.job.Beams != nil && done.Err == nil {
		c.Score, c.LogProbs = &done.Score, done.Logs
	}
	if err := s.sum.check(c, r.task.job.Beams != nil); err != nil {
		return fmt.Errorf("row %d sample %d: %w", c.Row, c.Sample, err)
	}
	s.over = true
	if r.done != nil {
		r.done(c)
	}
	for len(r.samples) > 0 {
		first := r.samples[0]
		for i := range first.loops {
			if err := r.to.AddLoop(first.loops[i]); err != nil {
				return err
			}
		}
		first.loops = nil
		if !first.over {
			return nil
		}
		if err := r.to.AddCompletion(first.completion); err != nil {
			return err
		}
		r.samples = r.samples[1:]
		r.written++
	}
	return nil
}

// decodeShard decodes a shard alone.
func decodeShard(ctx context.Context, e *engine.Engine, r *shardRun) error {
	for !r.finished() {
		for r.pending() && e.Free() > 0 {
			if err := r.admit(e); err != nil {
				e.Drop()
				return err
			}
		}
		if err := e.Step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// record makes the log's row of a loop. It shares the loop's memory.
func record(c *storage.Completion, l *engine.Loop) storage.Loop {
	r := storage.Loop{
		Row: c.Row, RowID: c.RowID, Sample: c.Sample, Loop: c.Loops - 1,
		Position: int32(l.Position), K: int32(l.K), Lanes: int32(l.Lanes), Scored: int32(l.Scored), Drafted: l.Drafted,
		P: l.P, Q: l.Q, Below: l.Below, Chance: l.Chance, Overlap: l.Overlap, Coins: l.Coins,
		Accepted: int32(l.Accepted), Token: l.Token, Kind: string(l.Kind), Emitted: int32(l.Emitted),
		DraftNS: l.Draft.Nanoseconds(), ScoreNS: l.Score.Nanoseconds(), SampleNS: l.Sample.Nanoseconds(),
	}
	if n := len(l.Margins); n > 0 {
		r.Margin, r.Margins = &l.Margins[n-1], l.Margins
	}
	return r
}

// keep gives a row of the log memory of its own.
func keep(r storage.Loop) storage.Loop {
	r.Drafted = slices.Clone(r.Drafted)
	for _, list := range []*[]float64{&r.P, &r.Q, &r.Below, &r.Chance, &r.Overlap, &r.Coins, &r.Margins} {
		*list = slices.Clone(*list)
	}
	if n := len(r.Margins); n > 0 {
		r.Margin = &r.Margins[n-1]
	}
	return r
}

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

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

// decodeShard decodes every sample of every row of t into w. done is called
// after each sample.
func decodeShard(ctx context.Context, e *Engine, t *task, worker string, w writer, done func(*storage.Completion)) error {
	for _, row := range t.rows {
		for sample := range t.job.Samples {
			c := storage.Completion{
				Job: t.job.Name, Row: row.Row, RowID: row.ID, Sample: int32(sample),
				Seed: t.job.Seed, Worker: worker,
			}
			err := e.complete(ctx, &t.job, row, &c, w)
			if bad, ok := errors.AsType[rowError](err); ok {
				c.FinishReason, c.Error = storage.FinishError, bad.Error()
			} else if err != nil {
				return fmt.Errorf("decode row %d sample %d: %w", row.Row, sample, err)
			}
			if err := w.AddCompletion(c); err != nil {
				return err
			}
			done(&c)
		}
	}
	return nil
}

// complete decodes one sample of one row into c and logs its loops.
func (e *Engine) complete(ctx context.Context, job *Job, row storage.ShardRow, c *storage.Completion, w writer) error {
	began := time.Now()
	defer func() { c.TotalNS = time.Since(began).Nanoseconds() }()

	prompt, err := e.encode(row)
	if err != nil {
		return rowError{err}
	}
	c.PromptTokens = int32(len(prompt))
	if err := e.begin(ctx, prompt); err != nil {
		return err
	}
	prefilled := time.Now()
	c.PrefillNS = prefilled.Sub(began).Nanoseconds()
	defer func() { c.DecodeNS = time.Since(prefilled).Nanoseconds() }()

	coins := spec.Coins{Seed: job.Seed, Row: uint64(row.Row), Sample: uint32(c.Sample)}
	end := newEnding(e.pair.Tokenizer, e.pair.EOS, job.Stop, min(job.MaxNewTokens, e.pair.Target.Context()-len(prompt)))
	var sum tally
	err = e.decode(ctx, coins, end, func(l *Loop) error {
		sum.add(l)
		c.DraftNS += l.Draft.Nanoseconds()
		c.ScoreNS += l.Score.Nanoseconds()
		c.SampleNS += l.Sample.Nanoseconds()
		c.Drafted += int32(len(l.Drafted))
		c.Accepted += int32(l.Accepted)
		c.Loops++
		return w.AddLoop(e.record(c, l))
	})
	if err != nil { // a loop that failed may have left drafted tokens behind
		e.tokens = e.tokens[:len(prompt)+sum.tokens()]
	}
	c.Tokens = append([]int32(nil), e.tokens[len(prompt):]...)
	c.CompletionTokens = int32(len(c.Tokens))
	c.Completion, c.FinishReason, c.StopReason = end.completion(), end.reason, end.stoppedBy
	if wrong := sum.check(c); wrong != nil {
		return wrong
	}
	return err
}

// encode turns a row's prompt into tokens, or says why it cannot be one.
func (e *Engine) encode(row storage.ShardRow) ([]int32, error) {
	switch {
	case row.Null:
		return nil, errNullPrompt
	case len(row.Prompt) == 0:
		return nil, errEmptyPrompt
	case !utf8.Valid(row.Prompt):
		return nil, errUTF8
	}
	prompt, err := e.pair.Tokenizer.Encode(string(row.Prompt))
	if err != nil {
		return nil, fmt.Errorf("tokenize the prompt: %w", err)
	}
	if len(prompt) == 0 {
		return nil, errEmptyPrompt
	}
	if room := e.pair.Target.Context(); len(prompt) >= room {
		return nil, fmt.Errorf("the prompt has %d tokens and leaves no room in the target's context of %d", len(prompt), room)
	}
	return prompt, nil
}

// record makes the log's row of a loop.
func (e *Engine) record(c *storage.Completion, l *Loop) storage.Loop {
	r := storage.Loop{
		Row: c.Row, RowID: c.RowID, Sample: c.Sample, Loop: c.Loops - 1,
		Position: int32(l.Position), K: int32(l.K), Drafted: l.Drafted,
		P: l.P, Q: l.Q, Below: l.Below, Overlap: l.Overlap, Coins: l.Coins,
		Accepted: int32(l.Accepted), Token: l.Token, Kind: string(l.Kind), Emitted: int32(l.Emitted),
		DraftNS: l.Draft.Nanoseconds(), ScoreNS: l.Score.Nanoseconds(), SampleNS: l.Sample.Nanoseconds(),
	}
	if e.settings.Sampling.Greedy() {
		margin := l.Margin
		r.Margin = &margin
	}
	return r
}

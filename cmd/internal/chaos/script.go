//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/pipeline/tokenize"
)

// What a prompt has in it that the scripted model fails at.
const (
	BadRow   = "☢" // its row's logits are NaN: the row fails, the others of its shard do not
	BadShard = "☠" // the pass fails, and with it the shard, unless the worker is Cured
	Deadly   = "☣" // the pass kills the worker, unless it is Cured
)

// open is pipeline.Worker.Open: a target whose logits are a hash of all tokens
// before, and a draft that is the same with some noise. The tokenizer is the one
// in the job's target folder; nothing else there is read.
func (p *Points) open(_ context.Context, _ *pipeline.Job, place pipeline.Place, mode pipeline.Mode) (engine.Pair, func(), error) {
	tokenizer, err := tokenize.Load(filepath.Join(place.Target, "tokenizer.json"))
	if err != nil {
		return engine.Pair{}, nil, err
	}
	eos, ok := tokenizer.ID("<|endoftext|>")
	if !ok {
		return engine.Pair{}, nil, errors.New("the scripted model needs a tokenizer with <|endoftext|>")
	}
	marks := map[string][]int32{BadRow: nil, BadShard: nil, Deadly: nil}
	for mark := range marks {
		if marks[mark], err = tokenizer.EncodePlain(mark); err != nil {
			return engine.Pair{}, nil, err
		}
	}
	vocab := tokenizer.VocabSize()
	law, noise := enginetest.Hashed(vocab, 1), enginetest.Hashed(vocab, 2)
	target := func(prefix []int32) []float32 {
		logits := law(prefix)
		logits[eos] += 5 // so that completions are of many lengths
		if contains(prefix, marks[BadRow]) {
			logits[0] = float32(math.NaN())
		}
		return logits
	}
	draft := func(prefix []int32) []float32 {
		logits := target(prefix)
		for i, x := range noise(prefix) {
			logits[i] += x / 2
		}
		return logits
	}
	scripted := &failing{Model: enginetest.New(process{}, vocab, target), marks: marks, cured: p.cured}
	scripted.Before = func() { time.Sleep(p.pace) }
	pair := engine.Pair{Target: scripted, Tokenizer: tokenizer, EOS: []int32{eos}}
	if mode == pipeline.SpS {
		pair.Draft = enginetest.New(process{}, vocab, draft)
	}
	return pair, func() {}, nil
}

// failing is a model that cannot take some tokens.
type failing struct {
	*enginetest.Model
	marks map[string][]int32
	cured bool
}

// Forward implements engine.Decoder.
func (m *failing) Forward(ctx context.Context, spans []engine.Span) ([]float32, error) {
	for _, span := range spans {
		switch {
		case m.cured:
		case contains(span.Tokens, m.marks[Deadly]):
			end(syscall.SIGKILL)
		case contains(span.Tokens, m.marks[BadShard]):
			return nil, errors.New("the scripted model cannot take this prompt")
		}
	}
	return m.Model.Forward(ctx, spans)
}

func contains(all, part []int32) bool {
	for i := range len(all) - len(part) + 1 {
		if slices.Equal(all[i:i+len(part)], part) {
			return true
		}
	}
	return false
}

// process is the part of testing.TB that enginetest uses, in a program: misuse
// of the cache ends it.
type process struct{ testing.TB }

func (process) Helper() {}

func (process) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

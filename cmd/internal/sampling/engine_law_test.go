package sampling

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/pipeline/engine/remote"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/spectest"
)

// TestEngineLaw integrates over every coin of whole completions that the engine
// decodes loop by loop, drafts, verifications and ends of sequence, with draws and
// numbers of the device's sampler, and compares their law with the target's (Chen et
// al., Theorem 1): exactly, but for the rounding of float32.
func TestEngineLaw(t *testing.T) {
	const eos = 0
	eachDevice(t, func(*testing.T, ort.Options) {}) // loads the library
	tokenizer, _ := enginetest.Letters(t, "abcdef")
	for _, c := range []struct {
		name            string
		sampling        spec.Sampling
		vocab, k, limit int
	}{
		{"ars", spec.Sampling{Temperature: 1}, 3, 0, 2},
		{"sps", spec.Sampling{Temperature: 1}, 2, 1, 3},
		{"two drafted", spec.Sampling{Temperature: 0.8}, 2, 2, 3},
		{"penalties", spec.Sampling{Temperature: 1, RepetitionPenalty: 1.7, FrequencyPenalty: 0.5}, 2, 1, 3},
		{"greedy", spec.Sampling{}, 5, 2, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, p := &spectest.Model{Vocab: c.vocab, Seed: 11}, &spectest.Model{Vocab: c.vocab, Seed: 7}
			d := deviceT(t, ort.Options{Device: "cpu", Threads: 1}, c.sampling, "rejection", c.vocab, 0)
			prompt := []int32{1, 1}
			target, draft := enginetest.New(t, c.vocab, q.Logits), enginetest.New(t, c.vocab, p.Logits)
			r := &lawRemote{host: d.host, target: target, draft: draft}
			pair := engine.Pair{Target: target, Draft: draft, Remote: r, Tokenizer: tokenizer, EOS: []int32{eos}}
			e, err := engine.New(t.Context(), pair, engine.Settings{K: c.k, Sampling: c.sampling})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			got := spectest.Law(func(coins *spectest.Coins) string {
				defer e.Drop()
				r.coins = coins
				tokens, err := e.Draw(t.Context(), prompt, lateCoins{coins}, c.limit)
				if err != nil {
					panic(err)
				}
				return fmt.Sprint(tokens)
			})
			chain, err := spec.NewChain(c.sampling, c.vocab, []int32{eos})
			if err != nil {
				t.Fatal(err)
			}
			if err := chain.Begin(prompt); err != nil {
				t.Fatal(err)
			}
			want := map[string]float64{}
			var walk func(tokens []int32, pr float64)
			walk = func(tokens []int32, pr float64) {
				if n := len(tokens); n == c.limit || n > 0 && tokens[n-1] == eos {
					want[fmt.Sprint(tokens)] += pr
					return
				}
				var law spec.Dist
				all := append(slices.Clone(prompt), tokens...)
				if err := chain.Standardize(q.Logits(all), all, &law); err != nil {
					t.Fatal(err)
				}
				for x := range int32(c.vocab) {
					if law.Prob(x) > 0 {
						walk(append(slices.Clone(tokens), x), pr*law.Prob(x))
					}
				}
			}
			walk(nil, 1)
			for out, pr := range got {
				if math.Abs(pr-want[out]) > 4e-6 {
					t.Errorf("law of %s is %.9f, want %.9f", out, pr, want[out])
				}
			}
			for out, pr := range want {
				if _, ok := got[out]; !ok && pr > 4e-6 {
					t.Errorf("%s never comes, want %.9f", out, pr)
				}
			}
		})
	}
}

// lateCoins give in place of the uniforms that a device draws with what lawRemote
// knows them by. It takes them all at once, and the law is integrated coin by coin,
// each after what the one before it decided.
type lateCoins struct{ *spectest.Coins }

const lateScale = 1 << 20

func (l lateCoins) Uniform(purpose spec.Purpose, position int) float64 {
	switch purpose {
	case spec.BonusCoin:
		return float64(position) / lateScale
	case spec.ResidualCoin:
		return 0.5 + float64(position)/lateScale
	}
	return l.Coins.Uniform(purpose, position)
}

// lawRemote is the sampler of scripted models on the host.
type lawRemote struct {
	*host
	target, draft engine.Decoder
	coins         *spectest.Coins
	drawn         [][]int32 // by step
}

func (r *lawRemote) keep(ctx context.Context, d engine.Decoder, spans []engine.Span) (err error) {
	known := slices.Clone(spans)
	for i := range known {
		s := &known[i]
		s.Tokens = slices.Clone(s.Tokens)
		for j, x := range s.Tokens {
			if x < 0 {
				s.Tokens[j] = slices.Concat(r.drawn...)[remote.Ref(int(x))]
			}
		}
	}
	r.logits, err = d.Forward(ctx, known)
	return err
}

func (r *lawRemote) KeepTarget(ctx context.Context, spans []engine.Span) error {
	return r.keep(ctx, r.target, spans)
}

func (r *lawRemote) KeepDraft(ctx context.Context, spans []engine.Span) error {
	return r.keep(ctx, r.draft, spans)
}

// coin is the uniform that such a number stands for.
func (r *lawRemote) coin(u float64) float64 {
	if u >= 0.5 {
		return r.coins.Uniform(spec.ResidualCoin, int((u-0.5)*lateScale))
	}
	return r.coins.Uniform(spec.BonusCoin, int(u*lateScale))
}

// Draft looks at what is drawn, whether or not it tells.
func (r *lawRemote) Draft(step int, rows []remote.Row, wait bool) ([]remote.Drawn, error) {
	drawn, err := r.host.Draft(step, rows, true)
	r.drawn = append(r.drawn[:step], nil)
	for _, d := range drawn {
		r.coins.Note("drafted", d.Token)
		r.drawn[step] = append(r.drawn[step], d.Token)
	}
	if !wait {
		drawn = nil
	}
	return drawn, err
}

func (r *lawRemote) Draw(rows []remote.Row) ([]remote.Drawn, error) {
	for i := range rows {
		rows[i].Uniform = r.coin(rows[i].Uniform)
	}
	drawn, err := r.host.Draw(rows)
	for _, d := range drawn {
		r.coins.Note("drawn", d.Token)
	}
	return drawn, err
}

// Verify verifies once for the numbers, and again with the one coin that matters.
func (r *lawRemote) Verify(rows []remote.Row, drafted []remote.Drafted, whole bool) ([]remote.Drawn, []remote.Verified, error) {
	bonus, residual := make([]float64, len(rows)), make([]float64, len(drafted))
	for i := range rows {
		bonus[i], rows[i].Uniform = rows[i].Uniform, 0.5
	}
	for i := range drafted {
		residual[i], drafted[i].Uniform = drafted[i].Uniform, 0.5
	}
	_, verified, err := r.host.Verify(rows, drafted, whole)
	if err != nil {
		return nil, nil, err
	}
	at := 0
	for ; at < len(drafted); at++ {
		position := int(math.Round((residual[at] - 0.5) * lateScale))
		if u := r.coins.Uniform(spec.AcceptCoin, position); !(u*verified[at].P < verified[at].Q) {
			r.coins.Note("rejected", at)
			drafted[at].Uniform = r.coin(residual[at])
			break
		}
		r.coins.Note("accepted", at)
	}
	if at == len(drafted) {
		rows[at].Uniform = r.coin(bonus[at])
	}
	drawn, verified, err := r.host.Verify(rows, drafted, whole)
	if err == nil {
		if at == len(drafted) {
			r.coins.Note(drawn[at].Token)
		} else {
			r.coins.Note(verified[at].Recovered)
		}
	}
	return drawn, verified, err
}

package storage

import (
	"fmt"
	"slices"
)

// Values of Loop.Kind.
const (
	KindRecovered = "recovered" // Token was drawn from the residual after a rejection
	KindBonus     = "bonus"     // Token was drawn from q after every drafted token was accepted
	KindNone      = "none"      // the loop was cut before it drew a token of the target
)

// A Loop is one draft-verify round: a row of the loops table. It holds enough
// to replay every accept or reject decision without the models. q is the
// target's distribution and p the draft's (Chen et al. 2023), both as sampled
// from: after temperature, top-k and top-p.
type Loop struct {
	Row      int64
	RowID    string
	Sample   int32
	Loop     int32     // from 0 within (Row, Sample)
	Position int32     // absolute position, prompt included, of the first token that the loop decides
	K        int32     // lookahead asked for; len(Drafted) <= K
	Lanes    int32     // sequences that shared the loop's passes
	Scored   int32     // tokens that the target scored for it
	Drafted  []int32   // token ids x~
	P        []float64 // draft probability of each drafted token, len(Drafted)
	Q        []float64 // target probability of each drafted token, len(Drafted)
	Below    []float64 // under the rule match, the target's probability of the ids below each drafted token; else empty
	Chance   []float64 // under the rule coupled, the chance that each drafted token is accepted, given that it was drafted; else empty
	Coins    []float64 // what decided, one per examined token, len <= len(Drafted); FORMAT.md says which number under which rule
	Accepted int32     // drafted tokens accepted, before any cut
	Token    int32     // the recovered or bonus token; -1 if Kind is KindNone
	Kind     string    // KindRecovered, KindBonus or KindNone
	Emitted  int32     // tokens of this loop that are in the completion, after eos, stop or limit
	Overlap  []float64 // sum over x of min(p(x), q(x)), at the position of each drafted token
	DraftNS  int64     // times of passes that lanes shared are divided by their number
	ScoreNS  int64
	SampleNS int64
	Margin   *float64  // the last of Margins; nil if unknown
	Margins  []float64 // of the accepted tokens and Token, how near the target was to another one; empty if unknown
}

// Decided lists what the loop added to its sequence: the accepted tokens and
// Token, those that the end of the completion cut off included.
func (l *Loop) Decided() []int32 { return append(slices.Clone(l.Drafted[:l.Accepted]), l.Token) }

var loopTable = &table[Loop]{
	name: "loops",
	cols: []column[Loop]{
		int64Column("row", func(l *Loop) *int64 { return &l.Row }),
		textColumn("row_id", func(l *Loop) *string { return &l.RowID }),
		int32Column("sample", func(l *Loop) *int32 { return &l.Sample }),
		int32Column("loop", func(l *Loop) *int32 { return &l.Loop }),
		int32Column("position", func(l *Loop) *int32 { return &l.Position }),
		int32Column("k", func(l *Loop) *int32 { return &l.K }),
		int32Column("lanes", func(l *Loop) *int32 { return &l.Lanes }),
		int32Column("scored", func(l *Loop) *int32 { return &l.Scored }),
		int32sColumn("drafted", func(l *Loop) *[]int32 { return &l.Drafted }),
		float64sColumn("p", func(l *Loop) *[]float64 { return &l.P }),
		float64sColumn("q", func(l *Loop) *[]float64 { return &l.Q }),
		float64sColumn("below", func(l *Loop) *[]float64 { return &l.Below }),
		float64sColumn("chance", func(l *Loop) *[]float64 { return &l.Chance }),
		float64sColumn("coins", func(l *Loop) *[]float64 { return &l.Coins }),
		int32Column("accepted", func(l *Loop) *int32 { return &l.Accepted }),
		int32Column("token", func(l *Loop) *int32 { return &l.Token }),
		labelColumn("kind", func(l *Loop) *string { return &l.Kind }),
		int32Column("emitted", func(l *Loop) *int32 { return &l.Emitted }),
		float64sColumn("overlap", func(l *Loop) *[]float64 { return &l.Overlap }),
		int64Column("draft_ns", func(l *Loop) *int64 { return &l.DraftNS }),
		int64Column("score_ns", func(l *Loop) *int64 { return &l.ScoreNS }),
		int64Column("sample_ns", func(l *Loop) *int64 { return &l.SampleNS }),
		maybeFloat64Column("margin", func(l *Loop) **float64 { return &l.Margin }),
		marginsColumn("margins", func(l *Loop) *[]float64 { return &l.Margins }),
	},
	size:  func(l *Loop) int { return 128 + len(l.RowID) + 36*len(l.Drafted) },
	check: (*Loop).check,
}

// check refuses a loop that could not be replayed.
func (l *Loop) check() error {
	n := len(l.Drafted)
	switch {
	case len(l.P) != n || len(l.Q) != n:
		return fmt.Errorf("loop %d of row %d: %d drafted tokens but %d p and %d q", l.Loop, l.Row, n, len(l.P), len(l.Q))
	case len(l.Below) != n && len(l.Below) != 0:
		return fmt.Errorf("loop %d of row %d: %d drafted tokens but %d below", l.Loop, l.Row, n, len(l.Below))
	case len(l.Chance) != n && len(l.Chance) != 0:
		return fmt.Errorf("loop %d of row %d: %d drafted tokens but %d chances", l.Loop, l.Row, n, len(l.Chance))
	case len(l.Margins) != int(l.Accepted)+1 && len(l.Margins) != 0:
		return fmt.Errorf("loop %d of row %d: %d drafted tokens accepted but %d margins", l.Loop, l.Row, l.Accepted, len(l.Margins))
	case len(l.Coins) > n:
		return fmt.Errorf("loop %d of row %d: %d coins for %d drafted tokens", l.Loop, l.Row, len(l.Coins), n)
	case l.Accepted < 0 || int(l.Accepted) > n:
		return fmt.Errorf("loop %d of row %d: %d of %d drafted tokens accepted", l.Loop, l.Row, l.Accepted, n)
	case l.Kind != KindRecovered && l.Kind != KindBonus && l.Kind != KindNone:
		return fmt.Errorf("loop %d of row %d: unknown kind %q", l.Loop, l.Row, l.Kind)
	case (l.Kind == KindNone) != (l.Token < 0):
		return fmt.Errorf("loop %d of row %d: kind %q with token %d", l.Loop, l.Row, l.Kind, l.Token)
	}
	return nil
}

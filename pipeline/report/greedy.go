package report

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"

	"github.com/draftmill/draftmill/storage"
)

// Greedy says whether ArS and SpS gave the same tokens, where they are to:
// greedily, and under a rule whose output does not depend on the draft. They need
// not: scoring one token and scoring K+1 may round differently, so that a near tie
// can fall either way. The margin at a divergence tells such a tie from a fault.
type Greedy struct {
	Same        int64        `json:"same"`
	Divergences []Divergence `json:"divergences"`
}

// Divergence is one sample whose completions differ.
type Divergence struct {
	Row    int64  `json:"row"`
	RowID  string `json:"row_id"`
	Sample int32  `json:"sample"`
	Token  int    `json:"token"` // index in the completion of the first difference
	// Margin is that of ArS there, as the log has it: at temperature 0 the two
	// largest logits' distance, under coupled that of log q + g. Nil: not logged, or infinite.
	Margin *float64 `json:"margin,omitempty"`
}

type sampleKey struct {
	row    int64
	sample int32
}

// compareTokens holds a hash for every sample, and tokens only for those that
// differ.
func compareTokens(job *storage.Job) (*Greedy, error) {
	seed := maphash.MakeSeed()
	hash := func(tokens []int32) uint64 {
		b := make([]byte, 0, 4*len(tokens))
		for _, t := range tokens {
			b = binary.LittleEndian.AppendUint32(b, uint32(t))
		}
		return maphash.Bytes(seed, b)
	}
	ars := map[sampleKey]uint64{}
	if err := job.ReadCompletions("ars", func(c storage.Completion) error {
		ars[sampleKey{c.Row, c.Sample}] = hash(c.Tokens)
		return nil
	}); err != nil {
		return nil, err
	}
	g := &Greedy{Divergences: []Divergence{}}
	other := map[sampleKey]storage.Completion{}
	if err := job.ReadCompletions("sps", func(c storage.Completion) error {
		if key := (sampleKey{c.Row, c.Sample}); ars[key] == hash(c.Tokens) {
			g.Same++
		} else {
			other[key] = c
		}
		return nil
	}); err != nil || len(other) == 0 {
		return g, err
	}
	where := map[sampleKey]int{}
	if err := job.ReadCompletions("ars", func(c storage.Completion) error {
		key := sampleKey{c.Row, c.Sample}
		if sps, ok := other[key]; ok {
			at := 0
			for at < min(len(sps.Tokens), len(c.Tokens)) && sps.Tokens[at] == c.Tokens[at] {
				at++
			}
			where[key] = at
		}
		return nil
	}); err != nil {
		return nil, err
	}
	// An ArS loop yields one token: its number is the token's index.
	err := job.ReadLoops("ars", func(l storage.Loop) error {
		key := sampleKey{l.Row, l.Sample}
		if at, ok := where[key]; ok && int(l.Loop) == at {
			d := Divergence{l.Row, l.RowID, l.Sample, at, l.Margin}
			if d.Margin != nil && math.IsInf(*d.Margin, 1) {
				d.Margin = nil // JSON has no word for it
			}
			g.Divergences = append(g.Divergences, d)
		}
		return nil
	})
	slices.SortFunc(g.Divergences, func(a, b Divergence) int { return int(a.Row - b.Row) })
	return g, err
}

package report

import (
	"encoding/binary"
	"hash/maphash"
	"slices"

	"github.com/draftmill/draftmill/storage"
)

// Greedy says whether greedy ArS and SpS gave the same tokens. They need not:
// scoring one token and scoring K+1 round differently, so that a near tie can
// fall either way. The margin at a divergence tells such a tie from a fault.
type Greedy struct {
	Same        int64        `json:"same"`
	Divergences []Divergence `json:"divergences"`
}

// Divergence is one sample whose greedy completions differ.
type Divergence struct {
	Row    int64   `json:"row"`
	RowID  string  `json:"row_id"`
	Sample int32   `json:"sample"`
	Token  int     `json:"token"`  // index in the completion of the first difference
	Margin float64 `json:"margin"` // ArS: top-1 minus top-2 target logit there
}

type sampleKey struct {
	row    int64
	sample int32
}

// compareGreedy holds a hash for every sample, and tokens only for those that
// differ.
func compareGreedy(job *storage.Job) (*Greedy, error) {
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
		if at, ok := where[key]; ok && int(l.Loop) == at && l.Margin != nil {
			g.Divergences = append(g.Divergences, Divergence{l.Row, l.RowID, l.Sample, at, *l.Margin})
		}
		return nil
	})
	slices.SortFunc(g.Divergences, func(a, b Divergence) int { return int(a.Row - b.Row) })
	return g, err
}

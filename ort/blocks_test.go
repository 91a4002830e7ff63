package ort

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestBlockPool plays random reserves, shares and truncations against sequences
// that are kept in full, and looks after each step whether every table still
// reads its own tokens and every block is counted once for each table.
func TestBlockPool(t *testing.T) {
	const blockTokens, blocks, sequences, limit = 4, 24, 6, 40
	rng := rand.New(rand.NewPCG(1, 2))
	p := newBlockPool(blockTokens, blocks)
	memory := make([]int, blocks*blockTokens) // what is stored: a token's number
	tables := make([]blockTable, sequences)
	want := make([][]int, sequences)
	next, refused := 1, 0

	write := func(s, past, n int) bool {
		copies, ok := p.reserve(&tables[s], past, n)
		if !ok {
			return false
		}
		for _, c := range copies {
			copy(memory[int(c.to)*blockTokens:][:c.tokens], memory[int(c.from)*blockTokens:][:c.tokens])
		}
		want[s] = want[s][:past]
		for i := past; i < past+n; i++ {
			b := tables[s][i/blockTokens]
			if p.holders[b] != 1 {
				t.Fatalf("sequence %d is to write token %d to block %d, which %d tables hold", s, i, b, p.holders[b])
			}
			memory[int(b)*blockTokens+i%blockTokens] = next
			want[s] = append(want[s], next)
			next++
		}
		return true
	}
	for range 20000 {
		s := rng.IntN(sequences)
		switch rng.IntN(6) {
		case 0, 1, 2:
			past := len(want[s]) - min(len(want[s]), rng.IntN(6))
			before := slices.Clone(p.free)
			if !write(s, past, rng.IntN(min(9, limit-past)+1)) {
				refused++
				if !slices.Equal(before, p.free) {
					t.Fatal("a refused reserve changed the pool")
				}
			}
		case 3, 4:
			from := rng.IntN(sequences)
			n := rng.IntN(len(want[from]) + 1)
			if from != s {
				p.share(&tables[s], tables[from], n)
				want[s] = append(want[s][:0], want[from][:n]...)
			}
		case 5:
			n := rng.IntN(len(want[s]) + 1)
			p.truncate(&tables[s], n)
			want[s] = want[s][:n]
		}
		holders := make([]int32, blocks)
		for s, table := range tables {
			for _, b := range table {
				holders[b]++
			}
			for i, x := range want[s] {
				if got := memory[int(table[i/blockTokens])*blockTokens+i%blockTokens]; got != x {
					t.Fatalf("token %d of sequence %d reads %d, want %d", i, s, got, x)
				}
			}
		}
		for b, n := range holders {
			if (n == 0) != slices.Contains(p.free, int32(b)) || n != p.holders[b] {
				t.Fatalf("block %d is in %d tables, counted %d, free: %v", b, n, p.holders[b], slices.Contains(p.free, int32(b)))
			}
		}
	}
	if refused == 0 {
		t.Error("no reserve was ever refused: the pool is too large for this test")
	}
}

package storage

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func sampleShard(rows int) Shard {
	s := Shard{Index: 12, Meta: map[string]string{"spec": `{"k":4}`, "target.sha256": "ab", "empty": ""}}
	for i := range rows {
		r := ShardRow{Row: int64(i) + 1<<40, ID: fmt.Sprint("Demo/", i%3), Prompt: []byte(strings.Repeat("def f(x):\n", i%7))}
		switch i % 5 {
		case 1:
			r.Prompt, r.Null = nil, true
		case 2:
			r.Prompt = []byte("caf\xc3 \x00\xff")
		}
		s.Rows = append(s.Rows, r)
	}
	return s
}

func TestShardRoundTrip(t *testing.T) {
	checkAlloc(t)
	for _, n := range []int{0, 1, 8, 1000} {
		want := sampleShard(n)
		data, err := EncodeShard(want)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := EncodeShard(want)
		if !bytes.Equal(data, again) {
			t.Error("two encodings of a shard differ")
		}
		got, err := DecodeShard(data)
		if err != nil {
			t.Fatal(err)
		}
		for i := range data {
			data[i] = 0xAA // the result must own its memory
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%d rows:\n got %+v\nwant %+v", n, got, want)
		}
	}
}

func TestShardRefusesReservedMetadata(t *testing.T) {
	if _, err := EncodeShard(Shard{Meta: map[string]string{"draftmill.format": "9"}}); err == nil {
		t.Error("a reserved key was accepted")
	}
	if _, err := EncodeShard(Shard{Index: -1}); err == nil {
		t.Error("a negative index was accepted")
	}
}

// seal makes a well-formed shard around any payload.
func seal(payload []byte) []byte {
	sum := sha256.Sum256(payload)
	return append(append(bytes.Clone(payload), sum[:]...), shardMagic...)
}

func TestDamagedShardIsAnError(t *testing.T) {
	checkAlloc(t)
	data, err := EncodeShard(sampleShard(6))
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(what string, bad []byte) {
		t.Helper()
		if _, err := DecodeShard(bad); !errors.Is(err, ErrShard) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 1 << (i % 8)
		refuse(fmt.Sprint("bit flipped in byte ", i), bad)
		refuse(fmt.Sprint("cut to ", i), data[:i])
	}
	refuse("nothing", nil)
	refuse("a longer one", append(bytes.Clone(data), 0))
}

// Behind a right checksum only a broken encoder can hide, but even then a
// worker must live. What Arrow makes of the bytes does not matter here.
func TestDecodeShardNeverPanics(t *testing.T) {
	data, err := EncodeShard(sampleShard(6))
	if err != nil {
		t.Fatal(err)
	}
	payload := data[:len(data)-shardTrailer]
	r := rand.New(rand.NewPCG(3, 4))
	failed := 0
	for range 3000 {
		bad := bytes.Clone(payload)
		for range 1 + r.IntN(4) {
			bad[r.IntN(len(bad))] = byte(r.UintN(256))
		}
		if _, err := DecodeShard(seal(bad)); err != nil {
			failed++
		}
	}
	for i := range payload {
		DecodeShard(seal(payload[:i]))
	}
	if failed == 0 {
		t.Error("no mutation was noticed: the test does not reach Arrow")
	}
}

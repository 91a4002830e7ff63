package storage

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"
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

// seal gives a payload the checksum and the mark of a shard.
func seal(payload []byte) []byte {
	sum := sha256.Sum256(payload)
	return append(append(bytes.Clone(payload), sum[:]...), shardMagic...)
}

// Behind a right checksum only a wrong encoder can hide, or somebody who means
// harm, but a worker lives on.
func TestSealedNonsenseIsAnError(t *testing.T) {
	good, err := EncodeShard(sampleShard(6))
	if err != nil {
		t.Fatal(err)
	}
	payload := good[:len(good)-shardTrailer]
	for i := range payload {
		if _, err := DecodeShard(seal(payload[:i])); !errors.Is(err, ErrShard) {
			t.Fatalf("a payload cut to %d: %v", i, err)
		}
	}
	other := func(meta map[string]string, fields []arrow.Field) []byte {
		md := arrow.MetadataFrom(meta)
		schema := arrow.NewSchema(fields, &md)
		var b bytes.Buffer
		ipc.NewWriter(&b, ipc.WithSchema(schema)).Close()
		return seal(b.Bytes())
	}
	for want, data := range map[string][]byte{
		"no draftmill.format": other(nil, shardFields),
		"newer than 1":        other(map[string]string{metaFormat: "2", metaShard: "0"}, shardFields),
		"no draftmill.shard":  other(map[string]string{metaFormat: "1"}, shardFields),
		"columns":             other(map[string]string{metaFormat: "1", metaShard: "0"}, shardFields[:2]),
	} {
		if _, err := DecodeShard(data); !errors.Is(err, ErrShard) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

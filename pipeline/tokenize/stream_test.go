package tokenize

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// checkStream pushes ids one by one and wants their text, and nothing on the way that is not the beginning of it.
func checkStream(t *testing.T, tok *Tokenizer, ids []int32, want string) {
	t.Helper()
	s := tok.NewStream()
	got := ""
	for _, id := range ids {
		part := s.Push(id)
		if !utf8.ValidString(part) {
			t.Fatalf("after %q, Push(%d) of %v returns %q, which is not UTF-8", got, id, tok.spell(ids), part)
		}
		if got += part; !strings.HasPrefix(want, got) {
			t.Fatalf("a stream of %v gives %q, which no longer is the beginning of %q", tok.spell(ids), got, want)
		}
	}
	if got += s.Flush(); got != want {
		t.Fatalf("a stream of %v gives %q; Decode gives %q", tok.spell(ids), got, want)
	}
}

// TestStreamOfOneCharacterInParts: nothing comes out until the character is whole, and a wrong byte ends it.
func TestStreamOfOneCharacterInParts(t *testing.T) {
	tok := load(t, "gpt2")
	id := func(b byte) int32 {
		id, ok := tok.ID(string(byteToChar[b]))
		if !ok {
			t.Fatalf("no token for byte %#x", b)
		}
		return id
	}
	tests := []struct {
		bytes string
		want  []string // after each byte
		rest  string
	}{
		{"a👍b", []string{"a", "", "", "", "👍", "b"}, ""},
		{"é", []string{"", "é"}, ""},
		{"\xe2\x82a", []string{"", "", "\uFFFDa"}, ""},
		{"\xe2\xff", []string{"", "\uFFFD\uFFFD"}, ""},
		{"\xf0\x9f\x91", []string{"", "", ""}, "\uFFFD"},
		{"\xc0\x80", []string{"\uFFFD", "\uFFFD"}, ""},
		{"\xed\xa0\x80", []string{"", "\uFFFD\uFFFD", "\uFFFD"}, ""},
	}
	s := tok.NewStream()
	for _, test := range tests {
		for i, want := range test.want {
			if got := s.Push(id(test.bytes[i])); got != want {
				t.Errorf("%q: byte %d gives %q; want %q", test.bytes, i, got, want)
			}
		}
		if got := s.Flush(); got != test.rest {
			t.Errorf("%q: Flush gives %q; want %q", test.bytes, got, test.rest)
		}
		s.Reset()
	}
}

// TestStreamOfByteFallback: what a run of bytes becomes is known when it ends.
func TestStreamOfByteFallback(t *testing.T) {
	tok := load(t, "llama2")
	s := tok.NewStream()
	push := func(token, want string) {
		t.Helper()
		id, ok := tok.ID(token)
		if !ok {
			t.Fatalf("no token %q", token)
		}
		if got := s.Push(id); got != want {
			t.Errorf("%s gives %q; want %q", token, got, want)
		}
	}
	push("<s>", "")
	push("▁the", "the")
	push("▁the", " the")
	push("<0xC3>", "")
	push("<0xA9>", "")
	push("▁", "é ")
	push("<0xC3>", "")
	push("<0x41>", "")
	push("a", "\uFFFD\uFFFDa")
	push("<0x41>", "")
	if got := s.Flush(); got != "A" {
		t.Errorf("Flush gives %q", got)
	}
	s.Reset()
	push("▁the", "the")
}

// TestStreamCostsWhatATokenCosts: the memory of a Push does not grow with what came before.
func TestStreamCostsWhatATokenCosts(t *testing.T) {
	for _, name := range trained {
		tok := load(t, name)
		ids, err := tok.EncodePlain(strings.Repeat("the value of x is 123; ", 4))
		if err != nil {
			t.Fatal(err)
		}
		s := tok.NewStream()
		cost := func() float64 {
			return testing.AllocsPerRun(50, func() {
				for _, id := range ids {
					s.Push(id)
				}
			})
		}
		first := cost()
		for range 200 {
			for _, id := range ids {
				s.Push(id)
			}
		}
		if later := cost(); later > first+2 {
			t.Errorf("%s: %v allocations at the beginning, %v after many ids", name, first, later)
		}
		if n := cap(s.out); n > 1<<12 {
			t.Errorf("%s: the stream holds %d bytes", name, n)
		}
	}
}

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

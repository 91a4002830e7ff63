package tokenize

import (
	"errors"
	"slices"
	"testing"
)

// TestPatterns: matches as Oniguruma finds them (Ruby syntax), where .NET's differ without translation.
func TestPatterns(t *testing.T) {
	tests := []struct {
		pattern, text string
		want          []string
	}{
		{`(?i:'s)`, "'s'S'ſ", []string{"'s", "'S", "'ſ"}},
		{`(?i:[k])|s`, "kKK ſs", []string{"k", "K", "K", "s"}},
		{`(?i)s(?-i:s|k)`, "Ss sS ſk", []string{"Ss", "ſk"}},
		{`a++b`, "aab", []string{"aab"}},
		{`a++ab`, "aaab", nil},
		{`[ab]?+b`, "b ab", []string{"ab"}},
		{`(?:ab)*+`, "abab", []string{"abab"}},
		{`x{2}+`, "xxxxx", []string{"xxxx"}},
		{`x{,2}y`, "xxxy", []string{"xxy"}},
		{`a{,b}{`, "a{,b}{", []string{"a{,b}{"}},
		{`^a`, "a\na\n", []string{"a", "a"}},
		{`a$`, "a\na b", []string{"a"}},
		{`a.b`, "a\nb axb", []string{"axb"}},
		{`\h+`, "fg12", []string{"f", "12"}},
		{`[\p{Lu}&&[^A-C]]`, "ABCD", []string{"D"}},
		{`[^\p{L}-]`, "a-1", []string{"1"}},
		{`[\]\[^-]`, `a]b[c^-`, []string{"]", "[", "^", "-"}},
		{`\p{^L}|\P{^N}`, "a1 ", []string{"1", " "}},
		{`\x41\x{42}\u0043\t`, "ABC\t", []string{"ABC\t"}},
		{`\s+(?!\S)|\s+`, "a  b", []string{" ", " "}},
		{`(?<=\d)(?=(?:\d{3})+(?!\d))`, "1234567", []string{"", ""}},
		{`x*`, "axx", []string{"", "xx"}},
		{`\bé\b`, "é éa", []string{"é"}},
		{`#[ ]`, "# ", []string{"# "}},
		{`(a)(b)`, "ab", []string{"ab"}},
	}
	for _, test := range tests {
		re, err := compileRegex(test.pattern)
		if err != nil {
			t.Errorf("%s: %v", test.pattern, err)
			continue
		}
		var got []string
		for _, p := range re.find(nil, test.text) {
			if p.hit {
				got = append(got, test.text[p.from:p.to])
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s in %q (%s): %q; want %q", test.pattern, test.text, re.re, got, test.want)
		}
	}
}

func TestRefusedPatterns(t *testing.T) {
	for _, pattern := range []string{
		`\X`, `\R`, `\K`, `\1`, `\k<a>`, `\G`, `(?m:.)`, `(?x: a)`, `(?<n>a)`, `a(?i)b`, `[[:alpha:]]`, `[a[b]]`, `[a&&b]`, `[a&&[^b]c]`, `(?i:ss)`, `(?i:aFi)`, `(?i:é)`,
		`\p{Nonsense}`, `(?i:\p{Lu})`, `\pL`, `(`, `)`, `[`, `[]`, `a**`, `a{2}?`, `*a`, `\`, `[z-a]`, `\xFF`, `[\W]`, `(?#c)`, `[a-\d]`,
	} {
		if re, err := compileRegex(pattern); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v, %v; want ErrUnsupported", pattern, re, err)
		}
	}
}

package tokenize

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"unicode"
)

// classes is what the Rust implementation takes every code point for (make_classes.py).
type classes struct {
	Onig     map[string][][2]rune
	OnigHan  [][2]rune `json:"onig_han"`
	OnigS    [][2]rune `json:"onig_s"`
	OnigW    [][2]rune `json:"onig_w"`
	OnigD    [][2]rune `json:"onig_d"`
	OnigH    [][2]rune `json:"onig_h"`
	OnigFold [][2]rune `json:"onig_fold"`

	Space, Punctuation, Word, Numeric, Mark, Cleaned, Nonspacing [][2]rune

	Lower map[string][]rune
	Forms map[string]struct {
		Changed [][2]rune
		SHA256  string
	}
}

func readClasses(t *testing.T) classes {
	t.Helper()
	var c classes
	readJSON(t, unzip(t, filepath.Join(testdata, "classes.json.gz")), &c)
	return c
}

// everyRune calls f for every code point but the surrogates and planes 4 to 13, where nothing is assigned.
func everyRune(f func(r rune)) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r == 0xD800 {
			r = 0xE000
		}
		if r == 0x40000 {
			r = 0xE0000
		}
		f(r)
	}
}

// checkClass compares a class of ours with one of theirs, code point by code point.
func checkClass(t *testing.T, name string, want [][2]rune, in func(rune) bool) {
	t.Helper()
	bad := 0
	everyRune(func(r rune) {
		for len(want) > 0 && want[0][1] < r {
			want = want[1:]
		}
		if theirs := len(want) > 0 && want[0][0] <= r; theirs != in(r) {
			if bad++; bad < 5 {
				t.Errorf("%s: %U: %t here, %t in Rust", name, r, in(r), theirs)
			}
		}
	})
	if bad > 0 {
		t.Errorf("%s: %d code points differ; run go generate after a new Go version", name, bad)
	}
}

// matches is the class of characters that a pattern matches, asked in one go.
func matches(t *testing.T, pattern string) func(rune) bool {
	t.Helper()
	re, err := compileRegex(pattern)
	if err != nil {
		t.Fatal(err)
	}
	found := map[rune]bool{}
	block := make([]rune, 0, 4096)
	ask := func() {
		text := string(block)
		for _, p := range re.find(nil, text) {
			for _, r := range text[p.from:p.to] {
				found[r] = p.hit
			}
		}
		block = block[:0]
	}
	everyRune(func(r rune) {
		if block = append(block, r); len(block) == cap(block) {
			ask()
		}
	})
	ask()
	return func(r rune) bool { return found[r] }
}

func TestClassesOfPatterns(t *testing.T) {
	c := readClasses(t)
	for name, want := range c.Onig {
		// regexp2 asks the same tables.
		checkClass(t, `\p{`+name+"}", want, func(r rune) bool { return unicode.Is(unicode.Categories[name], standIn(r)) })
	}
	for pattern, want := range map[string][][2]rune{
		`\p{Han}`: c.OnigHan, `\s`: c.OnigS, `\w`: c.OnigW, `\d`: c.OnigD, `\h`: c.OnigH, `(?i:[a-z])`: c.OnigFold, `[\w]`: c.OnigW, `\p{Lu}`: c.Onig["Lu"],
	} {
		checkClass(t, pattern, want, matches(t, pattern))
	}
}

func TestClassesOfSteps(t *testing.T) {
	c := readClasses(t)
	checkClass(t, "space", c.Space, isSpace)
	checkClass(t, "punctuation", c.Punctuation, isPunctuation)
	checkClass(t, "word", c.Word, isWord)
	checkClass(t, "numeric", c.Numeric, isNumeric)
	checkClass(t, "mark", c.Mark, isMark)
	checkClass(t, "nonspacing", c.Nonspacing, isNonspacing)
	checkClass(t, "cleaned", c.Cleaned, func(r rune) bool { return len(cleanText(nil, r)) == 0 })
}

func TestLowerCase(t *testing.T) {
	c := readClasses(t)
	everyRune(func(r rune) {
		want, ok := c.Lower[strconv.Itoa(int(r))]
		if !ok {
			want = []rune{r}
		}
		if got := []rune(string(lower(nil, r))); !slices.Equal(got, want) {
			t.Errorf("the lower case of %U is %U; want %U", r, got, want)
		}
	})
}

func TestFormsOfEveryCodePoint(t *testing.T) {
	c := readClasses(t)
	for name, want := range c.Forms {
		digest := sha256.New()
		checkClass(t, name, want.Changed, func(r rune) bool { return compositions[name].normalize(span{text: string(r)}).text != string(r) })
		everyRune(func(r rune) {
			if out := compositions[name].normalize(span{text: string(r)}).text; out != string(r) {
				digest.Write([]byte(out))
			}
		})
		if got := hex.EncodeToString(digest.Sum(nil)); got != want.SHA256 {
			t.Errorf("%s changes the right code points, but not all into what Rust makes of them", name)
		}
	}
}

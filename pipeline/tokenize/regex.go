package tokenize

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// regex is a pattern in Oniguruma's syntax, run by regexp2.
type regex struct{ re *regexp2.Regexp }

func compileRegex(source string) (*regex, error) {
	translated, err := translate(source)
	if err != nil {
		return nil, err
	}
	re, err := regexp2.Compile(translated, regexp2.None)
	if err != nil {
		return nil, err
	}
	return &regex{re}, nil
}

func mustCompileRegex(source string) *regex {
	re, err := compileRegex(source)
	if err != nil {
		panic(err)
	}
	return re
}

// find goes through the matches as the Rust binding of Oniguruma does: an empty match right after a match does not count.
func (x *regex) find(dst []part, text string) []part {
	if text == "" {
		return dst
	}
	// regexp2 works on runes and counts in them; offsets holds where each rune begins.
	runes := make([]rune, 0, len(text))
	ascii := true
	for _, r := range text {
		if r >= utf8.RuneSelf {
			ascii = false
			r = standIn(r)
		}
		runes = append(runes, r)
	}
	var offsets []int
	if !ascii {
		offsets = make([]int, 0, len(runes)+1)
		for i := range text {
			offsets = append(offsets, i)
		}
		offsets = append(offsets, len(text))
	}
	at := func(rune int) int {
		if ascii {
			return rune
		}
		return offsets[rune]
	}
	done, last := 0, -1 // in runes; last is where the last match ended
	for pos := 0; pos <= len(runes); {
		m, err := x.re.FindRunesMatchStartingAt(runes, pos)
		if err != nil {
			// The only error is a time-out, and none is set.
			panic(fmt.Sprintf("tokenize: match %s: %v", x.re, err))
		}
		if m == nil {
			break
		}
		from, to := m.Index, m.Index+m.Length
		if from == to && from == last {
			pos++
			continue
		}
		pos, last = to, to
		dst = between(dst, at(done), at(from))
		dst = append(dst, part{at(from), at(to), true})
		done = to
	}
	return between(dst, at(done), len(text))
}

// translate rewrites a pattern of Oniguruma (Ruby syntax) for regexp2 (.NET syntax). It knows the constructs whose meaning it can keep;
// any other is an error.
func translate(source string) (string, error) {
	t := translator{src: source}
	if strings.HasPrefix(source, "(?i)") {
		t.pos, t.fold = 4, true
	}
	err := t.alternatives(0)
	return string(t.out), err
}

type translator struct {
	src  string
	pos  int
	fold bool // inside (?i)
	out  []byte
}

func (t *translator) write(s string) { t.out = append(t.out, s...) }

func (t *translator) refuse(what string) error {
	return fmt.Errorf("%s at byte %d is %w in patterns", what, t.pos, ErrUnsupported)
}

// alternatives translates up to the ) that closes a group, or to the end at depth 0.
func (t *translator) alternatives(depth int) error {
	for t.pos < len(t.src) {
		switch t.src[t.pos] {
		case ')':
			if depth == 0 {
				return t.refuse("a ) without its (")
			}
			return nil
		case '|':
			t.out = append(t.out, '|')
			t.pos++
		default:
			if err := t.quantified(depth); err != nil {
				return err
			}
		}
	}
	if depth > 0 {
		return t.refuse("a ( without its )")
	}
	return nil
}

// quantified translates one atom and its quantifier.
func (t *translator) quantified(depth int) error {
	start := len(t.out)
	if err := t.atom(depth); err != nil {
		return err
	}
	atom := string(t.out[start:])
	t.out = t.out[:start]
	quantifier, interval, err := t.quantifier()
	if err != nil {
		return err
	}
	rest := t.src[t.pos:]
	switch {
	case quantifier == "":
		t.write(atom)
	case strings.HasPrefix(rest, "+") && interval: // Ruby: once or more of the interval
		t.pos++
		t.write("(?:" + atom + quantifier + ")+")
	case strings.HasPrefix(rest, "+"): // possessive
		t.pos++
		t.write("(?>" + atom + quantifier + ")")
	case strings.HasPrefix(rest, "?") && interval && !strings.Contains(quantifier, ","):
		return t.refuse("{n}?")
	case strings.HasPrefix(rest, "?"):
		t.pos++
		t.write(atom + quantifier + "?")
	default:
		t.write(atom + quantifier)
	}
	if rest := t.src[t.pos:]; quantifier != "" && rest != "" && strings.ContainsRune("*+?", rune(rest[0])) {
		return t.refuse("a quantifier of a quantifier")
	}
	return nil
}

// quantifier reads *, +, ? or {n,m}, if one follows.
func (t *translator) quantifier() (quantifier string, interval bool, err error) {
	if t.pos == len(t.src) {
		return "", false, nil
	}
	switch c := t.src[t.pos]; c {
	case '*', '+', '?':
		t.pos++
		return string(c), false, nil
	case '{':
		end := strings.IndexByte(t.src[t.pos:], '}')
		if end < 0 {
			return "", false, nil
		}
		body := t.src[t.pos+1 : t.pos+end]
		low, high, comma := strings.Cut(body, ",")
		if !digits(low) || !digits(high) || low == "" && high == "" {
			return "", false, nil // a literal brace
		}
		if low == "" {
			low = "0"
		}
		t.pos += end + 1
		if comma {
			return "{" + low + "," + high + "}", true, nil
		}
		return "{" + low + "}", true, nil
	}
	return "", false, nil
}

func digits(s string) bool {
	return strings.Trim(s, "0123456789") == ""
}

// atom translates a character, a class, a group or an assertion.
func (t *translator) atom(depth int) error {
	switch c := t.src[t.pos]; c {
	case '(':
		return t.group(depth)
	case '[':
		return t.class()
	case '\\':
		s, err := t.escape(false)
		t.write(s)
		return err
	case '^': // of any line, but not after the last line feed
		t.pos++
		t.write(`(?:\A|(?<=\n)(?!\z))`)
	case '$':
		t.pos++
		t.write(`(?=\n|\z)`)
	case '.':
		t.pos++
		t.out = append(t.out, '.')
	case '*', '+', '?':
		return t.refuse("a quantifier of nothing")
	default:
		r, n := utf8.DecodeRuneInString(t.src[t.pos:])
		// Both sides of a pair such as "st" that folds to one character would have to be looked at together.
		if next := t.src[t.pos+n:]; t.fold && next != "" && strings.Contains("ss st ff fi fl", strings.ToLower(string(r)+next[:1])) && next[0] < utf8.RuneSelf && unicode.IsLetter(rune(next[0])) {
			return t.refuse("a pair of letters that case folding joins")
		}
		t.pos += n
		s, err := t.single(r)
		t.write(s)
		return err
	}
	return nil
}

// single writes one character outside of a class.
func (t *translator) single(r rune) (string, error) {
	s, err := t.literal(r)
	if t.fold && unicode.IsLetter(r) {
		s = "[" + s + "]"
	}
	return s, err
}

// literal writes one character so that it stands for itself inside and outside of a class. Under (?i), a letter becomes all characters
// that fold to it.
func (t *translator) literal(r rune) (string, error) {
	if !t.fold || !unicode.IsLetter(r) {
		if r < utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return fmt.Sprintf(`\x%02x`, r), nil
		}
		return string(r), nil
	}
	if r >= utf8.RuneSelf {
		return "", t.refuse(fmt.Sprintf("%q under (?i)", r))
	}
	s := string(r)
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		s += string(f)
	}
	return s, nil
}

func (t *translator) group(depth int) error {
	rest := t.src[t.pos:]
	fold := t.fold
	opening := ""
	for _, o := range []string{"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"} {
		if strings.HasPrefix(rest, o) {
			opening = o
		}
	}
	switch {
	case opening != "":
		t.pos += len(opening)
	case strings.HasPrefix(rest, "(?i:"):
		t.pos += 4
		opening, t.fold = "(?:", true
	case strings.HasPrefix(rest, "(?-i:"):
		t.pos += 5
		opening, t.fold = "(?:", false
	case strings.HasPrefix(rest, "(?"):
		return t.refuse(fmt.Sprintf("the group %.5q", rest))
	default: // what a group captures is not used
		t.pos++
		opening = "(?:"
	}
	t.write(opening)
	if err := t.alternatives(depth + 1); err != nil {
		return err
	}
	t.out = append(t.out, ')')
	t.pos++
	t.fold = fold
	return nil
}

// class translates [...]. A class inside a class is refused, but for X&&[^Y], which .NET writes X-[Y].
func (t *translator) class() error {
	t.out = append(t.out, '[')
	t.pos++
	if strings.HasPrefix(t.src[t.pos:], "^") {
		t.out = append(t.out, '^')
		t.pos++
	}
	for start := t.pos; t.pos < len(t.src); {
		rest := t.src[t.pos:]
		switch {
		case rest[0] == ']':
			if t.pos == start {
				return t.refuse("an empty class")
			}
			t.pos++
			t.out = append(t.out, ']')
			return nil
		case strings.HasPrefix(rest, "&&[^") && t.src[start-1] != '^':
			t.pos += 2
			inner := &translator{src: t.src, pos: t.pos, fold: t.fold}
			if err := inner.class(); err != nil {
				return err
			}
			t.pos = inner.pos
			if !strings.HasPrefix(t.src[t.pos:], "]") {
				return t.refuse("more after a class intersection")
			}
			t.write("-[" + strings.TrimPrefix(string(inner.out), "[^"))
		case strings.HasPrefix(rest, "&&"), rest[0] == '[':
			return t.refuse("a class inside a class")
		case rest[0] == '-':
			t.pos++
			t.write(`\-`)
		default:
			if err := t.member(); err != nil {
				return err
			}
		}
	}
	return t.refuse("a [ without its ]")
}

// member translates a character, a range of characters or an escape inside a class.
func (t *translator) member() error {
	low, set, err := t.character()
	if err != nil {
		return err
	}
	rest := t.src[t.pos:]
	if set != "" || !strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "-]") {
		if set == "" {
			set, err = t.literal(low)
		}
		t.write(set)
		return err
	}
	t.pos++
	high, set, err := t.character()
	if err != nil {
		return err
	}
	if set != "" || high < low {
		return t.refuse("this range")
	}
	if !t.fold {
		t.write(quoted(low) + "-" + quoted(high))
		return nil
	}
	if high >= utf8.RuneSelf {
		return t.refuse("a range past ASCII under (?i)")
	}
	for r := low; r <= high; r++ {
		s, err := t.literal(r)
		if err != nil {
			return err
		}
		t.write(s)
	}
	return nil
}

// quoted writes one character for a range, without folding.
func quoted(r rune) string {
	if r < utf8.RuneSelf {
		return fmt.Sprintf(`\x%02x`, r)
	}
	return string(r)
}

// character reads a member of a class: one character, or an escape that stands for a set of them.
func (t *translator) character() (r rune, set string, err error) {
	if t.src[t.pos] != '\\' {
		r, n := utf8.DecodeRuneInString(t.src[t.pos:])
		t.pos += n
		return r, "", nil
	}
	if r, n := t.escapedRune(); n > 0 {
		t.pos += n
		return r, "", nil
	}
	set, err = t.escape(true)
	return 0, set, err
}

// escapedRune reads an escape that is a single character; n is its length, 0 if it is not one.
func (t *translator) escapedRune() (r rune, n int) {
	rest := t.src[t.pos:]
	if len(rest) < 2 {
		return 0, 0
	}
	if i := strings.IndexByte("rntfvae", rest[1]); i >= 0 {
		return rune("\r\n\t\f\v\a\x1b"[i]), 2
	}
	hex := func(from, to int) (rune, int) {
		if to > len(rest) || from >= to {
			return 0, 0
		}
		v, err := strconv.ParseUint(rest[from:to], 16, 32)
		if err != nil || v > unicode.MaxRune {
			return 0, 0
		}
		return rune(v), to
	}
	switch {
	case strings.HasPrefix(rest, `\x{`):
		v, n := hex(3, strings.IndexByte(rest, '}'))
		return v, min(n, 1) * (n + 1)
	case rest[1] == 'x':
		if v, n := hex(2, 4); v < utf8.RuneSelf {
			return v, n
		}
		return 0, 0 // a raw byte of UTF-8
	case rest[1] == 'u':
		return hex(2, 6)
	}
	if c := rest[1]; c < utf8.RuneSelf && !unicode.IsLetter(rune(c)) && !unicode.IsDigit(rune(c)) {
		return rune(c), 2
	}
	return 0, 0
}

// escape translates an escape outside of a class or, in set form, inside of one.
func (t *translator) escape(inClass bool) (string, error) {
	if r, n := t.escapedRune(); n > 0 {
		t.pos += n
		if inClass {
			return t.literal(r)
		}
		return t.single(r)
	}
	rest := t.src[t.pos:]
	if len(rest) < 2 {
		return "", t.refuse("a lone \\")
	}
	// In Latin-1 Oniguruma counts superscripts and fractions as well.
	const word = `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\p{Other_Alphabetic}²³¹¼½¾`
	switch c := rest[1]; {
	case c == 'p' || c == 'P':
		return t.property()
	case strings.IndexByte("sSdD", c) >= 0:
		t.pos += 2
		return rest[:2], nil
	case inClass && (c == 'w' || c == 'h'):
		t.pos += 2
		return map[byte]string{'w': word, 'h': "0-9A-Fa-f"}[c], nil
	case !inClass && strings.IndexByte("wWhHbBAzZ", c) >= 0:
		t.pos += 2
		return map[byte]string{
			'w': "[" + word + "]", 'W': "[^" + word + "]", 'h': "[0-9A-Fa-f]", 'H': "[^0-9A-Fa-f]",
			'b': "(?:(?<=[" + word + "])(?![" + word + "])|(?<![" + word + "])(?=[" + word + "]))",
			'B': "(?:(?<=[" + word + "])(?=[" + word + "])|(?<![" + word + "])(?![" + word + "]))",
			'A': `\A`, 'z': `\z`, 'Z': `\Z`,
		}[c], nil
	}
	return "", t.refuse(fmt.Sprintf("%.2q", rest))
}

// longNames are other names of general categories.
var longNames = map[string]string{
	"letter": "L", "uppercaseletter": "Lu", "lowercaseletter": "Ll", "titlecaseletter": "Lt", "modifierletter": "Lm", "otherletter": "Lo",
	"mark": "M", "nonspacingmark": "Mn", "number": "N", "decimalnumber": "Nd", "punctuation": "P", "symbol": "S", "separator": "Z",
}

// property translates \p{Name}, \P{Name} and \p{^Name} of a general category or a script.
func (t *translator) property() (string, error) {
	rest := t.src[t.pos:]
	end := strings.IndexByte(rest, '}')
	if end < 0 || rest[2] != '{' {
		return "", t.refuse(fmt.Sprintf("%.2q without {...}", rest))
	}
	negate := rest[1] == 'P'
	name, caret := strings.CutPrefix(rest[3:end], "^")
	negate = negate != caret
	plain := strings.ToLower(strings.NewReplacer(" ", "", "_", "", "-", "").Replace(name))
	found := longNames[plain]
	for _, tables := range []map[string]*unicode.RangeTable{unicode.Categories, unicode.Scripts} {
		for n := range tables {
			if strings.ToLower(strings.ReplaceAll(n, "_", "")) == plain {
				found = n
			}
		}
	}
	if found == "" {
		return "", t.refuse(fmt.Sprintf("the property %q", name))
	}
	if t.fold && (found[0] == 'L' && len(found) == 2) {
		return "", t.refuse(fmt.Sprintf("the property %q under (?i)", name))
	}
	t.pos += end + 1
	if negate {
		return `\P{` + found + "}", nil
	}
	return `\p{` + found + "}", nil
}

package rouge

import "strings"

// Stem reduces a lower-case word of a-z and 0-9 to its stem: the algorithm of
// Porter 1980, "An algorithm for suffix stripping", with NLTK's extensions,
// which rouge-score uses.
func Stem(word string) string {
	if s, ok := irregular[word]; ok {
		return s
	}
	if len(word) <= 2 {
		return word
	}
	for _, step := range []func(string) string{step1a, step1b, step1c, step2, step3, step4, step5a, step5b} {
		word = step(word)
	}
	return word
}

// irregular are NLTK's words with stems of their own.
var irregular = map[string]string{
	"sky": "sky", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news",
	"innings": "inning", "inning": "inning", "outings": "outing", "outing": "outing", "cannings": "canning", "canning": "canning",
	"howe": "howe", "proceed": "proceed", "exceed": "exceed", "succeed": "succeed",
}

// rule replaces an ending where the rest satisfies a condition.
type rule struct {
	ending, by string
	when       func(stem string) bool // nil: always
}

// apply applies the first rule whose ending the word has; if its condition
// does not hold, no other is tried.
func apply(word string, rules []rule) string {
	for _, r := range rules {
		if stem, ok := strings.CutSuffix(word, r.ending); ok {
			if r.when == nil || r.when(stem) {
				return stem + r.by
			}
			return word
		}
	}
	return word
}

func vowel(c byte) bool { return strings.IndexByte("aeiou", c) >= 0 }

// consonant tells whether the letter at i is one: y is, but behind a consonant.
func consonant(w string, i int) bool {
	y := false // an odd number of ys was passed
	for i > 0 && w[i] == 'y' {
		y = !y
		i--
	}
	return !vowel(w[i]) != y
}

// measure is m of [C](VC)^m[V].
func measure(w string) int {
	m := 0
	before := true // the letter before is a consonant
	for i := range len(w) {
		now := !vowel(w[i])
		if w[i] == 'y' {
			now = i == 0 || !before
		}
		if i > 0 && now && !before {
			m++
		}
		before = now
	}
	return m
}

func positive(stem string) bool { return measure(stem) > 0 }
func aboveOne(stem string) bool { return measure(stem) > 1 }

func hasVowel(w string) bool {
	for i := range len(w) {
		// The first y behind consonants is a vowel; one at the beginning is none.
		if vowel(w[i]) || w[i] == 'y' && i > 0 {
			return true
		}
	}
	return false
}

func endsDouble(w string) bool {
	n := len(w)
	return n >= 2 && w[n-1] == w[n-2] && consonant(w, n-1)
}

// endsCVC is the paper's *o; NLTK adds a vowel and a consonant alone.
func endsCVC(w string) bool {
	n := len(w)
	if n == 2 {
		return !consonant(w, 0) && consonant(w, 1)
	}
	return n >= 3 && consonant(w, n-3) && !consonant(w, n-2) && consonant(w, n-1) && strings.IndexByte("wxy", w[n-1]) < 0
}

func step1a(w string) string {
	if len(w) == 4 && strings.HasSuffix(w, "ies") {
		return w[:3]
	}
	return apply(w, []rule{{"sses", "ss", nil}, {"ies", "i", nil}, {"ss", "ss", nil}, {"s", "", nil}})
}

func step1b(w string) string {
	if stem, ok := strings.CutSuffix(w, "ied"); ok {
		if len(w) == 4 {
			return stem + "ie"
		}
		return stem + "i"
	}
	if stem, ok := strings.CutSuffix(w, "eed"); ok {
		if positive(stem) {
			return stem + "ee"
		}
		return w
	}
	for _, ending := range []string{"ed", "ing"} {
		stem, ok := strings.CutSuffix(w, ending)
		if !ok || !hasVowel(stem) {
			continue
		}
		last := stem[len(stem)-1]
		switch {
		case strings.HasSuffix(stem, "at"), strings.HasSuffix(stem, "bl"), strings.HasSuffix(stem, "iz"):
			return stem + "e"
		case endsDouble(stem):
			if last == 'l' || last == 's' || last == 'z' {
				return stem
			}
			return stem[:len(stem)-1]
		case measure(stem) == 1 && endsCVC(stem):
			return stem + "e"
		}
		return stem
	}
	return w
}

func step1c(w string) string {
	return apply(w, []rule{{"y", "i", func(stem string) bool { return len(stem) > 1 && consonant(stem, len(stem)-1) }}})
}

func step2(w string) string {
	if stem, ok := strings.CutSuffix(w, "alli"); ok && positive(stem) {
		return step2(stem + "al")
	}
	return apply(w, []rule{
		{"ational", "ate", positive}, {"tional", "tion", positive}, {"enci", "ence", positive}, {"anci", "ance", positive},
		{"izer", "ize", positive}, {"bli", "ble", positive}, {"alli", "al", positive}, {"entli", "ent", positive},
		{"eli", "e", positive}, {"ousli", "ous", positive}, {"ization", "ize", positive}, {"ation", "ate", positive},
		{"ator", "ate", positive}, {"alism", "al", positive}, {"iveness", "ive", positive}, {"fulness", "ful", positive},
		{"ousness", "ous", positive}, {"aliti", "al", positive}, {"iviti", "ive", positive}, {"biliti", "ble", positive},
		{"fulli", "ful", positive}, {"logi", "log", func(stem string) bool { return positive(stem + "l") }},
	})
}

func step3(w string) string {
	return apply(w, []rule{
		{"icate", "ic", positive}, {"ative", "", positive}, {"alize", "al", positive}, {"iciti", "ic", positive},
		{"ical", "ic", positive}, {"ful", "", positive}, {"ness", "", positive},
	})
}

func step4(w string) string {
	return apply(w, []rule{
		{"al", "", aboveOne}, {"ance", "", aboveOne}, {"ence", "", aboveOne}, {"er", "", aboveOne}, {"ic", "", aboveOne},
		{"able", "", aboveOne}, {"ible", "", aboveOne}, {"ant", "", aboveOne}, {"ement", "", aboveOne}, {"ment", "", aboveOne},
		{"ent", "", aboveOne},
		{"ion", "", func(stem string) bool {
			return aboveOne(stem) && (strings.HasSuffix(stem, "s") || strings.HasSuffix(stem, "t"))
		}},
		{"ou", "", aboveOne}, {"ism", "", aboveOne}, {"ate", "", aboveOne}, {"iti", "", aboveOne}, {"ous", "", aboveOne},
		{"ive", "", aboveOne}, {"ize", "", aboveOne},
	})
}

func step5a(w string) string {
	if stem, ok := strings.CutSuffix(w, "e"); ok {
		if m := measure(stem); m > 1 || m == 1 && !endsCVC(stem) {
			return stem
		}
	}
	return w
}

func step5b(w string) string {
	if strings.HasSuffix(w, "ll") && aboveOne(w[:len(w)-1]) {
		return w[:len(w)-1]
	}
	return w
}

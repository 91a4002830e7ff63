package rouge

import (
	"slices"
	"strings"
)

// Score is one measure of a prediction against a reference, each 0 to 1.
type Score struct {
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	F         float64 `json:"f"` // harmonic mean; what papers report
}

// Scores are those that are commonly reported.
type Scores struct {
	R1   Score // unigrams
	R2   Score // bigrams
	L    Score // longest common subsequence of the whole texts
	LSum Score // union of those of each line of the reference with all lines of the prediction
}

// Compute scores a prediction; stem reduces words of more than three letters
// by Porter's stemmer with NLTK's extensions. For LSum, lines are the
// sentences.
func Compute(reference, prediction string, stem bool) Scores {
	ref, pred := tokens(reference, stem), tokens(prediction, stem)
	return Scores{
		R1: ngrams(ref, pred, 1), R2: ngrams(ref, pred, 2), L: longest(ref, pred),
		LSum: summary(sentences(reference, stem), sentences(prediction, stem)),
	}
}

// tokens are the runs of a-z and 0-9 of the text in lower case.
func tokens(text string, stem bool) []string {
	// Python's lower case of the dotted capital I is two characters, Go's is one.
	text = strings.ToLower(strings.ReplaceAll(text, "İ", "i\u0307"))
	words := strings.FieldsFunc(text, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	if stem {
		for i, w := range words {
			if len(w) > 3 {
				words[i] = Stem(w)
			}
		}
		words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	}
	return words
}

func sentences(text string, stem bool) [][]string {
	var all [][]string
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" {
			all = append(all, tokens(line, stem))
		}
	}
	return all
}

// score makes the measure of hits among so many items of each side.
func score(hits, reference, prediction int) Score {
	s := Score{Precision: float64(hits) / float64(max(prediction, 1)), Recall: float64(hits) / float64(max(reference, 1))}
	if s.Precision+s.Recall > 0 {
		s.F = 2 * s.Precision * s.Recall / (s.Precision + s.Recall)
	}
	return s
}

// ngrams counts the n-grams that both sides have, each as often as the side
// that has fewer of it. n is 1 or 2.
func ngrams(ref, pred []string, n int) Score {
	type gram [2]string
	at := func(words []string, i int) (g gram) { copy(g[:], words[i:i+n]); return g }
	count := map[gram]int{}
	for i := range len(ref) - n + 1 {
		count[at(ref, i)]++
	}
	hits := 0
	for i := range len(pred) - n + 1 {
		if g := at(pred, i); count[g] > 0 {
			count[g]--
			hits++
		}
	}
	return score(hits, max(0, len(ref)-n+1), max(0, len(pred)-n+1))
}

func longest(ref, pred []string) Score {
	return score(int(table(ref, pred)[len(ref)][len(pred)]), len(ref), len(pred))
}

// table has, at [i][j], the length of the longest common subsequence of the
// first i tokens of a and the first j of b.
func table(a, b []string) [][]int32 {
	cells := make([]int32, (len(a)+1)*(len(b)+1))
	t := make([][]int32, len(a)+1)
	for i := range t {
		t[i] = cells[i*(len(b)+1) : (i+1)*(len(b)+1)]
	}
	for i := range a {
		for j := range b {
			if a[i] == b[j] {
				t[i+1][j+1] = t[i][j] + 1
			} else {
				t[i+1][j+1] = max(t[i][j+1], t[i+1][j])
			}
		}
	}
	return t
}

// mark sets, for the tokens of a, those on one longest common subsequence with
// b: of several, the one that rouge-score takes.
func mark(a, b []string, common []bool) {
	t := table(a, b)
	for i, j := len(a), len(b); i > 0 && j > 0; {
		switch {
		case a[i-1] == b[j-1]:
			common[i-1] = true
			i, j = i-1, j-1
		case t[i][j-1] > t[i-1][j]:
			j--
		default:
			i--
		}
	}
}

// summary is ROUGE-Lsum (section 3.2 of the paper), no token of either side
// counted more often than it is there.
func summary(ref, pred [][]string) Score {
	count := func(sentences [][]string) (map[string]int, int) {
		n, total := map[string]int{}, 0
		for _, s := range sentences {
			total += len(s)
			for _, w := range s {
				n[w]++
			}
		}
		return n, total
	}
	inRef, m := count(ref)
	inPred, n := count(pred)
	if m == 0 || n == 0 {
		return Score{}
	}
	hits := 0
	for _, r := range ref {
		common := make([]bool, len(r))
		for _, p := range pred {
			mark(r, p, common)
		}
		for i, w := range r {
			if common[i] && inRef[w] > 0 && inPred[w] > 0 {
				hits++
				inRef[w]--
				inPred[w]--
			}
		}
	}
	return score(hits, m, n)
}

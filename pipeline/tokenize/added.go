package tokenize

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// addedToken is one entry of the file's added_tokens.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// addedVocabulary finds added tokens in a text: those with normalized=false in the raw text, the others, in their own normalized form,
// in the normalized text.
type addedVocabulary struct {
	ids            map[string]int32
	byID           map[int32]addedToken
	special        map[string]bool  // contents of special tokens
	normalizedForm map[int32]string // where it differs from the content
	raw, norm      *trie            // nil: none
}

// newAddedVocabulary numbers the added tokens as the Rust implementation does: a token that the model has keeps the model's id, another
// gets the next id; the ids in the file are informative.
func newAddedVocabulary(tokens []addedToken, m model, n normalizer) (addedVocabulary, error) {
	v := addedVocabulary{ids: map[string]int32{}, byID: map[int32]addedToken{}, special: map[string]bool{}, normalizedForm: map[int32]string{}}
	next := int32(m.size())
	for _, t := range tokens {
		if t.Content == "" {
			continue
		}
		id, ok := v.ids[t.Content]
		if ok {
			if old := v.byID[id]; sameOptions(old, t) {
				continue
			}
		} else if id, ok = m.id(t.Content); !ok {
			id = next
			next++
		}
		if t.Normalized && n != nil {
			if form := n.normalize(span{text: t.Content}).text; form != t.Content {
				v.normalizedForm[id] = form
			}
		}
		v.ids[t.Content] = id
		v.byID[id] = t
		if t.Special {
			v.special[t.Content] = true
		}
	}
	raw, norm := map[string]int32{}, map[string]int32{}
	for id, t := range v.byID {
		into, key := raw, t.Content
		if t.Normalized {
			into, key = norm, v.decoded(id)
		}
		if other, twice := into[key]; twice {
			return v, fmt.Errorf("added_tokens: tokens %d and %d are both written %q once normalized; remove one", min(id, other), max(id, other), key)
		}
		if key == "" {
			return v, fmt.Errorf("added_tokens: nothing is left of token %d, %q, once normalized; remove it or set its \"normalized\" to false", id, t.Content)
		}
		into[key] = id
	}
	if len(raw) > 0 {
		v.raw = newTrie(raw)
	}
	if len(norm) > 0 {
		v.norm = newTrie(norm)
	}
	return v, nil
}

func sameOptions(a, b addedToken) bool {
	a.ID = b.ID
	return a == b
}

// decoded is the form of an added token that the decoder is given.
func (v *addedVocabulary) decoded(id int32) string {
	if form, ok := v.normalizedForm[id]; ok {
		return form
	}
	return v.byID[id].Content
}

// segment is a part of a text: an added token, or text without any (id -1).
type segment struct {
	from, to int
	id       int32
}

func (v *addedVocabulary) findRaw(text string) []segment        { return v.find(v.raw, text) }
func (v *addedVocabulary) findNormalized(text string) []segment { return v.find(v.norm, text) }

// find cuts text at the added tokens of t: leftmost first, the longest where several begin.
func (v *addedVocabulary) find(t *trie, text string) []segment {
	if t == nil {
		return []segment{{0, len(text), -1}}
	}
	var out []segment
	done := 0 // the text before it is in out
	for i := 0; i < len(text); {
		id, n := t.longest(text[i:])
		if n == 0 {
			i++
			continue
		}
		from, to := i, i+n
		i = to
		token := v.byID[id]
		if token.SingleWord && (wordBefore(text[:from]) || wordAfter(text[to:])) {
			continue
		}
		if token.LStrip {
			// Spaces that an earlier token took are gone.
			from = max(spacesBefore(text, from), done)
		}
		if token.RStrip {
			to = spacesAfter(text, to)
		}
		if done < from {
			out = append(out, segment{done, from, -1})
		}
		out = append(out, segment{from, to, id})
		done = to
	}
	if done != len(text) {
		out = append(out, segment{done, len(text), -1})
	}
	return out
}

func wordBefore(text string) bool {
	r, n := utf8.DecodeLastRuneInString(text)
	return n > 0 && isWord(r)
}

func wordAfter(text string) bool {
	r, n := utf8.DecodeRuneInString(text)
	return n > 0 && isWord(r)
}

// spacesBefore is where the white space that ends at i begins.
func spacesBefore(text string, i int) int {
	for i > 0 {
		r, n := utf8.DecodeLastRuneInString(text[:i])
		if !unicode.IsSpace(r) {
			break
		}
		i -= n
	}
	return i
}

// spacesAfter is where the white space that begins at i ends.
func spacesAfter(text string, i int) int {
	for i < len(text) {
		r, n := utf8.DecodeRuneInString(text[i:])
		if !unicode.IsSpace(r) {
			break
		}
		i += n
	}
	return i
}

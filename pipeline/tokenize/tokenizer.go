package tokenize

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

// ErrInvalidUTF8 is returned by Encode and EncodePlain for a text that is not valid UTF-8.
var ErrInvalidUTF8 = errors.New("text is not valid UTF-8")

// Tokenizer is one tokenizer.json, ready for use. It is safe for concurrent use.
type Tokenizer struct {
	model  model
	added  addedVocabulary
	norm   normalizer   // nil: none
	split  preTokenizer // nil: none
	post   postProcessor
	stages []func() stage // the decoder's chain; a Stream makes its own instances
	tokens []entry        // by id
}

// entry is what is known of one id.
type entry struct {
	token   string // as it stands in the vocabulary
	text    string // what the decoder is given: the normalized form of an added token
	known   bool
	special bool // an added token marked special
	skip    bool // left out when special tokens are skipped
}

// span is a piece of text on its way to the model. head is the number of its leading bytes that stem from the first character of the
// whole input: Metaspace's prepend_scheme "first" asks for it, whatever normalizers did in between.
type span struct {
	text string
	head int
}

// slice returns bytes [from, to) of the span.
func (s span) slice(from, to int) span {
	return span{s.text[from:to], max(0, min(s.head, to)-from)}
}

// model turns one piece of text into ids.
type model interface {
	// tokenize appends the ids of a piece to dst.
	tokenize(dst []int32, piece string) ([]int32, error)
	id(token string) (int32, bool)
	// list returns the tokens of the vocabulary with their ids.
	list() map[string]int32
	// size is the number of entries that the vocabulary counts, which numbers the added tokens.
	size() int
}

// Load reads a tokenizer.json file. Its errors name the file, the section and the type that could not be read; those for parts of the
// format that this package does not implement wrap ErrUnsupported.
func Load(path string) (*Tokenizer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", path, err)
	}
	return t, nil
}

func parse(data []byte) (*Tokenizer, error) {
	t, err := assemble(data)
	if err != nil && len(err.Error()) > longestError {
		return nil, &brief{strings.ToValidUTF8(err.Error()[:longestError], "") + "...", err}
	}
	return t, err
}

// longestError bounds the text of an error in bytes: errors cite the file, in which anything may stand.
const longestError = 500

// brief is an error with the beginning of its text.
type brief struct {
	text string
	err  error
}

func (b *brief) Error() string { return b.text }
func (b *brief) Unwrap() error { return b.err }

func assemble(data []byte) (*Tokenizer, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the file is not UTF-8; is it a tokenizer.json?")
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	if f.Version != "" && f.Version != "1.0" {
		return nil, unsupported("version", fmt.Sprintf("%q", f.Version), "1.0 is")
	}
	if absent(f.Model) {
		return nil, errors.New("not a tokenizer.json: it has no model section")
	}
	t := &Tokenizer{}
	var err error
	if t.norm, err = newNormalizer("normalizer", f.Normalizer); err != nil {
		return nil, err
	}
	if t.split, err = newPreTokenizer("pre_tokenizer", f.PreTokenizer); err != nil {
		return nil, err
	}
	if t.model, err = newModel(f.Model); err != nil {
		return nil, err
	}
	if t.post, err = newPostProcessor("post_processor", f.PostProcessor); err != nil {
		return nil, err
	}
	if t.stages, err = newDecoder("decoder", f.Decoder); err != nil {
		return nil, err
	}
	if t.added, err = newAddedVocabulary(f.AddedTokens, t.model, t.norm); err != nil {
		return nil, err
	}
	if m, ok := t.model.(*bpe); ok {
		t.split, m.bytes = withoutByteMapping(t.split)
	}
	return t, t.index()
}

// maxID bounds the table by id, so that a damaged file cannot ask for all of memory.
const maxID = 1 << 24

// index fills the table by id.
func (t *Tokenizer) index() error {
	vocab := t.model.list()
	highest := int32(-1)
	for token, id := range vocab {
		if id < 0 || id > maxID {
			return fmt.Errorf("model: token %q has the id %d, outside 0 to %d", token, id, maxID)
		}
		highest = max(highest, id)
	}
	for id := range t.added.byID {
		highest = max(highest, id)
	}
	t.tokens = make([]entry, highest+1)
	for token, id := range vocab {
		if e := &t.tokens[id]; !e.known || token < e.token { // two tokens with one id: take one of them, always the same
			*e = entry{token: token, text: token, known: true}
		}
	}
	for id, a := range t.added.byID {
		t.tokens[id] = entry{token: a.Content, text: t.added.decoded(id), known: true, special: a.Special}
	}
	for i := range t.tokens {
		t.tokens[i].skip = t.added.special[t.tokens[i].text]
	}
	return nil
}

// Encode returns the ids of a text with the special tokens that the file's post-processor adds. Special tokens that occur in the text
// itself are recognized as such. The text must be valid UTF-8 (ErrInvalidUTF8). The file's truncation and padding are not applied.
func (t *Tokenizer) Encode(text string) ([]int32, error) {
	return t.encode(text, true)
}

// EncodePlain is Encode without the post-processor's special tokens.
func (t *Tokenizer) EncodePlain(text string) ([]int32, error) {
	return t.encode(text, false)
}

func (t *Tokenizer) encode(text string, special bool) ([]int32, error) {
	if !utf8.ValidString(text) {
		return nil, ErrInvalidUTF8
	}
	ids, err := t.encodeText(make([]int32, 0, len(text)/3+8), text)
	if err != nil {
		return nil, err
	}
	return t.post.process(ids, special), nil
}

func (t *Tokenizer) encodeText(ids []int32, text string) ([]int32, error) {
	var err error
	for _, raw := range t.added.findRaw(text) {
		if raw.id >= 0 {
			ids = append(ids, raw.id)
			continue
		}
		s := span{text: text[raw.from:raw.to]}
		if raw.from == 0 {
			_, s.head = utf8.DecodeRuneInString(s.text)
		}
		if t.norm != nil {
			s = t.norm.normalize(s)
		}
		for _, n := range t.added.findNormalized(s.text) {
			if n.id >= 0 {
				ids = append(ids, n.id)
				continue
			}
			if ids, err = t.encodeSpan(ids, s.slice(n.from, n.to)); err != nil {
				return nil, err
			}
		}
	}
	return ids, nil
}

// encodeSpan splits text without added tokens and gives the pieces to the model.
func (t *Tokenizer) encodeSpan(ids []int32, s span) ([]int32, error) {
	if s.text == "" {
		return ids, nil
	}
	if t.split == nil {
		return t.model.tokenize(ids, s.text)
	}
	var err error
	for _, piece := range t.split.split(make([]span, 0, len(s.text)/4+4), s) {
		if piece.text == "" {
			continue
		}
		if ids, err = t.model.tokenize(ids, piece.text); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// Decode returns the text of ids. Ids that the vocabulary does not have are left out, as are special tokens if skipSpecial is set.
// Bytes that do not form UTF-8 become U+FFFD, one for each maximal ill-formed part (or one for each byte where the decoder is
// ByteFallback).
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	s := t.newStream(skipSpecial)
	for _, id := range ids {
		s.push(id)
	}
	s.flush()
	return string(s.out)
}

// VocabSize is the highest id plus one, added tokens included. Models often have more rows than that in their last layer.
func (t *Tokenizer) VocabSize() int {
	return len(t.tokens)
}

// ID returns the id of a token as it is spelled in the vocabulary ("Ġthe" for " the" in a byte-level one).
func (t *Tokenizer) ID(token string) (int32, bool) {
	if id, ok := t.added.ids[token]; ok {
		return id, true
	}
	return t.model.id(token)
}

// Token returns the spelling of an id in the vocabulary.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(t.tokens) || !t.tokens[id].known {
		return "", false
	}
	return t.tokens[id].token, true
}

// IsSpecial reports whether id is an added token marked special (end of text, padding, roles of a chat).
func (t *Tokenizer) IsSpecial(id int32) bool {
	return id >= 0 && int(id) < len(t.tokens) && t.tokens[id].special
}

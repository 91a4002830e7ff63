package convert

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/ort/convert/gguf"
)

// vocabulary is the tokenizer of a GGUF file, on its way to a tokenizer.json.
type vocabulary struct {
	kind   string // gpt2, llama or t5
	pre    string // how gpt2 splits texts before it merges
	tokens []string
	scores []float64
	types  []int64
	merges []string

	bos, eos, unk  int // -1: none
	addBOS, addEOS bool
	prefix         bool // a space goes in front of a text (llama, t5)
	squeeze        bool // several spaces become one (t5)
	charsmap       []byte
	template       string
	strip          []string // control tokens that take the spaces behind them along
}

// Types of tokens, as GGUF numbers them.
const (
	normalToken  = 1
	unknownToken = 2
	controlToken = 3
	userToken    = 4
	unusedToken  = 5
	byteToken    = 6
)

// object and list are JSON, whose keys come out in order of the alphabet.
type (
	object = map[string]any
	list   = []any
)

// splits are the pre-tokenizers of gpt2-style vocabularies by the name that
// llama.cpp has for them.
var splits = map[string]any{}

// expressions cut texts into what merges do not cross, in the notation of
// tokenizer.json files.
const (
	qwenExpression   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	llamaExpression  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	tekkenExpression = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

func byteLevel(expression bool) object {
	return object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": expression}
}

func splitBy(expression string) object {
	return object{"type": "Sequence", "pretokenizers": list{
		object{"type": "Split", "pattern": object{"Regex": expression}, "behavior": "Isolated", "invert": false}, byteLevel(false),
	}}
}

func init() {
	digits := object{"type": "Sequence", "pretokenizers": list{object{"type": "Digits", "individual_digits": true}, byteLevel(true)}}
	for names, split := range map[string]object{
		"gpt-2 gpt2 default phi-2":                  byteLevel(true),
		"qwen2 deepseek-r1-qwen":                    splitBy(qwenExpression),
		"llama3 llama-v3 llama-bpe falcon3 pixtral": splitBy(llamaExpression),
		"smaug-bpe dbrx":                            splitBy(llamaExpression),
		"tekken":                                    splitBy(tekkenExpression),
		"smollm":                                    digits,
	} {
		for _, name := range strings.Fields(names) {
			splits[name] = split
		}
	}
}

// wholeWords are the pre-tokenizers whose vocabularies take a word that is in
// them as it is, without merging.
func (v *vocabulary) wholeWords() bool {
	switch v.pre {
	case "llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "tekken":
		return true
	}
	return false
}

// readVocabulary reads the tokenizer that a file carries.
func readVocabulary(meta gguf.Metadata, size int) (*vocabulary, error) {
	v := &vocabulary{
		kind: meta.Text("tokenizer.ggml.model"), pre: meta.Text("tokenizer.ggml.pre"),
		tokens: meta.Strings("tokenizer.ggml.tokens"), scores: meta.Floats("tokenizer.ggml.scores"),
		types: meta.Ints("tokenizer.ggml.token_type"), merges: meta.Strings("tokenizer.ggml.merges"),
		template: meta.Text("tokenizer.chat_template"), bos: -1, eos: -1, unk: -1, prefix: true,
	}
	if len(v.tokens) == 0 {
		return nil, errors.New("no tokens in the file (tokenizer.ggml.tokens)")
	}
	if len(v.tokens) > size {
		return nil, fmt.Errorf("%d tokens for %d embeddings", len(v.tokens), size)
	}
	if v.types == nil {
		v.types = slices.Repeat([]int64{normalToken}, len(v.tokens))
	}
	if len(v.types) != len(v.tokens) {
		return nil, fmt.Errorf("%d types for %d tokens", len(v.types), len(v.tokens))
	}
	for key, id := range map[string]*int{"bos": &v.bos, "eos": &v.eos, "unknown": &v.unk} {
		if n, ok := meta.Int("tokenizer.ggml." + key + "_token_id"); ok {
			if n < 0 || n >= len(v.tokens) {
				return nil, fmt.Errorf("%s_token_id %d is outside the %d tokens", key, n, len(v.tokens))
			}
			*id = n
		}
	}
	switch v.kind {
	case "gpt2":
		if v.pre == "" {
			v.pre = "default"
		}
		if splits[v.pre] == nil {
			return nil, fmt.Errorf("texts are split in a way that is not known here (tokenizer.ggml.pre %q)", v.pre)
		}
		v.addBOS = v.wholeWords()
	case "llama", "t5":
		if len(v.scores) != len(v.tokens) {
			return nil, fmt.Errorf("%d scores for %d tokens", len(v.scores), len(v.tokens))
		}
		v.addBOS, v.addEOS = v.kind == "llama", v.kind == "t5"
		v.squeeze, _ = meta.Bool("tokenizer.ggml.remove_extra_whitespaces")
		for _, b := range meta.Ints("tokenizer.ggml.precompiled_charsmap") {
			v.charsmap = append(v.charsmap, byte(b))
		}
		if v.unk < 0 {
			v.unk = slices.Index(v.types, unknownToken)
		}
		if v.kind == "llama" {
			v.tokens = slices.Clone(v.tokens)
			for id, token := range v.tokens { // converters write such spaces as they are
				if v.types[id] == userToken {
					v.tokens[id] = strings.ReplaceAll(token, " ", "▁")
				}
			}
			if meta.Text("general.architecture") == "phi3" {
				v.strip = phi3Strips(v)
			}
		}
	default:
		return nil, fmt.Errorf("vocabularies of the kind %q are not supported; gpt2, llama and t5 are", v.kind)
	}
	for key, to := range map[string]*bool{"add_bos_token": &v.addBOS, "add_eos_token": &v.addEOS, "add_space_prefix": &v.prefix} {
		if value, ok := meta.Bool("tokenizer.ggml." + key); ok {
			*to = value
		}
	}
	v.addBOS, v.addEOS = v.addBOS && v.bos >= 0, v.addEOS && v.eos >= 0
	return v, nil
}

// phi3Strips are Phi-3's tokens that a template writes a line break behind: its
// tokenizer.json takes that along, and a GGUF file does not say so.
func phi3Strips(v *vocabulary) (names []string) {
	for id, token := range v.tokens {
		plain := slices.Contains([]string{"<unk>", "<s>", "<|endoftext|>"}, token)
		if v.types[id] == controlToken && !plain || token == "</s>" {
			names = append(names, token)
		}
	}
	return names
}

// Tokenizer returns the tokenizer.json that a GGUF file's vocabulary amounts to.
func Tokenizer(path string) (_ []byte, err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	v, err := readVocabulary(f.Metadata, maxSize)
	if err != nil {
		return nil, fmt.Errorf("tokenizer of %s: %w", path, err)
	}
	return v.json()
}

// placeholder reports whether a token only fills a row of the embeddings:
// converters name such rows after their number.
func (v *vocabulary) placeholder(id int) bool {
	unused := v.types[id] == unusedToken || v.types[id] == unknownToken // of older converters
	return unused && v.tokens[id] == fmt.Sprintf("[PAD%d]", id)
}

// json is the tokenizer.json.
func (v *vocabulary) json() ([]byte, error) {
	file := object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": v.added(),
		"normalizer": nil, "pre_tokenizer": nil, "decoder": nil, "post_processor": v.frame(),
	}
	switch v.kind {
	case "gpt2":
		v.bytePairs(file)
	case "llama":
		v.pieces(file)
	case "t5":
		v.unigram(file)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(file)
	return out.Bytes(), err
}

// added are the tokens that are found in a text before anything else happens to
// it.
func (v *vocabulary) added() list {
	all := list{}
	for id, token := range v.tokens {
		t := v.types[id]
		if t != controlToken && t != userToken && t != unknownToken || token == "" || v.placeholder(id) {
			continue
		}
		all = append(all, object{
			"id": id, "content": token, "special": t != userToken, "normalized": false,
			"single_word": false, "lstrip": false, "rstrip": slices.Contains(v.strip, token),
		})
	}
	return all
}

// frame puts what begins and ends a text around it; null where nothing does.
func (v *vocabulary) frame() any {
	if !v.addBOS && !v.addEOS {
		return nil
	}
	special := object{}
	token := func(id, part int) object {
		name := v.tokens[id]
		special[name] = object{"id": name, "ids": list{id}, "tokens": list{name}}
		return object{"SpecialToken": object{"id": name, "type_id": part}}
	}
	text := func(name string, part int) (all list) {
		if v.addBOS {
			all = append(all, token(v.bos, part))
		}
		all = append(all, object{"Sequence": object{"id": name, "type_id": part}})
		if v.addEOS {
			all = append(all, token(v.eos, part))
		}
		return all
	}
	single := text("A", 0)
	return object{"type": "TemplateProcessing", "single": single, "pair": append(slices.Clone(single), text("B", 1)...), "special_tokens": special}
}

// bytePairs is a vocabulary like GPT-2's.
func (v *vocabulary) bytePairs(file object) {
	// Added tokens are among the words, too: those that are not are numbered
	// behind the words by who reads the file, whatever their numbers here.
	words := map[string]int{}
	for id, token := range v.tokens {
		if _, twice := words[token]; !twice && !v.placeholder(id) {
			words[token] = id
		}
	}
	merges := list{}
	for _, m := range v.merges {
		// A space within a token is written otherwise, so that there is one.
		if a, b, ok := strings.Cut(m, " "); ok {
			merges = append(merges, list{a, b})
		}
	}
	if v.pre == "qwen2" || v.pre == "deepseek-r1-qwen" {
		file["normalizer"] = object{"type": "NFC"}
	}
	file["pre_tokenizer"] = splits[v.pre]
	file["decoder"] = object{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}
	file["model"] = object{
		"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"fuse_unk": false, "byte_fallback": false, "ignore_merges": v.wholeWords(), "vocab": words, "merges": merges,
	}
}

// pieces is a vocabulary of SentencePiece's BPE: pairs are merged in the order
// of the scores of what they become, which is what a list of merges says, too.
func (v *vocabulary) pieces(file object) {
	words := map[string]int{}
	for id, token := range v.tokens {
		if !v.placeholder(id) {
			if _, twice := words[token]; !twice {
				words[token] = id
			}
		}
	}
	normalizers := list{object{"type": "Replace", "pattern": object{"String": " "}, "content": "▁"}}
	decoders := list{object{"type": "Replace", "pattern": object{"String": "▁"}, "content": " "}, object{"type": "ByteFallback"}, object{"type": "Fuse"}}
	if v.prefix {
		normalizers = append(list{object{"type": "Prepend", "prepend": "▁"}}, normalizers...)
		decoders = append(decoders, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	var unk any
	if v.unk >= 0 {
		unk = v.tokens[v.unk]
	}
	file["normalizer"] = object{"type": "Sequence", "normalizers": normalizers}
	file["decoder"] = object{"type": "Sequence", "decoders": decoders}
	file["model"] = object{
		"type": "BPE", "dropout": nil, "unk_token": unk, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"fuse_unk": true, "byte_fallback": slices.Contains(v.types, byteToken), "ignore_merges": false, "vocab": words, "merges": v.pairs(words),
	}
}

// pairs are all ways of making a token of two others, best first. A user's token
// comes before all others, as SentencePiece cuts it out first; a GGUF file has
// another score for it.
//
// Runs of spaces have one score, and their order decides how a long run is cut.
// It is that of the tokenizer.json files that were published: by the token that
// is made, but in Llama 2's vocabulary, which was converted earlier, by what it
// is made of.
func (v *vocabulary) pairs(words map[string]int) list {
	type pair struct {
		a, b       string
		score      float64
		id, ia, ib int
	}
	byParts := len(v.tokens) > 262 && slices.Equal(v.tokens[259:263], []string{"▁▁", "▁t", "er", "in"})
	var all []pair
	for id, token := range v.tokens {
		if v.types[id] != normalToken && v.types[id] != userToken || words[token] != id {
			continue
		}
		for at := range token {
			ia, first := words[token[:at]]
			ib, second := words[token[at:]]
			if at > 0 && first && second {
				p := pair{token[:at], token[at:], v.scores[id], id, ia, ib}
				if v.types[id] == userToken {
					p.score = math.Inf(1)
				}
				if byParts {
					p.id = 0
				}
				all = append(all, p)
			}
		}
	}
	slices.SortStableFunc(all, func(p, q pair) int {
		return cmp.Or(cmp.Compare(q.score, p.score), cmp.Compare(p.id, q.id), cmp.Compare(p.ia, q.ia), cmp.Compare(p.ib, q.ib))
	})
	merges := list{}
	for _, p := range all {
		merges = append(merges, list{p.a, p.b})
	}
	return merges
}

// unigram is a vocabulary of SentencePiece's unigram language model.
func (v *vocabulary) unigram(file object) {
	words := list{}
	for id, token := range v.tokens {
		words = append(words, list{token, v.scores[id]})
	}
	normalizers := list{}
	if len(v.charsmap) > 0 {
		normalizers = append(normalizers, object{"type": "Precompiled", "precompiled_charsmap": base64.StdEncoding.EncodeToString(v.charsmap)})
	}
	if v.squeeze {
		normalizers = append(normalizers, object{"type": "Replace", "pattern": object{"Regex": " {2,}"}, "content": " "})
	}
	if len(normalizers) > 0 {
		file["normalizer"] = object{"type": "Sequence", "normalizers": normalizers}
	}
	scheme := "never"
	if v.prefix {
		scheme = "always"
	}
	space := object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true}
	file["pre_tokenizer"], file["decoder"] = space, space
	model := object{"type": "Unigram", "unk_id": nil, "vocab": words, "byte_fallback": slices.Contains(v.types, byteToken)}
	if v.unk >= 0 {
		model["unk_id"] = v.unk
	}
	file["model"] = model
}

// writeConfig writes tokenizer_config.json, and the chat template where the file
// has one.
func (v *vocabulary) writeConfig(dir string) error {
	config := object{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	for name, id := range map[string]int{"bos_token": v.bos, "eos_token": v.eos, "unk_token": v.unk} {
		if id >= 0 {
			config[name] = v.tokens[id]
		}
	}
	if v.template != "" {
		config["chat_template"] = v.template
		if err := writeFile(filepath.Join(dir, "chat_template.jinja"), []byte(v.template)); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "tokenizer_config.json"), append(data, '\n'))
}

package tokenize

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestInvalidUTF8(t *testing.T) {
	tok := load(t, "gpt2")
	for _, text := range []string{"\xff", "a\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "ok\xc0\xaf"} {
		for name, f := range map[string]func(string) ([]int32, error){"Encode": tok.Encode, "EncodePlain": tok.EncodePlain} {
			if ids, err := f(text); !errors.Is(err, ErrInvalidUTF8) || ids != nil {
				t.Errorf("%s(%q) = %v, %v; want %v", name, text, ids, err, ErrInvalidUTF8)
			}
		}
	}
}

func TestVocabulary(t *testing.T) {
	tok := load(t, "llama3")
	begin, ok := tok.ID("<|begin_of_text|>")
	if !ok || !tok.IsSpecial(begin) {
		t.Fatalf("<|begin_of_text|> is %d, %t, special %t", begin, ok, tok.IsSpecial(begin))
	}
	last, _ := tok.ID("<|endoftext|>")
	if got := tok.VocabSize(); got != int(last)+1 {
		t.Errorf("VocabSize() = %d; the last added token has the id %d", got, last)
	}
	if token, ok := tok.Token(last); !ok || token != "<|endoftext|>" {
		t.Errorf("Token(%d) = %q, %t", last, token, ok)
	}
	known := 0
	for id := int32(0); int(id) < tok.VocabSize(); id++ {
		token, ok := tok.Token(id)
		if !ok {
			continue
		}
		known++
		if back, ok := tok.ID(token); !ok || back != id {
			t.Fatalf("ID(%q) = %d, %t; Token(%d) gave it", token, back, ok, id)
		}
	}
	if known != tok.VocabSize() {
		t.Errorf("%d of %d ids have a token", known, tok.VocabSize())
	}
	for _, id := range []int32{-1, -1 << 31, int32(tok.VocabSize()), 1<<31 - 1} {
		if token, ok := tok.Token(id); ok || token != "" || tok.IsSpecial(id) || tok.Decode([]int32{id}, false) != "" {
			t.Errorf("id %d, outside of the vocabulary, is %q", id, token)
		}
	}
	if id, ok := tok.ID("no such token"); ok {
		t.Errorf("ID of no token is %d", id)
	}
	a, _ := tok.ID("a")
	if tok.IsSpecial(a) {
		t.Error("a is special")
	}
}

func TestConcurrentUse(t *testing.T) {
	all := texts(t)[:200]
	for _, name := range trained {
		tok := load(t, name)
		encodings, _ := goldens(t, name)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := range all {
					i = (i + 50*w) % len(all)
					ids, err := tok.Encode(all[i])
					if err != nil || !slices.Equal(ids, encodings[i].ids) {
						t.Errorf("%s: Encode(%q) = %v, %v; want %v", name, all[i], ids, err, encodings[i].ids)
						return
					}
					if got := tok.Decode(ids, true); got != encodings[i].skip {
						t.Errorf("%s: Decode(%v) = %q; want %q", name, ids, got, encodings[i].skip)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := newCache()
	long := strings.Repeat("x", cacheBytes+1)
	c.put(long, []int32{1})
	if _, ok := c.get(nil, long); ok {
		t.Error("a piece that is too long was kept")
	}
	word := make([]byte, 4)
	for i := range 3 * cacheShards * cacheWords {
		for k := range word {
			word[k] = byte('a' + i>>(4*k)&15)
		}
		c.put(string(word), []int32{int32(i)})
		if ids, ok := c.get(nil, string(word)); !ok || ids[0] != int32(i) {
			t.Fatalf("%s, just put, gives %v, %t", word, ids, ok)
		}
	}
	for i := range c.shards {
		if n := len(c.shards[i].words); n > cacheWords {
			t.Errorf("shard %d holds %d pieces; %d are allowed", i, n, cacheWords)
		}
	}
}

// TestRefusals: what Load cannot do exactly is an error that names it.
func TestRefusals(t *testing.T) {
	bpe := `"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]}`
	tests := []struct {
		name, file  string
		unsupported bool
		want        []string // in the error
	}{
		{"empty", ``, false, []string{"not a tokenizer.json"}},
		{"not an object", `[1,2]`, false, []string{"not a tokenizer.json"}},
		{"binary", "\xff\xfe\x00", false, []string{"not UTF-8"}},
		{"no model", `{"version":"1.0"}`, false, []string{"no model"}},
		{"version", `{"version":"2.0",` + bpe + `}`, true, []string{"version", "2.0"}},
		{"model", `{"model":{"type":"WordLevel","vocab":{},"unk_token":"u"}}`, true, []string{"model", "WordLevel"}},
		{"untyped model", `{"model":{"vocab":{}}}`, true, []string{"model"}},
		{"dropout", `{"model":{"type":"BPE","vocab":{},"merges":[],"dropout":0.1}}`, true, []string{"model BPE", "dropout 0.1"}},
		{"merges", `{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}`, false, []string{"merge 0", `"b"`, "not in the vocabulary"}},
		{"merge of three", `{"model":{"type":"BPE","vocab":{"a":0},"merges":["a a a"]}}`, false, []string{"merge 0", `"a a a"`}},
		{"vocab", `{"model":{"type":"BPE","vocab":["a"],"merges":[]}}`, false, []string{"model BPE"}},
		{"negative id", `{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}`, false, []string{`"a"`, "-1"}},
		{"huge id", `{"model":{"type":"BPE","vocab":{"a":2000000000},"merges":[]}}`, false, []string{`"a"`, "2000000000"}},
		{"unk_id", `{"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":7}}`, false, []string{"unk_id 7"}},
		{"no merges", `{"model":{"type":"BPE","vocab":{}}}`, false, []string{"merges", "missing"}},
		{"no unk_token", `{"model":{"type":"WordPiece","vocab":{}}}`, false, []string{"unk_token", "missing"}},
		{"normalizer", `{"normalizer":{"type":"Foo"},` + bpe + `}`, true, []string{"normalizer", "Foo", "NFC"}},
		{"normalizer in a sequence", `{"normalizer":{"type":"Sequence","normalizers":[{"type":"Foo"}]},` + bpe + `}`, true, []string{"normalizer", "Foo"}},
		{"charsmap", `{"normalizer":{"type":"Precompiled","precompiled_charsmap":"//8AAAA="},` + bpe + `}`, false, []string{"Precompiled", "damaged"}},
		{"pre-tokenizer", `{"pre_tokenizer":{"type":"UnicodeScripts"},` + bpe + `}`, true, []string{"pre_tokenizer", "UnicodeScripts", "ByteLevel"}},
		{"behavior", `{"pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"Foo","invert":false},` + bpe + `}`, true, []string{"Split", "behavior", "Foo"}},
		{"pattern", `{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\X"},"behavior":"Isolated","invert":false},` + bpe + `}`, true, []string{"Split", `\\X`}},
		{"empty pattern", `{"pre_tokenizer":{"type":"Split","pattern":{"String":""},"behavior":"Isolated","invert":false},` + bpe + `}`, true, []string{"Split", "empty pattern"}},
		{"prepend scheme", `{"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"last"},` + bpe + `}`, true, []string{"Metaspace", "last"}},
		{"old metaspace", `{"pre_tokenizer":{"type":"Metaspace","replacement":"_","add_prefix_space":false},` + bpe + `}`, false, []string{"Metaspace", "add_prefix_space"}},
		{"replacement", `{"pre_tokenizer":{"type":"Metaspace","replacement":"ab"},` + bpe + `}`, false, []string{"Metaspace", `"ab"`}},
		{"post-processor", `{"post_processor":{"type":"Foo"},` + bpe + `}`, true, []string{"post_processor", "Foo"}},
		{"template", `{"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}}],"special_tokens":{}},` + bpe + `}`, false, []string{"TemplateProcessing", "<s>"}},
		{"template with two texts", `{"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B"}}],"special_tokens":{}},` + bpe + `}`, true, []string{"TemplateProcessing", "piece 0"}},
		{"decoder", `{"decoder":{"type":"CTC"},` + bpe + `}`, true, []string{"decoder", "CTC"}},
		{"strip", `{"decoder":{"type":"Strip","content":"ab","start":1,"stop":0},` + bpe + `}`, true, []string{"decoder Strip", `"ab"`}},
		{"added twice", `{"normalizer":{"type":"Lowercase"},"added_tokens":[{"content":"X","normalized":true},{"content":"x","normalized":true}],` + bpe + `}`, false, []string{"added_tokens", `"x"`}},
		{"added and gone", `{"normalizer":{"type":"Strip","strip_left":true,"strip_right":true},"added_tokens":[{"content":" ","normalized":true}],` + bpe + `}`, false, []string{"added_tokens", `" "`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokenizer.json")
			if err := os.WriteFile(path, []byte(test.file), 0o644); err != nil {
				t.Fatal(err)
			}
			tok, err := Load(path)
			if err == nil || tok != nil {
				t.Fatal("loaded")
			}
			for _, want := range append(test.want, path) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not mention %q", err, want)
				}
			}
			if errors.Is(err, ErrUnsupported) != test.unsupported {
				t.Errorf("%q wraps ErrUnsupported: %t", err, !test.unsupported)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than a line", err)
			}
		})
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
}

// TestUnknownWithoutToken: where the Rust implementation fails on a text, so does Encode.
func TestUnknownWithoutToken(t *testing.T) {
	for name, file := range map[string]string{
		"BPE":       `{"model":{"type":"BPE","vocab":{"a":0},"merges":[],"unk_token":"<unk>"}}`,
		"Unigram":   `{"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":null}}`,
		"WordPiece": `{"model":{"type":"WordPiece","vocab":{"a":0},"unk_token":"<unk>","continuing_subword_prefix":"##","max_input_chars_per_word":100}}`,
	} {
		tok, err := parse([]byte(file))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if ids, err := tok.Encode("a"); err != nil || !slices.Equal(ids, []int32{0}) {
			t.Errorf("%s: Encode(a) = %v, %v", name, ids, err)
		}
		if ids, err := tok.Encode("x"); err == nil || ids != nil {
			t.Errorf("%s: Encode(x) = %v, %v; want an error", name, ids, err)
		}
	}
}

// FuzzEncode: byte-level tokenizers lose nothing, and streams agree.
func FuzzEncode(f *testing.F) {
	for i, text := range texts(f) {
		if i%7 == 0 {
			f.Add(text)
		}
	}
	lossless := []*Tokenizer{load(f, "gpt2"), load(f, "llama3"), load(f, "demo")}
	others := []*Tokenizer{load(f, "qwen2"), load(f, "llama2"), load(f, "unigram"), load(f, "bert")}
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range append(lossless, others...) {
			ids, err := tok.Encode(text)
			if err != nil {
				if !errors.Is(err, ErrInvalidUTF8) {
					t.Fatal(err)
				}
				return
			}
			if slices.Contains(lossless, tok) {
				plain, _ := tok.EncodePlain(text)
				if back := tok.Decode(plain, false); back != text {
					t.Fatalf("%q becomes %q", text, back)
				}
			}
			checkStream(t, tok, ids, tok.Decode(ids, true))
		}
	})
}

package tokenize

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// precompiled is SentencePiece's compiled map of character sequences: a double-array trie (Darts) whose values are offsets into a block of
// texts that end with a NUL.
type precompiled struct {
	units []uint32
	texts string
}

func newPrecompiled(section string, data []byte) (normalizer, error) {
	if len(data) < 4 {
		return nil, fmt.Errorf("%s: precompiled_charsmap has %d bytes, too few", section, len(data))
	}
	size := int(binary.LittleEndian.Uint32(data))
	data = data[4:]
	if size%4 != 0 || size == 0 || size > len(data) {
		return nil, fmt.Errorf("%s: precompiled_charsmap is damaged: its trie has %d of %d bytes", section, size, len(data))
	}
	p := &precompiled{units: make([]uint32, size/4), texts: string(data[size:])}
	for i := range p.units {
		p.units[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	if !utf8.ValidString(p.texts) {
		return nil, fmt.Errorf("%s: precompiled_charsmap is damaged: its texts are not UTF-8", section)
	}
	return p, nil
}

// lookup returns what the shortest key that text begins with becomes. (The shortest, and for the whole of text: so the Rust
// implementation does, and models depend on it.)
func (p *precompiled) lookup(text string) (string, bool) {
	at := func(i uint32) uint32 {
		if int(i) >= len(p.units) {
			return 0
		}
		return p.units[i]
	}
	offset := func(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }
	node := offset(at(0))
	for i := 0; i < len(text) && text[i] != 0; i++ {
		node ^= uint32(text[i])
		u := at(node)
		if u&(1<<31|0xFF) != uint32(text[i]) {
			return "", false
		}
		node ^= offset(u)
		if u>>8&1 == 1 {
			value := at(node) & (1<<31 - 1)
			if int(value) > len(p.texts) {
				return "", false
			}
			out, _, _ := strings.Cut(p.texts[value:], "\x00")
			return out, true
		}
	}
	return "", false
}

func (p *precompiled) normalize(s span) span {
	out := make([]byte, 0, len(s.text))
	head := 0
	put := func(from int, text string) {
		out = append(out, text...)
		if from < s.head {
			head = len(out)
		}
	}
	from := 0
	for state, rest := -1, s.text; rest != ""; {
		var grapheme string
		grapheme, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		text, ok := "", false
		if len(grapheme) < 6 {
			text, ok = p.lookup(grapheme)
		}
		if ok {
			put(from, text)
		} else {
			for i, r := range grapheme {
				c := grapheme[i : i+utf8.RuneLen(r)]
				if text, ok := p.lookup(c); ok {
					c = text
				}
				put(from+i, c)
			}
		}
		from += len(grapheme)
	}
	return span{string(out), head}
}

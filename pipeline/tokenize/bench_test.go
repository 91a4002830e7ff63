package tokenize

import (
	"strings"
	"testing"
)

// prompt is n bytes of code and prose.
func prompt(n int) string {
	const unit = `def has_close_elements(numbers: List[float], threshold: float) -> bool:
    """ Check if in given list of numbers, are any two numbers closer to each other than
    given threshold. It's easy, isn't it? Größe, façade, 東京.
    >>> has_close_elements([1.0, 2.0, 3.0], 0.5)
    False
    """
    for idx, elem in enumerate(numbers):
        for idx2, elem2 in enumerate(numbers):
            if idx != idx2:
                distance = abs(elem - elem2)
`
	return strings.ToValidUTF8(strings.Repeat(unit, n/len(unit)+1)[:n], "")
}

// BenchmarkEncode encodes a prompt of 8 KiB, warm (its words are in the cache) and cold.
func BenchmarkEncode(b *testing.B) {
	text := prompt(8 << 10)
	for _, name := range trained {
		tok := load(b, name)
		b.Run(name+"/warm", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tok.Encode(text); err != nil {
					b.Fatal(err)
				}
			}
		})
		if m, ok := tok.model.(*bpe); ok {
			b.Run(name+"/cold", func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					m.cache = newCache()
					if _, err := tok.Encode(text); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkLongWord encodes 8 KiB without a space: one piece for the model.
func BenchmarkLongWord(b *testing.B) {
	text := strings.Repeat("abcdefghijklmnopqrstuvwxyz", 8<<10/26)
	for _, name := range []string{"gpt2", "llama2", "unigram"} {
		tok := load(b, name)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := tok.Encode(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStream is the cost of one Push.
func BenchmarkStream(b *testing.B) {
	for _, name := range trained {
		tok := load(b, name)
		ids, err := tok.EncodePlain(prompt(8 << 10))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			s := tok.NewStream()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.Push(ids[i%len(ids)])
			}
		})
	}
}

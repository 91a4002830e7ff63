package tokenize

import "unicode/utf8"

// GPT-2's visible characters for the 256 bytes: printable Latin-1 stands for itself, the others for the characters from U+0100 on.
var (
	byteToChar [256]rune
	charToByte [0x144]int16 // -1: no byte
)

func init() {
	for i := range charToByte {
		charToByte[i] = -1
	}
	next := rune(0x100)
	for b := range byteToChar {
		c := rune(b)
		if !('!' <= c && c <= '~' || 0xA1 <= c && c <= 0xAC || 0xAE <= c && c <= 0xFF) {
			c = next
			next++
		}
		byteToChar[b] = c
		charToByte[c] = int16(b)
	}
}

// mapBytes writes every byte of text as its visible character.
func mapBytes(text string) string {
	out := make([]byte, 0, len(text)+len(text)/4)
	for i := 0; i < len(text); i++ {
		out = utf8.AppendRune(out, byteToChar[text[i]])
	}
	return string(out)
}

// unmapBytes appends the bytes that the characters of a token stand for, or the token as it is if one of them stands for none.
func unmapBytes(dst []byte, token string) []byte {
	n := len(dst)
	for _, r := range token {
		if int(r) >= len(charToByte) || charToByte[r] < 0 {
			return append(dst[:n], token...)
		}
		dst = append(dst, byte(charToByte[r]))
	}
	return dst
}

// hexToken returns the token of byte fallback for b, such as <0x0A>.
func hexToken(b byte) string {
	const digits = "0123456789ABCDEF"
	return "<0x" + digits[b>>4:b>>4+1] + digits[b&15:b&15+1] + ">"
}

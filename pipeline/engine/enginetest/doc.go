// Package enginetest holds what tests of decoding share: a scripted model, a
// clock that tests move, and a tokenizer of letters.
package enginetest

//go:generate go run gen_tables.go

// Package tokenize turns text into token ids and back exactly as the Hugging Face `tokenizers` library (Rust) does, from the same
// tokenizer.json file.
//
// # What it is for
//
// A prompt becomes ids for the models (Encode, EncodePlain), generated ids become text (Decode), and a growing sequence of ids becomes
// a growing text of which nothing is ever taken back (Stream).
//
// # How a text becomes ids
//
//	added tokens (raw text) -> normalizer -> added tokens (normalized text) -> pre-tokenizer -> model -> post-processor
//
// Text between added tokens is normalized and split piece by piece; the model (BPE, Unigram or WordPiece) sees one piece at a time. Ids
// become text through the decoder, a chain of stages that work on one token at a time, so that Decode and Stream are the same code.
//
// # Invariants
//
//   - Exact or refused: what a tokenizer.json asks for is done as the Rust implementation does it, to the id and to the byte, or Load
//     fails with an error that names the section and its type (ErrUnsupported). Nothing is approximated silently.
//   - The sections "truncation" and "padding" are ignored: a prompt of a generation job must never be cut or padded behind the user's back.
//     The caller checks the length against the model's context.
//   - A Tokenizer is immutable after Load apart from a bounded cache of words, and safe for concurrent use. There is no global state that changes. A
//     Stream belongs to one goroutine.
//   - The concatenation of everything that Push and Flush return equals Decode(ids, true).
//
// # Unicode
//
// The Rust implementation mixes tables of several Unicode versions: Oniguruma's (16) in patterns, its standard library's (17) for
// lower case and numbers, and older ones (8 to 11) for punctuation, marks and normalization. Where Go's tables differ, tables.go holds
// the difference; gen_tables.go makes it from testdata/tokenizers/classes.json.gz, and a test compares every code point. Patterns are
// Oniguruma's; regex.go rewrites them for regexp2 and refuses constructs whose meaning would change.
//
// # Sources
//
// The behaviour is that of github.com/huggingface/tokenizers 0.23 (Apache-2.0), whose source was read and whose outputs are the golden
// files in testdata/tokenizers. Byte-level BPE is Radford et al. 2019 (GPT-2), BPE is Sennrich et al. 2016, Unigram is Kudo 2018,
// WordPiece is Wu et al. 2016. The substitution of U+FFFD for ill-formed bytes follows the Unicode Standard, section 3.9 (maximal
// subparts).
package tokenize

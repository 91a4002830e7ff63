package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
)

// The file of an n-gram table:
//
//	"draftmill-ngram\n"
//	version, order, vocabulary, tokens trained on
//	SHA-256 of the tokenizer's file
//	level 1 .. order: for the empty history, or every n-gram of the level
//	  before in turn: the number of continuations, and of each its token, less
//	  one more than the token before it, and its count
//	SHA-256 of everything before
//
// All numbers are unsigned LEB128, as in encoding/binary.

const (
	ngramMagic   = "draftmill-ngram\n"
	ngramVersion = 1
)

// String is the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// AppendBinary appends the table's file to dst. It implements
// [encoding.BinaryAppender].
func (t *NGram) AppendBinary(dst []byte) ([]byte, error) {
	body := t.appendBody(nil)
	sum := sha256.Sum256(body)
	return append(append(dst, body...), sum[:]...), nil
}

// seal computes the digest.
func (t *NGram) seal() { t.digest = sha256.Sum256(t.appendBody(nil)) }

func (t *NGram) appendBody(dst []byte) []byte {
	dst = append(dst, ngramMagic...)
	for _, x := range []uint64{ngramVersion, uint64(len(t.levels)), uint64(t.vocab), t.trained} {
		dst = binary.AppendUvarint(dst, x)
	}
	dst = append(dst, t.tokenizer[:]...)
	dst = t.levels[0].appendNodes(dst, 0, uint32(len(t.levels[0].tokens)))
	for n, above := range t.levels[:len(t.levels)-1] {
		for i := range above.tokens {
			dst = t.levels[n+1].appendNodes(dst, above.first[i], above.first[i+1])
		}
	}
	return dst
}

// appendNodes appends the continuations of one history.
func (l *level) appendNodes(dst []byte, from, to uint32) []byte {
	dst = binary.AppendUvarint(dst, uint64(to-from))
	next := int32(0) // the least token that may follow
	for i := from; i < to; i++ {
		dst = binary.AppendUvarint(dst, uint64(l.tokens[i]-next))
		dst = binary.AppendUvarint(dst, uint64(l.counts[i]))
		next = l.tokens[i] + 1
	}
	return dst
}

// ParseNGram reads the file of a table that is to draft for a model with vocab
// logits and the tokenizer of this digest. Its errors wrap [ErrNGram] and say
// what to do.
func ParseNGram(data []byte, vocab int, tokenizer Digest) (*NGram, error) {
	return parseNGram(data, func(t *NGram) error {
		switch {
		case t.vocab != vocab:
			return fmt.Errorf("%w: it is over a vocabulary of %d tokens, the target's has %d; %s for this target", ErrNGram, t.vocab, vocab, again)
		case t.tokenizer != tokenizer:
			return fmt.Errorf("%w: it was trained with another tokenizer (%.12s, the target's is %.12s); %s for this target", ErrNGram, t.tokenizer, tokenizer, again)
		}
		return nil
	})
}

// ParseCounts is ParseNGram for who wants to know which tokens are frequent, of
// whatever vocabulary.
func ParseCounts(data []byte) (*NGram, error) {
	return parseNGram(data, func(t *NGram) error {
		if t.vocab > maxVocab {
			return fmt.Errorf("%w: it is over a vocabulary of %d tokens; %s", ErrNGram, t.vocab, again)
		}
		return nil
	})
}

const (
	again    = "train it again with submit ngram"
	maxVocab = 1 << 24
)

// parseNGram reads a table whose head check accepts.
func parseNGram(data []byte, check func(*NGram) error) (*NGram, error) {
	if !bytes.HasPrefix(data, []byte(ngramMagic)) {
		return nil, fmt.Errorf("%w: not an n-gram table; name a file that submit ngram wrote", ErrNGram)
	}
	body := data[:max(len(ngramMagic), len(data)-sha256.Size)]
	t := &NGram{digest: sha256.Sum256(body)}
	if !bytes.Equal(data[len(body):], t.digest[:]) {
		return nil, fmt.Errorf("%w: the file is damaged (its checksum does not hold); %s", ErrNGram, again)
	}
	r := ngramReader{rest: body[len(ngramMagic):]}
	version, order, size := r.number(), r.number(), r.number()
	t.trained = r.number()
	copy(t.tokenizer[:], r.bytes(len(t.tokenizer)))
	switch {
	case version != ngramVersion:
		return nil, fmt.Errorf("%w: it is of version %d, this draftmill reads %d; %s", ErrNGram, version, ngramVersion, again)
	case r.bad || order < 1 || order > MaxOrder:
		return nil, fmt.Errorf("%w: the file is malformed; %s", ErrNGram, again)
	}
	t.vocab = int(min(size, math.MaxInt32))
	if err := check(t); err != nil {
		return nil, err
	}
	vocab := t.vocab
	t.levels = make([]level, order)
	r.nodes(&t.levels[0], vocab)
	for n := range t.levels[1:] {
		above, l := &t.levels[n], &t.levels[n+1]
		for range above.tokens {
			above.first = append(above.first, uint32(len(l.tokens)))
			r.nodes(l, vocab)
		}
		above.first = append(above.first, uint32(len(l.tokens)))
	}
	if r.bad || len(r.rest) > 0 {
		return nil, fmt.Errorf("%w: the file is malformed; %s", ErrNGram, again)
	}
	t.smooth()
	return t, nil
}

// ngramReader takes a body apart. After anything that does not fit it is bad
// and yields zeros.
type ngramReader struct {
	rest []byte
	bad  bool
}

func (r *ngramReader) number() uint64 {
	x, n := binary.Uvarint(r.rest)
	if n <= 0 || r.bad {
		r.rest, r.bad = nil, true
		return 0
	}
	r.rest = r.rest[n:]
	return x
}

func (r *ngramReader) bytes(n int) []byte {
	if r.bad || len(r.rest) < n {
		r.rest, r.bad = nil, true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// nodes reads the continuations of one history into l.
func (r *ngramReader) nodes(l *level, vocab int) {
	n, next := r.number(), uint64(0)
	if n > uint64(len(r.rest)/2) || uint64(len(l.tokens))+n > math.MaxUint32 { // a continuation takes two bytes at least
		r.rest, r.bad = nil, true
		return
	}
	for range n {
		token, count := r.number(), r.number()
		if token >= uint64(vocab)-next || count < 1 || count > math.MaxUint32 {
			r.rest, r.bad = nil, true
			return
		}
		token += next
		l.tokens, l.counts = append(l.tokens, int32(token)), append(l.counts, uint32(count))
		next = token + 1
	}
}

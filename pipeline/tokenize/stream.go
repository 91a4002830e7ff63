package tokenize

// Stream decodes ids one at a time. It never takes back what it returned: the concatenation of everything that Push and Flush return is
// Decode(ids, true). It belongs to one goroutine. A Push costs what its token is long, not what came before it.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	stages      []stage
	first       sink
	out         []byte
}

// NewStream returns a Stream that leaves special tokens out.
func (t *Tokenizer) NewStream() *Stream {
	return t.newStream(true)
}

func (t *Tokenizer) newStream(skipSpecial bool) *Stream {
	s := &Stream{t: t, skipSpecial: skipSpecial}
	s.Reset()
	return s
}

// Reset makes the Stream ready for another sequence.
func (s *Stream) Reset() {
	s.out = nil
	s.stages = s.stages[:0]
	for _, stage := range s.t.stages {
		s.stages = append(s.stages, stage())
	}
	s.first = s.sink(0)
}

// sink is what gives tokens to stage i; after the last stage, the text is output.
func (s *Stream) sink(i int) sink {
	if i == len(s.stages) {
		return func(text string, _ bool) { s.out = append(s.out, text...) }
	}
	stage, next := s.stages[i], s.sink(i+1)
	return func(text string, end bool) { stage.write(text, end, next) }
}

// Push takes the next id and returns the text that became certain with it: whole characters that no later id can change. It is often
// empty: for a token that holds part of a character, for a special token, and, where the decoder is ByteFallback, for all bytes of a run
// but its end, since one wrong byte in a run makes all of it U+FFFD.
func (s *Stream) Push(id int32) string {
	s.push(id)
	return s.take()
}

// Flush ends the sequence and returns the rest of its text. The Stream must be Reset before it is used again.
func (s *Stream) Flush() string {
	s.flush()
	return s.take()
}

func (s *Stream) take() string {
	text := string(s.out)
	s.out = s.out[:0]
	return text
}

func (s *Stream) push(id int32) {
	if id < 0 || int(id) >= len(s.t.tokens) {
		return
	}
	if e := &s.t.tokens[id]; e.known && !(s.skipSpecial && e.skip) {
		s.first(e.text, true)
	}
}

func (s *Stream) flush() {
	for i, stage := range s.stages {
		stage.flush(s.sink(i + 1))
	}
}

package pipeline

import (
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/storage"
)

// Observer is told what a worker does, by the goroutine that does it: it must
// not block, and keeps nothing that it is given.
type Observer interface {
	// Delivered is a shard that came; attempt is 1 for the first time.
	Delivered(attempt int)
	// Loop is one draft-verify loop of one sequence.
	Loop(m Mode, l *engine.Loop)
	// Sample is a completion at its end.
	Sample(m Mode, c *storage.Completion)
	// Lanes is how many sequences are decoded, of how many at most.
	Lanes(busy, most int)
	// Committed is a shard whose files this worker wrote, and how long
	// committing took.
	Committed(m Mode, took time.Duration)
	// Settled is what the queue was told of a shard: ack, retry, release or
	// reject. The blame is for the error behind it; see Blame.String.
	Settled(outcome string, err error)
}

// nobody observes nothing.
type nobody struct{}

func (nobody) Delivered(int)                     {}
func (nobody) Loop(Mode, *engine.Loop)           {}
func (nobody) Sample(Mode, *storage.Completion)  {}
func (nobody) Lanes(int, int)                    {}
func (nobody) Committed(Mode, time.Duration)     {}
func (nobody) Settled(outcome string, err error) {}

// tracer makes spans where the program has set up OpenTelemetry, else nothing.
func tracer() trace.Tracer { return otel.Tracer("github.com/draftmill/draftmill/pipeline") }

// endSpan notes an error in a span, which may be none, and ends it.
func endSpan(s trace.Span, err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.RecordError(err)
	}
	s.End()
}

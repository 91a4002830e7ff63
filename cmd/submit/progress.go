package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/draftmill/draftmill/pipeline"
)

// board shows how far each mode of a job has come: as live bars on a terminal,
// as a line now and then elsewhere. Its figures are what workers report; the
// table at the end is made from the files instead.
type board struct {
	mu    sync.Mutex
	out   io.Writer
	modes []*lane
	bars  *mpb.Progress // nil without a terminal
	stop  chan struct{}
	done  sync.WaitGroup
}

// lane is one mode's line.
type lane struct {
	mode                    pipeline.Mode
	bar                     *mpb.Bar
	total, before, samples  int64 // to do; done by earlier runs; done in this one
	tokens, drafted, accept int64
	errors, busyNS          int64
	began                   time.Time // of the first report
}

func newBoard(out io.Writer, modes []pipeline.Mode) *board {
	b := &board{out: out, stop: make(chan struct{})}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		b.bars = mpb.New(mpb.WithOutput(out), mpb.WithWidth(40), mpb.WithAutoRefresh())
	}
	for _, m := range modes {
		l := &lane{mode: m}
		if b.bars != nil {
			l.bar = b.bars.AddBar(0,
				mpb.PrependDecorators(decor.Name(string(m), decor.WC{W: 4})),
				mpb.AppendDecorators(decor.Any(func(decor.Statistics) string {
					b.mu.Lock()
					defer b.mu.Unlock()
					return l.String()
				})))
		}
		b.modes = append(b.modes, l)
	}
	if b.bars == nil {
		b.done.Add(1)
		go b.lines()
	}
	return b
}

// seen takes a shard that was published or found committed: samples of them.
func (b *board) seen(m pipeline.Mode, samples int64, committed bool) {
	b.change(m, func(l *lane) {
		l.total += samples
		if committed {
			l.before += samples
		}
	})
}

// report takes what a worker has done.
func (b *board) report(p pipeline.Progress) {
	b.change(p.Mode, func(l *lane) {
		if l.began.IsZero() {
			l.began = time.Now().Add(-time.Duration(p.BusyNS))
		}
		l.samples += p.Samples
		l.tokens += p.Tokens
		l.drafted += p.Drafted
		l.accept += p.Accepted
		l.errors += p.Errors
		l.busyNS += p.BusyNS
	})
}

func (b *board) change(m pipeline.Mode, f func(*lane)) {
	for _, l := range b.modes {
		if l.mode != m {
			continue
		}
		b.mu.Lock()
		f(l)
		total, done := max(l.total, 1), min(l.before+l.samples, l.total)
		b.mu.Unlock()
		if l.bar != nil { // outside the lock, which the bar's decorator takes
			l.bar.SetTotal(total, false)
			l.bar.SetCurrent(done)
		}
	}
}

// close shows the last state and gives the terminal back.
func (b *board) close() {
	close(b.stop)
	b.done.Wait()
	if b.bars == nil {
		return
	}
	for _, l := range b.modes {
		l.bar.Abort(false)
	}
	b.bars.Wait()
}

// every is how often a line is written where there is no terminal.
const every = 5 * time.Second

func (b *board) lines() {
	defer b.done.Done()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-b.stop:
			b.print()
			return
		case <-tick.C:
			b.print()
		}
	}
}

func (b *board) print() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.modes {
		fmt.Fprintf(b.out, "%s %s\n", l.mode, l)
	}
}

// String is the text of a line: samples, speed, acceptance, time to go.
func (l *lane) String() string {
	done := min(l.before+l.samples, l.total)
	s := fmt.Sprintf("%d/%d", done, l.total)
	if l.busyNS > 0 {
		s += fmt.Sprintf("  %.0f tok/s", float64(l.tokens)*1e9/float64(l.busyNS))
	}
	if l.drafted > 0 {
		s += fmt.Sprintf("  accepted %.0f%%", 100*float64(l.accept)/float64(l.drafted))
	}
	if l.errors > 0 {
		s += fmt.Sprintf("  errors %d", l.errors)
	}
	if l.samples > 0 && done < l.total {
		left := time.Duration(float64(time.Since(l.began)) / float64(l.samples) * float64(l.total-done))
		s += "  ETA " + left.Round(time.Second).String()
	}
	return s
}

package ort

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Progress is told how far a model of several GB has come: once a second while a
// step takes, and once when the step has succeeded, with Done equal to Total. It
// is called by one goroutine at a time, and no longer when OpenBundleWith or
// Load has returned. A nil Progress is told nothing.
type Progress func(Step)

// Step is what OpenBundleWith and Load spend their time on.
type Step struct {
	Name        string // "read", for the digests of the files, or "load", into a session
	Dir         string // of the bundle
	Done, Total int64  // bytes; ONNX Runtime does not say how much it has loaded, Done is 0 until all is
	Elapsed     time.Duration
}

// progressPeriod is the time between two reports of a step.
const progressPeriod = time.Second

// LogProgress logs steps, at level Info those that take longer than a period,
// others at Debug.
func LogProgress(log *slog.Logger) Progress {
	return func(s Step) {
		level, message := slog.LevelInfo, s.Name+"ing the model"
		if s.Done == s.Total {
			message = "model " + map[string]string{"load": "loaded", "read": "read"}[s.Name]
			if s.Elapsed < progressPeriod {
				level = slog.LevelDebug
			}
		}
		attrs := []slog.Attr{slog.String("dir", s.Dir), slog.Int64("MB", s.Total/1e6)}
		if s.Done > 0 && s.Done < s.Total {
			attrs = append(attrs, slog.Int64("done", s.Done/1e6))
		}
		log.LogAttrs(context.Background(), level, message, append(attrs, slog.String("seconds", fmt.Sprintf("%.1f", s.Elapsed.Seconds())))...)
	}
}

// meter reports a step while it runs.
type meter struct {
	progress Progress
	step     Step
	began    time.Time
	done     atomic.Int64
	stop     chan struct{}
	wg       sync.WaitGroup
}

// start begins a step, which end ends.
func (p Progress) start(name, dir string, total int64) *meter {
	m := &meter{progress: p, step: Step{Name: name, Dir: dir, Total: total}, began: time.Now(), stop: make(chan struct{})}
	if p == nil {
		return m
	}
	m.wg.Go(func() {
		tick := time.NewTicker(progressPeriod)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				m.report(m.done.Load())
			case <-m.stop:
				return
			}
		}
	})
	return m
}

func (m *meter) report(done int64) {
	m.step.Done, m.step.Elapsed = done, time.Since(m.began)
	m.progress(m.step)
}

// Write implements io.Writer: so many bytes are done.
func (m *meter) Write(p []byte) (int, error) {
	m.done.Add(int64(len(p)))
	return len(p), nil
}

// end reports the step's success; after an error there is no last report.
func (m *meter) end(err error) {
	close(m.stop)
	m.wg.Wait()
	if m.progress != nil && err == nil {
		m.report(m.step.Total)
	}
}

package eval

import (
	"context"
	"fmt"
	"time"

	"github.com/draftmill/draftmill/pipeline/eval/sandbox"
	"github.com/draftmill/draftmill/storage"
)

// runner runs the programs of a dataset.
type runner struct {
	box      *sandbox.Sandbox
	problems []Problem
	walls    []time.Duration // of the canonical solutions, 0 where there is none
	o        Options
}

func newRunner(ctx context.Context, dataset []storage.Row, o Options, sum *Summary) (*runner, error) {
	r := &runner{o: o, walls: make([]time.Duration, len(dataset))}
	for _, row := range dataset {
		f := row.Fields
		p := Problem{Prompt: f["prompt"], EntryPoint: f["entry_point"], Tests: f["test"], Canonical: f["canonical_solution"]}
		if p.Tests == "" || p.EntryPoint == "" {
			return nil, fmt.Errorf("row %d (%s) has no test or no entry_point: programs are scored by HumanEval's columns prompt, test, entry_point, canonical_solution", row.Index, row.ID)
		}
		r.problems = append(r.problems, p)
	}
	open := sandbox.Open
	if o.Unsafe {
		open = sandbox.OpenUnsafe
	}
	var err error
	if r.box, err = open(ctx, max(1, o.Workers)); err != nil {
		return nil, err
	}
	sum.Sandbox, sum.Extract = r.box.Cage(), o.Extract
	return r, nil
}

// Limits of wall-clock time: generous for the canonical solutions, and then
// enough for a completion that is a good deal slower than the canonical one,
// never less than the three seconds that HumanEval's authors give.
const (
	canonicalWall = 20 * time.Second
	slower        = 10
)

var leastWall = 3 * time.Second // a variable for the tests

func (r *runner) limits(row int64) sandbox.Limits {
	l := sandbox.DefaultLimits
	l.Wall = max(leastWall, slower*r.walls[row])
	return l
}

// canonical runs the dataset's own solutions. One that fails says that this
// machine, or its Python, is not fit to judge others.
func (r *runner) canonical(ctx context.Context, sum *Summary) error {
	var which []int
	for i, p := range r.problems {
		if p.Canonical != "" {
			which = append(which, i)
		}
	}
	if len(which) == 0 {
		return nil
	}
	began := time.Now()
	limits := sandbox.DefaultLimits
	limits.Wall = canonicalWall
	results := make([]sandbox.Result, len(which))
	err := r.each(ctx, "canonical solutions", len(which), func(ctx context.Context, n int) (err error) {
		p := &r.problems[which[n]]
		results[n], err = r.box.Run(ctx, p.program(p.Prompt+p.Canonical+"\n"), limits)
		return err
	})
	if err != nil {
		return err
	}
	c := &Canonical{Of: len(which), Seconds: time.Since(began).Seconds()}
	var unfit error
	for n, result := range results {
		i := which[n]
		r.walls[i] = result.Wall
		if result.Verdict == sandbox.Passed {
			c.Passed++
		} else if unfit == nil {
			unfit = fmt.Errorf("row %d: %s (%s)", i, result.Verdict, result.Detail)
		}
	}
	sum.Canonical = c
	if unfit != nil {
		return fmt.Errorf("this machine is not fit to score: %d of the dataset's %d canonical solutions pass under %s; %w", c.Passed, c.Of, r.box.Python(), unfit)
	}
	return nil
}

func (p *Problem) program(code string) sandbox.Program {
	return sandbox.Program{Code: code, Prompt: p.Prompt, Tests: p.Tests, EntryPoint: p.EntryPoint}
}

// score runs the completions of a mode; equal completions of a row once.
func (r *runner) score(ctx context.Context, mode string, all []storage.Completion) ([]storage.Score, error) {
	type key struct {
		row  int64
		code string
	}
	index := map[key]int{}
	var codes []key
	for _, c := range all {
		k := key{c.Row, r.problems[c.Row].assemble(c.Completion, r.o.Extract)}
		if _, there := index[k]; !there && c.FinishReason != storage.FinishError {
			index[k] = len(codes)
			codes = append(codes, k)
		}
	}
	results := make([]sandbox.Result, len(codes))
	run := func(ctx context.Context, n int) (err error) {
		p := &r.problems[codes[n].row]
		results[n], err = r.box.Run(ctx, p.program(codes[n].code), r.limits(codes[n].row))
		return err
	}
	if err := r.each(ctx, mode, len(codes), run); err != nil {
		return nil, err
	}
	// A machine that was busy for a moment is no fault of a program's.
	var late []int
	for n := range results {
		if results[n].Verdict == sandbox.Timeout {
			late = append(late, n)
		}
	}
	if err := r.each(ctx, mode+", timeouts once more", len(late), func(ctx context.Context, i int) error { return run(ctx, late[i]) }); err != nil {
		return nil, err
	}
	scores := make([]storage.Score, 0, len(all))
	for _, c := range all {
		s := storage.Score{Job: c.Job, Row: c.Row, RowID: c.RowID, Sample: c.Sample, Metric: "pass", Reason: "none", Detail: c.Error}
		if c.FinishReason != storage.FinishError {
			result := results[index[key{c.Row, r.problems[c.Row].assemble(c.Completion, r.o.Extract)}]]
			s.Reason, s.Detail, s.WallNS = result.Verdict, result.Detail, result.Wall.Nanoseconds()
			if result.Verdict == sandbox.Passed {
				s.Score = 1
			}
		}
		scores = append(scores, s)
	}
	return scores, nil
}

// each calls fn for 0 to n-1, as many at a time as the sandbox has slots, and
// stops at the first error.
func (r *runner) each(ctx context.Context, step string, n int, fn func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next, done := make(chan int), make(chan error)
	for range r.box.Slots() {
		go func() {
			for i := range next {
				done <- fn(ctx, i)
			}
		}()
	}
	go func() {
		defer close(next)
		for i := range n {
			next <- i
		}
	}()
	var first error
	for finished := range n { // a cancelled program ends at once: all are waited for
		if err := <-done; err != nil && first == nil {
			first = err
			cancel(err)
		}
		if r.o.Progress != nil {
			r.o.Progress(step, finished+1, n)
		}
	}
	return first
}

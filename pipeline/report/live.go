package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/draftmill/draftmill/storage"
)

// Live is an http.Handler that shows the report of a job while it runs, from
// what is committed: the page at /, and its numbers at /status.json, for which
// the page asks every two seconds.
type Live struct {
	job  *storage.Job
	read func() (*Page, error)

	mu      sync.Mutex
	began   map[string]progressAt // by mode, when this server first looked
	page    []byte
	status  Status
	next    time.Time // not to be read again before
	written int       // committed shards that page shows
}

type progressAt struct {
	shards int
	at     time.Time
}

// Status is how far a job is, with the figures so far.
type Status struct {
	Job     string       `json:"job"`
	State   string       `json:"state"`   // running, complete or cancelled
	Version int          `json:"version"` // of the page: another number, another page
	Modes   []ModeStatus `json:"modes"`
	Speedup *float64     `json:"speedup"`
	Error   string       `json:"error,omitempty"` // why the figures are older than they could be
}

// ModeStatus is one mode's part. Figures are of the committed shards.
type ModeStatus struct {
	Mode        string   `json:"mode"`
	Title       string   `json:"title"`
	Shards      int      `json:"shards"`
	Of          int      `json:"of"` // 0: not known yet
	Samples     int64    `json:"samples"`
	Errors      int64    `json:"errors"`
	Tokens      int64    `json:"tokens"`
	PerSecond   float64  `json:"tokens_per_second"` // per worker
	MeanTokenMS float64  `json:"mean_token_ms"`
	Acceptance  *float64 `json:"acceptance"`   // nil where nothing was drafted
	Alpha       *float64 `json:"alpha"`        // nil likewise
	SecondsLeft *float64 `json:"seconds_left"` // by the shards since this server began; nil: not known
}

// NewLive serves one job. read makes its page from what is committed; an error
// of it that wraps ErrNothingYet leaves the page without figures.
func NewLive(job *storage.Job, read func() (*Page, error)) *Live {
	return &Live{job: job, read: read, began: map[string]progressAt{}}
}

// ServeHTTP answers requests that name this machine as their host: pages of
// other sites cannot read the report through a name of their own.
func (l *Live) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case !IsLoopback(r.Host):
		http.Error(w, "this report is for its own machine: ask for it by 127.0.0.1 or localhost", http.StatusForbidden)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "want GET", http.StatusMethodNotAllowed)
	case r.URL.Path == "/":
		page, _, err := l.look()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	case r.URL.Path == "/status.json":
		_, status, err := l.look()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(status)
	default:
		http.NotFound(w, r)
	}
}

// IsLoopback tells whether a host, with or without a port, is this machine.
func IsLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// rest is the least time between two readings, in times of the last one: the
// report of a large job takes seconds, which its workers should have.
const rest = 10

// look returns the page and the figures, read anew where shards were committed
// since.
func (l *Live) look() ([]byte, *Status, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s, err := l.progress(now)
	if err != nil {
		return nil, nil, err
	}
	committed := 0
	for _, m := range s.Modes {
		committed += m.Shards
	}
	changed := committed != l.written || s.State != l.status.State || l.status.Error != ""
	if l.page == nil || changed && !now.Before(l.next) {
		if err := l.write(s, committed); err != nil {
			return nil, nil, err
		}
		l.next = now.Add(rest * time.Since(now))
	}
	l.join(s)
	return l.page, s, nil
}

// progress counts shards.
func (l *Live) progress(now time.Time) (*Status, error) {
	j, err := specified(l.job)
	if err != nil {
		return nil, err
	}
	plan, err := l.job.Plan()
	if err != nil && !errors.Is(err, storage.ErrNoPlan) {
		return nil, err
	}
	s := &Status{Job: l.job.Name(), State: "running"}
	if cancelled, err := l.job.Cancelled(); err != nil {
		return nil, err
	} else if cancelled {
		s.State = "cancelled"
	}
	if l.job.Done() {
		s.State = "complete"
	}
	for _, t := range titles {
		for _, mode := range j.Modes {
			if mode != t.mode {
				continue
			}
			n, err := l.job.CountCommitted(mode)
			if err != nil {
				return nil, err
			}
			m := ModeStatus{Mode: mode, Title: t.title, Shards: n, Of: plan.Shards}
			first, known := l.began[mode]
			if !known {
				l.began[mode] = progressAt{n, now}
			} else if n > first.shards && n < plan.Shards {
				left := now.Sub(first.at).Seconds() / float64(n-first.shards) * float64(plan.Shards-n)
				m.SecondsLeft = &left
			}
			s.Modes = append(s.Modes, m)
		}
	}
	return s, nil
}

// write makes the page. What cannot be read just now, a shard that is being
// moved into its place, say, leaves the last figures.
func (l *Live) write(s *Status, committed int) error {
	page, err := l.read()
	s.Error = ""
	switch {
	case errors.Is(err, ErrNothingYet):
		page = &Page{Title: "draftmill: " + s.Job}
	case err != nil:
		s.Error = err.Error()
		if l.page != nil {
			l.status.Error = s.Error
			return nil
		}
		page = &Page{Title: "draftmill: " + s.Job}
	}
	s.Version = l.status.Version + 1
	if page.Comparison != nil {
		for i := range s.Modes {
			s.Modes[i].figures(page.Comparison)
		}
		for _, other := range page.Series {
			s.Speedup = other.Speedup
		}
	}
	page.Live = s
	var b bytes.Buffer
	if err := page.WriteHTML(&b); err != nil {
		return fmt.Errorf("show the report: %w", err)
	}
	l.page, l.status, l.written = b.Bytes(), *s, committed
	return nil
}

// join gives a status the figures that were read last.
func (l *Live) join(s *Status) {
	s.Version, s.Speedup, s.Error = l.status.Version, l.status.Speedup, l.status.Error
	for i := range s.Modes {
		for _, last := range l.status.Modes {
			if m := &s.Modes[i]; last.Mode == m.Mode {
				last.Shards, last.Of, last.SecondsLeft = m.Shards, m.Of, m.SecondsLeft
				*m = last
			}
		}
	}
}

func (m *ModeStatus) figures(c *Comparison) {
	for _, s := range c.Series {
		if s.Mode != m.Mode {
			continue
		}
		f := s.mode
		m.Samples, m.Errors, m.Tokens, m.PerSecond, m.MeanTokenMS = f.Samples, f.Errors, f.CompletionTokens, f.TokensPerSecond, f.MeanTokenMS
		if f.Drafted > 0 {
			m.Acceptance, m.Alpha = &f.AcceptanceRate, &f.Alpha
		}
	}
}

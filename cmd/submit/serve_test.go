package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/draftmill/draftmill/pipeline/report"
	"github.com/draftmill/draftmill/storage"
)

// commitShard commits one shard of a job in a mode.
func commitShard(t *testing.T, job *storage.Job, mode string, shard int) {
	t.Helper()
	w, err := job.NewShardWriter(mode, shard)
	if err != nil {
		t.Fatal(err)
	}
	c := storage.Completion{Job: job.Name(), Row: int64(shard), RowID: fmt.Sprint("row/", shard), Completion: "text", Tokens: []int32{1}, FinishReason: storage.FinishEOS,
		PromptTokens: 3, CompletionTokens: 1, Loops: 1, DecodeNS: 1e6, ScoreNS: 1e6, TotalNS: 1e6, Worker: "w"}
	l := storage.Loop{Row: c.Row, RowID: c.RowID, Lanes: 1, Kind: storage.KindBonus, Token: 1, Emitted: 1, ScoreNS: 1e6}
	if mode == "sps" {
		c.Drafted, l.K, l.Drafted, l.P, l.Q, l.Coins, l.Overlap = 1, 1, []int32{2}, []float64{.5}, []float64{.5}, []float64{.9}, []float64{.8}
		l.Kind = storage.KindRecovered
	}
	if err := w.AddCompletion(c); err != nil {
		t.Fatal(err)
	}
	if err := w.AddLoop(l); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestServe: numbers and page follow the job, nobody but this machine is
// answered, and the end leaves nothing behind.
func TestServe(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	job, err := storage.CreateJob(t.TempDir(), "watched", []byte(`{"k": 1, "modes": ["ars", "sps"], "samples": 1, "sampling": {"temperature": 1}, "dataset": {"sha256": "d"}}`))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, listener, report.NewLive(job, func() (*report.Page, error) {
			c, err := compareChecked([]*storage.Job{job}, report.Options{Samples: 9, Rows: 2}, true)
			if err != nil {
				return nil, err
			}
			return &report.Page{Title: "watched", Comparison: c}, nil
		}))
	}()
	client := &http.Client{Transport: &http.Transport{}}
	get := func(path, host string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			r.Host = host
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	// status polls until the numbers are as wanted.
	status := func(what string, wanted func(report.Status) bool) (s report.Status) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); ; {
			code, body := get("/status.json", "")
			s = report.Status{}
			if err := json.Unmarshal([]byte(body), &s); err != nil || code != http.StatusOK {
				t.Fatalf("%d %s %v", code, body, err)
			}
			if wanted(s) {
				return s
			}
			if time.Now().After(end) {
				t.Fatalf("waited in vain for %s: %s", what, body)
			}
		}
	}
	s := status("the start", func(report.Status) bool { return true })
	if s.State != "running" || len(s.Modes) != 2 || s.Modes[0].Of != 0 || s.Modes[1].Acceptance != nil {
		t.Errorf("%+v", s)
	}
	if code, page := get("/", ""); code != http.StatusOK || !strings.Contains(page, "nothing to compare yet") || !strings.Contains(page, "/status.json") {
		t.Errorf("%d\n%s", code, page)
	}
	for path, host := range map[string]string{"/": "elsewhere.example", "/status.json": "10.0.0.1:80"} {
		if code, body := get(path, host); code != http.StatusForbidden {
			t.Errorf("asked as %s: %d %s", host, code, body)
		}
	}
	if code, _ := get("/other", ""); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}
	commitShard(t, job, "ars", 0)
	first := s.Version
	s = status("the first shard", func(s report.Status) bool { return s.Version > first && s.Modes[0].Samples == 1 })
	if err := job.WritePlan(2, 2, []string{"ars", "sps"}); err != nil {
		t.Fatal(err)
	}
	commitShard(t, job, "sps", 0)
	s = status("both modes", func(s report.Status) bool { return s.Modes[1].Samples == 1 })
	if s.Speedup == nil || *s.Speedup != 1 || s.Modes[1].Of != 2 || s.Modes[1].Acceptance == nil || *s.Modes[1].Acceptance != 0 || *s.Modes[1].Alpha != .8 {
		t.Errorf("%+v", s)
	}
	if _, page := get("/", ""); !strings.Contains(page, "SpS is 1.00x as fast as ArS") || !strings.Contains(page, "Certificate: not checked.") {
		t.Errorf("the page is not of what is committed:\n%s", page)
	}
	commitShard(t, job, "ars", 1)
	commitShard(t, job, "sps", 1)
	if _, err := job.Finalize(t.Context()); err != nil {
		t.Fatal(err)
	}
	status("the end", func(s report.Status) bool { return s.State == "complete" && s.Modes[1].Samples == 2 && s.Error == "" })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	client.CloseIdleConnections()
}

// TestServeIsLoopback: no other address is taken.
func TestServeIsLoopback(t *testing.T) {
	for addr, ok := range map[string]bool{"127.0.0.1:0": true, "[::1]:80": true, "localhost:1": true, "0.0.0.0:80": false, ":80": false, "10.1.2.3:80": false, "example.org:80": false, "localhost.example.org:1": false} {
		if report.IsLoopback(addr) != ok {
			t.Errorf("%s: %v", addr, !ok)
		}
	}
	cmd := serveCommand()
	cmd.SetArgs([]string{"job", "--addr", "0.0.0.0:0"})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "want a loopback address") {
		t.Error(err)
	}
}

package e2e

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spans receives what programs send by OTLP.
type spans struct {
	mu  sync.Mutex
	all []*tracepb.Span
}

func (s *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	data, err := io.ReadAll(body)
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(data, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range request.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			s.all = append(s.all, scope.Spans...)
		}
	}
}

// TestTelemetry: a worker shows metrics and says whether it is ready; its log is JSON where asked for; a shard's trace
// leads from submit's publishing to the worker's commit.
func TestTelemetry(t *testing.T) {
	received := &spans{}
	otlp := httptest.NewServer(received)
	defer otlp.Close()
	traced := func(p *program) *program {
		p.Env = append(p.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+otlp.URL)
		return p
	}
	url, _ := serve(t, t.TempDir(), "127.0.0.1:-1")
	out := t.TempDir()
	dir := filepath.Join(out, "small")
	worker := traced(command("worker", "--nats", url, "--threads", "1", "--metrics", "127.0.0.1:0", "--log-format", "json")).start(t)
	address := regexp.MustCompile(`"at":"(http://[^"]+)/metrics"`)
	until(t, "the metrics' address", func() bool { return address.Match(worker.stderr.Bytes()) })
	at := address.FindStringSubmatch(worker.stderr.String())[1]
	get := func(path string) (int, string) {
		r, err := http.Get(at + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(body)
	}
	if code, text := get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "queue") {
		t.Errorf("ready without a queue: %d %s", code, text)
	}
	if code, _ := get("/healthz"); code != http.StatusOK {
		t.Errorf("healthz %d", code)
	}
	submit := traced(command("submit", small(out, "--nats", url, "--detach", "--priority", "3")...)).start(t)
	if code := submit.code(t); code != 0 {
		t.Fatalf("submit exits with %d:\n%s", code, &submit.stderr)
	}
	until(t, "readiness", func() bool { code, _ := get("/readyz"); return code == http.StatusOK })
	until(t, "_SUCCESS", succeeded(dir))
	shards := committed(t, dir)
	var text string
	until(t, "the last settlement, and the server's word that nothing is left", func() bool {
		_, text = get("/metrics")
		return strings.Contains(text, fmt.Sprintf("draftmill_settled_total{outcome=\"ack\"} %d\n", shards)) &&
			strings.Contains(text, "draftmill_queue_oldest_seconds 0\n") && strings.Contains(text, "draftmill_lanes_busy 0\n")
	})
	for _, line := range []string{
		fmt.Sprintf("draftmill_deliveries_total %d\n", shards), "draftmill_redeliveries_total 0\n", "draftmill_queue_up 1\n",
		"draftmill_queue_oldest_seconds 0\n", "draftmill_lanes 2\n" /* of two modes */, "draftmill_lanes_busy 0\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
	tokensOf := 0.0
	for _, l := range tokens(t, dir) {
		tokensOf += float64(len(l))
	}
	counted := 0.0
	for _, m := range regexp.MustCompile(`draftmill_tokens_total\{mode="...?"\} (\d+)`).FindAllStringSubmatch(text, -1) {
		var n float64
		fmt.Sscan(m[1], &n)
		counted += n
	}
	if counted != tokensOf {
		t.Errorf("%v tokens counted, %v written", counted, tokensOf)
	}
	worker.signal(t, syscall.SIGTERM)
	if code := worker.code(t); code != 0 {
		t.Errorf("the worker exits with %d:\n%s", code, &worker.stderr)
	}
	for line := range strings.Lines(worker.stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line of log that is no JSON: %s", line)
		}
	}

	// One trace for each shard: publish, and in it the shard with its stages.
	received.mu.Lock()
	defer received.mu.Unlock()
	traces := map[string]map[string]*tracepb.Span{}
	for _, s := range received.all {
		id := string(s.TraceId)
		if traces[id] == nil {
			traces[id] = map[string]*tracepb.Span{}
		}
		traces[id][s.Name] = s
	}
	if len(traces) != shards {
		t.Errorf("%d traces for %d shards", len(traces), shards)
	}
	for _, trace := range traces {
		for child, parent := range map[string]string{"shard": "publish", "open": "shard", "decode": "shard", "commit": "shard"} {
			if trace[child] == nil || trace[parent] == nil || string(trace[child].ParentSpanId) != string(trace[parent].SpanId) {
				t.Errorf("no span %s in %s: %v", child, parent, trace)
				break
			}
		}
	}
}

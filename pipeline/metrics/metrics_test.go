package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// worked is what two workers have done.
func worked() *Metrics {
	m := New()
	m.Watch(func(context.Context) ([]Queue, time.Duration, error) {
		return []Queue{{"a", 5, 1}, {"b", 2, 0}, {"a", 1, 1}}, time.Minute, nil
	})
	one, two := m.Worker(), m.Worker()
	one.Delivered(1)
	two.Delivered(3)
	one.Lanes(3, 4)
	two.Lanes(1, 4)
	one.Lanes(2, 4)
	one.Loop(pipeline.SpS, &engine.Loop{Drafted: []int32{1, 2, 3}, Outcome: &spec.Outcome{Accepted: 1}})
	one.Loop(pipeline.SpS, &engine.Loop{Drafted: []int32{1, 2, 3}, Outcome: &spec.Outcome{Accepted: 3}})
	one.Sample(pipeline.SpS, &storage.Completion{FinishReason: "stop", CompletionTokens: 6, DraftNS: 5e8, ScoreNS: 1e9})
	one.Committed(pipeline.SpS, time.Second)
	one.Settled("ack", nil)
	two.Settled("release", &pipeline.Fault{Blame: pipeline.BlameDisk, Err: errors.New("full")})
	return m
}

func TestMetrics(t *testing.T) {
	m := worked()
	want := `
# HELP draftmill_draft_accepted_total Of these, those accepted.
# TYPE draftmill_draft_accepted_total counter
draftmill_draft_accepted_total{position="1"} 2
draftmill_draft_accepted_total{position="2"} 1
draftmill_draft_accepted_total{position="3"} 1
# HELP draftmill_draft_tested_total Drafted tokens that verification came to, by their position in the draft.
# TYPE draftmill_draft_tested_total counter
draftmill_draft_tested_total{position="1"} 2
draftmill_draft_tested_total{position="2"} 2
draftmill_draft_tested_total{position="3"} 1
# HELP draftmill_faults_total Shards that failed, by whose fault it was: message, worker, disk, network or unknown.
# TYPE draftmill_faults_total counter
draftmill_faults_total{kind="disk"} 1
draftmill_faults_total{kind="message"} 0
draftmill_faults_total{kind="network"} 0
draftmill_faults_total{kind="unknown"} 0
draftmill_faults_total{kind="worker"} 0
# HELP draftmill_lanes_busy Sequences that are decoded now.
# TYPE draftmill_lanes_busy gauge
draftmill_lanes_busy 3
# HELP draftmill_lanes Sequences that could be decoded together.
# TYPE draftmill_lanes gauge
draftmill_lanes 8
# HELP draftmill_queue_shards Shards on the queue that are waiting or in_hand.
# TYPE draftmill_queue_shards gauge
draftmill_queue_shards{job="a",state="in_hand"} 2
draftmill_queue_shards{job="a",state="waiting"} 6
draftmill_queue_shards{job="b",state="in_hand"} 0
draftmill_queue_shards{job="b",state="waiting"} 2
# HELP draftmill_redeliveries_total Of these, shards that were tried before.
# TYPE draftmill_redeliveries_total counter
draftmill_redeliveries_total 1
# HELP draftmill_tokens_total Tokens of completions.
# TYPE draftmill_tokens_total counter
draftmill_tokens_total{mode="sps"} 6
`
	if err := testutil.GatherAndCompare(m.Registry(), strings.NewReader(want), "draftmill_draft_accepted_total", "draftmill_draft_tested_total",
		"draftmill_faults_total", "draftmill_lanes_busy", "draftmill_lanes", "draftmill_queue_shards", "draftmill_redeliveries_total", "draftmill_tokens_total"); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(m.Registry())
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

// A queue that does not answer is one metric, not a scrape that fails.
func TestAQueueThatDoesNotAnswer(t *testing.T) {
	m := New()
	m.Watch(func(context.Context) ([]Queue, time.Duration, error) { return nil, 0, errors.New("no answer") })
	if err := testutil.GatherAndCompare(m.Registry(), strings.NewReader("# HELP draftmill_queue_up 1 when the queue has answered this scrape.\n# TYPE draftmill_queue_up gauge\ndraftmill_queue_up 0\n"),
		"draftmill_queue_up", "draftmill_queue_shards", "draftmill_queue_oldest_seconds"); err != nil {
		t.Error(err)
	}
}

func TestHangs(t *testing.T) {
	m := New()
	w := m.Worker()
	m.advanced.Store(int64(-time.Hour))
	if h := m.Hangs(); h != 0 {
		t.Errorf("an idle worker hangs for %v", h)
	}
	w.Lanes(1, 1)
	if h := m.Hangs(); h > time.Minute {
		t.Errorf("a worker that has begun hangs for %v", h)
	}
	m.advanced.Store(int64(-time.Hour))
	if h := m.Hangs(); h < time.Hour {
		t.Errorf("a worker that hangs: %v", h)
	}
}

// Every metric that the dashboard and the alerts name exists, and the dashboard shows all of ours.
func TestMonitoringNamesWhatExists(t *testing.T) {
	families, err := worked().Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, f := range families {
		exists[f.GetName()] = true
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if f.GetType().String() == "HISTOGRAM" {
				exists[f.GetName()+suffix] = true
			}
		}
	}
	const dir = "../../configs/monitoring"
	named := regexp.MustCompile(`\b(?:draftmill|process|go)_[a-z_]+\b`)
	shown := map[string]bool{}
	for _, file := range []string{"dashboard.json", "alerts.yaml"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		var tree any
		if strings.HasSuffix(file, ".json") {
			err = json.Unmarshal(text, &tree)
		} else {
			err = yaml.Unmarshal(text, &tree)
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		n := 0
		for _, expr := range expressions(tree) {
			for _, name := range named.FindAllString(expr, -1) {
				n++
				if !exists[name] {
					t.Errorf("%s names %s, which does not exist", file, name)
				}
				shown[name] = true
			}
		}
		if n < 8 {
			t.Errorf("%s names %d metrics", file, n)
		}
	}
	for _, f := range families {
		if name := f.GetName(); strings.HasPrefix(name, "draftmill_") && !shown[name] && !shown[name+"_bucket"] {
			t.Errorf("nothing shows %s", name)
		}
	}
}

// expressions are the values of all keys "expr".
func expressions(tree any) []string {
	var all []string
	switch v := tree.(type) {
	case map[string]any:
		for key, value := range v {
			if text, ok := value.(string); ok && key == "expr" {
				all = append(all, text)
			}
			all = append(all, expressions(value)...)
		}
	case []any:
		for _, value := range v {
			all = append(all, expressions(value)...)
		}
	}
	slices.Sort(all)
	return all
}

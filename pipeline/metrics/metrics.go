// Package metrics counts what a worker does, for Prometheus. Names and labels are in configs/monitoring, whose dashboard
// and alerts a test holds against this package.
package metrics

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/storage"
)

// maxPosition bounds the label position: drafted tokens beyond it count there.
const maxPosition = 16

// Metrics implements pipeline.Observer for all workers of a process.
type Metrics struct {
	registry *prometheus.Registry

	deliveries, redeliveries prometheus.Counter
	settled, faults          *prometheus.CounterVec
	rows, tokens, loops      *prometheus.CounterVec
	tested, accepted         *prometheus.CounterVec
	stages                   *prometheus.CounterVec
	commits                  *prometheus.HistogramVec
	lanesBusy, lanesMost     prometheus.Gauge

	busy     atomic.Int64 // lanes, of all workers together
	most     atomic.Int64
	began    time.Time
	advanced atomic.Int64 // when a worker last did something, in nanoseconds since began: by no clock that can be set
}

// New makes the metrics and registers them with those of the Go runtime and the process.
func New() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "draftmill", Name: name, Help: help}, labels)
	}
	m := &Metrics{
		began:        time.Now(),
		registry:     prometheus.NewRegistry(),
		deliveries:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: "draftmill", Name: "deliveries_total", Help: "Shards taken from the queue."}),
		redeliveries: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "draftmill", Name: "redeliveries_total", Help: "Of these, shards that were tried before."}),
		settled:      counter("settled_total", "Shards by what the queue was told: ack, retry, release or reject.", "outcome"),
		faults:       counter("faults_total", "Shards that failed, by whose fault it was: message, worker, disk, network or unknown.", "kind"),
		rows:         counter("rows_total", "Completions by finish reason; error is a row that could not be decoded.", "mode", "finish"),
		tokens:       counter("tokens_total", "Tokens of completions.", "mode"),
		loops:        counter("loops_total", "Draft-verify loops; one token each in mode ars.", "mode"),
		tested:       counter("draft_tested_total", "Drafted tokens that verification came to, by their position in the draft.", "position"),
		accepted:     counter("draft_accepted_total", "Of these, those accepted.", "position"),
		stages:       counter("stage_seconds_total", "Time of sequences by stage: prefill, draft, score and sample.", "mode", "stage"),
		commits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "draftmill", Name: "commit_seconds", Help: "Time to commit a shard's files.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}, []string{"mode"}),
		lanesBusy: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "draftmill", Name: "lanes_busy", Help: "Sequences that are decoded now."}),
		lanesMost: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "draftmill", Name: "lanes", Help: "Sequences that could be decoded together."}),
	}
	m.registry.MustRegister(m.deliveries, m.redeliveries, m.settled, m.faults, m.rows, m.tokens, m.loops, m.tested, m.accepted, m.stages,
		m.commits, m.lanesBusy, m.lanesMost, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, outcome := range []string{"ack", "retry", "release", "reject"} { // rates need a zero to begin from
		m.settled.WithLabelValues(outcome)
	}
	for _, b := range []pipeline.Blame{pipeline.BlameUnknown, pipeline.BlameMessage, pipeline.BlameWorker, pipeline.BlameDisk, pipeline.BlameNetwork} {
		m.faults.WithLabelValues(b.String())
	}
	return m
}

// Registry is what /metrics shows.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Queue is what the queue knows of a job when it is asked.
type Queue struct {
	Job             string
	Waiting, InHand int // shards
}

// Watch adds the queue's depth and age, asked for at each scrape. oldest is the age of the oldest shard that is not done.
func (m *Metrics) Watch(ask func(context.Context) (jobs []Queue, oldest time.Duration, err error)) {
	m.registry.MustRegister(&depth{
		ask:    ask,
		shards: prometheus.NewDesc("draftmill_queue_shards", "Shards on the queue that are waiting or in_hand.", []string{"job", "state"}, nil),
		oldest: prometheus.NewDesc("draftmill_queue_oldest_seconds", "Age of the oldest shard on the queue; 0 when it is empty.", nil, nil),
		up:     prometheus.NewDesc("draftmill_queue_up", "1 when the queue has answered this scrape.", nil, nil),
	})
}

type depth struct {
	ask                func(context.Context) ([]Queue, time.Duration, error)
	shards, oldest, up *prometheus.Desc
}

func (d *depth) Describe(c chan<- *prometheus.Desc) { c <- d.shards; c <- d.oldest; c <- d.up }

func (d *depth) Collect(c chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	jobs, oldest, err := d.ask(ctx)
	if err != nil {
		c <- prometheus.MustNewConstMetric(d.up, prometheus.GaugeValue, 0)
		return
	}
	c <- prometheus.MustNewConstMetric(d.up, prometheus.GaugeValue, 1)
	c <- prometheus.MustNewConstMetric(d.oldest, prometheus.GaugeValue, oldest.Seconds())
	sums := map[string]Queue{} // runs of one name are one job here
	for _, q := range jobs {
		s := sums[q.Job]
		sums[q.Job] = Queue{q.Job, s.Waiting + q.Waiting, s.InHand + q.InHand}
	}
	for _, q := range sums {
		c <- prometheus.MustNewConstMetric(d.shards, prometheus.GaugeValue, float64(q.Waiting), q.Job, "waiting")
		c <- prometheus.MustNewConstMetric(d.shards, prometheus.GaugeValue, float64(q.InHand), q.Job, "in_hand")
	}
}

// Hangs is how long sequences are in hand without any worker getting on with them; 0 when none is in hand.
func (m *Metrics) Hangs() time.Duration {
	if m.busy.Load() == 0 {
		return 0
	}
	return time.Since(m.began) - time.Duration(m.advanced.Load())
}

func (m *Metrics) advance() { m.advanced.Store(int64(time.Since(m.began))) }

// Delivered implements pipeline.Observer.
func (m *Metrics) Delivered(attempt int) {
	m.advance()
	m.deliveries.Inc()
	if attempt > 1 {
		m.redeliveries.Inc()
	}
}

// Loop implements pipeline.Observer.
func (m *Metrics) Loop(mode pipeline.Mode, l *engine.Loop) {
	m.advance()
	m.loops.WithLabelValues(string(mode)).Inc()
	for i := range l.Drafted {
		if i > l.Accepted {
			break // behind the first that was rejected
		}
		position := strconv.Itoa(min(i+1, maxPosition))
		m.tested.WithLabelValues(position).Inc()
		if i < l.Accepted {
			m.accepted.WithLabelValues(position).Inc()
		}
	}
}

// Sample implements pipeline.Observer.
func (m *Metrics) Sample(mode pipeline.Mode, c *storage.Completion) {
	m.advance()
	name := string(mode)
	m.rows.WithLabelValues(name, string(c.FinishReason)).Inc()
	m.tokens.WithLabelValues(name).Add(float64(c.CompletionTokens))
	for stage, ns := range map[string]int64{"prefill": c.PrefillNS, "draft": c.DraftNS, "score": c.ScoreNS, "sample": c.SampleNS} {
		m.stages.WithLabelValues(name, stage).Add(time.Duration(ns).Seconds())
	}
}

// Worker is the observer of one more worker of this process.
func (m *Metrics) Worker() pipeline.Observer { return &worker{Metrics: m} }

// worker knows its own part of the lanes.
type worker struct {
	*Metrics
	busy, most int
}

// Lanes implements pipeline.Observer.
func (w *worker) Lanes(busy, most int) {
	w.advance()
	w.lanesBusy.Set(float64(w.Metrics.busy.Add(int64(busy - w.busy))))
	w.lanesMost.Set(float64(w.Metrics.most.Add(int64(most - w.most))))
	w.busy, w.most = busy, most
}

// Committed implements pipeline.Observer.
func (m *Metrics) Committed(mode pipeline.Mode, took time.Duration) {
	m.advance()
	m.commits.WithLabelValues(string(mode)).Observe(took.Seconds())
}

// Settled implements pipeline.Observer.
func (m *Metrics) Settled(outcome string, err error) {
	m.advance()
	m.settled.WithLabelValues(outcome).Inc()
	if err != nil && outcome != "ack" {
		m.faults.WithLabelValues(pipeline.BlameFor(err).String()).Inc()
	}
}

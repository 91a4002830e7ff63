package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/draftmill/draftmill/pipeline/metrics"
	"github.com/draftmill/draftmill/pipeline/queue"
)

const (
	hangLimit   = 15 * time.Minute // sequences in hand with which no worker gets on: a live process would have
	flushLimit  = 5 * time.Second  // for what is left to send when a program ends
	headerLimit = 10 * time.Second
)

// Tracing sends spans to the collector that the OTEL_ variables name, by OTLP over HTTP; without them nothing is set up.
// flush sends what is left and is called once, at the end.
func Tracing(ctx context.Context, program string, log *slog.Logger) (flush func(), err error) {
	set := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	if !set || os.Getenv("OTEL_TRACES_EXPORTER") == "none" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("set up OpenTelemetry: %w; see the OTEL_EXPORTER_OTLP_ variables", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Debug("OpenTelemetry", "err", err) }))
	of, err := resource.New(ctx, resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, fmt.Errorf("set up OpenTelemetry: %w", err)
	}
	if os.Getenv("OTEL_SERVICE_NAME") == "" {
		if of, err = resource.Merge(of, resource.NewSchemaless(attribute.String("service.name", "draftmill-"+program))); err != nil {
			return nil, fmt.Errorf("set up OpenTelemetry: %w", err)
		}
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(of))
	otel.SetTracerProvider(provider)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last spans were not sent", "err", err)
		}
	}, nil
}

// Monitor answers /metrics, /healthz and /readyz.
type Monitor struct {
	Metrics *metrics.Metrics
	// Ready says why no work can be done at this moment, or nil.
	Ready func() error

	server *http.Server
	done   chan error
}

// Listen begins to answer at address, "host:port"; Close ends it.
func (m *Monitor) Listen(address string) (at string, err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("show metrics: %w; choose another address with --metrics", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.Metrics.Registry(), promhttp.HandlerOpts{Registry: m.Metrics.Registry()}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if hangs := m.Metrics.Hangs(); hangs > hangLimit {
			http.Error(w, fmt.Sprintf("no worker has got on for %v", hangs.Round(time.Second)), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := m.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	m.server = &http.Server{Handler: mux, ReadHeaderTimeout: headerLimit}
	m.done = make(chan error, 1)
	go func() { m.done <- m.server.Serve(l) }()
	return l.Addr().String(), nil
}

// Close ends the answers; it may be called without Listen.
func (m *Monitor) Close() error {
	if m.server == nil {
		return nil
	}
	err := m.server.Close()
	if e := <-m.done; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// Depths asks a queue how much there is to do, for metrics.Metrics.Watch.
func Depths(q *queue.Queue) func(context.Context) ([]metrics.Queue, time.Duration, error) {
	return func(ctx context.Context) ([]metrics.Queue, time.Duration, error) {
		jobs, err := q.Jobs(ctx, "")
		if err != nil {
			return nil, 0, err
		}
		oldest, err := q.Oldest(ctx)
		if err != nil {
			return nil, 0, err
		}
		var list []metrics.Queue
		for _, j := range jobs {
			name, _, _ := strings.Cut(j.Scope, "/")
			list = append(list, metrics.Queue{Job: name, Waiting: j.Queued - j.InHand, InHand: j.InHand})
		}
		return list, oldest, nil
	}
}

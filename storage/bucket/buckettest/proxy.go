package buckettest

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Fault is what happens to one request.
type Fault struct {
	Status int           // answer this; 0: the server's answer
	After  bool          // with Status: but let the server do what was asked first
	Delay  time.Duration // wait before anything else
	Cut    bool          // end the answer's body in the middle
	Spoil  bool          // change a byte of the answer's body
}

// A Proxy stands between clients and a server.
type Proxy struct {
	Endpoint string

	mu     sync.Mutex
	fault  func(*http.Request) Fault
	faults int
}

// NewProxy starts a proxy. fault is asked about every request, one at a time.
func NewProxy(tb testing.TB, s *S3, fault func(*http.Request) Fault) *Proxy {
	tb.Helper()
	to, err := url.Parse(s.Endpoint)
	if err != nil {
		tb.Fatal(err)
	}
	p, closed := &Proxy{fault: fault}, make(chan struct{})
	forward := func(f Fault) http.Handler {
		return &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(to)
				r.Out.Host = r.In.Host // it is signed
			},
			ModifyResponse: func(r *http.Response) error { return damage(r, f) },
			ErrorLog:       log.New(io.Discard, "", 0),
			ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := p.ask(r)
		if f.Delay > 0 {
			select {
			case <-time.After(f.Delay):
			case <-r.Context().Done():
				return
			case <-closed:
				return
			}
		}
		switch {
		case f.Status == 0:
			forward(f).ServeHTTP(w, r)
		case f.After:
			forward(Fault{}).ServeHTTP(httptest.NewRecorder(), r)
			answer(w, f.Status)
		default:
			_, _ = io.Copy(io.Discard, r.Body)
			answer(w, f.Status)
		}
	}))
	tb.Cleanup(func() {
		close(closed)
		server.CloseClientConnections()
		server.Close()
	})
	p.Endpoint = server.URL
	return p
}

// Set replaces the faults from now on; nil is none.
func (p *Proxy) Set(fault func(*http.Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// Faults is how many requests were disturbed.
func (p *Proxy) Faults() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

func (p *Proxy) ask(r *http.Request) (f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault != nil {
		f = p.fault(r)
	}
	if f != (Fault{}) {
		p.faults++
	}
	return f
}

// damage cuts or changes a body, and keeps the length that was announced.
func damage(r *http.Response, f Fault) error {
	if !f.Cut && !f.Spoil {
		return nil
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if err := r.Body.Close(); err != nil {
		return err
	}
	var body io.Reader = bytes.NewReader(data)
	if f.Cut {
		body = io.MultiReader(bytes.NewReader(data[:len(data)/2]), broken{})
	} else if len(data) > 0 {
		data[len(data)/2] ^= 1
	}
	r.Body = io.NopCloser(body)
	return nil
}

// broken ends a body with an error, so that its connection is cut.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// codes are S3's names of what a status says.
var codes = map[int]string{
	http.StatusPreconditionFailed:  "PreconditionFailed",
	http.StatusConflict:            "ConditionalRequestConflict",
	http.StatusInternalServerError: "InternalError",
	http.StatusServiceUnavailable:  "SlowDown",
	http.StatusForbidden:           "AccessDenied",
}

func answer(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>a fault of the test</Message></Error>`, codes[status])
}

// Creates tells whether a request is a conditional write.
func Creates(r *http.Request) bool {
	return r.Method == http.MethodPut && r.Header.Get("If-None-Match") == "*"
}

// Of tells whether a request is about objects whose key holds part.
func Of(r *http.Request, part string) bool { return strings.Contains(r.URL.Path, part) }

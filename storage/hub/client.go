package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Hub is a server of repositories, and the cache of what was fetched from it.
// The zero value of what is not set is the public one; FromEnv sets all.
type Hub struct {
	Endpoint string // without a slash at its end; empty for https://huggingface.co
	Cache    string // folder, absolute
	Token    string // sent to Endpoint alone; empty for none
	Offline  bool   // nothing is asked of the server
	// Progress is told how far a download has come; it may be called from
	// several goroutines. nil is told nothing.
	Progress func(Step)
	// Warn is told what a user should know and what is no error.
	Warn func(line string)

	pause func(context.Context, time.Duration) error // nil: sleep
	stall time.Duration                              // 0: stallTime
}

// Step is how far a file's download has come.
type Step struct {
	File        string
	Done, Total int64 // bytes; Total is -1 where the server does not say
}

const (
	publicEndpoint = "https://huggingface.co"
	tries          = 6                // of a request, or of a transfer without progress
	stallTime      = 30 * time.Second // without a byte
	longestPause   = 5 * time.Minute
)

var (
	errStalled = errors.New("no answer for 30 s")
	// ErrOffline says that the cache lacks what HF_HUB_OFFLINE does not allow to fetch.
	ErrOffline = errors.New("not in the cache, and HF_HUB_OFFLINE is set")
	// ErrUnreachable says that the server does not answer, or not in a useful way.
	ErrUnreachable = errors.New("the Hub cannot be reached")
)

// Error is a server's refusal.
type Error struct {
	Name    string // of what was asked for
	Status  int
	Code    string // the Hub's: RepoNotFound, GatedRepo, RevisionNotFound, EntryNotFound; empty where it gives none
	Message string // the server's
	remedy  string
}

func (e *Error) Error() string { return e.Name + ": " + e.remedy }

func (h *Hub) endpoint() string {
	if h.Endpoint == "" {
		return publicEndpoint
	}
	return h.Endpoint
}

func (h *Hub) warn(line string) {
	if h.Warn != nil {
		h.Warn(line)
	}
}

// escaped is a path for a URL, with its slashes.
func escaped(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// near follows redirects that stay on the server: a repository that was renamed.
func near(r *http.Request, via []*http.Request) error {
	if r.URL.Host != via[0].URL.Host || r.URL.Scheme != via[0].URL.Scheme {
		return http.ErrUseLastResponse
	}
	return follow(r, via)
}

// follow follows redirects wherever they lead.
func follow(_ *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("more than 10 redirects")
	}
	return nil
}

// ask sends one request. What the answer's body gives is bounded in time by
// stallTime without a byte; closing it ends the request. net/http sends the token
// to no other host that the server redirects to.
func (h *Hub) ask(ctx context.Context, method, address string, header map[string]string, redirect func(*http.Request, []*http.Request) error) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	limit := h.stall
	if limit == 0 {
		limit = stallTime
	}
	watch := time.AfterFunc(limit, func() { cancel(errStalled) })
	request, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	request.Header.Set("User-Agent", "draftmill")
	request.Header.Set("Accept-Encoding", "identity") // sizes and digests are of the file itself
	if h.Token != "" {
		request.Header.Set("Authorization", "Bearer "+h.Token)
	}
	for key, value := range header {
		request.Header.Set(key, value)
	}
	answer, err := (&http.Client{CheckRedirect: redirect}).Do(request)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		watch.Stop()
		cancel(nil)
		return nil, err
	}
	answer.Body = &watched{answer.Body, ctx, cancel, watch, limit}
	return answer, nil
}

// watched is a body whose reader does not wait for ever.
type watched struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	watch  *time.Timer
	limit  time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if n > 0 {
		w.watch.Reset(w.limit)
	}
	if cause := context.Cause(w.ctx); err != nil && cause != nil {
		err = cause
	}
	return n, err
}

func (w *watched) Close() error {
	w.watch.Stop()
	err := w.ReadCloser.Close()
	w.cancel(nil)
	return err
}

// request is ask until there is an answer that another try would not better, or
// tries are used up. The caller closes the body of an answer.
func (h *Hub) request(ctx context.Context, name Name, method, address string, header map[string]string, redirect func(*http.Request, []*http.Request) error) (*http.Response, error) {
	for try := 1; ; try++ {
		answer, err := h.ask(ctx, method, address, header, redirect)
		if ctx.Err() != nil {
			return nil, errors.Join(context.Cause(ctx), closed(answer))
		}
		wait := time.Second << (try - 1)
		if err == nil {
			if answer.StatusCode < 400 || answer.StatusCode == http.StatusRequestedRangeNotSatisfiable {
				return answer, nil
			}
			passing := answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusRequestTimeout || answer.StatusCode >= 500
			refusal := h.refusal(name, answer)
			if err := closed(answer); err != nil {
				return nil, err
			}
			if !passing {
				return nil, refusal
			}
			if asked, ok := retryAfter(answer.Header); ok {
				wait = asked
			}
			err = refusal
		}
		if try == tries || wait > longestPause {
			return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		if err := h.rest(ctx, wait); err != nil {
			return nil, err
		}
	}
}

func closed(answer *http.Response) error {
	if answer == nil {
		return nil
	}
	return answer.Body.Close()
}

// rest waits.
func (h *Hub) rest(ctx context.Context, d time.Duration) error {
	if h.pause != nil {
		return h.pause(ctx, d)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// rateLimit is the header of the IETF's draft, as the Hub sends it: "api";r=0;t=55.
var rateLimit = regexp.MustCompile(`;\s*t=(\d{1,6})`)

// retryAfter is how long the server asks to be left alone.
func retryAfter(header http.Header) (time.Duration, bool) {
	text := header.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds >= 0 {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at)), true
	}
	if m := rateLimit.FindStringSubmatch(header.Get("Ratelimit")); m != nil {
		seconds, err := strconv.Atoi(m[1])
		return time.Duration(seconds) * time.Second, err == nil
	}
	return 0, false
}

// refusal is the error that an answer stands for.
func (h *Hub) refusal(name Name, answer *http.Response) error {
	e := &Error{Name: name.String(), Status: answer.StatusCode, Code: answer.Header.Get("X-Error-Code"), Message: answer.Header.Get("X-Error-Message")}
	token := "set HF_TOKEN to a token of an account that has access"
	if h.Token != "" {
		token = "the account of HF_TOKEN has no access"
	}
	switch {
	case e.Code == "GatedRepo":
		e.remedy = fmt.Sprintf("its owner asks for an agreement first: accept it at %s/%s, and %s", h.endpoint(), name.page(), token)
	case e.Code == "RevisionNotFound":
		e.remedy = "the repository has no such revision"
	case e.Code == "EntryNotFound":
		e.remedy = "the repository has no such file"
	case e.Status == http.StatusUnauthorized && h.Token != "" && strings.Contains(e.Message, "Invalid"):
		e.remedy = "the Hub does not know the token in HF_TOKEN"
	case e.Code == "RepoNotFound" || e.Status == http.StatusUnauthorized || e.Status == http.StatusNotFound:
		e.remedy = "there is no such repository, or it is private: check its name; for a private one " + token
	case e.Status == http.StatusForbidden:
		e.remedy = "the Hub refuses it: " + token
	case e.Status == http.StatusTooManyRequests:
		e.remedy = "the Hub asks to wait: too many requests; try again later, or set HF_TOKEN"
	default:
		e.remedy = "the Hub answers " + answer.Status
	}
	if m, _, _ := strings.Cut(e.Message, "\n"); m != "" && (e.Code == "" || e.Code == "GatedRepo") && len(m) < 300 {
		e.remedy += " (" + strings.TrimSuffix(m, ".") + ")"
	}
	return e
}

// fileError says which file on this disk an error is about, where it is not said.
func fileError(err error, path string) error {
	var pe *os.PathError
	if err == nil || errors.As(err, &pe) {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

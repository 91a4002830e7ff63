package configs

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// MaxK is the largest lookahead.
const MaxK = 64

// Bounds of what costs memory in proportion.
const (
	maxShardRows = 1 << 16
	maxSamples   = 1 << 16
	maxTokens    = 1 << 24 // of a sequence or a vocabulary
)

var (
	// A job's name is a folder's and one token of a NATS subject: no dots.
	jobName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	deviceName = regexp.MustCompile(`^(cpu|cuda(:[0-9]{1,3})?|webgpu)(,(cpu|cuda(:[0-9]{1,3})?|webgpu))*$`)
	modes      = []string{ModeArS, ModeSpS, ModeBoth}
	logLevels  = []string{"debug", "info", "warn", "error"}
	logFormats = []string{"text", "json"}
	samplers   = []string{SamplerHost, SamplerDevice}
	natsScheme = []string{"nats", "tls", "ws", "wss"}
)

// ValidateSubmit checks what submit needs: every range, and that the files and
// folders it names are there. The first thing wrong is returned as a
// [*UsageError].
func (c Config) ValidateSubmit() error {
	p := &problems{c: c}
	p.values()
	p.submitValues()
	p.files()
	p.submitFiles()
	return p.err()
}

// ValidateWorker checks what worker needs: every range, a NATS server and a
// target, and that the files and folders it names are there. A draft may be
// missing: a worker without one can still serve jobs of mode ars. The first
// thing wrong is returned as a [*UsageError].
func (c Config) ValidateWorker() error {
	p := &problems{c: c}
	p.values()
	p.workerValues()
	p.files()
	return p.err()
}

// ValidateJobs checks what the commands that look after jobs need: a NATS
// server, or nothing where need is false, and sound values.
func (c Config) ValidateJobs(need bool) error {
	p := &problems{c: c}
	p.values()
	p.must(!need || c.NATS.URL != "", "nats.url", "want a NATS server; name it with --nats")
	p.credentials()
	return p.err()
}

// problems keeps the first thing that is wrong with c.
type problems struct {
	c     Config
	first *UsageError
}

func (p *problems) err() error {
	if p.first == nil {
		return nil // not a nil *UsageError inside an error
	}
	return p.first
}

// must notes a problem with the setting at path unless ok.
func (p *problems) must(ok bool, path, format string, args ...any) {
	if !ok && p.first == nil {
		p.first = p.c.usage(path, nil, format, args...)
	}
}

func (p *problems) atLeast(path string, value, low int) {
	p.must(value >= low, path, "want %d or more, got %d", low, value)
}

// within bounds a number by what it costs: why says what would be too much.
func (p *problems) within(path string, value, low, high int, why string) {
	p.must(value >= low && value <= high, path, "want %d to %d (%s), got %d", low, high, why, value)
}

func (p *problems) oneOf(path, value string, allowed []string) {
	p.must(slices.Contains(allowed, value), path, "want one of %s, got %q", strings.Join(allowed, ", "), value)
}

// values checks the settings that both commands share.
func (p *problems) values() {
	c := p.c
	p.must(c.Out != "", "out", "want a folder; name one with --out")
	p.must(c.ORT.Threads >= 0 && c.ORT.Threads <= 1024, "ort.threads", "want 0 to 1024, got %d", c.ORT.Threads)
	p.must(c.ORT.Context == 0 || c.ORT.Context >= 2 && c.ORT.Context <= maxTokens, "ort.context", "want 2 to %d, or 0 (the models' own), got %d", maxTokens, c.ORT.Context)
	p.within("ort.cache_mb", c.ORT.CacheMB, 0, 1<<24, "16 TiB")
	if _, _, err := c.Lanes.Count(); err != nil {
		p.must(false, "lanes", "%v", err)
	}
	p.must(deviceName.MatchString(c.ORT.Device), "ort.device", "want cpu, cuda, cuda:N or webgpu, got %q", c.ORT.Device)
	p.must(c.ORT.DraftDevice == "" || deviceName.MatchString(c.ORT.DraftDevice), "ort.draft_device", "want cpu, cuda, cuda:N or webgpu, got %q", c.ORT.DraftDevice)
	p.oneOf("ort.sampler", c.ORT.Sampler, samplers)
	p.serverURLs()
	p.must((c.NATS.TLSCert == "") == (c.NATS.TLSKey == ""), "nats.tls_cert", "want nats.tls_cert and nats.tls_key together")
	p.must(c.NATS.AckWait >= 100*time.Millisecond && c.NATS.AckWait <= time.Hour, "nats.ack_wait", "want 100ms to 1h, got %v", c.NATS.AckWait)
	p.must(c.NATS.ConnectWait >= 0 && c.NATS.ConnectWait <= 24*time.Hour, "nats.connect_wait", "want 0s to 24h, got %v", c.NATS.ConnectWait)
	p.must(c.NATS.Turn >= 0 && c.NATS.Turn <= 24*time.Hour, "nats.turn", "want 0s to 24h, got %v", c.NATS.Turn)
	p.within("nats.replicas", c.NATS.Replicas, 0, 5, "0 is 3 on a cluster and else 1; NATS has no more")
	p.within("nats.stream_mb", c.NATS.StreamMB, 0, 1<<24, "16 TiB; 0 is no bound")
	p.metrics()
	p.must(c.DrainTimeout >= 0 && c.DrainTimeout <= 24*time.Hour, "drain_timeout", "want 0s to 24h, got %v", c.DrainTimeout)
	p.within("max_attempts", c.MaxAttempts, 1, 1000, "each is a whole shard decoded")
	p.oneOf("log.level", c.Log.Level, logLevels)
	p.oneOf("log.format", c.Log.Format, logFormats)
}

func (p *problems) submitValues() {
	c, s := p.c, p.c.Sampling
	p.must(c.Dataset != "", "dataset", "want a dataset; name a file with --dataset")
	p.atLeast("limit", c.Limit, 0)
	p.must(c.Chat || c.System == "", "system", "want it with --chat only")
	_, err := time.Parse(time.DateOnly, c.ChatDate)
	p.must(err == nil, "chat_date", "want a date such as 2024-07-26, got %q", c.ChatDate)
	p.must(c.Margin >= 0 && c.Margin < 1, "margin", "want 0 (none) or more and less than 1, such as 0.05 for 5 points, got %v", c.Margin)
	p.within("shard_rows", c.ShardRows, 1, maxShardRows, "a shard is one message, and is lost whole")
	p.must(c.Job == "" || jobName.MatchString(c.Job), "job",
		"want 1 to 64 letters, digits, '_' and '-', the first a letter or digit, got %q", c.Job)
	p.oneOf("mode", c.Mode, modes)
	p.must(c.Target != "", "target", "want a target model beside the draft; name its folder with --target")
	p.must(c.Draft != "" || !c.NeedsDraft(), "draft",
		"want a draft model for mode %s; name its folder with --draft, or use --mode ars", c.Mode)
	// Without speculation there is no lookahead.
	p.must(c.Mode == ModeArS || c.K >= 1 && c.K <= MaxK, "k", "want 1 to %d tokens drafted per loop, got %d; for none use mode ars", MaxK, c.K)
	p.rule()
	p.drafter()
	p.lookahead()
	p.beams()
	// Each comparison is false for NaN.
	p.must(s.Temperature >= 0 && s.Temperature <= math.MaxFloat64, "sampling.temperature", "want 0 (greedy) or more, got %v", s.Temperature)
	p.must(s.TopP > 0 && s.TopP <= 1, "sampling.top_p", "want more than 0 and at most 1 (off), got %v", s.TopP)
	p.within("sampling.top_k", s.TopK, 0, maxTokens, "no vocabulary is larger")
	p.must(s.MinP >= 0 && s.MinP <= 1, "sampling.min_p", "want 0 (off) to 1, got %v", s.MinP)
	p.must(s.RepetitionPenalty > 0 && s.RepetitionPenalty <= math.MaxFloat64, "sampling.repetition_penalty", "want more than 0, 1 is off, got %v", s.RepetitionPenalty)
	p.finite("sampling.presence_penalty", s.PresencePenalty)
	p.finite("sampling.frequency_penalty", s.FrequencyPenalty)
	for _, id := range slices.Sorted(maps.Keys(s.LogitBias)) {
		b := s.LogitBias[id]
		p.must(finite(b), "sampling.logit_bias", "token %d: want a finite number, got %v; what is never to be generated goes to sampling.forbidden_tokens", id, b)
	}
	p.within("sampling.no_repeat_ngram_size", s.NoRepeatNGramSize, 0, maxTokens, "no sequence is longer")
	p.atLeast("sampling.min_new_tokens", s.MinNewTokens, 0)
	p.must(s.MinNewTokens <= s.MaxNewTokens, "sampling.min_new_tokens", "want at most sampling.max_new_tokens, %d, got %d", s.MaxNewTokens, s.MinNewTokens)
	p.within("sampling.n", s.N, 1, maxSamples, "each is a completion of every row")
	p.within("sampling.max_new_tokens", s.MaxNewTokens, 1, maxTokens, "no sequence is longer")
	p.must(!slices.Contains(s.Stop, ""), "sampling.stop", "want texts that are not empty: an empty one would stop at once")
	p.within("workers", c.Workers, 1, 256, "each has its own caches")
	p.within("priority", c.Priority, -9, 9, "0 is as any other job")
	p.must(!c.Detach || c.NATS.URL != "", "detach",
		"want a NATS server: the embedded one ends with submit; name one with --nats")
}

// metrics checks the address at which a worker shows its metrics.
func (p *problems) metrics() {
	if p.c.Metrics == "" {
		return
	}
	_, port, err := net.SplitHostPort(p.c.Metrics)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	p.must(err == nil, "metrics", "want HOST:PORT such as 127.0.0.1:9464, or :9464 for every address of this machine, got %q", p.c.Metrics)
}

// rule checks the name of the verification rule and the range of its factor.
func (p *problems) rule() {
	name, tail, has := strings.Cut(p.c.Rule, ":")
	switch name {
	case "rejection", "match", "coupled":
		p.must(!has, "rule", "%s takes no factor, got %q", name, p.c.Rule)
	case "lenient", "capped":
		factor, err := strconv.ParseFloat(tail, 64)
		p.must(err == nil && factor > 0 && factor <= 1, "rule", "want a factor above 0 and at most 1, such as %s:0.5, got %q", name, p.c.Rule)
	default:
		p.must(false, "rule", "want rejection, match, coupled, lenient:L or capped:B, got %q", p.c.Rule)
	}
}

func (p *problems) finite(path string, value float64) {
	p.must(finite(value), path, "want a finite number, got %v", value)
}

func finite(x float64) bool { return math.Abs(x) <= math.MaxFloat64 }

func (p *problems) workerValues() {
	p.drafter()
	p.must(p.c.NATS.URL != "", "nats.url", "want a NATS server; name it with --nats")
	p.must(p.c.Target != "", "target", "want a target model beside the draft; name its folder with --target")
}

// serverURLs checks nats.url, which may list several servers, each with or
// without its scheme, as nats.go takes them.
func (p *problems) serverURLs() {
	if p.c.NATS.URL == "" {
		return
	}
	for server := range strings.SplitSeq(p.c.NATS.URL, ",") {
		u, err := parseServer(server)
		p.must(err == nil && u.Hostname() != "" && slices.Contains(natsScheme, u.Scheme), "nats.url",
			"want a URL such as nats://host:4222, got %q", redact(server))
	}
}

func parseServer(server string) (*url.URL, error) {
	server = strings.TrimSpace(server)
	if !strings.Contains(server, "://") {
		server = "nats://" + server
	}
	return url.Parse(server)
}

// credentials checks the files that say who we are to NATS.
func (p *problems) credentials() {
	c := p.c.NATS
	p.must(c.Credentials == "" || c.NKey == "", "nats.nkey", "want nats.credentials or nats.nkey, not both")
	p.file("nats.credentials", c.Credentials)
	p.file("nats.nkey", c.NKey)
	p.file("nats.tls_ca", c.TLSCA)
	p.file("nats.tls_cert", c.TLSCert)
	p.file("nats.tls_key", c.TLSKey)
}

// files checks that what both commands read is there.
func (p *problems) files() {
	c := p.c
	p.model("target", c.Target, "name a model with --target")
	if c.IsSet("draft") || c.NeedsDraft() {
		p.model("draft", c.Draft, "name a model with --draft")
	}
	if d, err := c.DrafterSpec(); err == nil {
		p.file("drafter", d.Table)
	}
	p.file("ort.library", c.ORT.Library)
	p.credentials()
	if info, err := os.Stat(c.Out); err == nil && !isURL(c.Out) {
		p.must(info.IsDir(), "out", "%s is no folder; name another one with --out", c.Out)
	}
}

func (p *problems) submitFiles() {
	if _, err := os.Lstat(p.c.Dataset); !isURL(p.c.Dataset) && !ofHub(p.c.Dataset) && (err == nil || !strings.ContainsAny(filepath.Base(p.c.Dataset), "*?")) {
		p.file("dataset", p.c.Dataset)
	}
	text, err := p.c.TemplateText()
	if err == nil {
		_, err = template.New("template").Parse(text)
		if err != nil {
			err = p.c.usage("template", err, "%s", strings.TrimPrefix(err.Error(), "template: "))
		}
	}
	var usage *UsageError
	if errors.As(err, &usage) && p.first == nil {
		p.first = usage
	}
}

// isURL tells whether a place is in an object store. Which URLs there are is known to who opens them.
func isURL(place string) bool { return strings.Contains(place, "://") }

// file notes a problem unless path is empty or a file that can be opened.
func (p *problems) file(key, path string) {
	if path == "" || p.first != nil {
		return
	}
	err := regular(path)
	if err == nil {
		var f *os.File
		if f, err = os.Open(path); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		p.first = p.c.usage(key, err, "cannot read %s: %v; name a file that is there", path, cause(err))
	}
}

// regular says why path is not a file that can be read at once: opening a named
// pipe waits for its writer, and a device may never end.
func regular(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("it is a folder")
	case !info.Mode().IsRegular():
		return errors.New("it is a pipe or a device, not a file")
	}
	return nil
}

// ofHub reports whether what is named is not a path but of the Hugging Face Hub.
func ofHub(name string) bool { return strings.HasPrefix(name, "hf:") }

// model notes a problem unless path is empty, a folder, a .gguf file or of the Hub.
func (p *problems) model(key, path, remedy string) {
	if path == "" || p.first != nil || ofHub(path) {
		return
	}
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() && !strings.EqualFold(filepath.Ext(path), ".gguf") {
		err = fmt.Errorf("it is neither a folder nor a .gguf file")
	}
	if err != nil {
		p.first = p.c.usage(key, err, "cannot read %s: %v; %s", path, cause(err), remedy)
	}
}

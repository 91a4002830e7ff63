package configs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// The values of [Config.Mode].
const (
	ModeArS  = "ars"  // autoregressive sampling: the target alone
	ModeSpS  = "sps"  // speculative sampling: draft and target
	ModeBoth = "both" // the one after the other, for comparison
)

// Config is everything that submit and worker can be told. [Load] fills it;
// fields that belong to the other command keep their defaults. The tags are the
// names in the YAML file.
type Config struct {
	// Dataset is the input file: Parquet, Arrow IPC or JSON Lines; or a
	// repository of the Hugging Face Hub, hf:OWNER/REPO[/FILE][@REVISION].
	Dataset string `mapstructure:"dataset"`
	// PromptColumn and IDColumn name the dataset's columns; empty means
	// recognized by the well-known names (HumanEval's, XSum's).
	PromptColumn string `mapstructure:"prompt_column"`
	IDColumn     string `mapstructure:"id_column"`
	// Template makes the prompt from a row's columns; see [Config.TemplateText].
	Template string `mapstructure:"template"`
	// Chat renders prompts by the target's chat template. System is put in front
	// as a system message, empty for none; ChatDate, as 2006-01-02, is what a
	// template that asks for the date is told.
	Chat     bool   `mapstructure:"chat"`
	System   string `mapstructure:"system"`
	ChatDate string `mapstructure:"chat_date"`
	// Limit is the number of rows to take from the dataset's head; 0 means all.
	Limit int `mapstructure:"limit"`
	// Margin is the difference of scores between modes that would matter, from
	// 0 to 1; 0 sets none. It is fixed with the job, before there are scores.
	Margin float64 `mapstructure:"margin"`
	// ShardRows is the number of rows in one message of the queue, at least 1.
	ShardRows int `mapstructure:"shard_rows"`
	// Out is the folder under which every job has a folder of its name.
	Out string `mapstructure:"out"`
	// Job names the job; empty leaves the name to submit.
	Job string `mapstructure:"job"`
	// Mode is one of [ModeArS], [ModeSpS] and [ModeBoth].
	Mode string `mapstructure:"mode"`

	// Target and Draft are models: folders, .gguf files, or
	// hf:OWNER/REPO[/FILE.gguf][@REVISION]. Draft is empty where a target was
	// named and no draft.
	Target string `mapstructure:"target"`
	Draft  string `mapstructure:"draft"`
	// Drafter says what drafts; see [Config.DrafterSpec].
	Drafter string `mapstructure:"drafter"`
	// K is the lookahead, the number of tokens drafted per loop: 0 to 64.
	K int `mapstructure:"k"`
	// Lookahead is [LookaheadFixed] for always K, [LookaheadAuto] for what
	// promises the most speed, up to K, or confidence:X for up to K while
	// tokens have probability X.
	Lookahead string `mapstructure:"lookahead"`
	// Rule decides over drafted tokens: rejection, match, coupled, lenient:L or
	// capped:B with 0 < L, B <= 1.
	Rule string `mapstructure:"rule"`

	// Beams is the width of a beam search, DraftBeams that of the draft's; 0: tokens
	// are drawn. LengthPenalty and EarlyStopping are as in transformers.
	Beams         int           `mapstructure:"beams"`
	DraftBeams    int           `mapstructure:"draft_beams"`
	LengthPenalty float64       `mapstructure:"length_penalty"`
	EarlyStopping EarlyStopping `mapstructure:"early_stopping"`

	Sampling Sampling `mapstructure:"sampling"`
	NATS     NATS     `mapstructure:"nats"`
	ORT      ORT      `mapstructure:"ort"`
	Log      Log      `mapstructure:"log"`

	// Lanes is how many sequences a worker decodes together.
	Lanes Lanes `mapstructure:"lanes"`
	// Sign is a file with the private key that signs the finished job; empty:
	// it is not signed.
	Sign string `mapstructure:"sign"`
	// Workers is the number of in-process workers that submit starts beside
	// its embedded queue, at least 1. It has no meaning with NATS.URL.
	Workers int `mapstructure:"workers"`
	// Priority puts a job before those of lower priority, which wait while it
	// has work: -9 to 9. It is no part of what the job is.
	Priority int `mapstructure:"priority"`
	// Detach makes submit return once the shards are queued.
	Detach bool `mapstructure:"detach"`
	// JSON prints the summary as JSON on stdout, the progress on stderr.
	JSON bool `mapstructure:"json"`
	// MaxAttempts is how often a shard is tried before it goes to the dead
	// letters, at least 1.
	MaxAttempts int `mapstructure:"max_attempts"`
	// DrainTimeout is how long a stopping worker may still finish its shard.
	DrainTimeout time.Duration `mapstructure:"drain_timeout"`
	// Metrics is the address, "host:port", at which a worker answers /metrics,
	// /healthz and /readyz; empty: nowhere.
	Metrics string `mapstructure:"metrics"`

	origin map[string]string // path to the place that set it; no entry: default
}

// Sampling says how tokens are drawn, alike for target and draft.
type Sampling struct {
	// Temperature divides the logits; 0 means greedy. Finite, not negative.
	Temperature float64 `mapstructure:"temperature"`
	// TopK keeps the k most probable tokens; 0 means off.
	TopK int `mapstructure:"top_k"`
	// TopP is the nucleus: 0 < TopP <= 1, where 1 means off.
	TopP float64 `mapstructure:"top_p"`
	// MinP drops the tokens that have less than this share of the probability
	// of the most probable one: 0 (off) to 1.
	MinP float64 `mapstructure:"min_p"`
	// RepetitionPenalty divides the positive logits, and multiplies the
	// negative ones, of the tokens of prompt and completion; above 0, 1 is off.
	RepetitionPenalty float64 `mapstructure:"repetition_penalty"`
	// PresencePenalty is taken from the logit of every token that the
	// completion holds, FrequencyPenalty as often as it does; 0 is off.
	PresencePenalty  float64 `mapstructure:"presence_penalty"`
	FrequencyPenalty float64 `mapstructure:"frequency_penalty"`
	// LogitBias is added to the logits of these tokens.
	LogitBias map[int32]float64 `mapstructure:"logit_bias"`
	// ForbiddenTokens are never generated.
	ForbiddenTokens []int32 `mapstructure:"forbidden_tokens"`
	// NoRepeatNGramSize lets no run of so many tokens occur twice; 0 is off.
	NoRepeatNGramSize int `mapstructure:"no_repeat_ngram_size"`
	// Seed is the key of every coin of the job.
	Seed uint64 `mapstructure:"seed"`
	// N is the number of samples per prompt, at least 1.
	N int `mapstructure:"n"`
	// MinNewTokens keeps the end-of-sequence token out of the first so many
	// tokens of a completion; at most MaxNewTokens.
	MinNewTokens int `mapstructure:"min_new_tokens"`
	// MaxNewTokens bounds a completion, at least 1.
	MaxNewTokens int `mapstructure:"max_new_tokens"`
	// Stop ends a completion before the first of these texts; taken as they
	// are, escapes only where YAML knows them ("\n" in double quotes).
	Stop []string `mapstructure:"stop"`
}

// NATS says where the queue is.
type NATS struct {
	// URL is one server or several with commas between; empty means the
	// server embedded in submit. A worker needs one.
	URL string `mapstructure:"url"`
	// Credentials is a .creds file (a user's JWT and seed), NKey a file with
	// an NKey's seed alone.
	Credentials string `mapstructure:"credentials"`
	NKey        string `mapstructure:"nkey"`
	// TLSCA, TLSCert and TLSKey are PEM files: authorities to trust, and a
	// client certificate with its key.
	TLSCA   string `mapstructure:"tls_ca"`
	TLSCert string `mapstructure:"tls_cert"`
	TLSKey  string `mapstructure:"tls_key"`
	// AckWait is the time without a heartbeat after which a shard is given to
	// another worker. Submit decides; workers take it from the queue.
	AckWait time.Duration `mapstructure:"ack_wait"`
	// ConnectWait is how long a worker waits for a server that does not answer
	// when it starts.
	ConnectWait time.Duration `mapstructure:"connect_wait"`
	// Turn is how long a worker keeps to one job while another one of the same
	// priority has work.
	Turn time.Duration `mapstructure:"turn"`
	// Replicas is the number of copies of each stream, 1 to 5, and StreamMB the
	// most MiB of shards that wait, both used by the submit that makes the
	// streams. 0: 3 copies on a cluster, else 1; no bound.
	Replicas int `mapstructure:"replicas"`
	StreamMB int `mapstructure:"stream_mb"`
	// StoreDir is the embedded server's folder; empty leaves it to submit.
	StoreDir string `mapstructure:"store_dir"`
}

// ORT says which ONNX Runtime runs the models, and on what.
type ORT struct {
	// Library is the shared library; empty means the one that make fetched.
	Library string `mapstructure:"library"`
	// Threads is the number of threads of one worker's models; 0 leaves the
	// choice to the worker.
	Threads int `mapstructure:"threads"`
	// Context is the most tokens of a sequence, prompt included; 0 leaves it at
	// what the models were made for. It bounds the memory of the caches, and as
	// it decides where completions end it is the job's: a worker takes it from
	// there.
	Context int `mapstructure:"context"`
	// CacheMB bounds the memory of one worker's KV caches under lanes: auto, in
	// MiB; 0 takes half of what the machine has free, shared by the workers, and on
	// an NVIDIA GPU what it has free beside the weights, but for a tenth.
	CacheMB int `mapstructure:"cache_mb"`
	// Device is cpu, cuda, cuda:N or webgpu, or a list of them with commas.
	// Whether the library can do it is for the engine to say.
	Device string `mapstructure:"device"`
	// DraftDevice is where the draft model runs, as Device; empty means where the
	// target does.
	DraftDevice string `mapstructure:"draft_device"`
	// Sampler says where tokens are drawn and verified: SamplerHost, or SamplerDevice,
	// where the models run.
	Sampler string `mapstructure:"sampler"`
	// ProviderOptions go to the device's execution provider word for word,
	// upper and lower case kept.
	ProviderOptions map[string]string `mapstructure:"provider_options"`
}

// Where tokens are drawn.
const (
	SamplerHost   = "host"
	SamplerDevice = "device"
)

// Log says what is written to stderr.
type Log struct {
	Level  string `mapstructure:"level"`  // debug, info, warn or error
	Format string `mapstructure:"format"` // text or json
}

// Modes lists the modes to run, in order: [ModeBoth] is [ModeArS], [ModeSpS].
func (c Config) Modes() []string {
	if c.Mode == ModeBoth {
		return []string{ModeArS, ModeSpS}
	}
	return []string{c.Mode}
}

// NeedsDraft reports whether a mode to run needs a draft model.
func (c Config) NeedsDraft() bool {
	d, err := c.DrafterSpec()
	return c.Mode != ModeArS && (d.Model || err != nil)
}

// TemplateText returns the template's text: that of the file named after a
// leading '@', else the value itself. It is Go's text/template over the row's
// columns, as in "Summarize: {{.document}}"; empty means the prompt column as
// it is. (An inline template that begins with '@' can be written {{"@"}}.)
// The error is a [*UsageError].
func (c Config) TemplateText() (string, error) {
	name, isFile := strings.CutPrefix(c.Template, "@")
	if !isFile {
		return c.Template, nil
	}
	err := regular(name)
	var text []byte
	if err == nil {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return "", c.usage("template", err, "cannot read %s: %v; name a file after '@'", name, cause(err))
	}
	return string(text), nil
}

// Origin says where the setting at path was given: a flag, a variable, a file
// with its line, or "default".
func (c Config) Origin(path string) string {
	if place, ok := c.origin[path]; ok {
		return place
	}
	return fromDefault
}

// fromDefault is the place of a setting that nobody gave.
const fromDefault = "default"

// IsSet reports whether the setting at path was given anywhere.
func (c Config) IsSet(path string) bool { return c.origin[path] != "" }

// usage is the error of the setting at path, with the place that gave it.
func (c Config) usage(path string, err error, format string, args ...any) *UsageError {
	return &UsageError{Key: path, Origin: c.Origin(path), Msg: fmt.Sprintf(format, args...), Err: err}
}

// MaxLanes is the most sequences that a worker decodes together, and the most
// that the setting auto tries.
const (
	MaxLanes     = 64
	MaxAutoLanes = 16
)

// LanesAuto has the number of lanes chosen by what they cost.
const LanesAuto = "auto"

// Lanes is a number from 1 to [MaxLanes], or [LanesAuto].
type Lanes string

// Count is how many there are; with auto, at most are.
func (l Lanes) Count() (n int, auto bool, err error) {
	if l == LanesAuto {
		return MaxAutoLanes, true, nil
	}
	if n, err = strconv.Atoi(string(l)); err != nil || n < 1 || n > MaxLanes {
		return 0, false, fmt.Errorf("want 1 to %d, or %s, got %q", MaxLanes, LanesAuto, string(l))
	}
	return n, false, nil
}

// Devices reads Device's list.
func (o *ORT) Devices() []string { return strings.Split(o.Device, ",") }

// DraftDevices lists those of the draft model.
func (o *ORT) DraftDevices() []string {
	if o.DraftDevice == "" {
		return o.Devices()
	}
	return strings.Split(o.DraftDevice, ",")
}

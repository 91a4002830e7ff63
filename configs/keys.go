package configs

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

const envPrefix = "DRAFTMILL_"

// users says which commands take a setting's flag.
type users int

const (
	neither users = iota // file and environment only
	submit
	worker
	both
)

// key is one setting. Its default's type is its flag's type.
type key struct {
	path  string
	flag  string
	on    users
	def   any
	usage string
}

// env is the setting's variable: sampling.top_p is DRAFTMILL_SAMPLING_TOP_P.
func (k key) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.path, ".", "_"))
}

// keys is every setting, in the order in which it is printed. A test holds it
// against the fields of Config.
var keys = []key{
	{"dataset", "dataset", submit, "", "dataset `FILE`: Parquet, Arrow IPC or JSON Lines; several as FOLDER/*.parquet, also on s3:// and gs://; or hf:OWNER/REPO[/FILE][@REVISION] of the Hugging Face Hub"},
	{"prompt_column", "prompt-column", submit, "", "column `NAME` of the prompts (default: recognized by name)"},
	{"id_column", "id-column", submit, "", "column `NAME` of the row ids (default: recognized by name)"},
	{"template", "template", submit, "", "prompt `TEXT` in Go's text/template over the columns, such as 'Summarize: {{.document}}', or @FILE"},
	{"chat", "chat", submit, false, "render prompts by the target's own chat template: a prompt is a user's message, a column of messages (OpenAI's form) a conversation"},
	{"system", "system", submit, "", "begin every chat with a system message `TEXT`"},
	{"chat_date", "chat-date", submit, "2024-07-26", "the `DATE` that a chat template is told: fixed, so that prompts are the same on any day"},
	{"limit", "limit", submit, 0, "take the first `N` rows only; 0 takes all"},
	{"margin", "margin", submit, 0.0, "fix a difference of scores `D` that matters, such as 0.05, before there are any: report tests whether the modes differ by less"},
	{"shard_rows", "shard-rows", submit, 16, "`N` rows per shard"},
	{"out", "out", both, "out", "output `DIR` or URL (s3://, gs://); a job writes into DIR/JOB"},
	{"job", "job", submit, "", "job `NAME`: letters, digits, '_' and '-' (default: named by submit)"},
	{"mode", "mode", submit, ModeBoth, "`MODE`: ars, sps or both"},
	{"target", "target", both, "testdata/demo/target", "target `MODEL`: an ONNX folder, a Hugging Face folder or a .gguf file; or hf:OWNER/REPO[/FILE.gguf][@REVISION]"},
	{"draft", "draft", both, "testdata/demo/draft", "draft `MODEL`, as the target"},
	{"drafter", "drafter", both, "model", "what drafts: `WHAT` is model, ngram:TABLE, lookup[:N] or uniform, or model+ one of them to draft for the draft model; a worker only finds TABLE by it"},
	{"k", "k", submit, 4, "lookahead: draft `N` tokens per loop, or at most N (default 8) under another --lookahead than fixed"},
	{"lookahead", "lookahead", submit, LookaheadFixed, "`HOW` to choose the lookahead: fixed, auto (by acceptance and measured costs) or confidence:X (stop behind a token of probability below X)"},
	{"rule", "rule", submit, "rejection", "verification `RULE`: rejection, coupled (the text does not depend on the draft), match, or lenient:L or capped:B, which are LOSSY"},
	{"beams", "beams", submit, 0, "search with `W` beams in place of drawing, as transformers' num_beams does, at temperature 0; --n of what it finds are returned. 0 draws"},
	{"draft_beams", "draft-beams", submit, 0, "the draft model searches K steps ahead with `U` beams (default: twice --beams)"},
	{"length_penalty", "length-penalty", submit, 1.0, "a beam's score is the sum of its log-probabilities over its length to the power of `X`"},
	{"early_stopping", "early-stopping", submit, EarlyStopping("false"), "`WHEN` a search that has found --beams sequences ends: false, true or never, as in transformers"},

	{"sampling.temperature", "temperature", submit, 1.0, "temperature `T`; 0 is greedy"},
	{"sampling.top_k", "top-k", submit, 0, "sample from the `N` most probable tokens; 0 is off"},
	{"sampling.top_p", "top-p", submit, 1.0, "sample from the nucleus of probability `P`; 1 is off"},
	{"sampling.min_p", "min-p", submit, 0.0, "drop tokens less than `P` times as probable as the most probable one; 0 is off"},
	{"sampling.repetition_penalty", "repetition-penalty", submit, 1.0, "divide by `R` what speaks for tokens of prompt and completion; 1 is off"},
	{"sampling.presence_penalty", "presence-penalty", submit, 0.0, "take `X` from the logit of every token generated before; 0 is off"},
	{"sampling.frequency_penalty", "frequency-penalty", submit, 0.0, "take `X` from a token's logit as often as it was generated before; 0 is off"},
	{"sampling.logit_bias", "logit-bias", submit, map[int32]float64(nil), "`ID=BIAS`: add to the logit of a token; repeatable"},
	{"sampling.forbidden_tokens", "forbid", submit, []int32(nil), "never generate the token `ID`; repeatable"},
	{"sampling.no_repeat_ngram_size", "no-repeat-ngram-size", submit, 0, "repeat no `N` tokens in a row; 0 is off"},
	{"sampling.seed", "seed", submit, uint64(0), "seed `N` of every coin"},
	{"sampling.n", "n", submit, 1, "`N` samples per prompt"},
	{"sampling.min_new_tokens", "min-new-tokens", submit, 0, "no end-of-sequence token among the first `N` of a completion"},
	{"sampling.max_new_tokens", "max-new-tokens", submit, 128, "at most `N` tokens per completion"},
	{"sampling.stop", "stop", submit, []string(nil), "end a completion before `TEXT`, taken as it is (a new line is $'\\n' in the shell); repeatable. A beam that reaches it is finished, as at an end of sequence"},

	{"nats.url", "nats", both, "", "NATS server `URL` (submit's default: an embedded server)"},
	{"nats.credentials", "", neither, "", "credentials `FILE` of the user, as nsc writes it"},
	{"nats.nkey", "", neither, "", "`FILE` with the seed of the user's NKey"},
	{"nats.tls_ca", "", neither, "", "`FILE` of the authorities that the server's certificate is checked against (default: the system's)"},
	{"nats.tls_cert", "", neither, "", "certificate `FILE` of this client"},
	{"nats.tls_key", "", neither, "", "private key `FILE` of that certificate"},
	{"nats.ack_wait", "", neither, 30 * time.Second, "the queue gives a shard to another worker when its own has said nothing for `TIME`; submit decides for its job"},
	{"nats.connect_wait", "", neither, time.Minute, "wait `TIME` for the server at the start; 0s waits for none"},
	{"nats.turn", "", neither, 10 * time.Second, "a worker keeps to a job for `TIME` while another one of the same priority has work"},
	{"nats.replicas", "", neither, 0, "keep the queue on `N` servers; 0 is 3 on a cluster, else 1"},
	{"nats.stream_mb", "", neither, 0, "at most `N` MiB of shards wait on the queue, and submit waits for room; 0 sets no bound"},
	{"nats.store_dir", "", neither, "", "`DIR` of the embedded server's files (default: in the job's folder, until the job is done)"},

	{"ort.library", "ort-library", both, "", "ONNX Runtime's shared library `FILE` (default: the one that make fetched)"},
	{"ort.threads", "threads", both, 0, "`N` threads per worker; 0 lets the worker choose"},
	{"ort.context", "", neither, 0, "at most `N` tokens of a sequence, prompt included; 0: what the models hold"},
	{"ort.cache_mb", "", neither, 0, "`N` MiB for a worker's KV caches; 0: half of the free memory, and on CUDA most of the GPU's"},
	{"ort.device", "device", both, "cpu", "`DEVICE`: cpu, cuda, cuda:N or webgpu; several GPUs are listed as cuda:0,cuda:1, and each has a worker"},
	{"ort.draft_device", "", neither, "", "`DEVICE` of the draft model, or a list as long as that of --device (default: the target's)"},
	{"ort.sampler", "sampler", both, SamplerHost, "draw and verify on the `PLACE`: host, or device, where logits stay with the models; jobs that need whole rows of them draw on the host"},
	{"ort.provider_options", "", neither, map[string]string(nil), "`NAME: VALUE` options of ONNX Runtime's execution provider"},

	{"lanes", "lanes", both, Lanes("1"), "decode `N` sequences of a worker together, or auto: as many as give most tokens per second"},
	{"sign", "sign", submit, "", "sign the finished job's manifest with the ed25519 private key in `FILE` (openssl genpkey -algorithm ed25519 -out FILE); verify --pubkey checks it"},
	{"workers", "workers", submit, 1, "`N` in-process workers beside the embedded server"},
	{"priority", "priority", submit, 0, "`N` from -9 to 9: workers take shards of jobs of higher priority first"},
	{"detach", "detach", submit, false, "queue the shards and return (needs --nats)"},
	{"json", "json", submit, false, "print the summary as JSON on stdout, progress on stderr"},
	{"max_attempts", "", neither, 5, "set a shard aside when it has failed `N` times"},
	{"drain_timeout", "", neither, 30 * time.Second, "after the first signal, finish what is in hand for up to `TIME`, then give it back"},
	{"metrics", "metrics", worker, "", "answer /metrics, /healthz and /readyz at `HOST:PORT`"},

	{"log.level", "log-level", both, "info", "log `LEVEL`: debug, info, warn or error"},
	{"log.format", "log-format", both, "text", "log as `FORMAT`: text or json"},
}

// SubmitFlags registers the flags of submit.
func SubmitFlags(fs *pflag.FlagSet) { register(fs, submit) }

// WorkerFlags registers the flags of worker.
func WorkerFlags(fs *pflag.FlagSet) { register(fs, worker) }

// JobFlags registers the flags of commands that look after jobs.
func JobFlags(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	register(all, submit)
	for _, name := range []string{"config", "nats", "out", "json", "log-format", "log-level"} {
		fs.AddFlag(all.Lookup(name))
	}
}

// TargetFlags registers the flags of commands that run a job's target again,
// ModelFlags of those that run all its models.
func TargetFlags(fs *pflag.FlagSet) {
	again(fs, "config", "out", "target", "ort-library", "threads", "device", "log-level")
}

// ModelFlags is described with TargetFlags.
func ModelFlags(fs *pflag.FlagSet) {
	TargetFlags(fs)
	again(fs, "draft", "drafter")
}

func again(fs *pflag.FlagSet, names ...string) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	register(all, worker)
	for _, name := range names {
		f := all.Lookup(name)
		switch name {
		case "target", "draft":
			f.DefValue, f.Usage = "", f.Usage+" (default: where it was when the job was submitted)"
		case "drafter":
			f.DefValue, f.Usage = "", "`WHAT` drafts, to find the n-gram table of ngram:TABLE (default: where it was when the job was submitted)"
		}
		fs.AddFlag(f)
	}
}

func register(fs *pflag.FlagSet, who users) {
	fs.String("config", "", "configuration `FILE` (YAML)")
	for _, k := range keys {
		if k.on != who && k.on != both {
			continue
		}
		switch def := k.def.(type) {
		case string:
			fs.String(k.flag, def, k.usage)
		case Lanes:
			fs.String(k.flag, string(def), k.usage)
		case EarlyStopping:
			fs.String(k.flag, string(def), k.usage)
		case bool:
			fs.Bool(k.flag, def, k.usage)
		case int:
			fs.Int(k.flag, def, k.usage)
		case uint64:
			fs.Uint64(k.flag, def, k.usage)
		case float64:
			fs.Float64(k.flag, def, k.usage)
		case []string:
			fs.StringArray(k.flag, def, k.usage)
		case []int32, map[int32]float64: // one element each time; read by coerce
			fs.StringArray(k.flag, nil, k.usage)
		default:
			panic(fmt.Sprintf("configs: no flag for %s of type %T", k.path, def))
		}
	}
}

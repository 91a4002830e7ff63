package configs

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// load parses args with the flags that register adds and loads the result.
func load(t *testing.T, register func(*pflag.FlagSet), args ...string) (Config, error) {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	register(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatalf("parse %q: %v", args, err)
	}
	return Load(fs)
}

func mustLoad(t *testing.T, register func(*pflag.FlagSet), args ...string) Config {
	t.Helper()
	c, err := load(t, register, args...)
	if err != nil {
		t.Fatalf("load %q: %v", args, err)
	}
	return c
}

// checkSubmitValues is ValidateSubmit without a look at the files.
func checkSubmitValues(c Config) error {
	p := &problems{c: c}
	p.values()
	p.submitValues()
	return p.err()
}

func checkWorkerValues(c Config) error {
	p := &problems{c: c}
	p.values()
	p.workerValues()
	return p.err()
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files match %s (%v)", pattern, err)
	}
	return files
}

func wantUsage(t *testing.T, err error, message string) {
	t.Helper()
	var usage *UsageError
	if !errors.As(err, &usage) {
		t.Fatalf("got %v (%T), want a *UsageError", err, err)
	}
	if err.Error() != message {
		t.Errorf("\n got %s\nwant %s", err, message)
	}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGoodFiles(t *testing.T) {
	for _, file := range glob(t, "testdata/*.good.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			args := []string{"--config", file, "--dataset", "rows.jsonl"}
			if err := checkSubmitValues(mustLoad(t, SubmitFlags, args...)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBadFiles expects what the first line's comment says, with FILE for the
// file's own path.
func TestBadFiles(t *testing.T) {
	for _, file := range glob(t, "testdata/*.bad.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(string(text), "\n")
			want, ok := strings.CutPrefix(first, "# ")
			if !ok {
				t.Fatalf("%s does not begin with the expected message", file)
			}
			c, err := load(t, SubmitFlags, "--config", file, "--dataset", "rows.jsonl")
			if err == nil {
				err = checkSubmitValues(c)
			}
			wantUsage(t, err, strings.ReplaceAll(want, "FILE", file))
		})
	}
}

func TestEveryKeyIsRead(t *testing.T) {
	c := mustLoad(t, SubmitFlags, "--config", "testdata/every-key.good.yaml")
	want := Config{
		Dataset: "rows.jsonl", PromptColumn: "question", IDColumn: "key",
		Template: "Q: {{.question}}\nA:", Chat: true, System: "Be short.", ChatDate: "2025-01-31", Limit: 20, Margin: 0.05, ShardRows: 3,
		Out: "results", Job: "Job_1-a", Mode: ModeSpS,
		Target: "big", Draft: "small", Drafter: "model+lookup:5", K: 7, Lookahead: "confidence:0.25", Rule: "lenient:0.5",
		LengthPenalty: 1, EarlyStopping: "false",
		Sampling: Sampling{
			Temperature: 0, TopK: 40, TopP: 0.95, Seed: 18446744073709551615, N: 16, MaxNewTokens: 64,
			MinP: 0.05, RepetitionPenalty: 1.1, PresencePenalty: 0.5, FrequencyPenalty: -0.25,
			LogitBias: map[int32]float64{198: -100, 50256: 1.5, 16: 2}, ForbiddenTokens: []int32{0, 7, 100},
			NoRepeatNGramSize: 3, MinNewTokens: 8,
			Stop: []string{"\nclass", `\n`, `é,["`, " "},
		},
		NATS: NATS{
			URL: "nats://a:4222,tls://b,c:4223", Credentials: "user.creds", NKey: "user.nk",
			TLSCA: "ca.pem", TLSCert: "cert.pem", TLSKey: "key.pem",
			AckWait: 90 * time.Second, ConnectWait: 5 * time.Second, Turn: time.Minute, Replicas: 3, StreamMB: 1024, StoreDir: "store",
		},
		ORT: ORT{
			Library: "libonnxruntime.so", Threads: 2, Context: 2048, CacheMB: 512, Device: "cuda:1,cuda:0", DraftDevice: "cuda:2", Sampler: "device",
			ProviderOptions: map[string]string{"gpu_mem_limit": "1e9", "dawnBackendType": "Vulkan", "some.dotted": "007"},
		},
		Lanes: LanesAuto, Sign: "signing.pem", Workers: 2, Priority: -3, Detach: true, JSON: true, MaxAttempts: 1, DrainTimeout: 0, Metrics: "127.0.0.1:9464",
		Log:    Log{Level: "debug", Format: "json"},
		origin: c.origin,
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("\n got %+v\nwant %+v", c, want)
	}
	defaults := mustLoad(t, SubmitFlags)
	search := mustLoad(t, SubmitFlags, "--config", "testdata/beams.good.yaml")
	for _, k := range keys {
		c := c
		if search.IsSet(k.path) {
			c = search
		}
		if !c.IsSet(k.path) {
			t.Errorf("the file does not set %s", k.path)
		}
		if reflect.DeepEqual(c.field(k.path).Interface(), defaults.field(k.path).Interface()) {
			t.Errorf("%s has its default: the file proves nothing", k.path)
		}
	}
}

func TestDefaults(t *testing.T) {
	c := mustLoad(t, SubmitFlags)
	for _, k := range keys {
		got := c.field(k.path).Interface()
		if !reflect.DeepEqual(got, k.def) {
			t.Errorf("%s: got %#v, want %#v", k.path, got, k.def)
		}
		if c.IsSet(k.path) || c.Origin(k.path) != "default" {
			t.Errorf("%s: origin %q", k.path, c.Origin(k.path))
		}
	}
	for _, file := range []string{"testdata/empty.good.yaml", "testdata/nulls.good.yaml"} {
		if same := mustLoad(t, SubmitFlags, "--config", file); !reflect.DeepEqual(same, c) {
			t.Errorf("%s: got %+v, want the defaults", file, same)
		}
	}
	if err := checkSubmitValues(mustLoad(t, SubmitFlags, "--dataset", "x")); err != nil {
		t.Errorf("the defaults do not validate: %v", err)
	}
}

func TestWrittenOtherwise(t *testing.T) {
	c := mustLoad(t, SubmitFlags, "--config", "testdata/written-otherwise.good.yaml")
	if c.K != 8 || c.Limit != 100 || c.Mode != ModeArS || c.Out != "models/one" ||
		c.Sampling.RepetitionPenalty != 1.2 || !reflect.DeepEqual(c.Sampling.LogitBias, map[int32]float64{198: -100, 50256: 3}) ||
		!reflect.DeepEqual(c.Sampling.ForbiddenTokens, []int32{5}) ||
		c.Sampling.Temperature != 1 || c.Sampling.Seed != 16 || !reflect.DeepEqual(c.Sampling.Stop, []string{"\n\n", "END"}) {
		t.Errorf("got %+v", c)
	}
}

func TestPrecedence(t *testing.T) {
	file := write(t, "c.yaml", "k: 1\nlimit: 1\nsampling: {top_p: 0.1, stop: [file]}\nort: {provider_options: {File: a}}\n")
	steps := []struct {
		name  string
		env   map[string]string
		args  []string
		k     int
		topP  float64
		stop  []string
		place string // of k
	}{
		{name: "default", k: 4, topP: 1, place: "default"},
		{name: "file over default", args: []string{"--config", file}, k: 1, topP: 0.1, stop: []string{"file"}, place: file + ":1"},
		{name: "file named by the environment", env: map[string]string{"DRAFTMILL_CONFIG": file}, k: 1, topP: 0.1, stop: []string{"file"}, place: file + ":1"},
		{
			name: "environment over file",
			env:  map[string]string{"DRAFTMILL_K": "2", "DRAFTMILL_SAMPLING_TOP_P": "0.2", "DRAFTMILL_SAMPLING_STOP": `["\nenv", "a,b"]`},
			args: []string{"--config", file}, k: 2, topP: 0.2, stop: []string{"\nenv", "a,b"}, place: "DRAFTMILL_K",
		},
		{
			name: "an empty variable is unset",
			env:  map[string]string{"DRAFTMILL_K": ""}, args: []string{"--config", file},
			k: 1, topP: 0.1, stop: []string{"file"}, place: file + ":1",
		},
		{
			name: "flag over environment",
			env:  map[string]string{"DRAFTMILL_K": "2", "DRAFTMILL_SAMPLING_TOP_P": "0.2", "DRAFTMILL_SAMPLING_STOP": `["env"]`},
			args: []string{"--config", file, "--k", "3", "--top-p=0.3", "--stop", "a,b", "--stop", "\r\nc", "--stop", "[d]"},
			k:    3, topP: 0.3, stop: []string{"a,b", "\r\nc", "[d]"}, place: "--k",
		},
		{
			name: "a flag that repeats the default still wins", args: []string{"--config", file, "--k", "4"},
			k: 4, topP: 0.1, stop: []string{"file"}, place: "--k",
		},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			for name, value := range step.env {
				t.Setenv(name, value)
			}
			c := mustLoad(t, SubmitFlags, step.args...)
			if c.K != step.k || c.Sampling.TopP != step.topP || !reflect.DeepEqual(c.Sampling.Stop, step.stop) {
				t.Errorf("got k %d, top_p %v, stop %q", c.K, c.Sampling.TopP, c.Sampling.Stop)
			}
			if c.Origin("k") != step.place {
				t.Errorf("k comes from %q, want %q", c.Origin("k"), step.place)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("DRAFTMILL_ORT_LIBRARY", "lib.so")
	t.Setenv("DRAFTMILL_SAMPLING_SEED", "18446744073709551615")
	t.Setenv("DRAFTMILL_NATS_ACK_WAIT", "2s")
	t.Setenv("DRAFTMILL_JSON", "true")
	t.Setenv("DRAFTMILL_JOB", "2024")
	t.Setenv("DRAFTMILL_ORT_PROVIDER_OPTIONS", "{dawnBackendType: Vulkan, device_id: 0}")
	t.Setenv("DRAFTMILL_SAMPLING_LOGIT_BIAS", `{198: -100, "5": 0.5}`)
	t.Setenv("DRAFTMILL_SAMPLING_FORBIDDEN_TOKENS", "[3, 1]")
	t.Setenv("DRAFTMILL_RULE", "capped:0.9")
	c := mustLoad(t, WorkerFlags)
	if want := map[int32]float64{198: -100, 5: 0.5}; !reflect.DeepEqual(c.Sampling.LogitBias, want) {
		t.Errorf("got biases %v, want %v", c.Sampling.LogitBias, want)
	}
	if !reflect.DeepEqual(c.Sampling.ForbiddenTokens, []int32{3, 1}) || c.Rule != "capped:0.9" {
		t.Errorf("got forbidden %v, rule %q", c.Sampling.ForbiddenTokens, c.Rule)
	}
	if c.ORT.Library != "lib.so" || c.Sampling.Seed != 1<<64-1 || c.NATS.AckWait != 2*time.Second || !c.JSON || c.Job != "2024" {
		t.Errorf("got %+v", c)
	}
	if want := map[string]string{"dawnBackendType": "Vulkan", "device_id": "0"}; !reflect.DeepEqual(c.ORT.ProviderOptions, want) {
		t.Errorf("got options %v, want %v", c.ORT.ProviderOptions, want)
	}
}

// TestTokenFlags: the flags take one element each time, and replace what a
// variable or a file holds as a whole.
func TestTokenFlags(t *testing.T) {
	t.Setenv("DRAFTMILL_SAMPLING_FORBIDDEN_TOKENS", "[9]")
	file := write(t, "c.yaml", "sampling: {logit_bias: {1: 1, 198: 1}, forbidden_tokens: [8]}\n")
	c := mustLoad(t, SubmitFlags, "--config", file, "--logit-bias", "198=-1.5", "--logit-bias", "7=1e2", "--forbid", "0", "--forbid", "50256")
	if want := map[int32]float64{198: -1.5, 7: 100}; !reflect.DeepEqual(c.Sampling.LogitBias, want) {
		t.Errorf("got biases %v, want %v", c.Sampling.LogitBias, want)
	}
	if !reflect.DeepEqual(c.Sampling.ForbiddenTokens, []int32{0, 50256}) {
		t.Errorf("got forbidden %v", c.Sampling.ForbiddenTokens)
	}
	if c.Origin("sampling.logit_bias") != "--logit-bias" || c.Origin("sampling.forbidden_tokens") != "--forbid" {
		t.Errorf("they come from %s and %s", c.Origin("sampling.logit_bias"), c.Origin("sampling.forbidden_tokens"))
	}
	for _, test := range []struct{ args, want string }{
		{"--logit-bias 198", `sampling.logit_bias: want a number for token 198, got "" (--logit-bias)`},
		{"--logit-bias 198=-1=2", `sampling.logit_bias: want a number for token 198, got "-1=2" (--logit-bias)`},
		{"--logit-bias 5=1 --logit-bias 5=2", "sampling.logit_bias: token 5: given twice; keep one (--logit-bias)"},
		{"--logit-bias x=1", `sampling.logit_bias: want a token id from 0 to 2147483647, got "x" (--logit-bias)`},
		{"--forbid 1,2", `sampling.forbidden_tokens: want a token id from 0 to 2147483647, got "1,2" (--forbid)`},
		{"--forbid -1", `sampling.forbidden_tokens: want a token id from 0 to 2147483647, got "-1" (--forbid)`},
	} {
		_, err := load(t, SubmitFlags, strings.Fields(test.args)...)
		wantUsage(t, err, test.want)
	}
}

func TestBadEnvironment(t *testing.T) {
	tests := []struct{ name, value, want string }{
		{"DRAFTMILL_TARGT", "x", "unknown environment variable DRAFTMILL_TARGT; did you mean DRAFTMILL_TARGET?"},
		{"DRAFTMILL_TOP_P", "1", "unknown environment variable DRAFTMILL_TOP_P; did you mean DRAFTMILL_SAMPLING_TOP_P?"},
		{"DRAFTMILL_NATS", "x", "unknown environment variable DRAFTMILL_NATS; did you mean DRAFTMILL_NATS_URL?"},
		{"DRAFTMILL_WEATHER_TODAY", "x", "unknown environment variable DRAFTMILL_WEATHER_TODAY; unset it"},
		{"DRAFTMILL_K", "many", `k: want a whole number, got "many" (DRAFTMILL_K)`},
		{"DRAFTMILL_SAMPLING_STOP", "a,b", `sampling.stop: want a list of texts such as ["\n", "END"], got "a,b" (DRAFTMILL_SAMPLING_STOP)`},
		{"DRAFTMILL_DRAIN_TIMEOUT", "30", `drain_timeout: want a duration such as 30s, got "30" (DRAFTMILL_DRAIN_TIMEOUT)`},
		{"DRAFTMILL_ORT_PROVIDER_OPTIONS", "[1]", "ort.provider_options: want a map such as {device_id: 0} (DRAFTMILL_ORT_PROVIDER_OPTIONS)"},
		{"DRAFTMILL_ORT_PROVIDER_OPTIONS", "{", `ort.provider_options: want a map such as {device_id: 0}, got "{" (DRAFTMILL_ORT_PROVIDER_OPTIONS)`},
		{"DRAFTMILL_SAMPLING_LOGIT_BIAS", "198=-1", `sampling.logit_bias: want a map such as {198: -100}, got "198=-1" (DRAFTMILL_SAMPLING_LOGIT_BIAS)`},
		{"DRAFTMILL_SAMPLING_LOGIT_BIAS", `{5: 1, "5": 2}`, "sampling.logit_bias: token 5: given twice; keep one (DRAFTMILL_SAMPLING_LOGIT_BIAS)"},
		{"DRAFTMILL_SAMPLING_FORBIDDEN_TOKENS", "1,2", `sampling.forbidden_tokens: want a list of token ids such as [0, 198], got "1,2" (DRAFTMILL_SAMPLING_FORBIDDEN_TOKENS)`},
		{"DRAFTMILL_CONFIG", "no/such.yaml", "cannot read configuration file no/such.yaml: no such file or directory (DRAFTMILL_CONFIG)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv(test.name, test.value)
			_, err := load(t, SubmitFlags)
			wantUsage(t, err, test.want)
		})
	}
}

func TestMissingConfigFile(t *testing.T) {
	_, err := load(t, WorkerFlags, "--config", "no/such.yaml")
	wantUsage(t, err, "cannot read configuration file no/such.yaml: no such file or directory (--config)")
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v does not wrap os.ErrNotExist", err)
	}
	_, err = load(t, WorkerFlags, "--config", ".")
	wantUsage(t, err, "cannot read configuration file .: it is a folder (--config)")
}

func TestDemoDraftStaysWithDemoTarget(t *testing.T) {
	tests := []struct {
		args          []string
		target, draft string
	}{
		{nil, "testdata/demo/target", "testdata/demo/draft"},
		{[]string{"--target", "a"}, "a", ""},
		{[]string{"--draft", "b"}, "", "b"},
		{[]string{"--target", "a", "--draft", "b"}, "a", "b"},
	}
	for _, test := range tests {
		if c := mustLoad(t, SubmitFlags, test.args...); c.Target != test.target || c.Draft != test.draft {
			t.Errorf("%q: got target %q, draft %q", test.args, c.Target, c.Draft)
		}
	}
}

func TestDrafterSpec(t *testing.T) {
	for text, want := range map[string]Drafter{
		"model":                  {Model: true},
		"ngram:a/b.ngram":        {Kind: "ngram", Table: "a/b.ngram"},
		"ngram:c:d":              {Kind: "ngram", Table: "c:d"},
		"lookup":                 {Kind: "lookup", N: 8},
		"lookup:3":               {Kind: "lookup", N: 3},
		"uniform":                {Kind: "uniform"},
		"model+lookup":           {Model: true, Kind: "lookup", N: 8},
		"model+ngram:model+more": {Model: true, Kind: "ngram", Table: "model+more"},
		"model+uniform":          {Model: true, Kind: "uniform"},
	} {
		if got, err := mustLoad(t, SubmitFlags, "--drafter", text).DrafterSpec(); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "Model", "model+", "model+model", "+lookup", "ngram", "ngram:", "lookup:", "lookup:-1", "lookup:x", "uniform:1", "lookup+model"} {
		if got, err := mustLoad(t, SubmitFlags, "--drafter", text).DrafterSpec(); err == nil {
			t.Errorf("%q is taken as %+v", text, got)
		}
	}
}

func TestWhatNeedsADraft(t *testing.T) {
	for _, test := range []struct {
		drafter, mode string
		want          bool
	}{
		{"model", "both", true}, {"model", "ars", false}, {"lookup", "sps", false}, {"uniform", "both", false},
		{"model+lookup", "sps", true}, {"ngram:x", "both", false}, {"nonsense", "both", true},
	} {
		if c := mustLoad(t, SubmitFlags, "--drafter", test.drafter, "--mode", test.mode); c.NeedsDraft() != test.want {
			t.Errorf("%+v: needs a draft: %v", test, c.NeedsDraft())
		}
	}
}

func TestAdaptiveLookaheadHasRoom(t *testing.T) {
	for _, test := range []struct {
		args []string
		want int
	}{
		{nil, 4},
		{[]string{"--lookahead", "fixed"}, 4},
		{[]string{"--lookahead", "auto"}, 8},
		{[]string{"--lookahead", "confidence:0.4"}, 8},
		{[]string{"--lookahead", "auto", "--k", "4"}, 4},
		{[]string{"--config", "humaneval.yaml", "--lookahead", "auto"}, 4}, // which sets k
	} {
		if c := mustLoad(t, SubmitFlags, test.args...); c.K != test.want {
			t.Errorf("%q: k is %d, want %d", test.args, c.K, test.want)
		}
	}
}

// TestConfigIsAPipe: a configuration that is no file is refused, not waited for.
func TestConfigIsAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := load(t, SubmitFlags, "--config", pipe)
	wantUsage(t, err, "cannot read configuration file "+pipe+": it is a pipe or a device, not a file (--config)")
}

// A beam search draws nothing, and its draft's is twice as wide unless that is said.
func TestBeamDefaults(t *testing.T) {
	c := mustLoad(t, SubmitFlags, "--beams", "4")
	if c.Sampling.Temperature != 0 || c.DraftBeams != 8 || c.LengthPenalty != 1 || c.EarlyStopping != "false" {
		t.Errorf("%+v", c)
	}
	c = mustLoad(t, SubmitFlags, "--beams", "40", "--temperature", "0")
	if c.DraftBeams != MaxBeams {
		t.Errorf("%d draft beams", c.DraftBeams)
	}
	if c = mustLoad(t, SubmitFlags, "--beams", "4", "--draft-beams", "5", "--early-stopping", "never", "--length-penalty", "0"); c.DraftBeams != 5 || c.EarlyStopping != "never" || c.LengthPenalty != 0 {
		t.Errorf("%+v", c)
	}
	if c = mustLoad(t, SubmitFlags, "--config", "testdata/beams.good.yaml"); c.EarlyStopping != "true" {
		t.Errorf("early stopping is %q", c.EarlyStopping)
	}
	if c = mustLoad(t, SubmitFlags); c.Sampling.Temperature != 1 || c.DraftBeams != 0 {
		t.Errorf("without beams: %+v", c)
	}
}

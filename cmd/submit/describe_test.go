package main

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

const demo = "../../testdata/demo/"

// described is the job that submit makes of its arguments, with the demo pair.
func described(t *testing.T, models *app.Models, args ...string) (*pipeline.Job, error) {
	t.Helper()
	flags := pflag.NewFlagSet("submit", pflag.ContinueOnError)
	configs.SubmitFlags(flags)
	args = append([]string{"--dataset", demo + "minieval.parquet", "--target", demo + "target", "--draft", demo + "draft"}, args...)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	cfg, err := configs.Load(flags)
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.ValidateSubmit(); err != nil {
		t.Fatal(err)
	}
	job, _, err := describe(cfg, models, app.Located{Path: cfg.Dataset}, storage.Info{}, "00")
	return job, err
}

func demoModels(t *testing.T) *app.Models {
	models := app.NewModels(configs.Config{}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	t.Cleanup(models.Close)
	return models
}

// TestNeutralSettingsNameNoOtherJob: settings at their neutral values, however
// they are written, leave a job what it was without them.
func TestNeutralSettingsNameNoOtherJob(t *testing.T) {
	models := demoModels(t)
	job, err := described(t, models)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(job.Sampling)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(data), `{"temperature":1,"top_k":0,"top_p":1}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	identity, err := job.Spec()
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	if err := json.Unmarshal(identity, &members); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(slices.Sorted(maps.Keys(members)), " "),
		"dataset draft k max_new_tokens modes name samples sampling seed shard_rows target"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	t.Setenv("DRAFTMILL_ORT_CONTEXT", "1024") // the demo target's own
	t.Setenv("DRAFTMILL_SAMPLING_FORBIDDEN_TOKENS", "[]")
	same, err := described(t, models, "--rule", "rejection", "--repetition-penalty", "1", "--logit-bias", "7=0", "--min-p", "0")
	if err != nil {
		t.Fatal(err)
	}
	if same.Name != job.Name {
		t.Errorf("job %s is now %s", job.Name, same.Name)
	}
}

func TestEverySettingReachesTheJob(t *testing.T) {
	models := demoModels(t)
	args := []string{
		"--temperature", "0.5", "--top-k", "9", "--top-p", "0.9", "--min-p", "0.1", "--repetition-penalty", "1.2",
		"--presence-penalty", "0.3", "--frequency-penalty", "-0.4", "--logit-bias", "7=-2.5", "--logit-bias", "2047=1",
		"--forbid", "12", "--forbid", "3", "--forbid", "12", "--no-repeat-ngram-size", "4", "--min-new-tokens", "5", "--rule", "lenient:0.50",
	}
	t.Setenv("DRAFTMILL_ORT_CONTEXT", "512")
	job, err := described(t, models, args...)
	if err != nil {
		t.Fatal(err)
	}
	want := spec.Sampling{
		Temperature: 0.5, TopK: 9, TopP: 0.9, MinP: 0.1, RepetitionPenalty: 1.2, PresencePenalty: 0.3, FrequencyPenalty: -0.4,
		LogitBias: map[int32]float64{7: -2.5, 2047: 1}, ForbiddenTokens: []int32{3, 12}, NoRepeatNGramSize: 4, MinNewTokens: 5,
	}
	if !reflect.DeepEqual(job.Sampling, want) {
		t.Errorf("got %+v, want %+v", job.Sampling, want)
	}
	if job.Rule.String() != "lenient:0.5" || job.Context != 512 {
		t.Errorf("rule %s, context %d", job.Rule, job.Context)
	}
	identity, err := job.Spec()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(identity), `"lossy": "LOSSY: after any prefix, no token is more than 2 times`) {
		t.Errorf("the specification does not say what the rule costs:\n%s", identity)
	}
	// A mode that drafts nothing has no rule.
	if job, err = described(t, models, append(args, "--mode", "ars")...); err != nil || !job.Rule.IsZero() {
		t.Errorf("rule %s, %v", job.Rule, err)
	}
}

func TestSettingsThatTheModelsRefuse(t *testing.T) {
	models := demoModels(t)
	target := filepath.Clean(demo) + "/target"
	for _, c := range []struct {
		args []string
		env  string
		want string
	}{
		{[]string{"--forbid", "2048"}, "", "sampling with the target " + target + ": forbidden token 2048 lies outside the vocabulary of 2048"},
		{[]string{"--logit-bias", "99999=1"}, "", "sampling with the target " + target + ": logit bias of token 99999, outside the vocabulary of 2048"},
		{[]string{"--k", "4"}, "5", "ort.context: want 6 or more for a prompt and a loop with k 4, got 5"},
	} {
		t.Setenv("DRAFTMILL_ORT_CONTEXT", c.env)
		_, err := described(t, models, c.args...)
		if usage, ok := errors.AsType[*configs.UsageError](err); !ok || usage.Error() != c.want {
			t.Errorf("%q: got %v, want %s", c.args, err, c.want)
		}
	}
}

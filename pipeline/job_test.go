package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// plain is the specification of testJob as it has been since jobs are named
// after it: settings that came later are not in it while they are neutral.
const plain = `{"name":"test","dataset":{"name":"","sha256":"","prompt_column":""},"modes":["ars","sps"],"shard_rows":10,` +
	`"target":{"name":"","digest":""},"draft":{"name":"","digest":""},"k":3,"sampling":{"temperature":1,"top_k":0,"top_p":0},` +
	`"seed":7,"samples":2,"max_new_tokens":30,"stop":["abab"]}`

func compactSpec(t *testing.T, j *Job) string {
	t.Helper()
	data, err := j.Spec()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		b.WriteString(strings.TrimSpace(strings.Replace(line, `": `, `":`, 1)))
	}
	return b.String()
}

func TestNeutralSettingsAreNotSpecified(t *testing.T) {
	job := testTask(SpS).job
	if got := compactSpec(t, &job); got != plain {
		t.Errorf("\n got %s\nwant %s", got, plain)
	}
}

// TestLossyJobsSaySo: the bound is in the specification of every job that may
// not have the target's distribution, and of no other.
func TestLossyJobsSaySo(t *testing.T) {
	both, ars := []Mode{ArS, SpS}, []Mode{ArS}
	for _, c := range []struct {
		rule        string
		temperature float64
		modes       []Mode
		want        string
	}{
		{"rejection", 1, both, ""},
		{"match", 1, both, ""},
		{"lenient:1", 1, both, ""},
		{"lenient:0.5", 1, both, "LOSSY: after any prefix, no token is more than 2 times (1/0.5) as likely as under the target"},
		{"lenient:0.5", 0, both, "LOSSY: no token has less than 0.5 times the target's largest probability at its position"},
		{"lenient:0.5", 1, ars, ""},
		{"capped:0.8", 1, both, "LOSSY: after any prefix, no token is more than 1.25 times (1/0.8) as likely as under the target"},
		{"capped:0.8", 0, both, ""},
	} {
		job := testTask(SpS).job
		job.Modes, job.Sampling.Temperature = c.modes, c.temperature
		job.Lossy = "an old text"
		var err error
		if job.Rule, err = spec.ParseRule(c.rule); err != nil {
			t.Fatal(err)
		}
		var read Job
		if err := json.Unmarshal([]byte(compactSpec(t, &job)), &read); err != nil {
			t.Fatal(err)
		}
		if read.Lossy != c.want {
			t.Errorf("%s at temperature %v in %v: got %q, want %q", c.rule, c.temperature, c.modes, read.Lossy, c.want)
		}
	}
}

// TestContextOfAJob: a job's context bounds its sequences as if the models
// were made for no more, and it cannot stretch them.
func TestContextOfAJob(t *testing.T) {
	tok, eos := enginetest.Letters(t, "ab")
	decode := func(of, asked int) string {
		target, draft := enginetest.New(t, 3, enginetest.Hashed(3, 1)), enginetest.New(t, 3, enginetest.Hashed(3, 2))
		target.Length, draft.Length = of, of
		task := testTask(SpS, storage.ShardRow{Prompt: []byte("abba")}, storage.ShardRow{Row: 1, Prompt: []byte("abbaabbaabba")})
		task.job.Context, task.job.Stop = asked, nil
		settings, err := task.job.Settings(SpS)
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.New(t.Context(), engine.Pair{Target: target, Draft: draft, Tokenizer: tok, EOS: []int32{eos}}, settings)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		var log shardLog
		if err := decodeShard(t.Context(), e, newShardRun(task, "w", &log, nil)); err != nil {
			t.Fatal(err)
		}
		for _, c := range log.completions {
			switch total := c.PromptTokens + c.CompletionTokens; {
			case c.Row == 1 && c.FinishReason != storage.FinishError:
				t.Errorf("a prompt of 12 tokens is decoded in a context of %d", min(of, asked))
			case total > int32(min(of, asked)):
				t.Errorf("%d tokens in a context of %d", total, min(of, asked))
			}
		}
		return log.timeless()
	}
	want := decode(9, 9)
	for _, c := range [][2]int{{100, 9}, {9, 100}} {
		if decode(c[0], c[1]) != want {
			t.Errorf("models for %d tokens in a job for %d decode otherwise than models for 9", c[0], c[1])
		}
	}
	job := testTask(SpS).job
	for _, bad := range []int{-1, 1} {
		if job.Context = bad; job.Validate() == nil {
			t.Errorf("a context of %d is taken", bad)
		}
	}
}

func TestJobNamesItsDrafter(t *testing.T) {
	job := testJob()
	for _, c := range []struct {
		name    string
		draft   *Model
		drafter *Drafter
		look    string
		ok      bool
	}{
		{"model", &Model{}, nil, "", true},
		{"none", nil, nil, "", false},
		{"lookup", nil, &Drafter{Kind: DrafterLookup, N: 8}, "auto", true},
		{"lookup of nothing", nil, &Drafter{Kind: DrafterLookup}, "", false},
		{"uniform", nil, &Drafter{Kind: DrafterUniform}, "confidence:0.5", true},
		{"ngram", nil, &Drafter{Kind: DrafterNGram, Table: &Model{Name: "t", Digest: "1"}}, "", true},
		{"ngram without a table", nil, &Drafter{Kind: DrafterNGram}, "", false},
		{"model+ngram", &Model{}, &Drafter{Kind: DrafterNGram, Table: &Model{Name: "t", Digest: "1"}}, "", true},
		{"unknown", nil, &Drafter{Kind: "oracle"}, "", false},
		{"unknown lookahead", &Model{}, nil, "sometimes", false},
	} {
		job.Draft, job.Drafter, job.Lookahead = c.draft, c.drafter, c.look
		if err := job.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if !c.ok {
			continue
		}
		s, err := job.Settings(SpS)
		if err != nil || s.K != job.K || c.look == "" && s.Lookahead.Kind != spec.FixedLookahead {
			t.Errorf("%s: settings %+v, %v", c.name, s, err)
		}
		if s, err := job.Settings(ArS); err != nil || s.K != 0 {
			t.Errorf("%s: settings of ars %+v, %v", c.name, s, err)
		}
	}
	// What is not said leaves the specification, and so the job's name, as it was.
	job = testJob()
	text, err := job.Spec()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"drafter", "lookahead", "table"} {
		if bytes.Contains(text, fmt.Appendf(nil, "%q", key)) {
			t.Errorf("the default job says %s:\n%s", key, text)
		}
	}
}

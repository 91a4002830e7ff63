package pipeline

import (
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/storage"
)

// llama3Chat is a chat whose template begins with the token that begins a text,
// and whose tokenizer would put another one in front.
func llama3Chat(t *testing.T) (*tokenize.Tokenizer, *Job) {
	t.Helper()
	tok, err := tokenize.Load("../testdata/tokenizers/llama3.json")
	if err != nil {
		t.Fatal(err)
	}
	return tok, &Job{Chat: &Chat{
		Template: `{{ bos_token }}{% for m in messages %}{% if m.role == 'robot' %}{{ raise_exception('no robots') }}{% endif %}` +
			`<|start_header_id|>{{ m.role }}<|end_header_id|>{{ m.content }}<|eot_id|>{% endfor %}` +
			`{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{% endif %}`,
		Tokens: map[string]string{"bos_token": "<|begin_of_text|>"}, Date: "2024-07-26",
	}}
}

func TestChatPrompt(t *testing.T) {
	tok, job := llama3Chat(t)
	id := func(token string) int32 {
		id, ok := tok.ID(token)
		if !ok {
			t.Fatalf("no token %s", token)
		}
		return id
	}
	begin := id("<|begin_of_text|>")
	if ids, _ := tok.Encode("a"); ids[0] != begin {
		t.Fatal("the tokenizer adds no token that begins a text: the test says nothing")
	}
	encode := job.Encoder()
	ids, err := encode(engine.Pair{Tokenizer: tok}, 100, &storage.ShardRow{Prompt: []byte("Hi <|eot_id|>")})
	if err != nil {
		t.Fatal(err)
	}
	if ids[0] != begin || slices.Contains(ids[1:], begin) {
		t.Errorf("tokens %v: want %d once, first", ids, begin)
	}
	want := "<|begin_of_text|><|start_header_id|>user<|end_header_id|>Hi <|eot_id|><|eot_id|><|start_header_id|>assistant<|end_header_id|>"
	if got := tok.Decode(ids, false); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if ids[len(ids)-1] != id("<|end_header_id|>") || ids[1] != id("<|start_header_id|>") {
		t.Errorf("special tokens were not read as such: %v", ids)
	}
	end, found, err := job.Chat.Check(tok)
	if err != nil || !found || end != id("<|eot_id|>") {
		t.Errorf("an answer ends with %d, %v, %v", end, found, err)
	}
}

func TestChatConversations(t *testing.T) {
	tok, job := llama3Chat(t)
	job.Chat.System = "Be short."
	job.Chat.Messages = true
	encode := job.Encoder()
	for _, c := range []struct{ prompt, want, fails string }{
		{prompt: `[{"role":"user","content":"a"}]`, want: "system|Be short.|user|a|assistant|"},
		{prompt: `[{"role":"system","content":"b","name":null},{"role":"user","content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]}]`, want: "system|b|user|cd|assistant|"},
		{prompt: `[{"role":"robot","content":"a"}]`, fails: "the chat template refuses the messages: no robots"},
		{prompt: `[{"content":"a"}]`, fails: "message 1: it has no role"},
		{prompt: `[{"role":"user","content":"a"},{"role":"assistant"}]`, fails: "message 2: it has no content"},
		{prompt: `[{"role":"user","content":[{"type":"image_url","image_url":"x"}]}]`, fails: `part 1 of its content is of type "image_url"`},
		{prompt: `[{"role":"user","content":3}]`, fails: "neither a text nor a list of parts"},
		{prompt: `[]`, fails: "the list of messages is empty"},
		{prompt: `"hello"`, fails: "not a list of objects"},
		{prompt: `["hello"]`, fails: "message 1 is no object"},
		{prompt: `[{"role":"user"`, fails: "not JSON"},
	} {
		ids, err := encode(engine.Pair{Tokenizer: tok}, 100, &storage.ShardRow{Prompt: []byte(c.prompt)})
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v, want %s", c.prompt, err, c.fails)
			}
			continue
		}
		got := strings.NewReplacer("<|begin_of_text|>", "", "<|start_header_id|>", "", "<|end_header_id|>", "|", "<|eot_id|>", "|").Replace(tok.Decode(ids, false))
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v", c.prompt, got, err)
		}
	}
}

// TestChatRowThatIsRefused: a conversation that the template refuses is a row
// with an error, and the others go on.
func TestChatRowThatIsRefused(t *testing.T) {
	e, _ := testEngine(t, ArS)
	task := testTask(ArS,
		storage.ShardRow{Row: 0, Prompt: []byte(`[{"role":"user","content":"ab"}]`)},
		storage.ShardRow{Row: 1, Prompt: []byte(`[{"role":"user","content":"bad"}]`)},
		storage.ShardRow{Row: 2, Null: true},
		storage.ShardRow{Row: 3, Prompt: []byte(`[{"role":"user"}]`)})
	task.job.Samples = 1
	task.job.Chat = &Chat{Messages: true, Date: "2024-07-26",
		Template: `{% if messages[0].content == 'bad' %}{{ raise_exception('not that') }}{% endif %}{{ messages[0].content }}`}
	var log shardLog
	if err := decodeShard(t.Context(), e, newShardRun(task, "w", &log, nil)); err != nil {
		t.Fatal(err)
	}
	if len(log.completions) != 4 {
		t.Fatalf("%d completions", len(log.completions))
	}
	for i, want := range []string{"", "refuses the messages: not that", "null", "message 1: it has no content"} {
		c := log.completions[i]
		if (want == "") != (c.FinishReason != storage.FinishError) || !strings.Contains(c.Error, want) {
			t.Errorf("row %d ended by %s: %s", i, c.FinishReason, c.Error)
		}
	}
	if log.completions[0].PromptTokens != 2 {
		t.Errorf("a prompt of %d tokens", log.completions[0].PromptTokens)
	}
}

func TestChatThatCannotBe(t *testing.T) {
	tok, _ := llama3Chat(t)
	for name, c := range map[string]struct {
		chat  Chat
		fails string
	}{
		"malformed": {Chat{Template: "{% if %}", Date: "2024-07-26"}, "parse the chat template"},
		"refuses":   {Chat{Template: "{{ raise_exception('never') }}", Date: "2024-07-26"}, "refuses the messages: never"},
		"no system": {Chat{Template: "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}x", Date: "2024-07-26", System: "s"}, "no system"},
		"date":      {Chat{Template: "x", Date: "today"}, "date"},
	} {
		if _, _, err := c.chat.Check(tok); err == nil || !strings.Contains(err.Error(), c.fails) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	valid := testTask(ArS).job
	valid.Chat = &Chat{Template: "{% for %}", Date: "2024-07-26"}
	if err := valid.Validate(); err == nil || !strings.Contains(err.Error(), "parse the chat template") {
		t.Errorf("a job with a malformed template: %v", err)
	}
}

package pipeline

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/draftmill/draftmill/pipeline/chat"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/storage"
)

// Chat says how a job's prompts become conversations, and these the texts that
// the target reads. Nothing of it is looked up where the job is decoded.
type Chat struct {
	Template string            `json:"template"`           // Jinja, of the target's folder
	Tokens   map[string]string `json:"tokens,omitempty"`   // special tokens by the names that the template has for them
	System   string            `json:"system,omitempty"`   // put in front of conversations that do not begin with a system message
	Date     string            `json:"date"`               // that the template is told, 2006-01-02
	Messages bool              `json:"messages,omitempty"` // the prompt column has conversations, as JSON; else each prompt is a user's message
	End      []int32           `json:"end,omitempty"`      // tokens that end an answer, beside the target's own
}

// compile readies the template.
func (c *Chat) compile() (*chat.Template, error) {
	date, err := time.Parse(time.DateOnly, c.Date)
	if err != nil {
		return nil, fmt.Errorf("the date of the chat: %w", err)
	}
	return chat.New(&chat.Source{Template: c.Template, Tokens: c.Tokens}, date)
}

// conversation is what a prompt of the dataset says.
func (c *Chat) conversation(prompt string) ([]chat.Message, error) {
	messages := []chat.Message{chat.Turn("user", prompt)}
	if c.Messages {
		var err error
		if messages, err = chat.Parse([]byte(prompt)); err != nil {
			return nil, err
		}
	}
	if c.System != "" && messages[0].Role() != "system" {
		messages = append([]chat.Message{chat.Turn("system", c.System)}, messages...)
	}
	return messages, nil
}

// Check says why no prompt of the job can be rendered, if so, and finds the
// token that ends an answer: the special token that the template writes behind
// one, where it does.
func (c *Chat) Check(t *tokenize.Tokenizer) (end int32, found bool, err error) {
	template, err := c.compile()
	if err != nil {
		return 0, false, err
	}
	if !c.Messages { // else each conversation is its own
		messages, err := c.conversation("question")
		if err == nil {
			_, err = template.Render(messages, true)
		}
		if err != nil {
			return 0, false, err
		}
	}
	behind, err := template.BehindAnswer()
	if err != nil { // a template that wants more than a question and an answer
		return 0, false, nil
	}
	ids, err := t.EncodePlain(behind)
	if err != nil || len(ids) == 0 || !t.IsSpecial(ids[0]) {
		return 0, false, nil
	}
	return ids[0], true, nil
}

// An Encoder turns a row's prompt into tokens, or says why it cannot be one that
// is decoded in a context of so many tokens: that is the error of the row.
type Encoder func(pair engine.Pair, context int, row *storage.ShardRow) ([]int32, error)

// Encoder is the one of the job's rows. In a chat the tokens are what the
// template says and no others: it writes the token that begins a text itself.
func (j *Job) Encoder() Encoder {
	tokens := func(t *tokenize.Tokenizer, prompt string) ([]int32, error) { return t.Encode(prompt) }
	if j.Chat != nil {
		tokens = j.Chat.tokens()
	}
	return func(pair engine.Pair, context int, row *storage.ShardRow) ([]int32, error) {
		switch {
		case row.Null:
			return nil, errNullPrompt
		case len(row.Prompt) == 0:
			return nil, errEmptyPrompt
		case len(row.Prompt) > MaxPrompt:
			return nil, fmt.Errorf("the prompt has more than %d MiB", MaxPrompt>>20)
		case !utf8.Valid(row.Prompt):
			return nil, errUTF8
		}
		prompt, err := tokens(pair.Tokenizer, string(row.Prompt))
		if err != nil {
			return nil, fmt.Errorf("make tokens of the prompt: %w", err)
		}
		if len(prompt) == 0 {
			return nil, errEmptyPrompt
		}
		if prompt = pair.Prompt(prompt); pair.Room(prompt, context) < 1 {
			return nil, fmt.Errorf("the prompt has %d tokens and leaves no room in the target's context of %d", len(prompt), context)
		}
		return prompt, nil
	}
}

// tokens makes tokens of the prompts of a chat.
func (c *Chat) tokens() func(t *tokenize.Tokenizer, prompt string) ([]int32, error) {
	template, bad := c.compile()
	return func(t *tokenize.Tokenizer, prompt string) ([]int32, error) {
		if bad != nil {
			return nil, bad
		}
		messages, err := c.conversation(prompt)
		if err != nil {
			return nil, err
		}
		text, err := template.Render(messages, true)
		if err != nil {
			return nil, err
		}
		return t.EncodePlain(text)
	}
}

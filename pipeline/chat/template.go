package chat

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
)

// Template is a compiled chat template. It is safe for concurrent use.
type Template struct {
	jinja  *exec.Template
	tokens map[string]string
	date   time.Time
}

// New compiles a template. date is what the template is told of the present, so
// that a job's prompts do not hang on the day on which they are decoded.
func New(s *Source, date time.Time) (t *Template, err error) {
	defer caught(&err, "parse the chat template")
	const name = "/chat_template"
	source := rewrite(s.Template)
	loader, err := loaders.NewMemoryLoader(map[string]string{name: source})
	if err != nil {
		return nil, err
	}
	jinja, err := exec.NewTemplate(name, syntax, loader, environment)
	if err != nil {
		_, why, _ := strings.Cut(err.Error(), source+"': ") // not the whole template
		return nil, fmt.Errorf("parse the chat template: %w", oneLine(errors.New(why)))
	}
	return &Template{jinja, s.Tokens, date}, nil
}

// Render makes the prompt of a conversation: with generation, up to where the
// assistant's answer begins. An error is one line: why the template refuses the
// conversation, or what of it failed.
func (t *Template) Render(messages []Message, generation bool) (text string, err error) {
	defer caught(&err, "render the chat template")
	var refusal error
	data := map[string]any{
		"messages": list(messages), "add_generation_prompt": generation, "tools": nil, "documents": nil,
		"raise_exception": func(_ *exec.Evaluator, p *exec.VarArgs) (string, error) {
			why := "without a reason"
			if len(p.Args) > 0 {
				why = p.Args[0].String()
			}
			refusal = fmt.Errorf("the chat template refuses the messages: %w", oneLine(errors.New(why)))
			return "", refusal
		},
		"strftime_now": t.strftime,
	}
	for name, token := range t.tokens {
		data[name] = token
	}
	text, err = t.jinja.ExecuteToString(exec.NewContext(data))
	switch {
	case refusal != nil:
		return "", refusal
	case err != nil:
		return "", fmt.Errorf("render the chat template: %w", oneLine(err))
	}
	return text, nil
}

// BehindAnswer is what the template writes behind an assistant's answer: a token
// that ends it, first of all.
func (t *Template) BehindAnswer() (string, error) {
	const answer = "ANSWER-OF-THE-ASSISTANT"
	text, err := t.Render([]Message{Turn("user", "question"), Turn("assistant", answer)}, false)
	if err != nil {
		return "", err
	}
	_, behind, _ := strings.Cut(text, answer)
	return behind, nil
}

// list is the messages as the library knows them.
func list(messages []Message) []any {
	all := make([]any, len(messages))
	for i, m := range messages {
		all[i] = m.members
	}
	return all
}

// caught makes an error of a panic of the library.
func caught(err *error, step string) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s: %w", step, oneLine(fmt.Errorf("%v", p)))
	}
}

// oneLine is an error whose text is one line of bearable length. Templates of
// several KB are part of the library's errors.
func oneLine(err error) error {
	const most = 300
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > most {
		text = strings.ToValidUTF8("... "+text[len(text)-most:], "") // the cause is at the end
	}
	return errors.New(text)
}

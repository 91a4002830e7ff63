package chat

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		files    map[string]string
		template string
		fails    string
	}{
		"file":          {map[string]string{"chat_template.jinja": "a", "tokenizer_config.json": `{"chat_template": "b", "bos_token": "<s>"}`}, "a", ""},
		"configured":    {map[string]string{"tokenizer_config.json": `{"chat_template": "b", "bos_token": {"content": "<s>"}, "add_bos_token": true, "unk_token": null}`}, "b", ""},
		"named":         {map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}], "bos_token": "<s>"}`}, "d", ""},
		"none default":  {map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "rag", "template": "t"}]}`}, "", "none is named default"},
		"special map":   {map[string]string{"chat_template.jinja": "a", "special_tokens_map.json": `{"bos_token": "<s>"}`}, "a", ""},
		"no template":   {map[string]string{"tokenizer_config.json": `{}`}, "", "no chat template"},
		"empty":         {nil, "", "no chat template"},
		"damaged":       {map[string]string{"tokenizer_config.json": `{`}, "", "tokenizer_config.json: unexpected end"},
		"another shape": {map[string]string{"tokenizer_config.json": `{"chat_template": 3}`}, "", "neither a text nor a list"},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Read(dir)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) || !strings.Contains(err.Error(), dir) || errors.Is(err, ErrNoTemplate) != (c.fails == "no chat template") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || s.Template != c.template || len(s.Tokens) != 1 || s.Tokens["bos_token"] != "<s>" {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// TestRewrite: what is written in another way means the same.
func TestRewrite(t *testing.T) {
	for template, want := range map[string]string{
		"a {b} {{ x }} {% if y %}{% endif %}":     "a {b} {{ x }} {% if y %}{% endif %}",
		"{# (a if b else c) #}{{ '(a if b)' }}":   "{# (a if b else c) #}{{ '(a if b)' }}",
		"{% for x in y if x %}{{ x }}":            "{% for x in y if x %}{{ x }}",
		"{{ 'it\\'s' }}{{ m[1:] }}{{ m[-2:-1] }}": "{{ 'it\\'s' }}{{ m[1:] }}{{ m[-2:-1] }}",
		"{{- m[-1].x -}}":                         "{{- m[-1:][0].x -}}",
		"{{ [-1] }}{{ f(a == -1) }}":              "{{ [-1] }}{{ f(a == -1) }}",
		"{% set x = a %}{% set x = a == b %}":     "{% set x = a %}{% set x = a == b %}",
		"{% raw %}{{ (a if b) }}{% endraw %}":     "{% raw %}{{ (a if b) }}{% endraw %}",
		"{{ f(a if b else c, d) }}":               "{{ f( ((b) and [a] or [c])[0] , d) }}",
		"{%- set x = a if b -%}":                  "{%- set x = ((b) and [a] or [''])[0] -%}",
		"{{":                                      "{{",
		"{% if (":                                 "{% if (",
		"{#":                                      "{#",
		"{{ 'a":                                   "{{ 'a",
	} {
		if got := rewrite(template); strings.ReplaceAll(got, "  ", " ") != want {
			t.Errorf("%s:\n got %s\nwant %s", template, got, want)
		}
	}
	for template, want := range map[string]string{
		"{{ 'a' if false else 'b' if false else 'c' }}":                                  "c",
		"{{ ('' if true else 'x') + 'y' }}":                                              "y",
		"{% set x = (0 if messages else 1) %}{{ x }}":                                    "0",
		"{{ messages[-1].role }}{{ messages[-1]['content'][-1] }}":                       "usero",
		"{{ ['a', 'b' if false else 'c'] | join('-') }}":                                 "a-c",
		"{{ {'k': 'v' if messages else 'w'}['k'] }}":                                     "v",
		"{% for m in (messages if messages else []) if m.role == 'user' %}u{% endfor %}": "u",
		"{{ (messages[3].content if messages|length > 3 else 'short') }}":                "short",
	} {
		tmpl, err := New(&Source{Template: template}, day)
		if err != nil {
			t.Errorf("%s: %v", template, err)
			continue
		}
		if got, err := tmpl.Render([]Message{Turn("user", "Hello")}, true); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", template, got, err, want)
		}
	}
}

// TestTemplatesThatFail: every failure is one line.
func TestTemplatesThatFail(t *testing.T) {
	for template, want := range map[string]string{
		"{{ raise_exception('a\nb') }}":                        "refuses the messages: a b",
		"{{ messages[0].content.nothing() }}":                  "render the chat template",
		"{% for i in range(10000000) %}{% endfor %}":           "more than 100000 numbers",
		"{% include '/etc/passwd' %}":                          "chat template",
		"{{ strftime_now(3) }}":                                "strftime_now takes a format",
		"{{ messages | nofilter }}" + strings.Repeat("x", 999): "chat template",
	} {
		tmpl, err := New(&Source{Template: template}, day)
		if err == nil {
			_, err = tmpl.Render([]Message{Turn("user", "Hello")}, true)
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 400 {
			t.Errorf("%s: %v", template, err)
		}
	}
}

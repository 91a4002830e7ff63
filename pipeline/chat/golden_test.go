package chat

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// day is the date that testdata/make_golden.py tells templates.
var day = time.Date(2024, 7, 26, 0, 0, 0, 0, time.UTC)

// golden is what transformers' apply_chat_template makes of conversations.
type golden struct {
	Templates map[string]struct {
		Template string            `json:"template"`
		Tokens   map[string]string `json:"tokens"`
	} `json:"templates"`
	Conversations map[string]json.RawMessage `json:"conversations"`
	Cases         []struct {
		Template     string  `json:"template"`
		Conversation string  `json:"conversation"`
		Generation   bool    `json:"generation"`
		Text         *string `json:"text"`
		Error        string  `json:"error"`
	} `json:"cases"`
}

// TestGolden compares with transformers on the templates in testdata, or on the
// file that DRAFTMILL_CHAT_GOLDEN names: testdata/make_golden.py makes one of
// any model folders.
func TestGolden(t *testing.T) {
	path := "testdata/golden.json"
	if file := os.Getenv("DRAFTMILL_CHAT_GOLDEN"); file != "" {
		path = file
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Cases) < 100 {
		t.Errorf("%d cases", len(g.Cases))
	}
	for _, c := range g.Cases {
		name := c.Template + "/" + c.Conversation
		if !c.Generation {
			name += "/no prompt"
		}
		t.Run(name, func(t *testing.T) {
			messages, err := Parse(g.Conversations[c.Conversation])
			if err != nil {
				t.Fatal(err)
			}
			source := g.Templates[c.Template]
			template, err := New(&Source{source.Template, source.Tokens}, day)
			if err != nil {
				t.Fatal(err)
			}
			text, err := template.Render(messages, c.Generation)
			switch {
			case c.Text == nil && err == nil:
				t.Errorf("rendered %q; transformers: %s", text, c.Error)
			case c.Text == nil && path == "testdata/golden.json" && !strings.Contains(err.Error(), c.Error):
				t.Errorf("error %q; transformers: %s", err, c.Error)
			case c.Text != nil && err != nil:
				t.Errorf("error %v\nwant %q", err, *c.Text)
			case c.Text != nil && text != *c.Text:
				t.Errorf("got\n%q\nwant\n%q", text, *c.Text)
			}
		})
	}
}

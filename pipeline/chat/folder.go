package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoTemplate is a model folder without a chat template.
var ErrNoTemplate = errors.New("the model has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json): it is not an instruct model, or its folder is not complete")

// Files of a model folder that say how it chats.
const (
	templateFile = "chat_template.jinja"
	configFile   = "tokenizer_config.json"
	specialFile  = "special_tokens_map.json"
)

// Source is what a model folder says of chats.
type Source struct {
	Template string            // Jinja
	Tokens   map[string]string // special tokens by the name that templates use: bos_token, eos_token ...
}

// Read reads the chat template of a model folder: chat_template.jinja, else
// chat_template in tokenizer_config.json, of several the one named default.
// Errors name the folder; one without a template is ErrNoTemplate.
func Read(dir string) (*Source, error) {
	s, err := read(dir)
	if err != nil {
		return nil, fmt.Errorf("chat with the model %s: %w", dir, err)
	}
	return s, nil
}

func read(dir string) (*Source, error) {
	s := &Source{Tokens: map[string]string{}}
	var config map[string]json.RawMessage
	for _, name := range []string{specialFile, configFile} { // the second goes before the first
		config = nil
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(data, &config)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for key, raw := range config {
			if text, ok := tokenText(raw); ok && strings.HasSuffix(key, "_token") {
				s.Tokens[key] = text
			}
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, templateFile))
	switch {
	case err == nil:
		s.Template = string(data)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	default:
		if s.Template, err = configured(config["chat_template"]); err != nil {
			return nil, err
		}
	}
	if s.Template == "" {
		return nil, ErrNoTemplate
	}
	return s, nil
}

// tokenText is a special token as it stands in the files: its text, or an
// object with the text as content. Flags such as add_bos_token are neither.
func tokenText(raw json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil && string(raw) != "null" {
		return text, true
	}
	var token struct {
		Content *string `json:"content"`
	}
	if json.Unmarshal(raw, &token) == nil && token.Content != nil {
		return *token.Content, true
	}
	return "", false
}

// configured is chat_template of tokenizer_config.json: a text, or a list of
// named ones.
func configured(raw json.RawMessage) (string, error) {
	if len(raw) == 0 {
		return "", nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &named); err != nil {
		return "", fmt.Errorf("%s: chat_template is neither a text nor a list of named ones", configFile)
	}
	var names []string
	for _, t := range named {
		if t.Name == "default" {
			return t.Template, nil
		}
		names = append(names, t.Name)
	}
	return "", fmt.Errorf("%s: of its chat templates (%s) none is named default", configFile, strings.Join(names, ", "))
}

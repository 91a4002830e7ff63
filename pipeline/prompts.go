package pipeline

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/draftmill/draftmill/storage"
)

// Rows yields a dataset's rows in order, and io.EOF after the last.
type Rows interface {
	Next() (storage.Row, error)
}

// MaxPrompt is the most bytes of a prompt. A longer one travels cut off to one
// byte more, and becomes a row with an error.
const MaxPrompt = 16 << 20

// Prompts yields the job's rows: the first Limit of the dataset's, with the
// template rendered. An error is the last thing that it yields.
func (j *Job) Prompts(rows Rows) iter.Seq2[storage.ShardRow, error] {
	return func(yield func(storage.ShardRow, error) bool) {
		render, err := parseTemplate(j.Dataset.Template)
		if err != nil {
			yield(storage.ShardRow{}, err)
			return
		}
		for n := 0; j.Dataset.Limit == 0 || n < j.Dataset.Limit; n++ {
			row, err := rows.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			r := storage.ShardRow{Row: row.Index, ID: row.ID, Prompt: row.Prompt, Null: row.Null}
			if err == nil && render != nil {
				if r.Prompt, err = render(row.Fields); err != nil {
					err = fmt.Errorf("render the template for row %d: %w", row.Index, err)
				}
			}
			if len(r.Prompt) > MaxPrompt { // the worker says so in the row's error
				r.Prompt = r.Prompt[:MaxPrompt+1]
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// parseTemplate returns a function that renders a row's columns, or nil when
// there is no template. A column that the row does not have is an error.
func parseTemplate(text string) (func(map[string]string) ([]byte, error), error) {
	if text == "" {
		return nil, nil
	}
	t, err := template.New("template").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parse the template: %w", err)
	}
	return func(fields map[string]string) ([]byte, error) {
		var b strings.Builder
		if err := t.Execute(&b, fields); err != nil {
			return nil, err
		}
		return []byte(b.String()), nil
	}, nil
}

// TemplateColumns lists the columns that a template uses, which may be more than
// a dataset has; nil when it may use any.
func TemplateColumns(text string) ([]string, error) {
	names := []string{}
	if text == "" {
		return names, nil
	}
	t, err := template.New("template").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parse the template: %w", err)
	}
	any := false
	walkTemplate(t.Root, func(name string) {
		if name == "" {
			any = true
		}
		names = append(names, name)
	})
	if any {
		return nil, nil
	}
	return names, nil
}

// walkTemplate calls column with the names of the columns that a part of a
// template uses, and with "" where it uses all of them as one value.
func walkTemplate(n parse.Node, column func(string)) {
	branch := func(b *parse.BranchNode) {
		walkTemplate(b.Pipe, column)
		walkTemplate(b.List, column)
		if b.ElseList != nil {
			walkTemplate(b.ElseList, column)
		}
	}
	switch n := n.(type) {
	case *parse.ListNode:
		for _, part := range n.Nodes {
			walkTemplate(part, column)
		}
	case *parse.ActionNode:
		walkTemplate(n.Pipe, column)
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			walkTemplate(c, column)
		}
	case *parse.CommandNode:
		for _, arg := range n.Args {
			walkTemplate(arg, column)
		}
	case *parse.FieldNode:
		column(n.Ident[0])
	case *parse.VariableNode:
		switch {
		case n.Ident[0] == "$" && len(n.Ident) > 1:
			column(n.Ident[1])
		case n.Ident[0] == "$":
			column("")
		}
	case *parse.ChainNode:
		walkTemplate(n.Node, column)
	case *parse.IfNode:
		branch(&n.BranchNode)
	case *parse.RangeNode:
		branch(&n.BranchNode)
	case *parse.WithNode:
		branch(&n.BranchNode)
	case *parse.DotNode, *parse.TemplateNode:
		column("")
	}
}

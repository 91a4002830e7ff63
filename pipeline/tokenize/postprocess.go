package tokenize

import (
	"encoding/json"
	"fmt"
)

// postProcessor puts special tokens around the ids of a text.
type postProcessor []template

// template is one step: what to write before and after the text (or a copy of the text again).
type template []slot

// slot is the text so far, or the ids of a special token.
type slot struct {
	text bool
	ids  []int32
}

func (p postProcessor) process(ids []int32, special bool) []int32 {
	for _, t := range p {
		out := make([]int32, 0, len(ids)+len(t))
		for _, s := range t {
			if s.text {
				out = append(out, ids...)
			} else if special {
				out = append(out, s.ids...)
			}
		}
		ids = out
	}
	return ids
}

func newPostProcessor(section string, raw json.RawMessage) (postProcessor, error) {
	if absent(raw) {
		return nil, nil
	}
	kind, err := typeOf(section, raw)
	if err != nil {
		return nil, err
	}
	section = section + " " + kind
	switch kind {
	case "ByteLevel": // moves offsets only
		return nil, nil
	case "BertProcessing", "RobertaProcessing":
		var p struct{ Sep, Cls tokenID }
		if err := require(section, raw, "sep", "cls"); err != nil {
			return nil, err
		}
		if err := read(section, raw, &p); err != nil {
			return nil, err
		}
		return postProcessor{{{ids: []int32{p.Cls.id}}, {text: true}, {ids: []int32{p.Sep.id}}}}, nil
	case "TemplateProcessing":
		return newTemplate(section, raw)
	case "Sequence":
		var list struct {
			Processors []json.RawMessage `json:"processors"`
		}
		if err := read(section, raw, &list); err != nil {
			return nil, err
		}
		var all postProcessor
		for _, r := range list.Processors {
			p, err := newPostProcessor("post_processor", r)
			if err != nil {
				return nil, err
			}
			all = append(all, p...)
		}
		return all, nil
	}
	return nil, unsupported("post_processor", fmt.Sprintf("type %q", kind), "TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing and Sequence are")
}

func newTemplate(section string, raw json.RawMessage) (postProcessor, error) {
	var p struct {
		Single []struct {
			Sequence *struct {
				ID string `json:"id"`
			}
			SpecialToken *struct {
				ID string `json:"id"`
			}
		} `json:"single"`
		SpecialTokens map[string]struct {
			IDs []int32 `json:"ids"`
		} `json:"special_tokens"`
	}
	if err := require(section, raw, "single", "special_tokens"); err != nil {
		return nil, err
	}
	if err := read(section, raw, &p); err != nil {
		return nil, err
	}
	var t template
	for i, piece := range p.Single {
		switch {
		case piece.Sequence != nil && piece.Sequence.ID == "A":
			t = append(t, slot{text: true})
		case piece.SpecialToken != nil:
			token, ok := p.SpecialTokens[piece.SpecialToken.ID]
			if !ok {
				return nil, fmt.Errorf("%s: piece %d of single: special token %q is not in special_tokens", section, i, piece.SpecialToken.ID)
			}
			t = append(t, slot{ids: token.IDs})
		default:
			return nil, unsupported(section, fmt.Sprintf("piece %d of single", i), "a Sequence A or a SpecialToken is")
		}
	}
	return postProcessor{t}, nil
}

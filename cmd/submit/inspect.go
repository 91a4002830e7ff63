package main

import (
	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/pipeline/tokenize"
)

// inspectCommand describes model folders.
func inspectCommand() *cobra.Command {
	var draft string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect MODEL [--draft MODEL]",
		Short: "describe a model, and whether a draft fits the target",
		Long: `inspect reads a model and prints what draftmill makes of it: the contract
of its cache, sizes, types, what a sequence costs in memory, and whether several
sequences share a pass. With --draft it describes both and says whether the pair
fits together: as many logits, and every token id the same token. No model is
loaded. A Hugging Face folder or a .gguf file is converted into the user's cache
first, once, as a job would do it. Exit code 1 means that a model cannot be used,
or that the pair does not fit.`,
		Example: `  submit inspect testdata/demo/target
  submit inspect llama-1b --draft llama-68m --json
  submit inspect Qwen2.5-Coder-0.5B-Instruct-Q4_0.gguf`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return configs.Usagef("name one model: %s MODEL", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			models := app.NewModels(configs.Config{}, app.Logger(configs.Log{}, cmd.ErrOrStderr()))
			models.Interrupt(cmd.Context())
			defer models.Close()
			found, err := inspect(models, args[0], draft)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), found)
			} else {
				err = found.text(cmd.OutOrStdout())
			}
			if err == nil && found.Pair != nil {
				err = found.Pair.err
			}
			return err
		},
	}
	cmd.Flags().StringVar(&draft, "draft", "", "draft `MODEL`, to see whether it fits")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print it as JSON, sizes in bytes")
	return cmd
}

// inspection is what inspect prints.
type inspection struct {
	Target *inspected `json:"target"`
	Draft  *inspected `json:"draft,omitempty"`
	Pair   *fit       `json:"pair,omitempty"`
}

// inspected is one model folder.
type inspected struct {
	Dir          string     `json:"dir"`
	Architecture string     `json:"architecture"`
	Contract     string     `json:"contract"`
	Digest       string     `json:"digest"`
	Files        []ort.File `json:"files"`
	Bytes        int64      `json:"bytes"`
	Parameters   int64      `json:"parameters"`
	Weights      []string   `json:"weights"`
	Quantization string     `json:"quantization,omitempty"`

	Vocabulary       int     `json:"vocabulary"`        // logits
	TokenizerEntries int     `json:"tokenizer_entries"` // at most as many
	Context          int     `json:"context"`
	EOS              []token `json:"eos"`
	BOS              *token  `json:"bos,omitempty"`

	Layers       int      `json:"layers"`
	KVHeads      int      `json:"kv_heads"`
	HeadSize     int      `json:"head_size"`
	Logits       string   `json:"logits"`
	Cache        string   `json:"cache"`
	Inputs       []string `json:"inputs"` // besides input_ids and the cache
	TokenBytes   int      `json:"cache_bytes_per_token"`
	ContextBytes int      `json:"cache_bytes_per_sequence"` // of the full context

	Encoder *startsWith `json:"encoder,omitempty"` // of an encoder-decoder model

	Ragged    bool   `json:"ragged"`               // on the CPU one pass takes several sequences, to the same bits as alone
	NotRagged string `json:"not_ragged,omitempty"` // why not
}

// startsWith says how the sequences of an encoder-decoder model begin.
type startsWith struct {
	Start []token `json:"start"` // what the decoder begins with
	Most  int     `json:"most"`  // tokens of the input, and of what the decoder sees
}

// token is a token id and its text.
type token struct {
	ID   int32  `json:"id"`
	Text string `json:"text"`
}

// fit says whether a draft fits a target.
type fit struct {
	Fits    bool   `json:"fits"`
	Why     string `json:"why,omitempty"` // where it does not
	Context int    `json:"context"`       // of the pair: the smaller one

	err error
}

// inspect reads the folders; an empty draft is none.
func inspect(models *app.Models, target, draft string) (found *inspection, err error) {
	found = &inspection{}
	if found.Target, err = inspectModel(models, target); err != nil || draft == "" {
		return found, err
	}
	if found.Draft, err = inspectModel(models, draft); err != nil {
		return found, err
	}
	found.Pair = &fit{Context: min(found.Target.Context, found.Draft.Context), err: models.CheckPair(target, draft)}
	if found.Pair.Fits = found.Pair.err == nil; !found.Pair.Fits {
		found.Pair.Why = found.Pair.err.Error()
	}
	return found, nil
}

func inspectModel(models *app.Models, dir string) (*inspected, error) {
	b, err := models.Describe(dir)
	if err != nil {
		return nil, err
	}
	d, err := b.Details()
	if err != nil {
		return nil, err
	}
	tokenizer, err := tokenize.Load(b.Tokenizer)
	if err != nil {
		return nil, err
	}
	m := &inspected{
		Dir: dir, Architecture: b.Family, Contract: string(b.Contract), Digest: b.Digest,
		Files: b.Files, Bytes: b.Bytes, Parameters: d.Parameters, Weights: d.Weights, Quantization: d.Quantization,
		Vocabulary: b.Vocab, TokenizerEntries: tokenizer.VocabSize(), Context: b.Context, EOS: []token{},
		Layers: b.Layers, KVHeads: b.KVHeads, HeadSize: b.HeadSize, Logits: d.Logits, Cache: d.Cache, Inputs: []string{},
		TokenBytes: b.CacheBytes(1), ContextBytes: b.CacheBytes(b.Context),
		Ragged: d.Ragged == nil,
	}
	if m.Ragged { // one pool for all sequences, in which nothing is there twice
		m.TokenBytes = b.CacheBytesPerToken()
		m.ContextBytes = m.TokenBytes * b.Context
	}
	named := func(id int32) token {
		text, _ := tokenizer.Token(id) // logits may be padded beyond the vocabulary
		return token{id, text}
	}
	for _, id := range b.EOS {
		m.EOS = append(m.EOS, named(id))
	}
	if b.BOS >= 0 {
		t := named(b.BOS)
		m.BOS = &t
	}
	if d.Mask {
		m.Inputs = append(m.Inputs, "attention_mask")
	}
	if d.Positions {
		m.Inputs = append(m.Inputs, "position_ids")
	}
	if e := b.Encoder; e != nil {
		m.Encoder = &startsWith{Most: e.Most}
		for _, id := range e.Start {
			m.Encoder.Start = append(m.Encoder.Start, named(id))
		}
	}
	if d.Ragged != nil {
		m.NotRagged = d.Ragged.Error()
	}
	return m, nil
}

package graph

import (
	"fmt"
	"regexp"
)

// Cross is what the layout of an encoder-decoder model has beyond a decoder's.
// Layout.Past and Present are of the decoder's own attention.
type Cross struct {
	Past, Present []string // keys and values of the encoder's states: taken by later runs, given by the first
	States        ElementType
	Width         int  // of a state
	EncoderMask   bool // the encoder has attention_mask
	Merged        bool // one graph for first and later runs, with use_cache_branch
	First, Next   CrossInputs
}

// CrossInputs are what a run of the decoder takes beside input_ids and caches.
type CrossInputs struct {
	Mask   bool // encoder_attention_mask
	States bool // encoder_hidden_states
}

var (
	crossPastName    = regexp.MustCompile(`^past_key_values\.\d+\.(decoder|encoder)\.(key|value)$`)
	crossPresentName = regexp.MustCompile(`^present\.\d+\.(decoder|encoder)\.(key|value)$`)
)

// ReadCrossLayout reads the layout of an encoder-decoder model from its encoder,
// the decoder's graph for the first run and the one for later runs; next is nil
// where first is both (merged).
func ReadCrossLayout(encoder, first, next *Summary) (*Layout, error) {
	l := &Layout{Contract: Crossed, Cross: &Cross{Merged: next == nil}}
	if err := l.readEncoder(encoder); err != nil {
		return nil, fmt.Errorf("encoder: %w", err)
	}
	if next == nil {
		next = first
	}
	c := l.Cross
	pasts, err := c.Next.read(next, c.Merged)
	if err != nil {
		return nil, fmt.Errorf("decoder with past: %w", err)
	}
	if _, err := c.First.read(first, c.Merged); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	if !c.First.States {
		return nil, fmt.Errorf("decoder: no input encoder_hidden_states: it does not see the encoder")
	}
	if err := l.readCrossOutputs(pasts, outputs(first), outputs(next)); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	return l, nil
}

func outputs(g *Summary) map[string]Tensor {
	to := map[string]Tensor{}
	for _, out := range g.Outputs {
		to[out.Name] = out
	}
	return to
}

func (l *Layout) readEncoder(g *Summary) error {
	ids := false
	for _, in := range g.Inputs {
		switch in.Name {
		case "input_ids":
			ids = true
		case "attention_mask":
			l.Cross.EncoderMask = true
		default:
			return fmt.Errorf("input %s is not one of a text encoder (input_ids, attention_mask)", in.Name)
		}
	}
	states, ok := outputs(g)["last_hidden_state"]
	switch {
	case !ids:
		return fmt.Errorf("no input input_ids: not a text model")
	case !ok:
		return fmt.Errorf("no output last_hidden_state")
	case !states.Type.float() || len(states.Shape) != 3 || states.Shape[2] < 1:
		return fmt.Errorf("output last_hidden_state is %s with %d dimensions, want a float type with 3, the last one fixed", states.Type, len(states.Shape))
	}
	l.Cross.States, l.Cross.Width = states.Type, int(states.Shape[2])
	return nil
}

// read notes the inputs of a decoder's graph and returns its caches.
func (c *CrossInputs) read(g *Summary, merged bool) (map[string]Tensor, error) {
	pasts, ids, branch := map[string]Tensor{}, false, false
	for _, in := range g.Inputs {
		switch {
		case in.Name == "input_ids":
			ids = true
		case in.Name == "encoder_attention_mask":
			c.Mask = true
		case in.Name == "encoder_hidden_states":
			c.States = true
		case in.Name == "use_cache_branch" && in.Type == Bool:
			branch = true
		case crossPastName.MatchString(in.Name):
			pasts[in.Name] = in
		default:
			return nil, fmt.Errorf("input %s is not one of an encoder-decoder text model (input_ids, encoder_attention_mask, encoder_hidden_states, use_cache_branch, past_key_values.N.decoder.key and the like)", in.Name)
		}
	}
	switch {
	case !ids:
		return nil, fmt.Errorf("no input input_ids: not a text model")
	case branch != merged:
		return nil, fmt.Errorf("input use_cache_branch belongs to decoder_model_merged.onnx, and to no other file: export the folder again")
	}
	return pasts, nil
}

// readCrossOutputs joins the caches that later runs take with those that come
// out: the decoder's own of every run, the encoder's of the first.
func (l *Layout) readCrossOutputs(pasts, first, next map[string]Tensor) error {
	if len(pasts) == 0 || len(pasts)%4 != 0 {
		return fmt.Errorf("%d cache inputs: want four for each layer; export it with its KV cache (task text2text-generation-with-past)", len(pasts))
	}
	presents := 0
	for name := range first {
		if crossPresentName.MatchString(name) {
			presents++
		}
	}
	if presents != len(pasts) {
		return fmt.Errorf("%d cache inputs and %d cache outputs: want as many", len(pasts), presents)
	}
	if err := l.readLogits(first); err != nil {
		return err
	}
	l.Layers = len(pasts) / 4
	for i := range l.Layers {
		for _, name := range []string{"decoder.key", "decoder.value", "encoder.key", "encoder.value"} {
			in, out := fmt.Sprintf("past_key_values.%d.%s", i, name), fmt.Sprintf("present.%d.%s", i, name)
			past, ok := pasts[in]
			if !ok {
				return fmt.Errorf("no input %s among the %d layers", in, l.Layers)
			}
			present, ok := first[out]
			if !ok {
				return fmt.Errorf("no output %s for the input %s", out, in)
			}
			if !past.Type.float() || past.Type != present.Type || len(past.Shape) != 4 || past.Shape[1] < 1 || past.Shape[3] < 1 {
				return fmt.Errorf("input %s is %s with %d dimensions and output %s is %s: want one float type and 4 dimensions, heads and head size fixed", in, past.Type, len(past.Shape), out, present.Type)
			}
			heads, size := int(past.Shape[1]), int(past.Shape[3])
			if len(l.Past) == 0 {
				l.Cache, l.KVHeads, l.HeadSize = past.Type, heads, size
			}
			if past.Type != l.Cache || heads != l.KVHeads || size != l.HeadSize {
				return fmt.Errorf("input %s differs in shape or type from the other caches: not supported", in)
			}
			if name[0] == 'e' {
				l.Cross.Past, l.Cross.Present = append(l.Cross.Past, in), append(l.Cross.Present, out)
				continue
			}
			if _, ok := next[out]; !ok {
				return fmt.Errorf("no output %s of runs with a past", out)
			}
			l.Past, l.Present = append(l.Past, in), append(l.Present, out)
		}
	}
	return nil
}

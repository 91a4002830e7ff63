package spec

// Edit is what the parts of a [Sampling] before the temperature do to the logit of
// one token, for whoever applies them elsewhere: on a device, to a few tokens of a
// row that stays there. In this order, all in float32: Add is added; Penalty
// divides the logit if it is at least zero and multiplies it if it is not; Ban
// makes the token impossible; Less, and then Presence, are subtracted.
type Edit = struct {
	Token          int32
	Add, Penalty   float32 // Penalty 1 changes nothing
	Ban            bool
	Less, Presence float32
}

// Edits appends to edits what [Chain.Standardize] would do, before the
// temperature, to a row of logits for the token after tokens: one Edit for each
// token whose logit changes. The rules for tokens are those of Standardize; where the
// sampling does not remember, only how many they are counts.
func (c *Chain) Edits(tokens []int32, edits []Edit) ([]Edit, error) {
	if len(tokens) < c.prompt {
		return edits, ErrShape
	}
	s, h := &c.sampling, c.history
	first := len(edits)
	if c.place == nil {
		c.place = map[int32]int{}
	}
	clear(c.place)
	of := func(x int32) *Edit {
		at, ok := c.place[x]
		if !ok {
			at = len(edits)
			c.place[x] = at
			edits = append(edits, Edit{Token: x, Penalty: 1})
		}
		return &edits[at]
	}
	ban := func(x int32) error { of(x).Ban = true; return nil }
	for _, b := range c.bias {
		of(b.token).Add = b.add
	}
	if h != nil {
		if err := h.follow(tokens); err != nil {
			return edits[:first], err
		}
		for _, x := range h.kinds {
			e := of(x)
			if s.penalizesRepetition() {
				e.Penalty = float32(s.RepetitionPenalty)
			}
			if n := h.made[x]; n > 0 {
				e.Less = float32(float32(s.FrequencyPenalty) * float32(n))
				e.Presence = float32(s.PresencePenalty)
			}
		}
		if s.NoRepeatNGramSize > 0 {
			if err := h.completions(ban); err != nil {
				return edits[:first], err
			}
		}
	}
	if len(tokens)-c.prompt < s.MinNewTokens {
		for _, x := range c.eos {
			of(x).Ban = true
		}
	}
	for _, x := range s.ForbiddenTokens {
		of(x).Ban = true
	}
	return edits, nil
}

// Edits reports whether logits are changed before the temperature.
func (s Sampling) Edits() bool {
	return s.Remembers() || len(s.LogitBias) > 0 || s.MinNewTokens > 0 || len(s.ForbiddenTokens) > 0
}

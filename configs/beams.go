package configs

import "math"

// MaxBeams is the largest width of a beam search.
const MaxBeams = 64

// EarlyStopping is false, true or never, as in transformers.
type EarlyStopping string

// beamDefaults are settings that follow from a beam search, where they are not
// given: it draws nothing, and the draft's is twice as wide.
func (c *Config) beamDefaults() {
	if c.Beams < 1 {
		return
	}
	if !c.IsSet("sampling.temperature") {
		c.Sampling.Temperature = 0
	}
	if !c.IsSet("draft_beams") {
		c.DraftBeams = min(2*c.Beams, MaxBeams)
	}
}

// beams checks a beam search, and that nothing is asked of it that is for drawing.
func (p *problems) beams() {
	c, s := p.c, p.c.Sampling
	p.within("beams", c.Beams, 0, MaxBeams, "each is a sequence that is scored")
	p.within("draft_beams", c.DraftBeams, 0, MaxBeams, "at least as many as beams")
	p.must(math.Abs(c.LengthPenalty) <= 16, "length_penalty", "want -16 to 16, got %v", c.LengthPenalty)
	p.oneOf("early_stopping", string(c.EarlyStopping), []string{"false", "true", "never"})
	if c.Beams < 1 {
		p.must(c.DraftBeams == 0, "draft_beams", "want it with --beams only")
		p.must(!c.IsSet("length_penalty"), "length_penalty", "want it with --beams only")
		p.must(!c.IsSet("early_stopping"), "early_stopping", "want it with --beams only")
		return
	}
	p.must(c.DraftBeams >= c.Beams && c.DraftBeams <= MaxBeams, "draft_beams",
		"want %d (beams) to %d, got %d", c.Beams, MaxBeams, c.DraftBeams)
	p.must(s.Temperature == 0, "sampling.temperature", "want 0, or nothing, with --beams: a search draws nothing, got %v", s.Temperature)
	p.must(s.TopK == 0, "sampling.top_k", "want 0 (off) with --beams: a search draws nothing, got %d", s.TopK)
	p.must(s.TopP == 1, "sampling.top_p", "want 1 (off) with --beams: a search draws nothing, got %v", s.TopP)
	p.must(s.MinP == 0, "sampling.min_p", "want 0 (off) with --beams: a search draws nothing, got %v", s.MinP)
	p.must(s.N <= c.Beams, "sampling.n", "want at most as many as --beams, %d, of which it returns the best, got %d", c.Beams, s.N)
	p.must(c.Rule == "rejection", "rule", "want none with --beams: a step is accepted while the draft has all of the target's beams, got %q", c.Rule)
	p.must(c.Mode == ModeArS || c.Drafter == "model", "drafter", "want model with --beams: only a draft model can search ahead, got %q", c.Drafter)
	p.must(c.Lookahead == LookaheadFixed, "lookahead", "want fixed with --beams, got %q", c.Lookahead)
	p.must(c.Lanes != LanesAuto, "lanes", "want a number with --beams, got %q", string(c.Lanes))
}

package configs

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Drafter is what [Config.Drafter] says: whether the draft model takes part,
// and what drafts instead of it, or for it.
type Drafter struct {
	Model bool
	Kind  string // "", "ngram", "lookup" or "uniform"
	Table string // ngram: the table's file
	N     int    // lookup: the longest suffix compared
}

// defaultLookup is the longest suffix that lookup compares by itself.
const defaultLookup = 8

// DrafterSpec takes the value of drafter apart. The error is a [*UsageError].
func (c Config) DrafterSpec() (Drafter, error) {
	var d Drafter
	law, more := strings.CutPrefix(c.Drafter, "model")
	if d.Model = more; more {
		if law == "" {
			return d, nil
		}
		if law, more = strings.CutPrefix(law, "+"); !more {
			return d, c.drafterError()
		}
	}
	kind, value, has := strings.Cut(law, ":")
	switch d.Kind = kind; {
	case kind == "ngram" && value != "":
		d.Table = value
	case kind == "lookup" && !has:
		d.N = defaultLookup
	case kind == "lookup":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > math.MaxInt32 {
			return d, c.drafterError()
		}
		d.N = n
	case kind == "uniform" && !has:
	default:
		return d, c.drafterError()
	}
	return d, nil
}

func (c Config) drafterError() error {
	return c.usage("drafter", nil, "want model, ngram:TABLE, lookup[:N] or uniform, or model+ one of them, got %q", c.Drafter)
}

// The values of [Config.Lookahead] beside confidence:X.
const (
	LookaheadFixed = "fixed"
	LookaheadAuto  = "auto"
)

// adaptiveK is the largest lookahead of auto and confidence where k is not
// given: what fixed does by default is little to choose from.
const adaptiveK = 8

// lookahead checks the way in which the lookahead is chosen.
func (p *problems) lookahead() {
	kind, x, has := strings.Cut(p.c.Lookahead, ":")
	switch {
	case !has && (kind == LookaheadFixed || kind == LookaheadAuto):
	case has && kind == "confidence":
		threshold, err := strconv.ParseFloat(x, 64)
		p.must(err == nil && threshold > 0 && threshold <= 1, "lookahead",
			"want a probability above 0 and at most 1, such as confidence:0.4, got %q", p.c.Lookahead)
	default:
		p.must(false, "lookahead", "want fixed, auto or confidence:X, got %q", p.c.Lookahead)
	}
}

// drafter checks what drafts.
func (p *problems) drafter() {
	_, err := p.c.DrafterSpec()
	if usage, ok := errors.AsType[*UsageError](err); ok && p.first == nil {
		p.first = usage
	}
}

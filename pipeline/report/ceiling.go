package report

import (
	"fmt"

	"github.com/draftmill/draftmill/storage"
)

// Ceiling is the speed that memory allows: no loop is faster than reading the
// target's weights once, and the draft's once for each drafted token. Sequences
// that share a pass share that reading. Arithmetic, caches and everything else
// count for nothing in it.
type Ceiling struct {
	Bandwidth   float64 `json:"read_bytes_per_second"` // as the fastest of the workers measured it at its start
	TargetBytes int     `json:"target_bytes"`
	DraftBytes  int     `json:"draft_bytes"`
	TokenMS     float64 `json:"token_ms"`          // at the least
	PerSecond   float64 `json:"tokens_per_second"` // at the most, prefill left out
	Reached     float64 `json:"reached"`           // share of it that was measured
}

// ceiling is that of a mode; nil where no worker has said what bounds it.
func (m *Mode) ceiling(hosts []storage.Host) *Ceiling {
	var best storage.Host
	draft := 0
	for _, h := range hosts {
		draft = max(draft, h.DraftBytes)
		if h.Bandwidth > best.Bandwidth {
			best = h
		}
	}
	if best.Bandwidth == 0 || m.CompletionTokens == 0 || m.MeanTokenMS == 0 || m.Lanes == 0 {
		return nil
	}
	c := &Ceiling{Bandwidth: best.Bandwidth, TargetBytes: best.TargetBytes}
	bytes := float64(best.TargetBytes)
	if m.Drafted > 0 {
		c.DraftBytes = draft
		bytes += float64(draft) * ratio(float64(m.Drafted), m.Loops)
	}
	c.TokenMS = 1000 * bytes / best.Bandwidth / m.TokensPerLoop / m.Lanes
	c.PerSecond, c.Reached = 1000/c.TokenMS, c.TokenMS/m.MeanTokenMS
	return c
}

// String is the ceiling and how near the measurement is to it.
func (c *Ceiling) String() string {
	return fmt.Sprintf("%.0f tokens/s (%.0f%% reached)", c.PerSecond, 100*c.Reached)
}

// Explain says what a ceiling rests on.
func (c *Ceiling) Explain() string {
	return fmt.Sprintf("The ceiling is the time of reading %.1f MB of the target's weights a loop, and the draft's for each drafted token, at the %.1f GB/s that this machine read at the worker's start; sequences of a pass share it. Where weights fit into a cache, it is the cache's.",
		float64(c.TargetBytes)/1e6, c.Bandwidth/1e9)
}

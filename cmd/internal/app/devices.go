package app

import (
	"math"
	"slices"

	"github.com/draftmill/draftmill/ort"
)

// devices are those of a pair.
type devices struct{ target, draft string }

// providerOptions are those of a device; where a pair's models are on several, the
// CPU is not the one that they are meant for.
func (m *Models) providerOptions(device string) map[string]string {
	all := slices.Concat(m.cfg.ORT.Devices(), m.cfg.ORT.DraftDevices())
	if device == "cpu" && slices.ContainsFunc(all, func(d string) bool { return d != "cpu" }) {
		return nil
	}
	return m.cfg.ORT.ProviderOptions
}

// room is how many tokens of all sequences together there is memory for in the
// caches of a pair, with an engine for each of so many modes; and, where a model's
// sequences have caches of a whole context each, how many lanes (0: no bound).
// At least one sequence has room, come what may.
func (m *Models) room(models []*ort.Model, modes int) (tokens, lanes int) {
	ragged, longest := true, 0
	on := map[string][]*ort.Model{}
	for _, model := range models {
		longest = max(longest, model.Context())
		ragged = ragged && model.Ragged() == nil
		on[model.Device()] = append(on[model.Device()], model)
	}
	tokens, lanes = math.MaxInt, math.MaxInt
	for _, models := range on { // each device has memory of its own
		budget := m.cfg.ORT.CacheMB << 20
		if budget == 0 {
			budget = m.spareMemory(models[0])
		}
		budget /= max(1, modes)
		token, sequence := 0, 0
		for _, model := range models {
			token += model.CacheBytesPerToken()
			sequence += model.CacheBytes()
		}
		tokens = min(tokens, budget/max(1, token))
		lanes = min(lanes, max(1, budget/max(1, sequence)))
	}
	if m.cfg.ORT.CacheMB == 0 { // a guess of ours must not shorten the context
		tokens = max(tokens, longest)
	}
	if ragged {
		return tokens, 0
	}
	return tokens, lanes
}

// spareMemory is what the caches of one worker may take where nobody says: half of
// what the machine has free; on a GPU that tells, what it has free beside the
// weights but for a tenth of it all, which is for what passes compute.
func (m *Models) spareMemory(model *ort.Model) int {
	workers := max(1, m.cfg.Workers)
	if free, total, err := model.DeviceMemory(); err == nil {
		return max(0, free-total/10) / ((workers + len(m.cfg.ORT.Devices()) - 1) / len(m.cfg.ORT.Devices()))
	}
	return freeMemory() / 2 / workers
}

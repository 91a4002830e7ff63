package app

import (
	"fmt"
	"log/slog"

	"github.com/draftmill/draftmill/cmd/internal/sampling"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
)

// NewReaders makes a store for a command that looks at logits and draws nothing.
func NewReaders(cfg configs.Config, log *slog.Logger) *Models {
	cfg.ORT.Sampler = configs.SamplerHost
	return NewModels(cfg, log)
}

// sampler makes what draws for a pair on its device, where the setting ort.sampler
// says so; nil is the host. A job that cannot be drawn for there is drawn for on the
// host, and a line says why: a worker takes whatever jobs its queue has, their law
// is the same, and refusing one would keep it from the others.
func (m *Models) sampler(job *pipeline.Job, mode pipeline.Mode, device devices, pair engine.Pair, target, draft *ort.Decoder) (*ort.PairSampler, error) {
	if m.cfg.ORT.Sampler != configs.SamplerDevice {
		return nil, nil
	}
	settings, err := job.Settings(mode)
	if err != nil {
		return nil, err
	}
	why := settings.Remote(pair.Law != nil)
	if why == nil && draft != nil && device.draft != device.target {
		why = fmt.Errorf("the draft is on another device (ort.draft_device), %s", device.draft)
	}
	if why != nil {
		m.once(slog.LevelWarn, "draws on the host, not on the device (ort.sampler)", "job", job.Name, "mode", mode, "why", why)
		return nil, nil
	}
	options := ort.Options{Threads: m.cfg.ORT.Threads, Device: device.target, ProviderOptions: m.providerOptions(device.target)}
	s, err := ort.NewPairSampler(options, sampling.Options(job.Sampling, settings.Rule, settings.Lookahead, target.Vocab()), target, draft)
	if err != nil {
		return nil, fmt.Errorf("draw on device %s: %w; set ort.sampler to host", device.target, err)
	}
	about := []any{"job", job.Name, "mode", mode, "device", device.target}
	if settings.Rule.Invariant() {
		about = append(about, "tokens", "those of autoregressive sampling, but for ties within float32")
	}
	m.once(slog.LevelInfo, "draws on the device", about...)
	return s, nil
}

// once logs a line that has not been logged yet.
func (m *Models) once(level slog.Level, message string, about ...any) {
	if line := fmt.Sprint(append([]any{message}, about...)...); !m.said[line] {
		m.said[line] = true
		m.log.Log(m.ctx, level, message, about...)
	}
}

func (m *Models) closedSampler(s *ort.PairSampler) {
	if s == nil {
		return
	}
	if err := s.Close(); err != nil {
		m.log.Warn("close a sampler", "err", err)
	}
}

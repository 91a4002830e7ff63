package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/draftmill/draftmill/ort/convert"
)

// Interrupt ends conversions with ctx; without it nothing does.
func (m *Models) Interrupt(ctx context.Context) { m.ctx = ctx }

// folder is the ONNX folder of a model, which is one itself, or a
// Hugging Face folder or a GGUF file, converted once into the user's cache.
func (m *Models) folder(l Located) (string, error) {
	path := l.Path
	if _, err := os.Stat(path); err != nil {
		return path, nil // ort says what is wrong
	}
	kind, err := convert.KindOf(path)
	if err != nil || kind == convert.ONNX {
		return path, err
	}
	o := convert.Options{Name: l.Short, Device: device(m.cfg.ORT.Devices()), Progress: ConvertProgress(m.log, path)}
	began := time.Now()
	dir, report, err := convert.Cached(m.ctx, path, o, func() {
		m.log.Info("another process converts the model; waiting for it", "model", path)
	})
	if err == nil && report != nil {
		m.log.Info("model converted", "model", path, "to", dir, "settings", report.Settings, "MB", report.Bytes/1e6, "seconds", fmt.Sprintf("%.1f", time.Since(began).Seconds()))
		for _, note := range report.Notes {
			m.log.Warn(note, "model", path)
		}
	}
	return dir, err
}

// device is the kind of the first device.
func device(all []string) string {
	if len(all) == 0 {
		return ""
	}
	kind := all[0]
	for i, c := range kind {
		if c == ':' {
			return kind[:i]
		}
	}
	return kind
}

// ConvertProgress logs how far a conversion has come, once a second.
func ConvertProgress(log *slog.Logger, path string) func(convert.Step) {
	var mu sync.Mutex
	last := time.Now()
	return func(s convert.Step) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(last) >= time.Second {
			last = now
			log.Info(map[string]string{"read": "reading", "convert": "converting"}[s.Name]+" the model", "model", path, "MB", s.Total/1e6, "done", s.Done/1e6)
		}
	}
}

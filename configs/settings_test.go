package configs

import (
	"os"
	"strings"
	"testing"
)

// TestSettingsAreCurrent holds docs/settings.md against the table of settings.
func TestSettingsAreCurrent(t *testing.T) {
	file, err := os.ReadFile("../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(file) != Settings() {
		t.Error("docs/settings.md is not what configs/keys.go says; run go generate ./configs")
	}
}

// TestSettingsSayWhatIsChecked: bounds come from the checks.
func TestSettingsSayWhatIsChecked(t *testing.T) {
	lines := map[string]string{}
	for line := range strings.Lines(Settings()) {
		if name, found := strings.CutPrefix(line, "| `"); found {
			name, _, _ = strings.Cut(name, "`")
			lines[name] = line
		}
	}
	if len(lines) != len(keys) {
		t.Errorf("%d lines for %d settings", len(lines), len(keys))
	}
	for path, want := range map[string]string{
		"sampling.top_p": "| `1` | sample from the nucleus of probability P; 1 is off | more than 0 and at most 1 (off) |",
		"ort.threads":    "| 0 to 1024 |",
		"log.level":      "| one of debug, info, warn, error |",
		"nats.ack_wait":  "`DRAFTMILL_NATS_ACK_WAIT` | `30s` |",
		"mode":           "`--mode MODE`<br>`DRAFTMILL_MODE` | `both` |",
		"detach":         "`--detach`<br>",
		"lanes":          "*both*",
	} {
		if !strings.Contains(lines[path], want) {
			t.Errorf("%s: %q lacks %q", path, lines[path], want)
		}
	}
}

package configs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// documents are the YAML documents of a file.
func documents(t *testing.T, file string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var one map[string]any
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, one)
	}
}

// at follows a path of keys, and 0 for the first of a list.
func at(tree any, path ...string) any {
	for _, key := range path {
		switch v := tree.(type) {
		case map[string]any:
			tree = v[key]
		case []any:
			if len(v) == 0 {
				return nil
			}
			tree = v[0]
			if key != "0" {
				tree = at(v[0], key)
			}
		default:
			return nil
		}
	}
	return tree
}

// TestDeployments: the files that deploy draftmill are well-formed, name only settings and files that exist, and give workers
// the time that they ask for.
func TestDeployments(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	WorkerFlags(flags)
	known := map[string]bool{}
	for _, k := range keys {
		known[k.env()] = true
	}
	variable, flag, ours := regexp.MustCompile(`\bDRAFTMILL_[A-Z_]+\b`), regexp.MustCompile(`"--([a-z-]+)"`), regexp.MustCompile(`\bconfigs/[A-Za-z0-9_./@-]*[A-Za-z0-9]`)
	err := filepath.WalkDir("deploy", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, name := range variable.FindAllString(string(text), -1) {
			if !known[name] {
				t.Errorf("%s sets %s, which is no setting", path, name)
			}
		}
		for _, name := range ours.FindAllString(string(text), -1) {
			if _, err := os.Stat(filepath.Join("..", name)); err != nil {
				t.Errorf("%s names %s: %v", path, name, err)
			}
		}
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "--lanes") {
				continue // the arguments of other programs
			}
			for _, m := range flag.FindAllStringSubmatch(line, -1) {
				if flags.Lookup(m[1]) == nil {
					t.Errorf("%s: a worker has no --%s", path, m[1])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	kinds := map[string]map[string]any{}
	for _, file := range []string{"worker.yaml", "scaler.yaml", "nats.yaml"} {
		for _, d := range documents(t, filepath.Join("deploy/kubernetes", file)) {
			kind, _ := d["kind"].(string)
			if kind == "" || d["apiVersion"] == nil || at(d, "metadata", "name") == nil {
				t.Errorf("%s: a document without kind, apiVersion or name: %v", file, d)
			}
			kinds[kind+" "+at(d, "metadata", "name").(string)] = d
		}
	}
	for name, d := range kinds {
		if selector := at(d, "spec", "selector", "matchLabels", "app"); selector != nil {
			if labels := at(d, "spec", "template", "metadata", "labels", "app"); labels != nil && labels != selector {
				t.Errorf("%s selects %v and labels %v", name, selector, labels)
			}
		}
	}
	worker := kinds["Deployment draftmill-worker"]
	pod := at(worker, "spec", "template", "spec")
	if gpus := at(pod, "containers", "0", "resources", "limits", "nvidia.com/gpu"); gpus != 1 {
		t.Errorf("a worker has %v GPUs", gpus)
	}
	if target := at(kinds["ScaledObject draftmill-worker"], "spec", "scaleTargetRef", "name"); target != at(worker, "metadata", "name") {
		t.Errorf("the scaler scales %v", target)
	}
	drain := time.Duration(0)
	for _, e := range at(pod, "containers", "0", "env").([]any) {
		if at(e, "name") == "DRAFTMILL_DRAIN_TIMEOUT" {
			if drain, err = time.ParseDuration(at(e, "value").(string)); err != nil {
				t.Error(err)
			}
		}
	}
	if grace, _ := at(pod, "terminationGracePeriodSeconds").(int); drain == 0 || time.Duration(grace)*time.Second < drain+20*time.Second {
		t.Errorf("a pod has %d s to end, drain_timeout is %v", grace, drain)
	}
	for _, probe := range []string{"livenessProbe", "readinessProbe"} {
		if path := at(pod, "containers", "0", probe, "httpGet", "path"); path != "/healthz" && path != "/readyz" {
			t.Errorf("%s asks %v", probe, path)
		}
	}
	for name, image := range map[string]any{"nats": at(documents(t, "deploy/compose.yaml")[0], "services", "nats", "image"), "StatefulSet nats": at(kinds["StatefulSet nats"], "spec", "template", "spec", "containers", "0", "image")} {
		if image != "docker.io/library/nats:2.15" {
			t.Errorf("%s runs %v", name, image)
		}
	}
}

// TestSystemdUnits has systemd look at the units, where it is there.
func TestSystemdUnits(t *testing.T) {
	systemd, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("systemd-analyze is not here")
	}
	for _, unit := range []string{"draftmill-worker@.service", "nats.service"} {
		text, err := os.ReadFile(filepath.Join("deploy", unit))
		if err != nil {
			t.Fatal(err)
		}
		// The programs are not installed on this machine.
		text = regexp.MustCompile(`/usr/local/bin/(worker|nats-server)`).ReplaceAll(text, []byte("/bin/true"))
		path := filepath.Join(t.TempDir(), unit)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(systemd, "verify", "--man=no", path).CombinedOutput()
		if err != nil || bytes.Contains(out, []byte(unit+":")) {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
	}
}

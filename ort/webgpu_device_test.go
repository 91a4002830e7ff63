//go:build webgpu

package ort

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func init() { testDevices = append(testDevices, "webgpu") }

// TestWebGPUKeepsOneCopyOfWeights: seven more sessions would hold the target's 29
// MB again each, which shows where the device's memory is the process's, as
// SwiftShader's is.
func TestWebGPUKeepsOneCopyOfWeights(t *testing.T) {
	m := loadT(t, modelDir("target"), Options{Device: "webgpu", Lanes: 8})
	before := residentBytes(t)
	for n := 2; n <= 8; n++ {
		if _, err := m.sessions.of(n); err != nil {
			t.Fatal(err)
		}
	}
	if grown := residentBytes(t) - before; grown > 40<<20 {
		t.Errorf("seven more sessions take %d MiB", grown>>20)
	}
}

// TestWebGPUMemoryFull: a slot that the device has no room for is refused, and
// nothing else suffers.
func TestWebGPUMemoryFull(t *testing.T) {
	good := sequenceT(t, decoderT(t, loadT(t, modelDir("gqa"), Options{Device: "webgpu"})))
	want := good.feed(0, 1, 2, 3)
	for _, c := range []struct{ name, config string }{{"gqa", "genai_config.json"}, {"growing", "config.json"}} {
		live, dir := liveBytes.Load(), copyModel(t, c.name)
		path := filepath.Join(dir, c.config)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// A little more than 1 GiB for each tensor, which is what SwiftShader gives
		// in one piece. A large GPU may have it.
		write(t, path, strings.Replace(string(text), "48", fmt.Sprint(1<<23+64), 1))
		m, err := Load(openBundleT(t, dir), Options{Device: "webgpu"})
		if err != nil {
			t.Fatal(err)
		}
		d, err := m.NewDecoder()
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Alloc()
		if err == nil && !strings.Contains(os.Getenv("VK_DRIVER_FILES"), "swiftshader") {
			t.Logf("%s: the device has room", c.name)
		} else if err == nil || !strings.Contains(err.Error(), "device webgpu: the device's memory is full: lower the number of lanes") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v", c.name, err)
		}
		d.Close()
		m.Close()
		if n := liveBytes.Load(); n != live {
			t.Errorf("%d bytes are left", n-live)
		}
		bitEqual(t, "another model", good.feed(0, 1, 2, 3), want)
	}
}

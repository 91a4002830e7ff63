//go:build webgpu

package ort

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/ort/graph"
)

func init() { testDevices = append(testDevices, "webgpu") }

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
		d, err := m.NewDecoder(0)
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

// TestWebGPUTakesPagedAttention: a session of a graph that was rewritten for CUDA
// opens where some device has a kernel for its attention, in float16. Whether the
// device can run it is another matter.
func TestWebGPUTakesPagedAttention(t *testing.T) {
	needLibrary(t)
	for _, dir := range []string{"testdata/gqa-float16", "testdata/float16", "../testdata/models/llama-builder-fp16-cuda", "../testdata/models/qwen3-builder"} {
		b := openBundleT(t, dir)
		if err := openOn(t, "webgpu", pagedT(t, b, graph.Float16).Model, b); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

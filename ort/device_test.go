package ort

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// testDevices are those on which device memory is tested; a build with a tag
// adds to them.
var testDevices = []string{"cpu"}

func TestParseDevice(t *testing.T) {
	for _, c := range []struct {
		device, kind, name string
		index              int
		err                string
	}{
		{"", "cpu", "cpu", 0, ""},
		{"cpu", "cpu", "cpu", 0, ""},
		{"cuda", "cuda", "cuda", 0, ""},
		{"cuda:0", "cuda", "cuda:0", 0, ""},
		{"cuda:3", "cuda", "cuda:3", 3, ""},
		{"webgpu", "webgpu", "webgpu", 0, ""},
		{"cuda:", "", "", 0, "want cuda:N"},
		{"cuda:-1", "", "", 0, "want cuda:N"},
		{"cuda:one", "", "", 0, "want cuda:N"},
		{"cpu:0", "", "", 0, "is not known"},
		{"webgpu:0", "", "", 0, "is not known"},
		{"CUDA", "", "", 0, "use cpu, cuda, cuda:N or webgpu"},
	} {
		d, err := parseDevice(Options{Device: c.device})
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: got %v, want %q", c.device, err, c.err)
			}
		case err != nil:
			t.Errorf("%q: %v", c.device, err)
		case d.kind != c.kind || d.name != c.name || d.index != c.index:
			t.Errorf("%q: got %s %s %d", c.device, d.kind, d.name, d.index)
		}
	}
	if _, err := parseDevice(Options{ProviderOptions: map[string]string{"a": "b"}}); err == nil {
		t.Error("provider options on the cpu")
	}
}

// TestExplain knows the messages that devices give, each as ONNX Runtime 1.30
// words it.
func TestExplain(t *testing.T) {
	for _, c := range []struct{ device, says, want string }{
		{"cuda", "CUDA execution provider is not enabled in this build. ", "make ort-cuda"},
		{"cuda", "Failed to load library /x/libonnxruntime_providers_shared.so with error: /x/libonnxruntime_providers_shared.so: cannot open shared object file: No such file or directory", "make ort-cuda"},
		{"cuda", "Failed to load library /x/libonnxruntime_providers_cuda.so with error: libcublasLt.so.13: cannot open shared object file: No such file or directory", "CUDA 13 runtime libraries"},
		{"cuda", "Failed to load library /x/libonnxruntime_providers_cuda.so with error: libcudnn.so.9: cannot open shared object file: No such file or directory", "cuDNN 9"},
		{"cuda", "Failed to load library /x/libonnxruntime_providers_cuda.so with error: libcuda.so.1: cannot open shared object file: No such file or directory", "NVIDIA driver"},
		{"cuda", "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version ; GPU=-1 ; hostname=h ; expr=cudaGetDeviceCount(&num_devices); ", "NVIDIA driver of version 580"},
		{"cuda:1", "CUDA failure 100: no CUDA-capable device is detected ; GPU=-1 ; hostname=h ; expr=cudaGetDeviceCount(&num_devices); ", "no NVIDIA GPU"},
		{"cuda:7", `Failed to parse provider option "device_id": Invalid device ID: 7, must be between 0 (inclusive) and 1 (exclusive).`, "no GPU of this number"},
		{"cuda", "Failed to allocate memory for requested buffer of size 34359738368", "lower the number of lanes"},
		{"cuda", "CUDA failure 2: out of memory ; GPU=0 ; hostname=h", "lower the number of lanes"},
		{"webgpu", "Failed to get a WebGPU adapter: No supported adapters", "Vulkan driver"},
		{"webgpu", "shader_helper.cc:416 GenerateSourceCode Program Cast requires f16 but the device does not support it.", "float32"},
		{"webgpu", "WebGPU validation failed. [Invalid Buffer (unlabeled)] is invalid due to a previous error.", "lower the number of lanes"},
		{"webgpu", "something else", "device webgpu: something else"},
	} {
		d, err := parseDevice(Options{Device: c.device})
		if err != nil {
			t.Fatal(err)
		}
		cause := errors.New(c.says)
		if err := d.explain(cause); !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "device "+c.device+": ") || !errors.Is(err, cause) {
			t.Errorf("%s: %s: got %v, want %q", c.device, c.says, err, c.want)
		}
	}
	cpu, cause := &device{kind: cpuDevice}, errors.New("out of memory")
	if err := cpu.explain(cause); err.Error() != cause.Error() || cpu.explain(nil) != nil {
		t.Error("the cpu explains")
	}
}

func TestPlain(t *testing.T) {
	for _, c := range []struct{ says, want string }{
		{"/a/webgpu_context.cc:136 void f(const Config&)::<lambda()> status == Success was false. No adapter", "No adapter"},
		{"/a/bridge.cc:1988 onnxruntime::Provider& Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library x", "Failed to load library x"},
		{"Load model from a.cc:3 failed", "Load model from a.cc:3 failed"},
		{"two\n lines", "two lines"},
		{"CUDA failure 100: no CUDA-capable device is detected ; GPU=-1 ; hostname=h ; file=f.cc ; line=1 ; expr=e(); ", "CUDA failure 100: no CUDA-capable device is detected"},
	} {
		if got := plain(c.says); got != c.want {
			t.Errorf("%q: got %q", c.says, got)
		}
	}
}

// TestDevicesRefuse what their kernels do not take, before they are looked for.
func TestDevicesRefuse(t *testing.T) {
	needLibrary(t)
	_, err := Load(openBundleT(t, modelDir("gqa")), Options{Device: "cuda:1", AsExported: true})
	if err == nil || !strings.Contains(err.Error(), "device cuda:1: GroupQueryAttention runs in float16 and bfloat16 there") {
		t.Errorf("float32 on cuda: got %v", err)
	}
	live := liveBytes.Load()
	_, err = Load(openBundleT(t, modelDir("gqa-float16")), Options{Device: "cuda"})
	if err == nil || !strings.Contains(err.Error(), "device cuda: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("cuda without it: got %v", err)
	}
	if n := liveBytes.Load(); n != live {
		t.Errorf("%d bytes are left", n-live)
	}
}

// TestMoverKeepsBits: every pattern of 16 bits, and many of 32, arrive at a
// device, in another place there, and back at the CPU, as they were.
func TestMoverKeepsBits(t *testing.T) {
	needLibrary(t)
	for _, name := range testDevices {
		t.Run(name, func(t *testing.T) {
			rt, err := current()
			if err != nil {
				t.Fatal(err)
			}
			d, err := parseDevice(Options{Device: name})
			if err == nil {
				err = d.open(rt, openBundleT(t, modelDir("gqa-float16")), false)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer d.free()
			const words, heads, row = 1 << 17, 4, 32
			m, err := d.newMover(1)
			if err != nil {
				t.Fatal(err)
			}
			defer m.free()
			var blocks []*block
			for _, memory := range []*memory{nil, d.memory, d.memory, nil} {
				b, err := newBlock(rt, memory, 4*words)
				if err != nil {
					t.Fatal(err)
				}
				defer b.free()
				blocks = append(blocks, &b)
			}
			sent := view[uint32](blocks[0], 0, words)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range sent {
				sent[i] = uint32(i)<<16 | uint32(i)&0xffff
				if i >= 1<<16 {
					sent[i] = r.Uint32()
				}
			}
			// The last move keeps three quarters of each head.
			entries := words * 4 / heads / row
			length := entries * 3 / 4
			for i, n := range []int{entries, entries, length} {
				m.set(0, blocks[i], blocks[i+1], heads, entries, n, row)
				if err := m.move(n, true); err != nil {
					t.Fatal(err)
				}
			}
			got := view[uint32](blocks[3], 0, words)
			for h := range heads {
				for i := range length * row / 4 {
					if want := sent[h*entries*row/4+i]; got[h*length*row/4+i] != want {
						t.Fatalf("head %d, word %d: got %#x, want %#x", h, i, got[h*length*row/4+i], want)
					}
				}
			}
		})
	}
}

// TestDeviceLost: what CUDA and WebGPU say when a device is gone, and what they say
// otherwise.
func TestDeviceLost(t *testing.T) {
	for _, c := range []struct {
		device, says string
		lost         bool
	}{
		{"cuda:1", "CUDA failure 700: an illegal memory access was encountered ; GPU=1 ; hostname=h", true},
		{"cuda", "CUDA failure 719: unspecified launch failure", true},
		{"cuda", "CUDA failure 214: uncorrectable ECC error encountered", true},
		{"cuda", "cuStreamSynchronize: CUDA driver error 700", true},
		{"cuda", "cuMemcpyHtoDAsync: CUDA driver error 1", false},
		{"webgpu", "Device is lost", true},
		{"cuda", "CUDA failure 2: out of memory", false},
		{"cuda", "Invalid input shape", false},
		{"cpu", "device lost", false},
	} {
		d, err := parseDevice(Options{Device: c.device})
		if err != nil {
			t.Fatal(err)
		}
		var gone interface{ DeviceLost() bool }
		err = d.explain(errors.New(c.says))
		if got := errors.As(err, &gone) && gone.DeviceLost(); got != c.lost {
			t.Errorf("%s: %q: lost %v", c.device, c.says, got)
		}
		if c.lost && !strings.HasPrefix(err.Error(), "device "+c.device+" is lost: ") {
			t.Error(err)
		}
	}
}

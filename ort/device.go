package ort

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	yort "github.com/yalue/onnxruntime_go"

	"github.com/draftmill/draftmill/ort/graph"
)

// Kinds of devices.
const (
	cpuDevice    = "cpu"
	cudaDevice   = "cuda"
	webgpuDevice = "webgpu"
)

// device is where a model's sessions run, and its memory, where their caches
// lie. On the CPU it is little more than its name.
//
// ONNX Runtime hands out a device's memory through a session, so a device makes
// one first of all: a mover (mover.go), which then moves what has to be moved.
type device struct {
	runtime *C.dm_runtime
	name    string // as in Options
	kind    string
	index   int               // of several CUDA devices
	options map[string]string // of the provider

	memory *memory // nil on the CPU
	stream *stream // nil but on CUDA
	guard  *sync.Mutex

	mu      sync.Mutex
	movers  map[int]unsafe.Pointer       // OrtSession of moveGraph, by number of tensors
	gathers map[gathering]unsafe.Pointer // OrtSession of gatherGraph
}

// webgpuGuard is held through every use of WebGPU: ONNX Runtime 1.30 records the
// commands of all sessions of a device in one place, and two threads that do so
// at once corrupt it.
var webgpuGuard sync.Mutex

// lock keeps other goroutines from the device where its provider wants that. It
// is taken after a decoder's own lock, and before a model's and its sessions'.
func (d *device) lock() {
	if d.guard != nil {
		d.guard.Lock()
	}
}

func (d *device) unlock() {
	if d.guard != nil {
		d.guard.Unlock()
	}
}

// parseDevice reads Options.Device and checks Options.ProviderOptions.
func parseDevice(o Options) (*device, error) {
	d := &device{name: o.Device, options: o.ProviderOptions, movers: map[int]unsafe.Pointer{}, gathers: map[gathering]unsafe.Pointer{}}
	kind, index, numbered := strings.Cut(o.Device, ":")
	d.kind = kind
	switch {
	case o.Device == "":
		d.kind, d.name = cpuDevice, cpuDevice
	case kind == cudaDevice && numbered:
		n, err := strconv.ParseUint(index, 10, 8)
		if err != nil {
			return nil, fmt.Errorf("device %q: want cuda:N with the number of a GPU, from 0", o.Device)
		}
		d.index = int(n)
	case numbered, kind != cpuDevice && kind != cudaDevice && kind != webgpuDevice:
		return nil, fmt.Errorf("device %q is not known: use cpu, cuda, cuda:N or webgpu", o.Device)
	}
	if d.kind == cpuDevice && len(d.options) > 0 {
		return nil, errors.New("provider options are for devices other than the cpu")
	}
	if d.kind == webgpuDevice {
		d.guard = &webgpuGuard
	}
	return d, nil
}

// open makes the device ready for sessions of the bundle.
func (d *device) open(rt *C.dm_runtime, b *Bundle, asExported bool) error {
	d.runtime = rt
	err := d.fits(b)
	if err == nil && asExported {
		err = d.fitsAsIs(b)
	}
	if err != nil || d.onCPU() {
		return err
	}
	if err := d.openMemory(); err != nil {
		return errors.Join(d.explain(err), d.free())
	}
	return nil
}

func (d *device) onCPU() bool { return d.kind == cpuDevice }

// openMemory finds the device's memory by way of a session that needs its
// input there.
func (d *device) openMemory() error {
	session, err := d.moverSession(1)
	if err != nil {
		return err
	}
	m := &memory{}
	onCPU, err := d.inputMemory(session, moveFrom(0), &m.info)
	if err != nil {
		return err
	}
	if onCPU {
		return errors.New("the device ran none of a session's operators")
	}
	if err := goError(C.dm_allocator_new(d.runtime, session, m.info, &m.allocator)); err != nil {
		return err
	}
	d.memory = m
	return nil
}

// inputMemory says where a session needs an input, and whether that is the
// CPU's memory.
func (d *device) inputMemory(session unsafe.Pointer, input string, info *unsafe.Pointer) (onCPU bool, err error) {
	name := C.CString(input)
	defer C.free(unsafe.Pointer(name))
	var flag C.int
	if err := goError(C.dm_input_memory(d.runtime, session, name, info, &flag)); err != nil {
		return false, fmt.Errorf("input %s: %w", input, err)
	}
	return flag != 0, nil
}

// fits refuses a model that the device's kernels do not take.
func (d *device) fits(b *Bundle) error {
	l := b.layout
	switch {
	case d.onCPU():
		return nil
	case b.Encoder != nil:
		return fmt.Errorf("device %s: encoder-decoder models run on the CPU only: use device cpu", d.name)
	case l.Cache == graph.Int8 && d.kind == webgpuDevice:
		return fmt.Errorf("device %s: caches of 8 bits run on cpu and cuda only: use device cpu, or the model with its float cache", d.name)
	case b.HeadSize*l.Cache.Size()%moveWord != 0:
		return fmt.Errorf("device %s: heads of %d elements of %s are not supported there: use device cpu", d.name, b.HeadSize, l.Cache)
	}
	return nil
}

// fitsAsIs refuses a model whose graph, as it was exported, the device's kernels do
// not take.
func (d *device) fitsAsIs(b *Bundle) error {
	if d.kind == cudaDevice && b.layout.Contract == graph.GQA && b.layout.Cache == graph.Float32 {
		return fmt.Errorf("device %s: GroupQueryAttention runs in float16 and bfloat16 there, and this graph's is float32: export it in float16 or bfloat16, or use device cpu or webgpu", d.name)
	}
	return nil
}

// runs refuses a session whose cache the device does not read itself.
func (d *device) runs(session unsafe.Pointer, caches []string) error {
	if d.onCPU() {
		return nil
	}
	for _, name := range caches {
		var info unsafe.Pointer
		onCPU, err := d.inputMemory(session, name, &info)
		if err != nil {
			return err
		}
		if onCPU {
			return fmt.Errorf("device %s has no operator for the cache %s of this model, in its type of number: export the model in another type (float16 suits most devices), or use device cpu", d.name, name)
		}
	}
	return nil
}

// provider makes sessions with these options run on the device.
func (d *device) provider(so *yort.SessionOptions, capture bool) error {
	var err error
	switch d.kind {
	case webgpuDevice:
		err = so.AppendExecutionProvider("WebGPU", d.options)
	case cudaDevice:
		err = d.cudaProvider(so, capture)
	}
	if err != nil {
		return errors.New(plain(err.Error()))
	}
	return nil
}

// cudaProvider takes memory as it is asked for, where ONNX Runtime would take
// twice as much each time: caches and weights come in few large pieces. Graphs are
// recorded only by sessions that say for each run which one it is.
func (d *device) cudaProvider(so *yort.SessionOptions, capture bool) (err error) {
	cuda, err := yort.NewCUDAProviderOptions()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cuda.Destroy()) }()
	options := map[string]string{"arena_extend_strategy": "kSameAsRequested"}
	for key, value := range d.options {
		options[key] = value
	}
	options["device_id"] = strconv.Itoa(d.index)
	if d.stream, err = streamOf(cudaDriver, d.index, ringBytes); err != nil {
		return err
	}
	options["user_compute_stream"] = d.stream.option()
	if delete(options, recordsGraphs); capture {
		options[recordsGraphs] = "1"
	}
	if err := cuda.Update(options); err != nil {
		return err
	}
	return so.AppendExecutionProviderCUDA(cuda)
}

// recordsGraphs is the provider's option to record passes as CUDA graphs.
const recordsGraphs = "enable_cuda_graph"

// records reports whether the device is told to record passes.
func (d *device) records() bool {
	v := strings.ToLower(d.options[recordsGraphs])
	return d.kind == cudaDevice && (v == "1" || v == "true")
}

// free follows the end of all sessions and blocks on the device.
func (d *device) free() error {
	if d.memory != nil {
		C.dm_allocator_free(d.runtime, d.memory.allocator)
		d.memory = nil
	}
	for _, session := range d.movers {
		C.dm_session_free(d.runtime, session)
	}
	for _, session := range d.gathers {
		C.dm_session_free(d.runtime, session)
	}
	d.movers, d.gathers = nil, nil
	return nil
}

// remedies are what helps where a device's error says this. The first that
// fits counts.
var remedies = []struct {
	kind string // empty for any
	says []string
	do   string
}{
	{cudaDevice, []string{"not enabled in this build", "execution provider is not supported"},
		"this onnx runtime library has no CUDA: run `make ort-cuda`, or name a library built with CUDA"},
	{webgpuDevice, []string{"not enabled in this build", "execution provider is not supported", "unknown execution provider"},
		"this onnx runtime library has no WebGPU: run `make ort`, whose library has it"},
	{cudaDevice, []string{"libcudnn"},
		"install cuDNN 9 for CUDA 13 where the loader finds it (ldconfig or LD_LIBRARY_PATH)"},
	{cudaDevice, []string{"libcublas", "libcudart", "libcufft", "libcurand", "libnvrtc", "libnvjitlink"},
		"install the CUDA 13 runtime libraries (cublas, cudart, cufft, curand, nvrtc) where the loader finds them (ldconfig or LD_LIBRARY_PATH)"},
	{cudaDevice, []string{"driver version is insufficient", "cuda failure 35", "cuda failure 803", "libcuda.so"},
		"install an NVIDIA driver of version 580 or later, which CUDA 13 needs (nvidia-smi shows yours)"},
	{cudaDevice, []string{"libonnxruntime_providers_cuda", "libonnxruntime_providers_shared"},
		"run `make ort-cuda`, which puts the CUDA provider beside the library"},
	{cudaDevice, []string{"no cuda-capable device", "cuda failure 100"},
		"this machine shows no NVIDIA GPU (see nvidia-smi and CUDA_VISIBLE_DEVICES): use another device"},
	{cudaDevice, []string{"invalid device ordinal", "cuda failure 101", "invalid device_id", "invalid device id"},
		"there is no GPU of this number (nvidia-smi -L lists them, CUDA_VISIBLE_DEVICES hides some)"},
	{cudaDevice, []string{"no kernel image is available", "cuda failure 209"},
		"this onnx runtime library has no code for this GPU's generation: name a library built for it"},
	{webgpuDevice, []string{"failed to get a webgpu adapter", "webgpu adapter", "no supported adapters", "failed to create wgpu"},
		"install a Vulkan driver and the loader libvulkan.so.1 (Debian: libvulkan1 and the GPU vendor's driver; vulkaninfo shows them)"},
	{webgpuDevice, []string{"requires f16"},
		"this GPU or its driver has no half precision: take a model in float32"},
	{"", []string{"out of memory", "failed to allocate memory", "out_of_device_memory", "available memory of", "outofmemory", "cuda failure 2:", "invalid buffer"},
		"the device's memory is full: lower the number of lanes or the context, or take a smaller model or one with fewer bits"},
}

// lost is what errors say after which a process can use a device no more: CUDA's
// that stick to its context, and WebGPU's.
var lost = []string{
	"cuda failure 46:", "cuda failure 214:", "cuda failure 700:", "cuda failure 702:", "cuda failure 710:", "cuda failure 714:",
	"cuda failure 715:", "cuda failure 716:", "cuda failure 717:", "cuda failure 718:", "cuda failure 719:", "cuda failure 999:",
	"illegal memory access", "unspecified launch failure", "uncorrectable ecc error", "device-side assert", "gpu is lost",
	"device was lost", "device is lost", "device lost",
}

// deviceLost is the error of a device that is gone.
type deviceLost struct {
	name string
	err  error
}

func (e *deviceLost) Error() string {
	return fmt.Sprintf("device %s is lost: look at its state (nvidia-smi, dmesg), and start this process again to use it: %v", e.name, e.err)
}

func (e *deviceLost) Unwrap() error { return e.err }

// DeviceLost tells it from an error that another try may overcome.
func (e *deviceLost) DeviceLost() bool { return true }

// explain adds to an error what helps against it.
func (d *device) explain(err error) error {
	if err == nil || d.onCPU() {
		return err
	}
	text := driverError.ReplaceAllString(strings.ToLower(err.Error()), "cuda failure $1:")
	for _, says := range lost {
		if strings.Contains(text, says) {
			return &deviceLost{d.name, err}
		}
	}
	for _, r := range remedies {
		if r.kind != "" && r.kind != d.kind {
			continue
		}
		for _, says := range r.says {
			if strings.Contains(text, says) {
				return fmt.Errorf("device %s: %s: %w", d.name, r.do, err)
			}
		}
	}
	return fmt.Errorf("device %s: %w", d.name, err)
}

// driverError is how our own calls of CUDA's driver fail, whose numbers are those of
// ONNX Runtime's calls.
var driverError = regexp.MustCompile(`cuda driver error (\d+)`)

// sourcePlace is where in ONNX Runtime's source a message comes from, with the
// condition that failed there or the status that was passed on.
var sourcePlace = regexp.MustCompile(`^\S+\.(?:cc|h):\d+ .*?(?: was false\. |\[ONNXRuntimeError\] : \d+ : \w+ : )`)

// plain leaves out of a message what is for ONNX Runtime's authors: the place, and
// behind a failure of CUDA the expression and the name of the host.
func plain(message string) string {
	message, _, _ = strings.Cut(oneLine(message), " ; GPU=")
	return sourcePlace.ReplaceAllString(message, "")
}

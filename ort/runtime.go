package ort

// #cgo CFLAGS: -O2
// #cgo linux LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"unsafe"

	yort "github.com/yalue/onnxruntime_go"

	"github.com/draftmill/draftmill/ort/sigbus"
)

// apiVersion is the version of the C API that yalue/onnxruntime_go was compiled
// for: a library that does not offer it (before 1.24) cannot be used.
const apiVersion = 24

// runtimeState is the one library that a process can hold.
var runtimeState struct {
	sync.Mutex
	path    string
	version string
	c       *C.dm_runtime // C memory: C reads it during calls
}

// Init loads the ONNX Runtime library at path. A process holds one library for
// its life: a second call with the same path does nothing, with another path it
// is an error. ONNX Runtime's telemetry is switched off before it is loaded.
func Init(path string) error {
	r := &runtimeState
	r.Lock()
	defer r.Unlock()
	if r.c != nil {
		if path != r.path {
			return fmt.Errorf("load onnx runtime %s: this process already uses %s", path, r.path)
		}
		return nil
	}
	if err := checkBinding(); err != nil {
		return err
	}
	if err := os.Setenv("ORT_DISABLE_TELEMETRY", "1"); err != nil {
		return fmt.Errorf("load onnx runtime: %w", err)
	}

	c := (*C.dm_runtime)(C.calloc(1, C.sizeof_dm_runtime))
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	var cversion *C.char
	if err := goError(C.dm_open(cpath, apiVersion, c, &cversion)); err != nil {
		C.free(unsafe.Pointer(c))
		if cversion != nil {
			return fmt.Errorf("load onnx runtime %s, version %s: %w (1.24 or later is needed)", path, C.GoString(cversion), err)
		}
		return fmt.Errorf("load onnx runtime: %w", err)
	}
	yort.SetSharedLibraryPath(path)
	if err := yort.InitializeEnvironment(yort.WithLogLevelFatal()); err != nil {
		C.free(unsafe.Pointer(c))
		return fmt.Errorf("load onnx runtime %s: %w", path, err)
	}
	r.path, r.version, r.c = path, C.GoString(cversion), c
	return sigbus.Explain() // models are mapped from now on
}

// Version is the loaded library's version ("1.30.0"), empty before Init.
func Version() string {
	runtimeState.Lock()
	defer runtimeState.Unlock()
	return runtimeState.version
}

// current returns the loaded library, or an error that says to call Init.
func current() (*C.dm_runtime, error) {
	runtimeState.Lock()
	defer runtimeState.Unlock()
	if runtimeState.c == nil {
		return nil, errors.New("onnx runtime is not loaded: call ort.Init first")
	}
	return runtimeState.c, nil
}

// goError takes ownership of a message of the shim; nil is success.
func goError(message *C.char) error {
	if message == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(message))
	return errors.New(plain(C.GoString(message)))
}

// oneLine joins a message of ONNX Runtime's that spreads over several lines.
func oneLine(message string) string { return strings.Join(strings.Fields(message), " ") }

// checkBinding makes sure that the fields which rawSessionOptions and
// rawRunOptions read exist in this build's yalue/onnxruntime_go, so that another version of
// that module fails by name at start-up and not by a crash.
func checkBinding() error {
	for _, owner := range []reflect.Type{reflect.TypeFor[yort.SessionOptions](), reflect.TypeFor[yort.RunOptions]()} {
		if field, ok := owner.FieldByName("o"); !ok || field.Type.Kind() != reflect.Pointer {
			return fmt.Errorf("github.com/yalue/onnxruntime_go has no pointer %s.o: build with the version that go.mod names", owner.Name())
		}
	}
	return nil
}

// rawSessionOptions is the OrtSessionOptions* inside yalue's session options.
func rawSessionOptions(o *yort.SessionOptions) unsafe.Pointer {
	return reflect.ValueOf(o).Elem().FieldByName("o").UnsafePointer()
}

// rawRunOptions is the OrtRunOptions* inside yalue's run options.
func rawRunOptions(o *yort.RunOptions) unsafe.Pointer {
	return reflect.ValueOf(o).Elem().FieldByName("o").UnsafePointer()
}

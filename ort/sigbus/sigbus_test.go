//go:build linux

package sigbus

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

const helperEnv = "SIGBUS_TEST_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(helperEnv); path != "" {
		os.Exit(helper(path, os.Getenv("SIGBUS_TEST_IN")))
	}
	os.Exit(m.Run())
}

// helper maps a file, cuts it short and reads it.
func helper(path, in string) int {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		err = Explain()
	}
	if err != nil {
		fmt.Println(err)
		return 3
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, 1<<16, syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		fmt.Println(err)
		return 3
	}
	before := touch(data)
	if err := f.Truncate(0); err != nil {
		fmt.Println(err)
		return 3
	}
	if in == "C" {
		return int(touch(data) - before + 4)
	}
	return int(data[4096] - before + 4)
}

// A process whose file was cut short ends with one line that names it, wherever
// it was reading.
func TestAFileThatWasCutShort(t *testing.T) {
	for _, in := range []string{"C", "Go"} {
		path := filepath.Join(t.TempDir(), "model.onnx.data")
		if err := os.WriteFile(path, make([]byte, 1<<16), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), helperEnv+"="+path, "SIGBUS_TEST_IN="+in)
		var text strings.Builder
		cmd.Stdout, cmd.Stderr = &text, &text
		err := cmd.Run()
		want := regexp.MustCompile(`^error: a file was cut short or written over while it was in use: ` + regexp.QuoteMeta(path) + `: put .* start again.*\n$`)
		if cmd.ProcessState.ExitCode() != 1 || !want.MatchString(text.String()) {
			t.Errorf("in %s: %v\n%.2000s", in, err, &text)
		}
	}
}

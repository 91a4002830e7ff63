package ort

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// damagedChild tells a child process of TestDamagedBundles which damaged models to
// open: "FIRST LAST".
const damagedChild = "ORT_TEST_DAMAGED_CHILD"

// damageBases are the models that are damaged: both contracts, both exporters, all
// kinds of numbers.
var damageBases = []string{
	"testdata/gqa", "testdata/growing", "testdata/float16", "testdata/bfloat16",
	"../testdata/models/llama-builder-int4", "../testdata/models/llama-optimum-int8", "../testdata/models/qwen2-builder-int4",
	"../testdata/models/gpt2-optimum", "../testdata/models/gemma2-builder", "../testdata/models/phi3-optimum",
}

// runDamagedChild opens damaged models one after the other and says what became of each.
func runDamagedChild(text string) int {
	var first, last int
	if _, err := fmt.Sscan(text, &first, &last); err != nil {
		fmt.Println(err)
		return 1
	}
	if err := loadLibrary(); err != nil {
		fmt.Println(err)
		return 1
	}
	dir, err := os.MkdirTemp("", "draftmill-damaged-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	for n := first; n < last; n++ {
		base := damageBases[n%len(damageBases)]
		what, err := damagedCopy(base, filepath.Join(dir, strconv.Itoa(n)), n)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Printf("begin %d %s: %s\n", n, base, what)
		if err := tryModel(filepath.Join(dir, strconv.Itoa(n))); err != nil {
			fmt.Printf("refused %d %q\n", n, err.Error())
		} else {
			fmt.Printf("taken %d\n", n)
		}
		os.RemoveAll(filepath.Join(dir, strconv.Itoa(n)))
	}
	return 0
}

// tryModel does with a model folder what a worker does before its first row.
func tryModel(dir string) error {
	b, err := OpenBundle(dir)
	if err != nil {
		return err
	}
	m, err := Load(b, Options{Threads: 1})
	if err != nil {
		return err
	}
	return errors.Join(m.SelfTest(5), m.Close())
}

// damagedCopy copies a model folder with the n-th damage to one of its files.
func damagedCopy(base, to string, n int) (what string, err error) {
	if err := os.CopyFS(to, os.DirFS(base)); err != nil {
		return "", err
	}
	r := rand.New(rand.NewPCG(13, uint64(n)))
	var files []string
	for _, pattern := range []string{"*config.json", "model.onnx*"} {
		found, err := filepath.Glob(filepath.Join(to, pattern))
		if err != nil {
			return "", err
		}
		files = append(files, found...)
	}
	files = append(files, filepath.Join(to, "model.onnx")) // twice as often as the others
	path := files[r.IntN(len(files))]
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	switch ext := filepath.Ext(path); {
	case ext == ".json" && r.IntN(3) > 0:
		what, data, err = damageJSON(r, data)
	case ext == ".onnx" && r.IntN(3) > 0:
		what, data, err = damageGraph(r, data)
	default:
		what, data = damageBytes(r, data)
	}
	if err != nil {
		return "", err
	}
	return filepath.Base(path) + ", " + what, os.WriteFile(path, data, 0o600)
}

func damageBytes(r *rand.Rand, data []byte) (string, []byte) {
	at := r.IntN(len(data))
	switch r.IntN(4) {
	case 0:
		return fmt.Sprintf("cut at %d", at), data[:at]
	case 1:
		data[at] ^= 1 << r.IntN(8)
		return fmt.Sprintf("a bit of byte %d", at), data
	case 2:
		for i := range min(8, len(data)-at) {
			data[at+i] = 0xff >> r.IntN(8)
		}
		return fmt.Sprintf("large numbers at %d", at), data
	}
	end := min(len(data), at+1+r.IntN(40))
	return fmt.Sprintf("bytes %d to %d lost", at, end), slices.Delete(data, at, end)
}

// damageJSON gives one member of a configuration another value, or removes it.
func damageJSON(r *rand.Rand, data []byte) (string, []byte, error) {
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return "", nil, err
	}
	node := tree
	for {
		var keys []string
		for key := range node {
			keys = append(keys, key)
		}
		if len(keys) == 0 {
			return "nothing", data, nil
		}
		slices.Sort(keys)
		key := keys[r.IntN(len(keys))]
		if child, ok := node[key].(map[string]any); ok && r.IntN(5) > 0 {
			node = child
			continue
		}
		values := []any{nil, true, "", "x", "../../../etc/passwd", 0, -1, 1.5, 1 << 20, 1 << 31, math.MaxInt64, 1e300, []any{}, []any{-1}, map[string]any{}, strings.Repeat("a", 1<<16)}
		value := values[r.IntN(len(values))]
		if node[key] = value; r.IntN(6) == 0 {
			delete(node, key)
			value = "removed"
		}
		bad, err := json.Marshal(tree)
		return fmt.Sprintf("%s: %.40v", key, value), bad, err
	}
}

// damageGraph changes one thing of a graph that is valid protobuf all the same.
func damageGraph(r *rand.Rand, data []byte) (string, []byte, error) {
	m := &onnxpb.ModelProto{}
	if err := proto.Unmarshal(data, m); err != nil {
		return "", nil, err
	}
	g, what := m.Graph, ""
	numbers := []int64{0, -1, 1, 3, 7, 1 << 16, 1 << 31, 1 << 40, math.MaxInt64, math.MinInt64}
	number := numbers[r.IntN(len(numbers))]
	node := g.Node[r.IntN(len(g.Node))]
	tensor := g.Initializer[r.IntN(len(g.Initializer))]
	switch r.IntN(9) {
	case 0:
		if len(tensor.Dims) > 0 {
			tensor.Dims[r.IntN(len(tensor.Dims))] = number
		} else {
			tensor.Dims = []int64{number}
		}
		what = fmt.Sprintf("a dimension of %s is %d", tensor.GetName(), number)
	case 1:
		tensor.DataType = proto.Int32(int32(r.IntN(25)))
		what = fmt.Sprintf("the type of %s is %d", tensor.GetName(), tensor.GetDataType())
	case 2:
		at := r.IntN(len(g.Node))
		what = "without node " + g.Node[at].GetName()
		g.Node = slices.Delete(g.Node, at, at+1)
	case 3:
		other := g.Node[r.IntN(len(g.Node))]
		what = fmt.Sprintf("%s is a %s", node.GetName(), other.GetOpType())
		node.OpType, node.Domain = other.OpType, other.Domain
	case 4:
		if len(node.Input) > 0 {
			other := g.Node[r.IntN(len(g.Node))]
			node.Input[r.IntN(len(node.Input))] = append(other.Output, "nowhere")[0]
			what = fmt.Sprintf("%s takes what %s gives", node.GetName(), other.GetName())
		}
	case 5:
		if len(node.Input) > 0 {
			node.Input = node.Input[:r.IntN(len(node.Input))]
			what = fmt.Sprintf("%s takes %d inputs", node.GetName(), len(node.Input))
		}
	case 6:
		if len(node.Attribute) > 0 {
			a := node.Attribute[r.IntN(len(node.Attribute))]
			if a.I = proto.Int64(number); len(a.Ints) > 0 {
				a.Ints[r.IntN(len(a.Ints))] = number
			}
			what = fmt.Sprintf("%s of %s is %d", a.GetName(), node.GetName(), number)
		}
	case 7:
		if len(tensor.RawData) > 0 {
			tensor.RawData = tensor.RawData[:r.IntN(len(tensor.RawData))]
			what = tensor.GetName() + " is cut"
		} else if len(tensor.ExternalData) > 0 {
			graph.SetExternal(tensor, "model.onnx.data", int(number), int(numbers[r.IntN(len(numbers))]))
			what = fmt.Sprintf("%s is at %d", tensor.GetName(), number)
		}
	default:
		lists := [][]*onnxpb.ValueInfoProto{g.Input, g.Output}
		list := lists[r.IntN(2)]
		value := list[r.IntN(len(list))]
		if t := value.GetType().GetTensorType(); t != nil {
			if dims := t.GetShape().GetDim(); len(dims) > 0 {
				dims[r.IntN(len(dims))].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: number}
			}
			what = fmt.Sprintf("a dimension of %s is %d", value.GetName(), number)
		}
	}
	bad, err := proto.Marshal(m)
	return what, bad, err
}

// What damaged models may take at the most.
const (
	damagedBytes = 3 << 30 // of the process that opens them all, ONNX Runtime included
	damagedTime  = 20 * time.Minute
)

// A damaged model folder is an error, or a model that passes its self-test, and
// never the end of the process, in bounded memory. MUTATIONS says how many.
func TestDamagedBundles(t *testing.T) {
	needLibrary(t)
	count, err := strconv.Atoi(os.Getenv("MUTATIONS"))
	if err != nil {
		count = 60
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=0 %d", damagedChild, count))
	cmd.Stderr = os.Stderr
	defer time.AfterFunc(damagedTime, func() { _ = cmd.Process.Kill() }).Stop()
	out, err := cmd.Output()
	begun, refused, taken := "", 0, 0
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		line := lines.Text()
		switch kind, rest, _ := strings.Cut(line, " "); kind {
		case "begin":
			begun = rest
		case "taken":
			taken++
		case "refused":
			refused++
			_, quoted, _ := strings.Cut(rest, " ")
			if text, err := strconv.Unquote(quoted); err != nil || strings.Contains(text, "\n") || len(text) > 4096 {
				t.Errorf("%s: not one line of error: %.400s", begun, rest)
			}
		}
	}
	if err != nil || refused+taken != count {
		t.Errorf("the process ended at %s: %v; it said\n%s", begun, err, out[max(0, len(out)-2000):])
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && runtime.GOOS == "linux" {
		t.Logf("%d refused, %d taken, %d MB at the most", refused, taken, usage.Maxrss>>10)
		if usage.Maxrss<<10 > damagedBytes {
			t.Errorf("the process took %d MB", usage.Maxrss>>10)
		}
	}
	if refused < count/4 {
		t.Errorf("only %d of %d were refused: the models are not damaged", refused, count)
	}
}

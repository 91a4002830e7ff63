package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/library"
	"github.com/draftmill/draftmill/pipeline/tokenize"
)

// Sequences have a prompt of promptTokens and a completion of newTokens: a past
// of 128 tokens on average.
const (
	promptTokens = 96
	newTokens    = 64
	past         = promptTokens + newTokens/2
	capacity     = 1024
)

func main() {
	pair := flag.String("pair", "", "folder that make_pair.py wrote")
	threads := flag.Int("threads", 2, "threads of a run of the target")
	draft := flag.Int("draft-threads", 2, "threads of a run of the draft")
	exported := flag.Bool("exported", false, "run the graphs as they were exported, with ONNX Runtime's kernels")
	session := flag.String("session", "", "session options, key=value,key=value")
	device := flag.String("device", "cpu", "device of both models")
	provider := flag.String("provider", "", "options of the device's provider, key=value,key=value")
	flag.Parse()
	options := ort.Options{
		Threads: *threads, AsExported: *exported, Context: capacity, Device: *device,
		SessionConfig: pairs(*session), ProviderOptions: pairs(*provider),
	}
	if err := serve(*pair, options, *draft); err != nil {
		fmt.Fprintln(os.Stderr, "ours:", err)
		os.Exit(1)
	}
}

// pairs reads key=value,key=value.
func pairs(list string) map[string]string {
	m := map[string]string{}
	for _, entry := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		key, value, _ := strings.Cut(entry, "=")
		m[key] = value
	}
	return m
}

// serve answers the requests of the standard input until it ends.
func serve(pair string, options ort.Options, draft int) (err error) {
	lib, err := library.FindFor(options.Device, "")
	if err != nil {
		return err
	}
	if err := ort.Init(lib); err != nil {
		return err
	}
	b := &bench{pair: pair, options: options, draft: draft, models: map[string]*opened{}}
	if err := b.readPrompts(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	out, in := json.NewEncoder(os.Stdout), bufio.NewScanner(os.Stdin)
	for in.Scan() {
		result, err := b.answer(context.Background(), strings.Fields(in.Text()))
		if err != nil {
			return fmt.Errorf("%s: %w", in.Text(), err)
		}
		if err := out.Encode(result); err != nil {
			return err
		}
	}
	return in.Err()
}

// opened is a model that was asked for.
type opened struct {
	model *ort.Model
	tok   *tokenize.Tokenizer
}

// bench is what is open.
type bench struct {
	pair    string
	options ort.Options
	draft   int // threads of its runs
	models  map[string]*opened
	runs    uint64 // each draws with uniforms of its own
	texts   [][]int32
}

// readPrompts takes the prompts from the pair's folder, where it has some.
func (b *bench) readPrompts() error {
	data, err := os.ReadFile(filepath.Join(b.pair, "prompts.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(data, &b.texts)
}

// open loads the model of this name, "target-fp32" or the like.
func (b *bench) open(name string) (*opened, error) {
	if o := b.models[name]; o != nil {
		return o, nil
	}
	bundle, err := ort.OpenBundle(filepath.Join(b.pair, "onnx", name))
	if err != nil {
		return nil, err
	}
	tok, err := tokenize.Load(bundle.Tokenizer)
	if err != nil {
		return nil, err
	}
	options := b.options
	if strings.HasPrefix(name, "draft") {
		options.Threads = b.draft
	}
	model, err := ort.Load(bundle, options)
	if err != nil {
		return nil, err
	}
	b.models[name] = &opened{model: model, tok: tok}
	return b.models[name], nil
}

func (b *bench) close() (err error) {
	for _, o := range b.models {
		err = errors.Join(err, o.model.Close())
	}
	return err
}

var errUsage = errors.New("want: info | greedy PRECISION | pass MODEL LANES S | decode PRECISION K LANES greedy|sample|top50|nucleus[@device] SECONDS | prefill PRECISION N | feed PRECISION TOKENS")

// answer measures what one line asks for.
func (b *bench) answer(ctx context.Context, words []string) (map[string]any, error) {
	var a arguments = words
	switch verb := a.word(); verb {
	case "info":
		return map[string]any{"system": "draftmill", "onnxruntime": ort.Version()}, nil
	case "greedy":
		return b.greedy(ctx, a.word())
	case "pass":
		return b.pass(a.word(), a.number(), a.number())
	case "decode":
		return b.decode(ctx, a.word(), a.word(), a.word(), a.word(), a.number())
	case "prefill":
		return b.prefill(ctx, a.word(), a.number())
	case "feed":
		return b.feed(ctx, a.word(), a.number())
	default:
		return nil, errUsage
	}
}

// arguments are the words of a request that are still to be read.
type arguments []string

func (a *arguments) word() string {
	if len(*a) == 0 {
		return ""
	}
	w := (*a)[0]
	*a = (*a)[1:]
	return w
}

func (a *arguments) number() int {
	n, err := strconv.Atoi(a.word())
	if err != nil {
		return -1 // what it is for refuses it
	}
	return n
}

// pass is the time of one bare pass of the model, "target-fp32" or the like,
// that feeds s tokens to each of some sequences.
func (b *bench) pass(name string, sequences, s int) (map[string]any, error) {
	o, err := b.open(name)
	if err != nil {
		return nil, err
	}
	const probe = 3
	one, err := o.model.BarePass(sequences, past, s, probe)
	if err != nil {
		return nil, err
	}
	n := max(probe, int(700*time.Millisecond/one))
	mean, err := o.model.BarePass(sequences, past, s, n)
	why := ""
	if o.model.Ragged() != nil {
		why = o.model.Ragged().Error()
	}
	return map[string]any{"ms": milliseconds(mean), "weight_bytes": o.model.WeightBytes(), "bytes": o.model.Bundle().Bytes, "not_ragged": why}, err
}

// feed is the time that prefilling one prompt of n tokens takes, in the chunks
// of an engine's passes; the median of three.
func (b *bench) feed(ctx context.Context, precision string, n int) (_ map[string]any, err error) {
	o, err := b.open("target-" + precision)
	if err != nil {
		return nil, err
	}
	d, err := o.model.NewDecoder(0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	slot, err := d.Alloc()
	if err != nil {
		return nil, err
	}
	const chunk = 256
	var times []time.Duration
	for number := range 3 {
		text := b.prompt(number, n, d.Vocab())
		began := time.Now()
		for from := 0; from < n; from += chunk {
			to := min(from+chunk, n)
			rows := 0
			if to == n {
				rows = 1
			}
			if _, err := d.Forward(ctx, []ort.Span{{Slot: slot, Past: from, Tokens: text[from:to], Rows: rows}}); err != nil {
				return nil, err
			}
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return map[string]any{"tokens": n, "ms": milliseconds(times[1])}, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// prompt is the n tokens that every system decodes from, one list for each
// number: those of the pair's prompts.json, or noise.
func (b *bench) prompt(number, n, vocab int) []int32 {
	if len(b.texts) > 0 {
		text := b.texts[number%len(b.texts)]
		return slices.Repeat(text, n/len(text)+1)[:n]
	}
	tokens, x := make([]int32, n), uint64(number+1)*7919
	for i := range tokens {
		x = (x*1103515245 + 12345) % (1 << 31)
		tokens[i] = int32(1 + (x>>8)%uint64(vocab-1))
	}
	return tokens
}

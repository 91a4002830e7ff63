package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
	capacity     = 512
)

func main() {
	pair := flag.String("pair", "", "folder that make_pair.py wrote")
	threads := flag.Int("threads", 2, "threads of a run of the target")
	draft := flag.Int("draft-threads", 2, "threads of a run of the draft")
	lanes := flag.Int("lanes", 16, "most lanes of a run")
	session := flag.String("session", "", "session options, key=value,key=value")
	flag.Parse()
	options := ort.Options{Threads: *threads, Lanes: *lanes, Context: capacity, SessionConfig: map[string]string{}}
	for _, entry := range strings.FieldsFunc(*session, func(r rune) bool { return r == ',' }) {
		key, value, _ := strings.Cut(entry, "=")
		options.SessionConfig[key] = value
	}
	if err := serve(*pair, options, *draft); err != nil {
		fmt.Fprintln(os.Stderr, "ours:", err)
		os.Exit(1)
	}
}

// serve answers the requests of the standard input until it ends.
func serve(pair string, options ort.Options, draft int) (err error) {
	lib, err := library.Find("")
	if err != nil {
		return err
	}
	if err := ort.Init(lib); err != nil {
		return err
	}
	b := &bench{pair: pair, options: options, draft: draft, models: map[string]*opened{}}
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
	lanes int // sessions were made for up to so many
}

// bench is what is open.
type bench struct {
	pair    string
	options ort.Options
	draft   int // threads of its runs
	models  map[string]*opened
	runs    uint64 // each draws with coins of its own
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

var errUsage = errors.New("want: info | greedy PRECISION | pass MODEL LANES S | decode PRECISION K LANES greedy|sample|top50 SECONDS | prefill PRECISION N")

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

// pass is the time of one bare run of the model, "target-fp32" or the like,
// that feeds s tokens in each of some lanes.
func (b *bench) pass(name string, lanes, s int) (map[string]any, error) {
	o, err := b.open(name)
	if err != nil {
		return nil, err
	}
	const probe = 3
	one, err := o.model.BareLanes(lanes, past, s, probe)
	if err != nil {
		return nil, err
	}
	n := max(probe, int(700*time.Millisecond/one))
	mean, err := o.model.BareLanes(lanes, past, s, n)
	return map[string]any{"ms": milliseconds(mean)}, err
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// prompt is the tokens that every system decodes from, one list for each number.
func prompt(number, n, vocab int) []int32 {
	tokens, x := make([]int32, n), uint64(number+1)*7919
	for i := range tokens {
		x = (x*1103515245 + 12345) % (1 << 31)
		tokens[i] = int32(1 + (x>>8)%uint64(vocab-1))
	}
	return tokens
}

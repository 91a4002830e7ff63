package chat

import (
	"errors"
	"fmt"

	"github.com/ncruces/go-strftime"
	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// syntax is Jinja's with the settings of transformers: trim_blocks and
// lstrip_blocks.
var syntax = func() *config.Config {
	c := config.New()
	c.TrimBlocks, c.LeftStripBlocks = true, true
	return c
}()

// environment is what templates can use: what the library has, with what differs
// from Python or is transformers' own put in its place.
var environment = &exec.Environment{
	Context: exec.EmptyContext().Update(builtins.GlobalFunctions).Update(builtins.GlobalVariables).
		Update(exec.NewContext(map[string]any{"range": limitedRange})),
	Filters: exec.NewFilterSet(map[string]exec.FilterFunction{}).Update(builtins.Filters).
		Update(exec.NewFilterSet(map[string]exec.FilterFunction{"tojson": toJSON})),
	Tests: builtins.Tests,
	ControlStructures: exec.NewControlStructureSet(map[string]parser.ControlStructureParser{}).Update(builtins.ControlStructures).
		Update(exec.NewControlStructureSet(map[string]parser.ControlStructureParser{"generation": parseGeneration})),
	Methods: methods(),
}

// generation is transformers' block {% generation %}, which marks what an
// assistant wrote. It renders what is in it.
type generation struct {
	at   *tokens.Token
	body *nodes.Wrapper
}

func parseGeneration(p, _ *parser.Parser) (nodes.ControlStructure, error) {
	g := &generation{at: p.Current()}
	var err error
	g.body, _, err = p.WrapUntil("endgeneration")
	return g, err
}

func (g *generation) Position() *tokens.Token { return g.at }

func (g *generation) String() string { return "generation" }

func (g *generation) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.Inherit().ExecuteWrapper(g.body)
}

// mostRange is the longest range of a template, as in Jinja's sandbox.
const mostRange = 100_000

// limitedRange is range(), as a list: the library's leaves a goroutine behind
// where a loop ends early.
func limitedRange(_ *exec.Evaluator, params *exec.VarArgs) ([]int, error) {
	bounds := []int{0, 0, 1}
	for i, a := range params.Args {
		if i > 2 || !a.IsInteger() {
			return nil, errors.New("range takes one to three whole numbers")
		}
		bounds[i] = a.Integer()
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if len(params.Args) == 1 {
		start, stop = 0, start
	}
	if step == 0 {
		return nil, errors.New("range has a step of 0")
	}
	all := []int{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(all) == mostRange {
			return nil, fmt.Errorf("range has more than %d numbers", mostRange)
		}
		all = append(all, i)
	}
	return all, nil
}

// strftime is strftime_now of the template's date.
func (t *Template) strftime(_ *exec.Evaluator, params *exec.VarArgs) (string, error) {
	if len(params.Args) != 1 || !params.Args[0].IsString() {
		return "", errors.New("strftime_now takes a format")
	}
	return strftime.Format(params.Args[0].String(), t.date), nil
}

package eval

import (
	"regexp"
	"strings"
)

// Ways of making a program of a completion.
const (
	// ExtractNone takes the completion as what follows the prompt: HumanEval's
	// definition.
	ExtractNone = "none"
	// ExtractFenced takes the code between ``` fences, as chat models write it.
	ExtractFenced = "fenced"
	// ExtractWhole takes the completion as the whole program.
	ExtractWhole = "whole"
)

// Problem is a row of a dataset in HumanEval's form.
type Problem struct {
	Prompt     string // imports and helpers, and the head of the function with its docstring
	EntryPoint string // the function's name
	Tests      string // defines check(candidate)
	Canonical  string // a completion that passes; may be empty
}

// assemble is the program that a completion of the problem makes.
func (p *Problem) assemble(completion, extract string) string {
	if extract == ExtractWhole {
		return completion + "\n"
	}
	if extract != ExtractFenced {
		return p.Prompt + completion + "\n"
	}
	code := fenced(completion, p.EntryPoint)
	if !defines(code, p.EntryPoint) {
		return p.Prompt + code + "\n" // the body alone
	}
	// The whole function: what the prompt has before it is there too, as a model
	// that answers with a function takes imports and helpers for granted.
	return p.preamble() + "\n" + code + "\n"
}

// preamble is the prompt up to the function under test.
func (p *Problem) preamble() string {
	at := strings.LastIndex(p.Prompt, "def "+p.EntryPoint)
	if at < 0 {
		return ""
	}
	return p.Prompt[:strings.LastIndexByte(p.Prompt[:at], '\n')+1]
}

// block is fenced code: the fence's line, then text up to the closing fence or
// the end of a completion that was cut off.
var block = regexp.MustCompile("(?ms)^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\\z)")

// fenced is the first block that defines the function, else the first block,
// else the completion itself.
func fenced(completion, entry string) string {
	blocks := block.FindAllStringSubmatch(completion, -1)
	for _, b := range blocks {
		if defines(b[1], entry) {
			return b[1]
		}
	}
	if len(blocks) > 0 {
		return blocks[0][1]
	}
	return completion
}

func defines(code, entry string) bool {
	for line := range strings.Lines(code) {
		if rest, ok := strings.CutPrefix(line, "def "+entry); ok && strings.HasPrefix(strings.TrimLeft(rest, " "), "(") {
			return true
		}
	}
	return false
}

package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/configs"
)

// complete tells the shell what can follow: names of jobs in the output folder,
// and the values of flags that have few.
func complete(cmd *cobra.Command) {
	if strings.Contains(cmd.Use, "JOB") {
		cmd.ValidArgsFunction = jobNames
	}
	for flag, values := range map[string][]string{
		"mode":      {configs.ModeArS, configs.ModeSpS, configs.ModeBoth},
		"lookahead": {configs.LookaheadFixed, configs.LookaheadAuto},
		"rule":      {"rejection", "coupled", "match", "lenient:0.5", "capped:0.5"},
		"drafter":   {"model", "lookup", "uniform", "model+lookup"},
		"log-level": {"debug", "info", "warn", "error"},
		"table":     {"md", "csv", "latex"},
		"by":        {"programs", "references"},
		"format":    {"humaneval", "evalplus", "bigcode"},
		"device":    {"cpu", "cuda", "webgpu"},
	} {
		if cmd.Flags().Lookup(flag) != nil {
			if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
				panic(err) // registered twice
			}
		}
	}
	for _, below := range cmd.Commands() {
		complete(below)
	}
}

// jobNames are the jobs in the folder of --out; a path is completed as one.
func jobNames(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	out := "out"
	if f := cmd.Flags().Lookup("out"); f != nil {
		out = f.Value.String()
	}
	found, _ := filepath.Glob(filepath.Join(out, "*", "job.json")) // a bad pattern finds nothing
	var names []string
	for _, path := range found {
		if name := filepath.Base(filepath.Dir(path)); strings.HasPrefix(name, begun) {
			names = append(names, name)
		}
	}
	if len(names) == 0 || strings.ContainsRune(begun, os.PathSeparator) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

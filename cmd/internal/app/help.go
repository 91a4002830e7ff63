package app

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/draftmill/draftmill/pipeline/report"
)

// helpWidth is how wide help is: what every terminal has.
const helpWidth = 80

// exitCodes are the last line of every help.
const exitCodes = `
Exit codes: 0 done; 1 something failed, or does not hold; 2 the command line or
the configuration is wrong.
`

// help shapes the help of a command and of all below it: paragraphs and flags
// broken at the width of a terminal, and exit codes at the end.
func help(cmd *cobra.Command) {
	paragraphs(cmd)
	cobra.AddTemplateFunc("wrapped", func(fs *pflag.FlagSet) string {
		return strings.TrimRight(fs.FlagUsagesWrapped(helpWidth), " \n")
	})
	cmd.SetUsageTemplate(strings.NewReplacer(
		".LocalFlags.FlagUsages", "wrapped .LocalFlags",
		".InheritedFlags.FlagUsages", "wrapped .InheritedFlags",
	).Replace(cmd.UsageTemplate()) + exitCodes)
}

// paragraphs breaks the long texts of a command and of all below it; what is
// indented stays as it is.
func paragraphs(cmd *cobra.Command) {
	parts := strings.Split(cmd.Long, "\n\n")
	for i, p := range parts {
		if !strings.HasPrefix(p, " ") {
			parts[i] = report.Wrap(p, report.TextWidth)
		}
	}
	cmd.Long = strings.Join(parts, "\n\n")
	for _, below := range cmd.Commands() {
		paragraphs(below)
	}
}

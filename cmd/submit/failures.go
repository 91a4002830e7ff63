package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/storage"
)

// failures says what the samples that failed have in common, and is an error
// when no sample of the job succeeded.
func failures(folder *storage.Job, stderr io.Writer) error {
	plan, err := folder.Plan()
	if err != nil {
		return err
	}
	samples, failed := 0, 0
	examples, counts := map[string]string{}, map[string]int{}
	for _, mode := range plan.Modes {
		if err := folder.ReadCompletions(mode, func(c storage.Completion) error {
			samples++
			if c.FinishReason != storage.FinishError {
				return nil
			}
			failed++
			kind := digits.ReplaceAllString(c.Error, "N")
			if counts[kind]++; examples[kind] == "" {
				examples[kind] = c.Error
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if failed == 0 {
		return nil
	}
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	var lines []string
	for _, kind := range kinds[:min(3, len(kinds))] {
		lines = append(lines, fmt.Sprintf("%d times %s", counts[kind], examples[kind]))
	}
	if more := len(kinds) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d other kinds", more))
	}
	reasons := strings.Join(lines, "; ")
	if failed == samples {
		return fmt.Errorf("no sample of job %s succeeded: %s", folder.Name(), reasons)
	}
	fmt.Fprintf(stderr, "%d of %d samples failed: %s\n", failed, samples, reasons)
	return nil
}

// digits are what differs in errors of one kind.
var digits = regexp.MustCompile(`[0-9]+`)

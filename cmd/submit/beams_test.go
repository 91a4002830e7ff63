package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/configs"
)

// A search has no law that could be certified, and no temperature.
func TestBeamsThatCannotBe(t *testing.T) {
	root := "../../"
	data := []string{"--dataset", root + "testdata/demo/minieval.parquet", "--target", root + "testdata/demo/target", "--draft", root + "testdata/demo/draft"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{append([]string{"certify", "--beams", "4"}, data...), "a search draws nothing, so that there is no law to test"},
		{append([]string{"--beams", "4", "--temperature", "1"}, data...), "want 0, or nothing, with --beams"},
	} {
		_, err := output(c.args...)
		var usage *configs.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

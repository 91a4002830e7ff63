package eval

import (
	"strings"
	"testing"
)

// TestSummaries: the dataset of summaries is what its README says, and its own
// summaries score 1.
func TestSummaries(t *testing.T) {
	data := rows(t, "../../testdata/summaries/summaries.jsonl")
	if len(data) != 60 {
		t.Fatalf("%d rows", len(data))
	}
	domains, ids := map[string]int{}, map[string]bool{}
	own, first := [][]string{}, [][]string{}
	for _, row := range data {
		document, summary := row.Fields["document"], row.Fields["summary"]
		domains[row.Fields["domain"]]++
		ids[row.ID] = true
		if n := len(strings.Fields(document)); n < 90 || n > 160 {
			t.Errorf("%s has %d words", row.ID, n)
		}
		if strings.Contains(document, summary) || strings.Contains(summary, "\n") || !strings.HasSuffix(summary, ".") || string(row.Prompt) != document {
			t.Errorf("%s: summary %q", row.ID, summary)
		}
		sentence, _, _ := strings.Cut(document, ". ")
		own, first = append(own, []string{" " + summary}), append(first, []string{sentence + "."})
	}
	if len(ids) != 60 || len(domains) != 10 {
		t.Errorf("%d ids, domains %v", len(ids), domains)
	}
	job := made(t, `{"modes": ["ars", "sps"], "samples": 1, "dataset": {}}`, map[string][][]string{"ars": own, "sps": first})
	sum, err := Score(t.Context(), job, &list{data}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range []string{"rouge1", "rouge2", "rougeL", "rougeLsum", "exact"} {
		if v := sum.Modes["ars"].Metrics[metric]; v.Mean != 1 || v.Rows != 60 {
			t.Errorf("%s of the dataset's own summaries: %+v", metric, v)
		}
	}
	// The first sentence is a poor summary here, as in XSum.
	if v := sum.Modes["sps"].Metrics; v["rouge2"].Mean > 0.4 || v["rouge2"].Mean < 0.02 || v["exact"].Mean != 0 {
		t.Errorf("first sentences: %+v", v)
	}
	var table strings.Builder
	if err := sum.Table(&table); err != nil || !strings.Contains(table.String(), "rougeLsum") || !strings.Contains(table.String(), "1.0000") {
		t.Errorf("%v\n%s", err, table.String())
	}
	t.Logf("\n%s", table.String())
}

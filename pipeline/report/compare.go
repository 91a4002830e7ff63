package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/draftmill/draftmill/storage"
)

// Comparison sets ways of decoding side by side: the modes of one job, or of
// several over the same dataset. The first is what the others are compared with.
type Comparison struct {
	Series    []Series   `json:"series"`
	Quality   []Quality  `json:"quality"`
	Summaries []*Summary `json:"jobs"`

	Samples []Sample `json:"-"` // a part of the rows, for the page
}

// Series is one mode of one job.
type Series struct {
	Name         string     `json:"name"` // for people: "ArS", or with the job before it where there are several
	Job          string     `json:"job"`
	Mode         string     `json:"mode"`
	Timing       *Timing    `json:"timing,omitempty"`
	Speedup      *float64   `json:"speedup,omitempty"`        // of mean token times: a ratio of totals
	MeanOfRatios *float64   `json:"mean_of_ratios,omitempty"` // over the sequences that both have
	Theory       *float64   `json:"theory,omitempty"`
	Acceptance   []Grouping `json:"acceptance,omitempty"` // of a speculative one

	summary *Summary
	mode    *Mode
	scores  scores
	kept    *collector
	names   map[sampleKey]string // what became of programs
}

// Options say what a comparison looks at beside the job's files.
type Options struct {
	Margin  float64                    // above 0: in place of the jobs' margin
	Token   func(id int32) string      // text of one token, for classes of tokens; may be nil
	Texts   func(ids []int32) []string // texts of a completion's tokens, which join to its text; may be nil
	Column  string                     // of the dataset, to group by; Values has each row's
	Values  map[int64]string
	Samples int              // rows of which completions are kept for reading
	Rows    int64            // of the dataset, where Samples is given
	Prompts map[int64]string // to show with the samples; may be nil
}

// Compare reads jobs, finished or not, with their scores.
func Compare(jobs []*storage.Job, o Options) (*Comparison, error) {
	c := &Comparison{Quality: []Quality{}}
	margin := o.Margin
	var rows []int64
	for row := range o.Rows {
		rows = append(rows, row)
	}
	keep := chosen(rows, o.Samples)
	var fixed float64
	var dataset string
	var seed uint64
	for n, job := range jobs {
		var spec struct {
			Margin  float64 `json:"margin"`
			Seed    uint64  `json:"seed"`
			Dataset struct {
				SHA256 string `json:"sha256"`
			} `json:"dataset"`
		}
		if err := json.Unmarshal(job.Spec(), &spec); err != nil {
			return nil, fmt.Errorf("read the specification of job %s: %w", job.Name(), err)
		}
		if n == 0 {
			fixed, dataset, seed = spec.Margin, spec.Dataset.SHA256, spec.Seed
		} else if spec.Dataset.SHA256 != dataset {
			return nil, fmt.Errorf("jobs %s and %s decoded different datasets: rows cannot be paired", jobs[0].Name(), job.Name())
		}
		kept, class := map[string]*collector{}, map[string]*classes{}
		for _, t := range titles {
			kept[t.mode] = newCollector(keep, o.Texts)
		}
		class["sps"] = newClasses(o.Token)
		s, err := summarize(job, func(mode string, v *storage.Completion) { kept[mode].completion(v) },
			func(mode string, l *storage.Loop) { kept[mode].loop(l); class[mode].loop(l) })
		if err != nil {
			return nil, err
		}
		c.Summaries = append(c.Summaries, s)
		for _, t := range titles {
			m := s.Modes[t.mode]
			if m == nil || m.Samples == 0 {
				continue
			}
			one := Series{Name: t.title, Job: job.Name(), Mode: t.mode, Timing: timing(m.times), summary: s, mode: m, kept: kept[t.mode]}
			if len(jobs) > 1 {
				one.Name = job.Name() + " " + t.title
			}
			if err := one.readScores(job); err != nil {
				return nil, err
			}
			if m.Drafted > 0 {
				one.Acceptance = append(class[t.mode].grouping(), m.byPromptLength(one.scores))
				if o.Column != "" {
					one.Acceptance = append(one.Acceptance, m.byRows(o.Column, func(t *sequenceTime) string { return o.Values[t.key.row] }, one.scores))
				}
			}
			c.Series = append(c.Series, one)
		}
	}
	if len(c.Series) == 0 {
		return nil, fmt.Errorf("job %s has no completions yet", jobs[0].Name())
	}
	base := &c.Series[0]
	given := margin > 0 && margin != fixed
	if !given {
		margin = fixed
	}
	for i := range c.Series[1:] {
		other := &c.Series[i+1]
		if other.mode.MeanTokenMS > 0 && base.mode.MeanTokenMS > 0 {
			speedup, mean := base.mode.MeanTokenMS/other.mode.MeanTokenMS, meanOfRatios(base.mode.times, other.mode.times)
			other.Speedup, other.MeanOfRatios = &speedup, &mean
			if base.Job == other.Job {
				other.Theory = other.summary.TheorySpeedup
			}
		}
		c.Quality = append(c.Quality, compareScores(base.Name, other.Name, base.scores, other.scores, margin, !given, seed)...)
	}
	c.gather(keep, o.Prompts)
	return c, nil
}

// gather puts the kept completions side by side.
func (c *Comparison) gather(keep map[int64]bool, prompts map[int64]string) {
	for _, row := range slices.Sorted(maps.Keys(keep)) {
		one := Sample{Row: row, Prompt: prompts[row], Sides: map[string]Side{}}
		key := sampleKey{row, 0}
		for _, s := range c.Series {
			if side, ok := s.kept.side(key, s.Mode == "sps"); ok {
				side.Reason = s.names[key]
				one.Sides[s.Name] = side
				one.ID = s.kept.done[key].RowID
			}
		}
		if len(one.Sides) > 0 {
			c.Samples = append(c.Samples, one)
		}
	}
}

// Headline is the comparison in one sentence.
func (c *Comparison) Headline() string {
	var parts []string
	for _, s := range c.Series[1:] {
		if s.Speedup != nil {
			parts = append(parts, fmt.Sprintf("%s is %.2fx as fast as %s.", s.Name, *s.Speedup, c.Series[0].Name))
		}
	}
	for _, q := range c.Quality {
		if q.Metric == "pass@1" || q.Metric == "rouge2" {
			parts = append(parts, q.Verdict)
		}
	}
	return strings.Join(parts, " ")
}

// Table writes speed and quality for people; jobs' own figures are in each
// summary's table.
func (c *Comparison) Table(w io.Writer) error {
	var b strings.Builder // takes everything: no write to it fails
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\ttoken time\tover sequences\tspeed-up\tmean of ratios\ttheory\tP50\tP90\tP99\t")
	for _, s := range c.Series {
		if s.Timing == nil {
			continue
		}
		number := func(v *float64) string {
			if v == nil {
				return "-"
			}
			return fmt.Sprintf("%.2fx", *v)
		}
		fmt.Fprintf(t, "%s\t%.3f ms\t%.3f ± %.3f\t%s\t%s\t%s\t%.2f s\t%.2f s\t%.2f s\t\n", s.Name, s.mode.MeanTokenMS, s.Timing.TokenMS, s.Timing.TokenMSDev,
			number(s.Speedup), number(s.MeanOfRatios), number(s.Theory), s.Timing.P50, s.Timing.P90, s.Timing.P99)
	}
	_ = t.Flush()
	if len(c.Quality) > 0 {
		fmt.Fprintln(&b)
		fmt.Fprintln(t, "\tbase\tother\tdifference\t95% interval\tpermutation p\tMcNemar p\tTOST p\tsmallest\t")
		for _, q := range c.Quality {
			mcnemar, tost := "-", "-"
			if q.McNemar != nil {
				mcnemar = pValue(q.McNemar.P)
			}
			if q.Equivalence != nil {
				tost = pValue(q.Equivalence.P)
			}
			name := q.Metric
			if len(c.Series) > 2 {
				name += ", " + q.Other
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t[%s, %s]\t%s\t%s\t%s\t%s\t\n", name, q.mean(q.BaseMean.Mean), q.mean(q.OtherMean.Mean), q.signed(q.Difference.Mean),
				q.signed(q.Difference.Low), q.signed(q.Difference.High), pValue(q.Permutation), mcnemar, tost, q.amount(q.Detectable))
		}
		_ = t.Flush()
		fmt.Fprintln(&b)
		for _, q := range c.Quality {
			fmt.Fprintln(&b, wrap(q.Verdict, 100))
		}
	} else {
		fmt.Fprintln(&b, "\nNothing is said about quality: submit score JOB scores the completions first.")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (q *Quality) mean(v float64) string {
	if strings.HasPrefix(q.Metric, "rouge") {
		return fmt.Sprintf("%.4f", v)
	}
	return percent(v)
}

// wrap breaks a text into lines of at most width characters.
func wrap(text string, width int) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case at+1+len(word) > width:
			b.WriteString("\n")
			at = 0
		default:
			b.WriteString(" ")
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	return b.String()
}

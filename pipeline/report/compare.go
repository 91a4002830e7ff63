package report

import (
	"encoding/json"
	"errors"
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

	Certificate *Certificate `json:"certificate,omitempty"` // nil where nobody asked for one

	Samples []Sample `json:"-"` // a part of the rows, for the page
	Omitted string   `json:"-"` // what of the rows Samples leaves out, in a sentence
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
	Ceiling      *Ceiling   `json:"ceiling,omitempty"`    // nil: not known
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

// ErrNothingYet is a job without a completion.
var ErrNothingYet = errors.New("it has no completions yet")

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
		hosts, err := job.Hosts()
		if err != nil {
			return nil, err
		}
		for _, t := range titles {
			m := s.Modes[t.mode]
			if m == nil || m.Samples == 0 {
				continue
			}
			one := Series{Name: t.title, Job: job.Name(), Mode: t.mode, Timing: timing(m.times), Ceiling: m.ceiling(hosts), summary: s, mode: m, kept: kept[t.mode]}
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
		return nil, fmt.Errorf("job %s: %w", jobs[0].Name(), ErrNothingYet)
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
	c.gather(keep, o.Prompts, o.Rows)
	return c, nil
}

// maxSampleBytes bounds the texts that a page shows: with it a page stays under
// 20 MB however many rows it is to show.
const maxSampleBytes = 12 << 20

// gather puts the kept completions side by side.
func (c *Comparison) gather(keep map[int64]bool, prompts map[int64]string, rows int64) {
	bytes := 0
	for _, row := range slices.Sorted(maps.Keys(keep)) {
		one := Sample{Row: row, Prompt: prompts[row], Sides: map[string]Side{}}
		bytes += len(one.Prompt)
		key := sampleKey{row, 0}
		for _, s := range c.Series {
			if side, ok := s.kept.side(key, s.Mode == "sps"); ok {
				side.Reason = s.names[key]
				one.Sides[s.Name] = side
				one.ID = s.kept.done[key].RowID
				bytes += side.bytes()
			}
		}
		if bytes > maxSampleBytes {
			break
		}
		if len(one.Sides) > 0 {
			c.Samples = append(c.Samples, one)
		}
	}
	samples := int64(1)
	for _, s := range c.Series {
		if rows > 0 {
			samples = max(samples, s.mode.Samples/rows)
		}
	}
	if n := int64(len(c.Samples)); n > 0 && (n < rows || samples > 1) {
		c.Omitted = fmt.Sprintf("Shown: the first sample of %d of %d rows, at even distances (--samples N changes how many).", n, rows)
	}
}

// Table writes speed and quality for people; jobs' own figures are in each
// summary's table.
func (c *Comparison) Table(w io.Writer) error {
	var b strings.Builder // takes everything: no write to it fails
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	number := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%.2fx", *v)
	}
	fmt.Fprintln(t, "\ttoken time\tof sequences\tspeed-up\tof ratios\ttheory\t")
	for _, s := range c.Series {
		if s.Timing != nil {
			fmt.Fprintf(t, "%s\t%.3f ms\t%.3f ± %.3f\t%s\t%s\t%s\t\n", short(s.Name), s.mode.MeanTokenMS, s.Timing.TokenMS, s.Timing.TokenMSDev, number(s.Speedup), number(s.MeanOfRatios), number(s.Theory))
		}
	}
	_ = t.Flush()
	fmt.Fprintln(&b)
	fmt.Fprintln(t, "time of a sequence\tmean\tP50\tP90\tP99\t")
	for _, s := range c.Series {
		if s.Timing != nil {
			fmt.Fprintf(t, "%s\t%.2f s\t%.2f s\t%.2f s\t%.2f s\t\n", short(s.Name), s.Timing.Seconds, s.Timing.P50, s.Timing.P90, s.Timing.P99)
		}
	}
	_ = t.Flush()
	for _, s := range c.Series {
		if s.Ceiling != nil {
			fmt.Fprintf(&b, "\n%s", Wrap(fmt.Sprintf("Ceiling of %s from memory: %s.", short(s.Name), s.Ceiling), TextWidth))
		}
	}
	fmt.Fprintln(&b)
	if len(c.Quality) > 0 {
		c.qualityTable(&b, t)
	} else {
		fmt.Fprintf(&b, "\n%s\n", Wrap("Nothing is said about quality: submit score JOB scores the completions first.", TextWidth))
	}
	if c.Certificate != nil {
		fmt.Fprintf(&b, "\n%s\n", c.Certificate.Text(TextWidth))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// qualityTable adds the comparisons of scores; t writes to b.
func (c *Comparison) qualityTable(b *strings.Builder, t *tabwriter.Writer) {
	name := func(q *Quality) string {
		if len(c.Series) > 2 {
			return q.Metric + ", " + short(q.Other)
		}
		return q.Metric
	}
	fmt.Fprintln(b)
	fmt.Fprintln(t, "\tbase\tother\tdifference\t95% interval\tsmallest\t")
	for i := range c.Quality {
		q := &c.Quality[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t[%s, %s]\t%s\t\n", name(q), q.mean(q.BaseMean.Mean), q.mean(q.OtherMean.Mean), q.signed(q.Difference.Mean),
			q.signed(q.Difference.Low), q.signed(q.Difference.High), strings.TrimSuffix(q.amount(q.Detectable), " points"))
	}
	_ = t.Flush()
	fmt.Fprintln(b)
	fmt.Fprintln(t, "p\tpermutation\tMcNemar\tTOST\t")
	for i := range c.Quality {
		q := &c.Quality[i]
		mcnemar, tost := "-", "-"
		if q.McNemar != nil {
			mcnemar = pValue(q.McNemar.P)
		}
		if q.Equivalence != nil {
			tost = pValue(q.Equivalence.P)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", name(q), pValue(q.Permutation), mcnemar, tost)
	}
	_ = t.Flush()
	for _, q := range c.Quality {
		fmt.Fprintf(b, "\n%s\n", Wrap(q.Verdict, TextWidth))
	}
}

func (q *Quality) mean(v float64) string {
	if q.fraction() {
		return fmt.Sprintf("%.4f", v)
	}
	return percent(v)
}

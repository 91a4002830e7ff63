package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/theory"
	"github.com/draftmill/draftmill/storage"
)

// Summary compares the modes of one job. Fields that need both modes are nil
// when the job has one.
type Summary struct {
	Job       string           `json:"job"`
	Dir       string           `json:"dir"`
	K         int              `json:"k"`
	Lookahead string           `json:"lookahead,omitempty"` // how K was chosen; empty: always K
	Rule      string           `json:"rule"`                // of verification
	Lossy     bool             `json:"lossy"`               // the rule changes the distribution of the output
	Bound     string           `json:"bound"`               // what it guarantees
	Modes     map[string]*Mode `json:"modes"`

	Speedup       *float64 `json:"speedup"`        // mean token time of ArS / of SpS
	Alpha         *float64 `json:"alpha"`          // of the SpS mode
	C             *float64 `json:"c"`              // t_draft / t_target
	TheorySpeedup *float64 `json:"theory_speedup"` // from alpha, c and K; nil where K was not fixed or the rule is none of the theory's
	OfTheory      *float64 `json:"of_theory"`      // speedup / theory_speedup
	CostSpeedup   *float64 `json:"cost_speedup"`   // theory_speedup with what scoring k + 1 tokens was measured to take, where theory takes it for a pass like any other
	OfCost        *float64 `json:"of_cost"`        // speedup / cost_speedup
	Greedy        *Greedy  `json:"greedy,omitempty"`
	Identical     *Greedy  `json:"identical,omitempty"` // under a rule whose output does not depend on the draft

	// Beams is the job's search, where it searched: tokens per loop are then steps of
	// it, alpha is the mean share of the target's beams that the draft had.
	Beams *spec.Beams `json:"beams,omitempty"`

	spec string // indented JSON
}

// Mode sums up one mode. Times are of the workers' clocks, added up over all
// workers.
type Mode struct {
	Samples          int64            `json:"samples"`
	Errors           int64            `json:"errors"`
	Finish           map[string]int64 `json:"finish"` // samples by finish reason
	PromptTokens     int64            `json:"prompt_tokens"`
	CompletionTokens int64            `json:"completion_tokens"`
	MeanTokenMS      float64          `json:"mean_token_ms"`
	TokensPerSecond  float64          `json:"tokens_per_second"` // per worker, prefill included
	Loops            int64            `json:"loops"`
	TokensPerLoop    float64          `json:"tokens_per_loop"`
	ScoredPerLoop    float64          `json:"scored_per_loop"` // tokens that the target scored; 0 where it was not counted
	Drafted          int64            `json:"drafted"`
	Accepted         int64            `json:"accepted"`
	AcceptanceRate   float64          `json:"acceptance_rate"` // accepted / drafted; 0 where nothing was drafted
	Alpha            float64          `json:"alpha"`
	AlphaSE          float64          `json:"alpha_se"`  // standard error, positions taken as independent
	Positions        int64            `json:"positions"` // examined, what alpha is the mean over
	DraftMS          float64          `json:"draft_ms"`  // per drafted token
	Lanes            float64          `json:"lanes"`     // sequences that shared a loop's passes, mean over loops
	ScoreMS          float64          `json:"score_ms"`  // per loop
	SampleMS         float64          `json:"sample_ms"` // per loop
	PrefillSeconds   float64          `json:"prefill_seconds"`
	DecodeSeconds    float64          `json:"decode_seconds"`
	Accounting       *Accounting      `json:"accounting"`

	decodeNS, prefillNS, totalNS, draftNS, scoreNS, sampleNS int64
	lanes, logged, scored                                    int64
	ledger                                                   *ledger
	times                                                    []sequenceTime
}

// Summarize reads the tables of a job.
func Summarize(job *storage.Job) (*Summary, error) { return summarize(job, nil, nil) }

// summarize lets others see every row on the way, completions of a mode before
// its loops.
func summarize(job *storage.Job, completion func(mode string, c *storage.Completion), loop func(mode string, l *storage.Loop)) (*Summary, error) {
	j, err := specified(job)
	if err != nil {
		return nil, err
	}
	rule := j.effective()
	s := &Summary{
		Job: job.Name(), Dir: job.Dir(), K: j.K, Lookahead: j.Lookahead,
		Rule: j.Rule.String(), Lossy: rule.Lossy(), Bound: rule.Bound(), Modes: map[string]*Mode{}, Beams: j.Beams,
	}
	if j.Beams != nil {
		s.Rule, s.Bound = j.says()
	}
	for _, name := range j.Modes {
		m := &Mode{Finish: map[string]int64{}, ledger: newLedger()}
		if err := job.ReadCompletions(name, func(c storage.Completion) error {
			if completion != nil {
				completion(name, &c)
			}
			return m.addCompletion(c, j.Beams != nil)
		}); err != nil {
			return nil, err
		}
		if err := job.ReadLoops(name, func(l storage.Loop) error {
			if loop != nil {
				loop(name, &l)
			}
			return m.addLoop(l)
		}); err != nil {
			return nil, err
		}
		m.finish()
		if j.Beams != nil {
			m.TokensPerLoop = m.Accounting.TokensPerLoop
		}
		s.Modes[name] = m
	}
	s.compare(rule)
	var text bytes.Buffer
	if err := json.Indent(&text, job.Spec(), "", "  "); err != nil {
		return nil, fmt.Errorf("read the specification of job %s: %w", job.Name(), err)
	}
	s.spec = text.String()
	if ars, sps := s.Modes["ars"], s.Modes["sps"]; ars != nil && sps != nil && j.Sampling.Greedy() {
		if s.Greedy, err = compareTokens(job); err != nil {
			return nil, err
		}
	}
	if ars, sps := s.Modes["ars"], s.Modes["sps"]; ars != nil && sps != nil && rule.Invariant() {
		if s.Identical, err = compareTokens(job); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// specification is what a report needs of a job's.
type specification struct {
	K         int           `json:"k"`
	Lookahead string        `json:"lookahead"`
	Rule      spec.Rule     `json:"rule"`
	Modes     []string      `json:"modes"`
	Sampling  spec.Sampling `json:"sampling"`
	Beams     *spec.Beams   `json:"beams"`
}

func specified(job *storage.Job) (j specification, err error) {
	if err = json.Unmarshal(job.Spec(), &j); err != nil {
		err = fmt.Errorf("read the specification of job %s: %w", job.Name(), err)
	}
	return j, err
}

// effective is the rule as it applies to the job's modes and sampling.
func (j *specification) effective() spec.Rule {
	if !slices.Contains(j.Modes, "sps") {
		return j.Rule.Autoregressive()
	}
	return j.Rule.For(j.Sampling)
}

// says is what accepts the job's drafts, and what that guarantees.
func (j *specification) says() (rule, bound string) {
	if j.Beams != nil {
		return j.Beams.Rule()
	}
	r := j.effective()
	return r.String(), r.Bound()
}

// addCompletion counts a completion. The loops and times of a search stand with the
// best of its sequences.
func (m *Mode) addCompletion(c storage.Completion, search bool) error {
	if !search || c.Sample == 0 {
		m.ledger.completion(&c)
		m.times = append(m.times, timeOf(&c))
	}
	m.Samples++
	m.Finish[c.FinishReason]++
	if c.FinishReason == storage.FinishError {
		m.Errors++
		return nil
	}
	m.PromptTokens += int64(c.PromptTokens)
	m.CompletionTokens += int64(c.CompletionTokens)
	m.Drafted += int64(c.Drafted)
	m.Accepted += int64(c.Accepted)
	m.Loops += int64(c.Loops)
	m.decodeNS += c.DecodeNS
	m.prefillNS += c.PrefillNS
	m.totalNS += c.TotalNS
	m.draftNS += c.DraftNS
	m.scoreNS += c.ScoreNS
	m.sampleNS += c.SampleNS
	return nil
}

func (m *Mode) addLoop(l storage.Loop) error {
	m.ledger.loop(&l)
	m.lanes += int64(l.Lanes)
	m.scored += int64(l.Scored)
	m.logged++
	return nil
}

func (m *Mode) finish() {
	m.MeanTokenMS = ratio(float64(m.decodeNS)/1e6, m.CompletionTokens)
	m.TokensPerSecond = ratio(float64(m.CompletionTokens)*1e9, m.totalNS)
	m.TokensPerLoop = ratio(float64(m.CompletionTokens), m.Loops)
	m.AcceptanceRate = ratio(float64(m.Accepted), m.Drafted)
	m.DraftMS = ratio(float64(m.draftNS)/1e6, m.Drafted)
	m.Lanes = ratio(float64(m.lanes), m.logged)
	m.ScoredPerLoop = ratio(float64(m.scored), m.logged)
	m.ScoreMS = ratio(float64(m.scoreNS)/1e6, m.Loops)
	m.SampleMS = ratio(float64(m.sampleNS)/1e6, m.Loops)
	m.PrefillSeconds = float64(m.prefillNS) / 1e9
	m.DecodeSeconds = float64(m.decodeNS) / 1e9
	m.Accounting = m.ledger.accounting()
	m.Alpha, m.AlphaSE, m.Positions = m.Accounting.Alpha.Mean, m.Accounting.Alpha.SE, m.Accounting.Alpha.N
}

func (s *Summary) compare(rule spec.Rule) {
	ars, sps := s.Modes["ars"], s.Modes["sps"]
	if sps != nil {
		var base *Cost
		if ars != nil && len(ars.Accounting.Costs) > 0 {
			base = &ars.Accounting.Costs[0]
		}
		sps.Accounting.Smaller = sps.ledger.counterfactual(base)
		if sps.Positions > 0 {
			s.Alpha = &sps.Alpha
		}
	}
	if ars == nil || sps == nil || sps.MeanTokenMS == 0 || ars.ScoreMS == 0 || s.Alpha == nil {
		return
	}
	speedup, c := ars.MeanTokenMS/sps.MeanTokenMS, sps.DraftMS/ars.ScoreMS
	s.Speedup, s.C = &speedup, &c
	// Theorem 3.8 is about one K, and about drafted tokens that are accepted
	// with chance alpha.
	if fixed := s.Lookahead == "" || s.Lookahead == spec.FixedLookahead; fixed && rule.IsZero() && s.Beams == nil {
		predicted := theory.Speedup(*s.Alpha, c, s.K)
		of := speedup / predicted
		s.TheorySpeedup, s.OfTheory = &predicted, &of
		s.compareCosts()
	}
}

// compareCosts predicts the speed-up from the costs of full loops and of
// autoregressive steps, sampling included.
func (s *Summary) compareCosts() {
	ars, sps := s.Modes["ars"].Accounting.Costs, s.Modes["sps"].Accounting.Costs
	full := slices.IndexFunc(sps, func(c Cost) bool { return c.Tokens == s.K+1 })
	if full < 0 || len(ars) == 0 {
		return
	}
	costs := theory.Costs{Draft: sps[full].DraftMS / float64(s.K), Score: make([]float64, s.K+1)}
	costs.Score[0], costs.Score[s.K] = ars[0].ScoreMS+ars[0].SampleMS, sps[full].ScoreMS+sps[full].SampleMS
	predicted := costs.Speedup(*s.Alpha, s.K)
	of := *s.Speedup / predicted
	s.CostSpeedup, s.OfCost = &predicted, &of
}

func ratio(a float64, b int64) float64 {
	if b == 0 {
		return 0
	}
	return a / float64(b)
}

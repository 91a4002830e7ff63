package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/pipeline/verify"
	"github.com/draftmill/draftmill/storage"
)

// Certificate says what jobs' logs prove: whether every decision follows from
// the seed and the logged probabilities, and what the rule then guarantees.
type Certificate struct {
	Checks []Check `json:"checks"` // one for each job
}

// Check is one job's part of a certificate. A job that is not complete is not
// checked: its files may be moving.
type Check struct {
	Job     string         `json:"job"`
	Dir     string         `json:"dir"`
	Rule    string         `json:"rule"`
	Bound   string         `json:"bound"` // what the rule guarantees
	Lossy   bool           `json:"lossy"`
	Counts  *verify.Counts `json:"counts,omitempty"`  // what was replayed, nil where nothing was or something failed
	Failure string         `json:"failure,omitempty"` // the first thing that does not hold
	Why     string         `json:"why,omitempty"`     // it could not be replayed

	searched bool // a beam search, in which nothing is drawn
}

// States of a certificate.
const (
	Holds      = "holds"       // every job was replayed, under rules without loss
	Lossy      = "lossy"       // every job was replayed, one by a rule that changes the law
	Fails      = "fails"       // a job's files do not hold
	NotChecked = "not checked" // a job was not replayed
)

// Certify replays jobs from their logs, without the models (see verify). With
// replay unset it only says by which rules they ran. An error means that a job's
// specification cannot be read; what does not hold is a Check's Failure.
func Certify(jobs []*storage.Job, replay bool) (*Certificate, error) {
	c := &Certificate{}
	for _, job := range jobs {
		j, err := specified(job)
		if err != nil {
			return nil, err
		}
		one := Check{Job: job.Name(), Dir: job.Dir(), Lossy: j.effective().Lossy(), searched: j.Beams != nil}
		one.Rule, one.Bound = j.says()
		if replay && job.Done() {
			one.Counts, err = verify.Job(job, verify.Options{})
			if failure, ok := errors.AsType[*verify.Failure](err); ok {
				one.Failure = failure.Error()
			} else if err != nil { // a setting of a later version, say
				one.Why = err.Error()
			}
		}
		c.Checks = append(c.Checks, one)
	}
	return c, nil
}

// State is one of Holds, Lossy, Fails and NotChecked, the worst of the jobs'.
func (c *Certificate) State() string {
	state := Holds
	for _, k := range c.Checks {
		switch {
		case k.Failure != "":
			return Fails
		case k.Counts == nil:
			state = NotChecked
		case k.Lossy && state == Holds:
			state = Lossy
		}
	}
	return state
}

// Lines are the certificate for people: what was found, what the rules
// guarantee, and what neither says.
func (c *Certificate) Lines() []string {
	var lines, open []string
	var sum verify.Mode
	files, checked := 0, 0
	for _, k := range c.Checks {
		switch {
		case k.Failure != "":
			lines = append(lines, fmt.Sprintf("Job %s does not hold: %s.", k.Job, strings.TrimSuffix(k.Failure, ".")))
		case k.Why != "":
			lines = append(lines, fmt.Sprintf("Job %s cannot be checked: %s.", k.Job, strings.TrimSuffix(k.Why, ".")))
		case k.Counts == nil:
			open = append(open, k.Dir)
		default:
			checked++
			files += k.Counts.Files
			for _, m := range k.Counts.Modes {
				sum.Completions += m.Completions
				sum.Loops += m.Loops
				sum.Examined += m.Examined
			}
		}
	}
	if checked > 0 {
		whose := ""
		if len(c.Checks) > 1 {
			whose = fmt.Sprintf(" in %d of %d jobs", checked, len(c.Checks))
		}
		lines = append(lines, fmt.Sprintf("Replayed from the log%s: all %d accept decisions in %d loops follow from the seed and the logged probabilities, %d of %d files have their digests, and %d completions add up.",
			whose, sum.Examined, sum.Loops, files, files, sum.Completions))
	}
	if len(open) > 0 {
		lines = append(lines, fmt.Sprintf("Nothing was replayed of %s: run submit verify.", strings.Join(open, ", ")))
	}
	var said []string
	for _, k := range c.Checks {
		line := fmt.Sprintf("Rule %s is %s.", k.Rule, k.Bound)
		if !slices.Contains(said, line) {
			said = append(said, line)
		}
	}
	lines = append(lines, said...)
	if checked > 0 {
		onModels := "submit certify tests the law on the models themselves"
		if !slices.ContainsFunc(c.Checks, func(k Check) bool { return !k.searched }) {
			onModels = "submit verify --models searches again with the models themselves"
		}
		lines = append(lines, "The replay takes the logged probabilities for those of the models: "+onModels+".")
	}
	return lines
}

// Text writes the certificate in lines of at most width characters.
func (c *Certificate) Text(width int) string {
	return Wrap("Certificate: "+c.State()+". "+strings.Join(c.Lines(), " "), width)
}

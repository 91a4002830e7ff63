package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/configs"
)

// output runs submit with arguments.
func output(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	err := cmd.Execute()
	return out.String(), err
}

func TestPlanTable(t *testing.T) {
	out, err := output("plan", "--alpha", "0.8", "--c", "0.05")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		" 5 3.689 2.951x 1.694x 1/3.689 0.200",
		"Best lookahead: K = 8, 3.09x as fast", "above alpha 0.050", "an oracle's 4.17x", "● K = 8 (best)",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for want, args := range map[string][]string{
		"does not pay: at this cost it takes an alpha above 0.300": {"plan", "--alpha", "0.2", "--c", "0.3"},
		"pays for no acceptance rate":                              {"plan", "--alpha", "0.9", "--c", "1"},
		"K = 10, 11.00x as fast":                                   {"plan", "--alpha", "1", "--c", "0"},
		"Best lookahead: K = 3, 1.64x":                             {"plan", "--alpha", "0.8", "--c", "0.0169", "--score", "5.9,7.4,8.8,10.3,11.7,13.2"},
	} {
		if out, err := output(args...); err != nil || !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("%v: %v, no %q in\n%s", args, err, want, out)
		}
	}
}

func TestPlanJSON(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "chart.svg")
	out, err := output("plan", "--alpha", "0.8", "--c", "0.05", "--c-hat", "0.1", "--k-max", "6", "--json", "--svg", svg)
	if err != nil {
		t.Fatal(err)
	}
	var p plan
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Rows) != 7 || p.Best != 6 || p.CHat != 0.1 || p.PaysFrom == nil || math.Abs(*p.PaysFrom-0.05) > 1e-9 || len(p.Chart.Curves) != 4 {
		t.Errorf("%+v", p)
	}
	if r := p.Rows[5]; math.Abs(r.Operations-6.5/3.68928) > 1e-9 || math.Abs(r.Speedup-2.951424) > 1e-9 {
		t.Errorf("%+v", r)
	}
	f, err := os.Open(svg)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	paths := 0
	for d := xml.NewDecoder(f); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "path" {
			paths++
		}
	}
	if paths < 4 {
		t.Errorf("%d paths in the chart", paths)
	}
}

// TestPlanRefusesBadValues: one line that names the flag, and exit code 2.
func TestPlanRefusesBadValues(t *testing.T) {
	for want, args := range map[string][]string{
		"--alpha is missing":           {"--c", "0.1"},
		"--c is missing":               {"--alpha", "0.1"},
		"--alpha: 1.5":                 {"--alpha", "1.5", "--c", "0.1"},
		"--alpha: NaN":                 {"--alpha", "NaN", "--c", "0.1"},
		"--c: -0.1":                    {"--alpha", "0.5", "--c", "-0.1"},
		"--c: +Inf":                    {"--alpha", "0.5", "--c", "Inf"},
		"--c-hat: -1":                  {"--alpha", "0.5", "--c", "0.1", "--c-hat", "-1"},
		"--k-max: 0":                   {"--alpha", "0.5", "--c", "0.1", "--k-max", "0"},
		"--k-max: 65":                  {"--alpha", "0.5", "--c", "0.1", "--k-max", "65"},
		"--score: one time":            {"--alpha", "0.5", "--c", "0.1", "--score", "5"},
		"--score: 0 is not a positive": {"--alpha", "0.5", "--c", "0.1", "--score", "5,0"},
		"--score: 2 times are enough":  {"--alpha", "0.5", "--c", "0.1", "--score", "5,6", "--k-max", "2"},
		"unexpected argument \"more\"": {"--alpha", "0.5", "--c", "0.1", "more"},
	} {
		out, err := output(append([]string{"plan"}, args...)...)
		var usage *configs.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || out != "" {
			t.Errorf("%v: %q, printed %q", args, err, out)
		}
	}
}

// TestPlanPlot: the page has every picture, Table 1's figures of Leviathan et al. 2022
// are in its curves, and the traces last as long as theory says.
func TestPlanPlot(t *testing.T) {
	page := filepath.Join(t.TempDir(), "plan.html")
	if _, err := output("plan", "--alpha", "0.8", "--c", "0", "--k-max", "10", "--plot", page); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "wall time and operations by lookahead, at alpha 0.8", "best lookahead by alpha", "speed-up by alpha", "operations by alpha, c-hat 0", "autoregressive, 24 tokens: 24.0 passes of the target, time 24.0"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Count(string(text), "<figure>") != 5 || strings.Contains(string(text), "http") {
		t.Error("the page has another number of pictures, or needs something else")
	}
	for _, c := range []struct {
		alpha             float64
		k                 int
		operations, speed float64
	}{{0.6, 2, 1.53, 1.96}, {0.7, 3, 1.58, 2.53}, {0.8, 2, 1.23, 2.44}, {0.8, 5, 1.63, 3.69}, {0.9, 2, 1.11, 2.71}, {0.9, 10, 1.60, 6.86}} {
		f := planFlags{alpha: c.alpha, kMax: 10}
		p, err := f.plan(true)
		if err != nil {
			t.Fatal(err)
		}
		curves := p.pictures.Charts[0].Curves
		if time, work := curves[0].Points[c.k][1], curves[1].Points[c.k][1]; math.Abs(1/time-c.speed) > 0.006 || math.Abs(work-c.operations) > 0.006 {
			t.Errorf("alpha %v, K %d: %.3f times as fast for %.3f of the operations; the paper has %v and %v", c.alpha, c.k, 1/time, work, c.speed, c.operations)
		}
	}
	if _, err := output("plan", "--alpha", "0.8", "--c", "0.1", "--plot", filepath.Join(t.TempDir(), "no", "plan.html")); err == nil {
		t.Error("a page in a folder that is not there is written")
	}
}

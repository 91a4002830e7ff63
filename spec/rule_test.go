package spec

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseRule(t *testing.T) {
	for name, c := range map[string]struct {
		want  Rule
		lossy bool
		text  string
		bound string
	}{
		"":            {Rejection, false, "rejection", "lossless"},
		"rejection":   {Rejection, false, "rejection", "lossless"},
		"match":       {Rule{kind: match}, false, "match", "lossless"},
		"lenient:0.5": {Rule{lenient, 0.5}, true, "lenient:0.5", "LOSSY: after any prefix, no token is more than 2 times (1/0.5) as likely as under the target"},
		"capped:0.1":  {Rule{capped, 0.1}, true, "capped:0.1", "no token is more than 10 times (1/0.1)"},
		"lenient:1":   {Rule{lenient, 1}, false, "lenient:1", "lossless"},
		"capped:1e-2": {Rule{capped, 0.01}, true, "capped:0.01", "100 times"},
	} {
		r, err := ParseRule(name)
		if err != nil || r != c.want || r.Lossy() != c.lossy || r.String() != c.text || !strings.Contains(r.Bound(), c.bound) {
			t.Errorf("%q: %v %v, lossy %v, %s", name, r, err, r.Lossy(), r.Bound())
		}
	}
	for _, name := range []string{"Rejection", "strict", "rejection:1", "rejection:", "match:0.5", "lenient", "lenient:", "lenient:0", "lenient:-1",
		"lenient:1.5", "lenient:NaN", "lenient:x", "capped", "capped:2", "capped:0", ":", ":0.5"} {
		if r, err := ParseRule(name); err == nil {
			t.Errorf("%q is taken as %s", name, r)
		}
	}
	greedy := Rule{lenient, 0.5}.For(Sampling{})
	if b := greedy.Bound(); !strings.Contains(b, "0.5 times the target's largest probability") || !greedy.Lossy() || greedy.String() != "lenient:0.5" {
		t.Errorf("%s, lossy %v: %s", greedy, greedy.Lossy(), b)
	}
}

func TestRuleJSON(t *testing.T) {
	type job struct {
		Rule Rule `json:"rule,omitzero"`
	}
	for _, text := range []string{`{}`, `{"rule":"match"}`, `{"rule":"lenient:0.25"}`} {
		var j job
		if err := json.Unmarshal([]byte(text), &j); err != nil {
			t.Fatal(err)
		}
		if back, err := json.Marshal(j); err != nil || string(back) != text {
			t.Errorf("%s became %s, %v", text, back, err)
		}
	}
	var j job
	if err := json.Unmarshal([]byte(`{"rule":"lenient:7"}`), &j); err == nil {
		t.Errorf("taken as %s", j.Rule)
	}
}

package convert

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

// TestRotaryFrequencies: frequencies are transformers' to the bit, in all ways of
// reaching beyond the length of training.
func TestRotaryFrequencies(t *testing.T) {
	data, err := os.ReadFile("testdata/golden/rotary.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]struct {
		Config    json.RawMessage
		Angles    []float64
		Magnitude float64
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) < 10 {
		t.Fatal(err, len(cases))
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			var c hfConfig
			if err := json.Unmarshal(want.Config, &c); err != nil {
				t.Fatal(err)
			}
			m := &model{context: c.Positions, headSize: c.HeadDim}
			if err := c.rotary(m); err != nil {
				t.Fatal(err)
			}
			if err := m.rotary.check(m.headSize); err != nil {
				t.Fatal(err)
			}
			angles, magnitude := m.rotary.frequencies(m.headSize)
			if len(angles) != len(want.Angles) || magnitude != float32(want.Magnitude) {
				t.Fatalf("%d frequencies, magnitude %v; want %d and %v", len(angles), magnitude, len(want.Angles), want.Magnitude)
			}
			for i, a := range angles {
				if w := float32(want.Angles[i]); a != w {
					t.Errorf("frequency %d is %v, want %v: %d last bits off", i, a, w, int(math.Float32bits(a))-int(math.Float32bits(w)))
				}
			}
		})
	}
}

package spec

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// TestFormatVectors holds the generator to the test vectors of
// storage/FORMAT.md.
func TestFormatVectors(t *testing.T) {
	text, err := os.ReadFile("../storage/FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d*) ?\| ([0-9.]+) \|$`).FindAllStringSubmatch(string(text), -1)
	if len(rows) != 11 {
		t.Fatalf("FORMAT.md has %d vectors", len(rows))
	}
	for _, r := range rows {
		var n [5]uint64
		for i := range n {
			if n[i], err = strconv.ParseUint(r[i+1], 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		want, err := strconv.ParseFloat(r[7], 64)
		if err != nil {
			t.Fatal(err)
		}
		coins := Coins{Seed: n[0], Row: n[1], Sample: uint32(n[2])}
		got := coins.Uniform(Purpose(n[4]), int(n[3]))
		if r[6] != "" {
			x, err := strconv.Atoi(r[6])
			if err != nil {
				t.Fatal(err)
			}
			got = coins.Noise(int(n[3])).At(int32(x))
		}
		if got != want {
			t.Errorf("%s: %v", r[0], got)
		}
	}
}

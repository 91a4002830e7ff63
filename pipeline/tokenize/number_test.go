package tokenize

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// TestNumbers: scores are read as the Rust tokenizers read them, to the last bit;
// golden/numbers.json.gz has what they make of numbers of all kinds.
func TestNumbers(t *testing.T) {
	var golden [][2]string
	readJSON(t, unzip(t, filepath.Join(testdata, "golden", "numbers.json.gz")), &golden)
	if len(golden) < 1000 {
		t.Fatalf("%d numbers", len(golden))
	}
	inexact := 0
	for _, c := range golden {
		want, err := strconv.ParseFloat(c[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		got, err := number(json.Number(c[0]))
		if err != nil || math.Float64bits(got) != math.Float64bits(want) {
			t.Errorf("%s is %v (%v), the Rust tokenizers make %v of it", c[0], got, err, want)
		}
		if nearest, _ := strconv.ParseFloat(c[0], 64); nearest != want {
			inexact++
		}
	}
	if inexact < 50 {
		t.Errorf("only %d numbers are not read as the nearest: the file proves little", inexact)
	}
	for _, c := range []json.Number{"1e309", "-1e400", "12345678901234567890123e300"} {
		if v, err := number(c); err == nil {
			t.Errorf("%s is %v", c, v)
		}
	}
}

// TestUnigramTie: two ways through "8888" whose scores are equal but for rounding.
func TestUnigramTie(t *testing.T) {
	tok, err := Load(filepath.Join(testdata, "unigram.json"))
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode("x8888")
	if err != nil {
		t.Fatal(err)
	}
	if want := []int32{4, 17, 768, 576, 2}; !slices.Equal(ids, want) {
		t.Errorf("the Rust tokenizers give %v, we give %v", want, ids)
	}
}

package report

import (
	"math"
	"strings"
	"testing"
)

func TestChartInCharacters(t *testing.T) {
	c := Chart{Title: "squares", X: "x", Curves: []Curve{
		{Name: "square", Points: [][2]float64{{0, 0}, {1, 1}, {2, 4}, {2.5, math.NaN()}, {3, math.Inf(1)}}},
		{Name: "line", Points: [][2]float64{{0, 0}, {2, 2}}},
	}}
	var b strings.Builder
	if err := c.Text(&b, 5, 5); err != nil {
		t.Fatal(err)
	}
	want := `squares
    4.00 ┤    ●
         ┤
         ┤    ○
         ┤  ●
    0.00 ┤●
         └─────
          0   2  x
          ● square
          ○ line
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	for _, c := range []Chart{{}, {Curves: []Curve{{Name: "point", Points: [][2]float64{{1, 1}}}}}, {Curves: []Curve{{Name: "none"}}}} {
		var b strings.Builder
		if err := c.Text(&b, 10, 4); err != nil || strings.Contains(b.String(), "NaN") {
			t.Errorf("%v: %v\n%s", c, err, b.String())
		}
	}
}

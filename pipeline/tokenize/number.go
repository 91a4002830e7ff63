package tokenize

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// number reads a JSON number as serde_json does without its feature
// float_roundtrip, and so the Rust tokenizers: not always the nearest float64, but
// often its neighbour. Scores that are sums of such numbers tie in other places
// than those of exact ones.
//
// The digits are an integer, of which those that do not fit into 64 bits are left
// out; it is rounded to a float64 and then multiplied or divided by a power of ten.
func number(text json.Number) (float64, error) {
	digits, negative := strings.CutPrefix(text.String(), "-")
	mantissa, power, _ := strings.Cut(strings.ToLower(digits), "e")
	exponent := 0
	if power != "" {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil {
			exponent = math.MaxInt32 // it is one in JSON, so that it is too long
			if power[0] == '-' {
				exponent = -exponent
			}
		}
	}
	var significand uint64
	full, point := false, false
	for _, c := range []byte(mantissa) {
		if c == '.' {
			point = true
			continue
		}
		if !full {
			high, low := bits.Mul64(significand, 10)
			sum, carry := bits.Add64(low, uint64(c-'0'), 0)
			if full = high != 0 || carry != 0; !full {
				significand = sum
			}
		}
		switch {
		case full && !point:
			exponent++
		case !full && point:
			exponent--
		}
	}
	f := float64(significand)
	for ; exponent < -308 && f != 0; exponent += 308 {
		f /= 1e308
	}
	switch {
	case f == 0:
	case exponent > 308 || exponent >= 0 && math.IsInf(f*tens[exponent], 0):
		return 0, fmt.Errorf("the number %s is out of range", text)
	case exponent >= 0:
		f *= tens[exponent]
	default:
		f /= tens[-exponent]
	}
	if negative {
		f = -f
	}
	return f, nil
}

// tens are the powers of ten, each the nearest float64.
var tens = func() (t [309]float64) {
	for i := range t {
		t[i], _ = strconv.ParseFloat(fmt.Sprintf("1e%d", i), 64)
	}
	return t
}()

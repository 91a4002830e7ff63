package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// windows runs the masks for several lengths and finds how many tokens a token
// sees in each layer.
func (r *ragging) windows(found []*plainAttention) error {
	far := int64(1 << 17) // no window is wider that matters
	if r.most > 0 {
		far = r.most - 1
	}
	var masks []string
	for _, p := range found {
		masks, p.window = append(masks, p.mask), -1
	}
	nodes := r.behind(masks)
	for i, c := range []struct{ tokens, past int64 }{{1, far}, {7, 0}, {1, 0}, {1, 9}, {probeTokens, probePast}, {5, min(300, far-4)}} {
		if c.past < 0 || c.past+c.tokens > far+1 {
			continue
		}
		t := r.try(c.tokens, c.past, false, nodes)
		for _, p := range found {
			var err error
			if p.cross {
				err = p.seesAll(t)
			} else {
				err = p.sees(t, c.tokens, c.past, r.most, i == 0)
			}
			if err != nil {
				return notRecognized(p.layer, err)
			}
		}
	}
	return nil
}

// sees checks that a mask lets every token see itself and what is before it, as
// far back as the window; find finds the window. Where distances is not 0 the mask
// may add numbers by head and distance, of which there are so many.
func (p *plainAttention) sees(t *trial, tokens, past, distances int64, find bool) error {
	data, dims := t.numbers(p.mask), t.sizes(p.mask)
	if distances > 0 && !p.condition {
		var err error
		if data, err = p.unbiased(data, dims, tokens, past, distances); err != nil {
			return err
		}
	}
	total := past + tokens
	n := len(dims)
	if data == nil || n < 2 || dims[n-1] != total || dims[n-2] != tokens || int64(len(data)) != total*tokens {
		return fmt.Errorf("a mask of shape %v for %d tokens behind %d, or one whose numbers are not known", dims, tokens, past)
	}
	for row := range tokens {
		own, first := past+row, int64(-1)
		for j := range total {
			v := data[row*total+j]
			seen := v == 0
			if p.condition {
				seen = v != 0
			}
			if !seen && !p.condition && !(v <= -1e4) {
				return fmt.Errorf("a mask that adds %g", v)
			}
			if seen && first < 0 {
				first = j
			}
			if seen != (first >= 0 && j <= own) {
				return fmt.Errorf("a mask by which token %d of %d sees %d: %v", own, total, j, seen)
			}
		}
		if first < 0 {
			return fmt.Errorf("a mask by which token %d sees nothing", own)
		}
		if find && first > 0 {
			p.window = own - first + 1
		}
		if want := max(0, own-p.window+1); p.window > 0 && first != want || p.window < 0 && first != 0 {
			return fmt.Errorf("a mask by which token %d sees from %d on", own, first)
		}
	}
	return nil
}

// unbiased is the mask of one head without what it adds where tokens are seen, which
// is noted by head and distance, or must be what was noted before.
func (p *plainAttention) unbiased(data []float64, dims []int64, tokens, past, distances int64) ([]float64, error) {
	one := tokens * (past + tokens)
	if int64(len(data)) != p.heads*one || len(dims) < 3 || dims[len(dims)-3] != p.heads {
		return data, nil // one mask for all heads
	}
	if p.bias == nil {
		p.bias = slices.Repeat([]float32{float32(math.NaN())}, int(p.heads*distances))
	}
	mask := make([]float64, one)
	for i, v := range data {
		head, at := int64(i)/one, int64(i)%one
		own, j := past+at/(past+tokens), at%(past+tokens)
		switch hidden := v <= -1e4; {
		case head == 0 && hidden:
			mask[at] = v
		case hidden != (mask[at] != 0):
			return nil, fmt.Errorf("a mask by which heads differ in what token %d sees of %d", own, j)
		case !hidden && p.softcap != 0:
			return nil, errors.New("a mask that adds numbers to scores with a cap")
		case !hidden && j <= own:
			if noted := &p.bias[head*distances+own-j]; *noted != *noted {
				*noted = float32(v)
			} else if *noted != float32(v) {
				return nil, fmt.Errorf("a mask that adds %g at distance %d, and elsewhere %g", v, own-j, *noted)
			}
		}
	}
	return mask, nil
}

// seesAll checks that a mask hides nothing, and adds nothing.
func (p *plainAttention) seesAll(t *trial) error {
	data := t.numbers(p.mask)
	want := truth(p.condition)
	if p.mask != "" && (data == nil || slices.ContainsFunc(data, func(v float64) bool { return v != want })) {
		return errors.New("a mask that hides some of them, or whose numbers are not known")
	}
	return nil
}

package tokenize

import "sort"

// trie finds the keys that a text begins with, byte by byte. Nodes are numbered breadth first, so that the children of node n are
// first[n] to first[n+1]-1, in the order of their bytes.
type trie struct {
	first []int32
	label []byte  // the byte that leads to a node
	value []int32 // what the key that ends at a node stands for; -1: no key ends here
	root  [256]int32
}

// newTrie makes a trie of keys, none of them empty.
func newTrie(values map[string]int32) *trie {
	keys := make([]string, 0, len(values))
	for k := range values {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	type work struct{ lo, hi, depth int }
	t := &trie{label: []byte{0}}
	queue := []work{{0, len(keys), 0}}
	for n := 0; n < len(queue); n++ {
		w := queue[n]
		t.first = append(t.first, int32(len(queue)))
		value := int32(-1)
		if w.lo < w.hi && len(keys[w.lo]) == w.depth {
			value = values[keys[w.lo]]
			w.lo++
		}
		t.value = append(t.value, value)
		for lo := w.lo; lo < w.hi; {
			b := keys[lo][w.depth]
			hi := lo + 1
			for hi < w.hi && keys[hi][w.depth] == b {
				hi++
			}
			t.label = append(t.label, b)
			queue = append(queue, work{lo, hi, w.depth + 1})
			lo = hi
		}
	}
	t.first = append(t.first, int32(len(queue)))
	for n := t.first[0]; n < t.first[1]; n++ {
		t.root[t.label[n]] = n
	}
	return t
}

// child returns the node that b leads to from n, 0 if there is none.
func (t *trie) child(n int32, b byte) int32 {
	if n == 0 {
		return t.root[b]
	}
	lo, hi := t.first[n], t.first[n+1]
	for hi-lo > 8 {
		if mid := (lo + hi) / 2; t.label[mid] <= b {
			lo = mid
		} else {
			hi = mid
		}
	}
	for ; lo < hi; lo++ {
		if t.label[lo] == b {
			return lo
		}
	}
	return 0
}

// longest returns the value and the length of the longest key that text begins with; length 0: none.
func (t *trie) longest(text string) (value int32, length int) {
	for i, n := 0, int32(0); i < len(text); i++ {
		if n = t.child(n, text[i]); n == 0 {
			break
		}
		if t.value[n] >= 0 {
			value, length = t.value[n], i+1
		}
	}
	return value, length
}

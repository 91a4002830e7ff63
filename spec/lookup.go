package spec

// DefaultLookup is the longest suffix that a look-up compares when nobody says
// otherwise. Longer matches are preferred, so that a large value costs nothing
// but comparisons.
const DefaultLookup = 8

// Lookup drafts by copying: it finds where the sequence's last tokens stood
// before, prompt included, and proposes what followed them there (prompt
// look-up decoding, Saxena 2023). Its law is one-hot, so that a copied token x
// is accepted with chance q(x).
type Lookup struct {
	Vocab int
	// N is the longest suffix compared. The longest match is copied from, of
	// several equally long ones the latest; where not even the last token has
	// stood before, nothing is proposed.
	N int
}

// Law implements [Drafter].
func (l Lookup) Law(prefix []int32, _ Standardizer, p *Dist) (bool, error) {
	at := l.find(prefix)
	if at < 0 || int(prefix[at]) >= l.Vocab {
		return false, nil
	}
	p.setOneHot(l.Vocab, prefix[at])
	return true, nil
}

// find returns the position of the token that followed the longest earlier
// match, or -1.
func (l Lookup) find(prefix []int32) int {
	at, longest, n := -1, 0, len(prefix)
	for end := n - 1; end > 0 && longest < l.N; end-- { // a match would end before end
		match := 0
		for match < min(l.N, end) && prefix[end-1-match] == prefix[n-1-match] {
			match++
		}
		if match > longest {
			at, longest = end, match
		}
	}
	return at
}

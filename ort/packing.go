package ort

// lengths are the sizes of a run.
type lengths struct {
	tokens, rows int
	fed, longest int // the most tokens that a sequence feeds, and the most that it has then
}

func lengthsOf(spans []span) (l lengths) {
	for i := range spans {
		s := &spans[i]
		l.tokens += len(s.Tokens)
		l.rows += s.Rows
		l.fed = max(l.fed, len(s.Tokens))
		l.longest = max(l.longest, s.Past+len(s.Tokens))
	}
	return l
}

// pack writes the inputs of a run, which has room for them. Where the shape has
// more sequences than there are spans, sequences over the block that is nobody's
// follow them.
func (p *paged) pack(spans []span, s shape, width int) {
	k := packing{p: p, width: width}
	*(*int64)(p.in.rows.memory.data) = 0 // where no row is wanted: the graph takes no fewer than one
	*(*int32)(p.in.cumulative.memory.data) = 0
	for i := range spans {
		k.add(spans[i].Tokens, spans[i].Past, spans[i].Rows, spans[i].Input, p.tables[spans[i].Slot])
	}
	for k.sequences < s.sequences {
		k.add(fillers[:s.tokens], 0, s.rows, 0, p.waste)
	}
}

// packCopies writes which places of the pool are copied to which, so many.
func (p *paged) packCopies(spans []span, n int) {
	if n == 0 {
		return
	}
	copies, size := view[int32](&p.in.copies.memory, 0, 2*n)[:0], p.paging.block
	for _, s := range spans {
		for i := s.held; i < s.Past; i++ {
			copies = append(copies, p.tables[s.lender].place(i, size), p.tables[s.Slot].place(i, size))
		}
	}
}

// fillers are the tokens of such a sequence.
var fillers [capturedTokens]int32

// packing counts what was packed.
type packing struct {
	p                             *paged
	width, sequences, tokens, row int
}

func (k *packing) add(tokens []int32, past, rows, input int, blocks blockTable) {
	in := &k.p.in
	first := past // position of the first token
	if in.lengths.view != nil {
		view[int32](&in.lengths.memory, 4*k.sequences, 1)[0] = int32(input)
		first -= input
	}
	ids := view[int64](&in.ids.memory, 8*k.tokens, len(tokens))
	for j, t := range tokens {
		ids[j] = int64(t)
	}
	if in.positions.view != nil {
		positions := view[int64](&in.positions.memory, 8*k.tokens, len(tokens))
		for j := range tokens {
			positions[j] = int64(first + j)
		}
	}
	k.tokens += len(tokens)
	for j, wanted := 0, view[int64](&in.rows.memory, 8*k.row, rows); j < rows; j++ {
		wanted[j] = int64(k.tokens - rows + j)
	}
	k.row += rows
	view[int32](&in.pasts.memory, 4*k.sequences, 1)[0] = int32(past)
	table := view[int32](&in.table.memory, 4*k.sequences*k.width, k.width)
	clear(table[copy(table, blocks):]) // behind a sequence's last block; never read
	k.sequences++
	view[int32](&in.cumulative.memory, 4*k.sequences, 1)[0] = int32(k.tokens)
}

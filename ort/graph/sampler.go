package graph

import (
	"errors"
	"fmt"
	"math"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// SamplerOptions say what a sampler's graph computes. The settings mean what
// those of the same names mean in package spec, and are applied in its order.
type SamplerOptions struct {
	Vocab  int
	Logits ElementType // of the model's logits; they are taken as float32

	Temperature float64 // 0: greedy
	TopK        int     // 0: all
	TopP        float64 // 0 or 1: all
	MinP        float64 // 0: all

	// Edits says that logits are changed before the temperature: bias, penalties
	// and bans, as lists of tokens for each row.
	Edits bool
	// Race says that tokens are drawn by the smallest of noise over weight
	// (Gumbel-max), and not by inverting the cumulative distribution. It is not for
	// temperature zero, where one token is possible.
	Race bool
	// Confidence says that, at temperature zero, a drawn token's probability is that
	// of the softmax of the logits as they came. Else it is 1 there.
	Confidence bool
	// Candidates is how many of the heaviest tokens are sorted to find a nucleus;
	// 0 takes DefaultCandidates. A row whose nucleus is wider is flagged Wide, and
	// is to be computed again with as many candidates as there are tokens.
	Candidates int
	// Racers is for how many tokens a race makes noise; 0 takes DefaultRacers. A row
	// that another token might win is flagged Wide, and is to be computed again with
	// MaxRacers.
	Racers int
	// Steps is, of the graph of a verification, in how many draws the drafted
	// tokens were made, and so how many inputs their weights are; 0 is the graph
	// of a draw.
	Steps int
}

// DefaultCandidates are as many as most nuclei do not reach.
const DefaultCandidates = 1024

// Names of a sampler's inputs. R rows of logits; D drafted tokens; E edits of the
// row that has most.
const (
	SamplerLogits   = "logits"        // [R, vocabulary]
	SamplerUniforms = "uniforms"      // float32 [R, 1], below 1; none with Race
	SamplerCounter  = "noise.counter" // int64 [R, 1], see Noise; with Race only, as are the keys
	SamplerKeys     = "noise.keys"    // int64 [R, NoiseKeys]

	// Of each row. A token may stand in it twice with the same edit, and in no
	// other way: a row of fewer edits repeats one.
	EditTokens   = "edit.tokens"   // int64 [R, E]
	EditAdd      = "edit.add"      // float32 [R, E], added
	EditPenalty  = "edit.penalty"  // float32 [R, E], divides positive and multiplies negative logits
	EditBan      = "edit.ban"      // bool [R, E], makes impossible
	EditLess     = "edit.less"     // float32 [R, E], subtracted
	EditPresence = "edit.presence" // float32 [R, E], subtracted after it

	// Of a verification.
	DraftedRows      = "drafted.rows"      // int64 [D], the row of logits that decides over each
	ResidualUniforms = "residual.uniforms" // float32 [D, 1]; none with Race
)

// Names of a sampler's outputs.
const (
	SamplerTokens  = "tokens"   // int64 [R, 1], drawn: input ids, whatever the flags say
	SamplerNumbers = "numbers"  // float32 [R, DrawnNumbers]
	SamplerOut     = "weights"  // float32 [R, Stride]; of a draw only
	VerifyNumbers  = "verified" // float32 [D, VerifiedNumbers]; of a verification only
)

// What is said of a row.
const (
	DrawnToken   = iota
	DrawnProb    // of the token; see Confidence
	DrawnMargin  // at temperature zero the largest less the second largest logit; with Race log of the second smallest over the smallest; else 0
	DrawnFlags   // a sum of Flag constants
	DrawnNumbers // how many they are
)

// What is said of a drafted token, behind what its draw said.
const (
	VerifyP          = DrawnNumbers + iota // of the drafted token
	VerifyQ                                // the target's
	VerifyOverlap                          // sum of min(p, q)
	VerifyBelow                            // q of the tokens of smaller ids
	VerifyScaled                           // sum of min(p, c q), c = p(x)/q(x); 0 where q(x) is 0
	VerifyUnadjusted                       // at temperature zero exp(logit - largest logit)
	VerifyRecovered                        // the token drawn from (q - p)+; void with Race
	VerifiedNumbers                        // how many they are
)

// Flags of a row.
const (
	FlagNaN  = 1 // a logit is NaN or +Inf
	FlagNone = 2 // no token is possible
	FlagWide = 4 // the candidates or the racers are too few
)

// DraftWeights is the name of the weights that the drafted tokens of a step were
// drawn from: float32 [rows of the step, Stride]. Step after step they are the
// rows of the D drafted tokens.
func DraftWeights(step int) string { return fmt.Sprintf("weights.%d", step) }

// DraftNumbers is the name of what their draw said: SamplerNumbers of the step.
func DraftNumbers(step int) string { return fmt.Sprintf("numbers.%d", step) }

// Stride is the length of a row of weights: the vocabulary, filled up with tokens
// that are impossible to whole blocks.
func (o SamplerOptions) Stride() int {
	b := o.block()
	return (o.Vocab + b - 1) / b * b
}

// block is the length of the blocks that sums are made over, so that no sum has
// more terms than a float32 can bear, and a search looks at one block only: what
// divides the vocabulary, where something near 256 does.
func (o SamplerOptions) block() int {
	best := 256
	for n := 128; n <= 512; n++ {
		if o.Vocab%n == 0 && (o.Vocab%best != 0 || abs(n-256) < abs(best-256)) {
			best = n
		}
	}
	return best
}

func abs(n int) int { return max(n, -n) }

// NewSampler makes the graph of a draw, or of a verification. It consists of
// standard operators, so that it runs wherever the model does, on logits that are
// there already: what goes in beside them is a few numbers a row, and so is what
// comes out.
//
// Sums are of float32, in blocks. Probabilities are those of package spec to
// 1e-5, and a draw is spec's but where a coin lies that near to a token's edge.
func NewSampler(o SamplerOptions) (*onnxpb.ModelProto, error) {
	switch {
	case o.Vocab < 1 || o.Vocab >= 1<<24:
		return nil, fmt.Errorf("a sampler for a vocabulary of %d tokens: want 1 to %d", o.Vocab, 1<<24-1)
	case o.Logits.Size() == 0 || o.Logits == Int32 || o.Logits == Int64:
		return nil, fmt.Errorf("a sampler of logits of type %s", o.Logits)
	case o.Steps < 0 || o.TopK < 0 || o.Candidates < 0 || o.Racers < 0:
		return nil, errors.New("a sampler's counts are not negative")
	case !(o.Temperature >= 0) || !(o.TopP >= 0 && o.TopP <= 1) || !(o.MinP >= 0 && o.MinP <= 1):
		return nil, fmt.Errorf("a sampler of temperature %v, top-p %v, min-p %v", o.Temperature, o.TopP, o.MinP)
	case o.Race && o.Temperature == 0:
		return nil, errors.New("a sampler that races at temperature zero")
	}
	if o.Candidates == 0 {
		o.Candidates = DefaultCandidates
	}
	if o.Racers == 0 {
		o.Racers = DefaultRacers
	}
	s := &sampler{formula: newFormula(), o: o, block: int64(o.block()), stride: int64(o.Stride())}
	s.blocks = s.stride / s.block
	s.build()
	return s.model("sampler"), nil
}

// sampler is one such graph in the making. Names of values are strings; rows of
// weights are [R, stride], and [R, blocks, block] where they are searched.
type sampler struct {
	*formula
	o                     SamplerOptions
	block, blocks, stride int64
	ids                   string // 0, 1, .., stride-1, as float32 [stride]
	greedy                string // float32 [R, 1]: the largest logit's token
}

func (s *sampler) build() {
	o := s.o
	s.ids = s.op("Range", s.float(0), s.float(float64(s.stride)), s.float(1))
	s.input(SamplerLogits, o.Logits, -1, int64(o.Vocab))
	logits := SamplerLogits
	if o.Logits != Float32 {
		logits = s.cast(logits, Float32)
	}
	flags := ""
	if s.stride != int64(o.Vocab) {
		logits = s.op("Pad", logits, s.ints(0, 0, 0, s.stride-int64(o.Vocab)), s.float(math.Inf(-1)))
	}
	came := logits
	if o.Edits {
		logits, flags = s.edit(logits)
	}
	top := s.peak(logits)
	flags = s.check(logits, top, flags)
	weights, sum, wide, margin := s.standardize(logits, top)
	var token string
	if o.Race {
		var undecided string
		token, margin, undecided = s.race(weights)
		wide = s.either(wide, undecided)
	} else {
		s.input(SamplerUniforms, Float32, -1, 1)
		token = s.draw(weights, SamplerUniforms)
	}
	if wide != "" {
		flags = s.op("Add", flags, s.op("Mul", s.cast(wide, Float32), s.float(FlagWide)))
	}
	if margin == "" {
		margin = s.op("Mul", sum, s.float(0))
	}
	token = s.op("Min", token, s.float(float64(o.Vocab-1))) // more only in rows that are flagged
	prob := s.op("Div", s.at(weights, token), sum)
	if o.Confidence && o.Temperature == 0 {
		prob = s.softmax(came, token)
	}
	s.output(SamplerNumbers, Float32, s.along("Concat", 1, token, prob, margin, flags), -1, DrawnNumbers)
	if o.Steps == 0 {
		s.output(SamplerTokens, Int64, s.cast(token, Int64), -1, 1)
		s.output(SamplerOut, Float32, weights, -1, s.stride)
		return
	}
	s.verify(logits, top, weights, sum)
}

// softmax is the probability that logits give a token.
func (s *sampler) softmax(logits, token string) string {
	exp := s.op("Exp", s.op("Sub", logits, s.peak(logits)))
	return s.op("Div", s.at(exp, token), s.sum(exp))
}

// either is a or b; an empty one holds nowhere.
func (s *sampler) either(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return s.op("Or", a, b)
}

// edit changes logits before the temperature: it gathers the tokens that are
// named, computes, and puts them back. A ban hides no number that is none.
func (s *sampler) edit(logits string) (edited, bad string) {
	s.input(EditTokens, Int64, -1, -1)
	for _, name := range []string{EditAdd, EditPenalty, EditLess, EditPresence} {
		s.input(name, Float32, -1, -1)
	}
	s.input(EditBan, Bool, -1, -1)
	x := s.op("Add", s.elements(logits, EditTokens), EditAdd)
	x = s.op("Where", s.op("Less", x, s.float(0)), s.op("Mul", x, EditPenalty), s.op("Div", x, EditPenalty))
	hidden := s.op("And", EditBan, s.op("Not", s.op("LessOrEqual", x, s.float(math.MaxFloat32))))
	bad = s.reduce("ReduceMax", s.cast(hidden, Float32), 1)
	x = s.op("Where", EditBan, s.float(math.Inf(-1)), x)
	x = s.op("Sub", s.op("Sub", x, EditLess), EditPresence)
	return s.along("ScatterElements", 1, logits, EditTokens, x), bad
}

// peak is the largest logit, a finite number.
func (s *sampler) peak(logits string) string {
	return s.op("Max", s.reduce("ReduceMax", logits, 1), s.float(-math.MaxFloat32))
}

// check flags rows that are no distribution. bad is what is known of that.
func (s *sampler) check(logits, top, bad string) string {
	wrong := s.reduce("ReduceMax", s.cast(s.op("Not", s.op("LessOrEqual", logits, s.float(math.MaxFloat32))), Float32), 1)
	if bad != "" {
		wrong = s.op("Max", wrong, bad)
	}
	possible := s.reduce("ReduceMax", s.cast(s.op("GreaterOrEqual", logits, s.float(-math.MaxFloat32)), Float32), 1)
	none := s.op("Sub", s.float(1), possible)
	return s.op("Add", wrong, s.op("Mul", none, s.float(FlagNone)))
}

// leastExponent is the natural logarithm of the least weight, 2^-126.5: what is
// below it is impossible.
const leastExponent = -126.5 * math.Ln2

// standardize makes weights, relative to the most probable token's, and their
// sum. wide flags rows whose nucleus was not found.
func (s *sampler) standardize(logits, top string) (weights, sum, wide, margin string) {
	o := s.o
	if o.Temperature == 0 {
		values, tokens := s.top(logits, min(2, int64(o.Vocab)))
		s.greedy = s.cast(s.slice(tokens, 0, 1), Float32)
		weights = s.cast(s.op("Equal", s.ids, s.greedy), Float32)
		margin = s.op("Sub", s.slice(values, 0, 1), s.slice(values, 1, 2))
		if o.Vocab == 1 {
			margin = s.op("Add", s.op("Mul", s.sum(weights), s.float(0)), s.float(math.Inf(1)))
		}
		return weights, s.sum(weights), "", margin
	}
	x := s.op("Div", s.op("Sub", logits, top), s.float(max(o.Temperature, 1e-30)))
	weights = s.keep(s.op("Greater", x, s.float(leastExponent)), s.op("Exp", x))
	if o.TopK > 0 && o.TopK < o.Vocab {
		values, _ := s.top(logits, int64(o.TopK))
		least := s.slice(values, int64(o.TopK)-1, int64(o.TopK))
		weights = s.keep(s.op("GreaterOrEqual", logits, least), weights)
	}
	if o.TopP > 0 && o.TopP < 1 {
		weights, wide = s.nucleus(weights)
	}
	if o.MinP > 0 {
		weights = s.keep(s.op("GreaterOrEqual", weights, s.float(o.MinP)), weights)
	}
	return weights, s.sum(weights), wide, ""
}

// nucleus keeps the smallest set of the heaviest tokens that hold TopP of the
// mass; of equals those of the lower ids, which TopK lists first.
func (s *sampler) nucleus(weights string) (kept, wide string) {
	n := min(int64(s.o.Candidates), s.stride)
	need := s.op("Mul", s.sum(weights), s.float(s.o.TopP))
	values, tokens := s.top(weights, n)
	through := s.cumulate(values, n)
	before := s.op("Sub", through, values)
	count := s.reduce("ReduceSum", s.cast(s.op("Less", before, need), Float32), 1)
	last := s.cast(s.op("Sub", s.op("Max", count, s.float(1)), s.float(1)), Int64)
	least := s.elements(values, last)
	cut := s.cast(s.elements(tokens, last), Float32)
	equal := s.op("And", s.op("Equal", weights, least), s.op("LessOrEqual", s.ids, cut))
	kept = s.keep(s.op("Or", s.op("Greater", weights, least), equal), weights)
	if n < s.stride {
		wide = s.op("Less", s.slice(through, n-1, n), need)
	}
	return kept, wide
}

// draw inverts the cumulative distribution at u: the block in which it lies, and
// the token in the block. It never draws a token of weight zero: a cumulative sum
// exceeds the mark at its place and did not before.
func (s *sampler) draw(weights, u string) string {
	rows := s.op("Reshape", weights, s.ints(-1, s.blocks, s.block))
	sums := s.op("Squeeze", s.reduce("ReduceSum", rows, 2), s.ints(2))
	ends := s.op("CumSum", sums, s.int(1))
	mark := s.mark(ends, s.blocks, u)
	block := s.op("Min", s.reduce("ReduceSum", s.cast(s.op("LessOrEqual", ends, mark), Float32), 1), s.float(float64(s.blocks-1))) // more only in rows that are flagged
	index := s.cast(block, Int64)
	before := s.elements(s.op("Sub", ends, sums), index)
	inside := s.op("Add", s.op("Mul", block, s.float(float64(s.block))), s.op("Slice", s.ids, s.ints(0), s.ints(s.block), s.ints(0)))
	ends = s.op("CumSum", s.elements(weights, s.cast(inside, Int64)), s.int(1))
	whole := s.slice(ends, s.block-1, s.block)
	rest := s.op("Min", s.op("Sub", mark, before), s.op("Mul", whole, s.float(belowOne)))
	place := s.reduce("ReduceSum", s.cast(s.op("LessOrEqual", ends, s.op("Max", rest, s.float(0))), Float32), 1)
	return s.op("Add", s.op("Mul", block, s.float(float64(s.block))), s.op("Min", place, s.float(float64(s.block-1))))
}

// belowOne times a number is a smaller one, in float32.
const belowOne = 1 - 0x1p-24

// mark is u of the whole, below it.
func (s *sampler) mark(ends string, n int64, u string) string {
	whole := s.slice(ends, n-1, n)
	return s.op("Min", s.op("Mul", whole, u), s.op("Mul", whole, s.float(belowOne)))
}

// verify compares the drafted tokens' laws with the target's.
func (s *sampler) verify(logits, top, weights, sum string) {
	var laws, draws []string
	for i := range s.o.Steps {
		s.input(DraftWeights(i), Float32, -1, s.stride)
		s.input(DraftNumbers(i), Float32, -1, DrawnNumbers)
		laws, draws = append(laws, DraftWeights(i)), append(draws, DraftNumbers(i))
	}
	s.input(DraftedRows, Int64, -1)
	draft, drawn := s.along("Concat", 0, laws...), s.along("Concat", 0, draws...)
	token := s.slice(drawn, DrawnToken, DrawnToken+1)
	p := s.op("Div", draft, s.sum(draft))
	row := func(x string) string { return s.along("Gather", 0, x, DraftedRows) }
	target := row(weights)
	q := s.op("Div", target, row(sum))
	px, qx := s.at(p, token), s.at(q, token)
	overlap := s.sum(s.op("Min", p, q))
	below := s.sum(s.keep(s.op("Less", s.ids, token), q))
	unadjusted := s.op("Exp", s.op("Sub", s.at(row(logits), token), row(top)))
	possible := s.op("Greater", qx, s.float(0))
	ratio := s.op("Where", possible, s.op("Div", px, qx), s.float(0))
	scaled := s.sum(s.op("Min", p, s.op("Mul", q, ratio)))
	recovered := token
	if !s.o.Race {
		s.input(ResidualUniforms, Float32, -1, 1)
		residual := s.op("Max", s.op("Sub", q, p), s.float(0))
		// Where nothing is left, rounding let a rejection through, and (q - p)+ tends to q.
		residual = s.op("Where", s.op("Greater", s.sum(residual), s.float(0)), residual, target)
		recovered = s.draw(residual, ResidualUniforms)
	}
	s.output(VerifyNumbers, Float32, s.along("Concat", 1, drawn, px, qx, overlap, below, scaled, unadjusted, recovered), -1, VerifiedNumbers)
}

// sum adds rows up, in blocks: [R, 1].
func (s *sampler) sum(rows string) string {
	blocks := s.reduce("ReduceSum", s.op("Reshape", rows, s.ints(-1, s.blocks, s.block)), 2)
	return s.op("Squeeze", s.reduce("ReduceSum", blocks, 1), s.ints(2))
}

// cumulate makes rows of n numbers cumulative, in pieces: a device's CumSum may
// take time that grows with the square of the length.
func (s *sampler) cumulate(rows string, n int64) string {
	const piece = 64
	if n <= 2*piece {
		return s.op("CumSum", rows, s.int(1))
	}
	pieces := (n + piece - 1) / piece
	if n%piece != 0 {
		rows = s.op("Pad", rows, s.ints(0, 0, 0, pieces*piece-n), s.float(0))
	}
	inside := s.op("CumSum", s.op("Reshape", rows, s.ints(-1, pieces, piece)), s.int(2))
	ends := s.op("Squeeze", s.op("Slice", inside, s.ints(piece-1), s.ints(piece), s.ints(2)), s.ints(2))
	before := s.op("Sub", s.cumulate(ends, pieces), ends)
	whole := s.op("Reshape", s.op("Add", inside, s.op("Unsqueeze", before, s.ints(2))), s.ints(-1, pieces*piece))
	return s.slice(whole, 0, n)
}

// at is each row's number at its token, a float32.
func (s *sampler) at(rows, token string) string {
	return s.elements(rows, s.cast(token, Int64))
}

// keep is zero where the condition does not hold.
func (s *sampler) keep(condition, x string) string {
	return s.op("Where", condition, x, s.float(0))
}

// top lists the n largest numbers of rows and their places, of equals the lower
// place first.
func (s *sampler) top(rows string, n int64) (values, places string) { return s.pick(rows, n) }

func (s *sampler) pick(rows string, n int64, a ...*onnxpb.AttributeProto) (values, places string) {
	values, places = s.name(), s.name()
	s.node("TopK", []string{rows, s.ints(n)}, []string{values, places}, append(a, intAttribute("axis", 1))...)
	return values, places
}

package storage

// Values of Loop.Kind.
const (
	KindRecovered = "recovered" // Token was drawn from the residual after a rejection
	KindBonus     = "bonus"     // Token was drawn from q after every drafted token was accepted
	KindNone      = "none"      // the loop was cut before it drew a token of the target
)

// A Loop is one draft-verify round: a row of the loops table. It holds enough
// to replay every accept or reject decision without the models. q is the
// target's distribution and p the draft's (Chen et al. 2023), both as sampled
// from: after temperature, top-k and top-p.
type Loop struct {
	Row      int64
	RowID    string
	Sample   int32
	Loop     int32     // from 0 within (Row, Sample)
	Position int32     // absolute position, prompt included, of the first token that the loop decides
	K        int32     // lookahead asked for; len(Drafted) <= K
	Drafted  []int32   // token ids x~
	P        []float64 // draft probability of each drafted token, len(Drafted)
	Q        []float64 // target probability of each drafted token, len(Drafted)
	Coins    []float64 // accept coins in [0, 1), one per examined token, len <= len(Drafted)
	Accepted int32     // drafted tokens accepted, before any cut
	Token    int32     // the recovered or bonus token; -1 if Kind is KindNone
	Kind     string    // KindRecovered, KindBonus or KindNone
	Emitted  int32     // tokens of this loop that are in the completion, after eos, stop or limit
	Overlap  []float64 // sum over x of min(p(x), q(x)), per verified position
	DraftNS  int64
	ScoreNS  int64
	SampleNS int64
	Margin   *float64 // top-1 minus top-2 target logit at the last decided position; nil if unknown
}

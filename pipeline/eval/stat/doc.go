// Package stat compares two ways of decoding by scores that are paired: x[i]
// and y[i] are the scores of the same row (for pass@1, the share of the row's
// samples that passed). Rows are taken as independent, samples of one row not:
// every figure here is over rows.
//
// A difference that was not shown is not equality. What can be said is how
// large a difference this many rows would have found ([MinimalDetectable]), and
// whether differences beyond a margin are refuted ([TOST]); the margin has to
// be fixed before the scores are seen.
//
// testdata/golden.json holds what scipy and statsmodels say of the same
// numbers; testdata/make_golden.py made it.
package stat

// Package rouge computes ROUGE (Lin 2004, "ROUGE: A Package for Automatic
// Evaluation of Summaries") as google-research's package rouge-score does, which
// papers quote: its tokens, its optional stemmer and its definitions of
// ROUGE-N, ROUGE-L and ROUGE-Lsum.
//
// testdata/golden.json.gz has what rouge-score 0.1.2 says of thousands of pairs
// of texts; testdata/make_golden.py made it.
package rouge

// Package eval scores the completions of a job, finished or not, as often as is
// wanted and without decoding anything again: programs by their tests
// (HumanEval's form, pass@k), texts by a reference (ROUGE, exact match).
//
// Its parts stand alone: eval/sandbox runs programs, eval/passk and eval/rouge
// compute measures, eval/stat compares two ways of decoding by them. What is
// scored here is compared by pipeline/report.
package eval

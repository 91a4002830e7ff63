// Package mutants breaks the loop of speculative sampling on purpose, one step
// at a time, and shows that the tests of package spec would notice. A test that
// nothing fails proves nothing.
//
// A mutant is the decode loop with one step replaced: many are mistakes that
// shipped systems have had. Checkers are what the loop is held to: exact laws by
// enumeration of all coins, a chi-square test, the yield of a loop, an audit of
// the coins, hostile rows, and a replay of the log. The loop in which nothing is
// replaced runs package spec itself and passes them all; every mutant is caught
// by one at least, and the list of what caught which is printed:
//
//	go test ./spec/mutants -run TestMutants -v
//
// The parts:
//
//	loop_test.go      the loop, its steps, and a verification made of parts
//	checkers_test.go  what a loop is held to
//	mutants_test.go   the mutants
//
// Everything is in tests: the package itself is empty, and nothing of it is in
// the code that it is about.
package mutants

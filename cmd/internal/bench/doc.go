// Package bench measures what draftmill promises, each figure as a ratio of
// things measured side by side in one run, repeated and alternated, quoted as
// medians. `make bench` prints them. It holds benchmarks only.
package bench

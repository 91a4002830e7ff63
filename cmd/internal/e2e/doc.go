// Package e2e tests the two programs as a user runs them: built, started as
// processes, with the demo models, a real queue and real files, killed and
// started again. It holds tests only.
package e2e

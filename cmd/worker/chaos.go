//go:build chaos && linux

package main

import (
	"github.com/draftmill/draftmill/cmd/internal/chaos"
	"github.com/draftmill/draftmill/storage"
)

// The fault suite's worker is this program with a scripted model and with
// points at which it kills or stops itself. What it does is in the environment.
func init() {
	points := chaos.FromEnvironment()
	storage.OnStep(points.Reach)
	rig = points.Rig
}

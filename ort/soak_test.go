//go:build soak

package ort

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	soakCycles = flag.Int("soak.cycles", 10_000, "models opened and closed")
	soakTime   = flag.Duration("soak.time", 30*time.Minute, "time to play")
)

// TestSoakOpenClose is TestOpenCloseStaysFlat at length.
func TestSoakOpenClose(t *testing.T) { openClose(t, *soakCycles, 16<<20) }

// TestSoakPlay plays the game of company for a while, with models that stay and
// decoders that come and go. Memory does not grow and no logit is ever another.
func TestSoakPlay(t *testing.T) {
	var models []*Model
	for _, name := range tiny {
		models = append(models, loadT(t, modelDir(name), Options{Context: 48}))
	}
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	game := func() {
		m := models[r.IntN(len(models))]
		d, err := m.NewDecoder(0)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		reference, err := m.NewDecoder(0)
		if err != nil {
			t.Fatal(err)
		}
		defer reference.Close()
		playCompany(t, d, reference, r, 60)
	}
	for range 100 {
		game()
	}
	live, start, games := liveBytes.Load(), residentBytes(t), 0
	for end := time.Now().Add(*soakTime); time.Now().Before(end); games++ {
		game()
		if games%2000 == 0 {
			t.Logf("%d games: grown by %d KiB", games, (residentBytes(t)-start)>>10)
		}
	}
	grown := residentBytes(t) - start
	t.Logf("%d games in %v grew the process by %d KiB", games, *soakTime, grown>>10)
	if grown > 16<<20 {
		t.Error("that is more than 16 MiB")
	}
	if n := liveBytes.Load(); n != live {
		t.Errorf("%d bytes are left", n-live)
	}
}

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/draftmill/draftmill/cmd/internal/chaos"
)

const twoAttempts = "DRAFTMILL_MAX_ATTEMPTS=2"

// A shard that kills every worker that decodes it is set aside, and the others
// are done. When the cause is mended it is queued again.
func TestChaosADeadlyShard(t *testing.T) {
	f := faults.begin(t, "a shard kills every worker that decodes it", "one row in 8; set aside after 2 attempts, queued again by submit retry")
	tr := newTrial(t, f, startCluster(t, 1), poisoned(8, 2, 1, 16, 4, chaos.Deadly))
	tr.submit()
	for end := time.Now().Add(patience); ; {
		if time.Now().After(end) {
			t.Fatal("the shards are never set aside")
		}
		if s, err := tr.servers.state(); err == nil && s.dead == 2 {
			break
		}
		p := tr.worker(twoAttempts)
		until(t, "a death or a dead letter", func() bool {
			s, err := tr.servers.state()
			return p.ended() || err == nil && s.dead == 2
		})
		if p.ended() {
			tr.dies(p)
		}
	}
	if f.Disturbed != 4 {
		t.Errorf("%d workers died of two shards, want 2 of each", f.Disturbed)
	}
	until(t, "the other shards", func() bool { return committed(t, tr.here) == 6 })
	tr.dismiss()
	says := run(t, "submit", "status", chaosJob, "--nats", tr.servers.url(), "--out", tr.out)
	if !strings.Contains(says.stdout.String(), "2") {
		t.Errorf("status says\n%s", &says.stdout)
	}
	run(t, "submit", "retry", chaosJob, "--nats", tr.servers.url(), "--out", tr.out)
	tr.worker(chaos.Cured + "=1")
	tr.end()
}

// A shard that the model cannot take is tried again, set aside with its reason,
// and submit says so. Submitted again when the cause is mended, it is done.
func TestChaosABadShard(t *testing.T) {
	fullOnly(t, "a worker waits before it tries again; TestChaosADeadlyShard is near")
	f := faults.begin(t, "a shard fails in the model", "one row in 8; set aside after 2 attempts with the reason, submitted again")
	tr := newTrial(t, f, startCluster(t, 1), poisoned(8, 2, 1, 16, 4, chaos.BadShard))
	p := command("submit", append([]string{twoAttempts}, tr.submitFlags()...)...).start(t)
	tr.worker(twoAttempts)
	if code := p.code(t); code != 1 || !strings.Contains(p.stderr.String(), "the scripted model cannot take this prompt") {
		t.Errorf("submit exits with %d:\n%s", code, &p.stderr)
	}
	f.Disturbed += 4
	tr.dismiss()
	tr.submit()
	tr.worker(chaos.Cured + "=1")
	tr.end()
}

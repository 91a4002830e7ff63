package queue

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// Dead letters are listed by run, and go back on the queue with their data, small
// or large, and with no attempts counted.
func TestJobsAndRetry(t *testing.T) {
	t.Parallel()
	q := open(t, embed(t, t.TempDir(), EmbedOptions{MaxPayload: 64 << 10}), 0)
	s := source(t, q)
	large := noise(100 << 10)
	publish(t, q, true, "job/one/ars/1", "other/one/ars/1")
	_, err := q.Publish(t.Context(), "job/one/sps/1", large)
	check(t, err)
	check(t, take(t, s, "job/one/ars/1", 1).Reject(t.Context(), errors.New("no")))
	check(t, take(t, s, "job/one/sps/1", 1).Reject(t.Context(), errors.New("no")))
	check(t, take(t, s, "other/one/ars/1", 1).Reject(t.Context(), errors.New("no")))

	publish(t, q, true, "job/two/ars/1")
	var jobs []JobState
	eventually(t, "two runs of the job", func() bool { // the consumer of the second learns of its shard a little later than we
		jobs, err = q.Jobs(t.Context(), "job")
		check(t, err)
		return len(jobs) == 2
	})
	if want := []JobState{{Scope: "job/one", Dead: 2}, {Scope: "job/two", Queued: 1}}; !slices.Equal(jobs, want) {
		t.Errorf("jobs %+v, want %+v", jobs, want)
	}
	if all, err := q.Jobs(t.Context(), ""); err != nil || len(all) != 3 {
		t.Errorf("jobs %+v (%v)", all, err)
	}
	if n, err := q.Retry(t.Context(), "job/one"); err != nil || n != 2 {
		t.Fatalf("%d put back: %v", n, err)
	}
	if n, err := q.Retry(t.Context(), "job/one"); err != nil || n != 0 {
		t.Fatalf("%d put back a second time: %v", n, err)
	}
	check(t, take(t, s, "job/one/ars/1", 1).Ack(t.Context()))
	d := take(t, s, "job/one/sps/1", 1)
	if !bytes.Equal(d.Data(), large) {
		t.Error("the large shard changed")
	}
	check(t, d.Ack(t.Context()))
	check(t, take(t, s, "job/two/ars/1", 1).Ack(t.Context()))
	letters, err := q.DeadLetters(t.Context(), "")
	check(t, err)
	if len(letters) != 1 || letters[0].Key != "other/one/ars/1" {
		t.Errorf("dead letters %+v", letters)
	}
	leftovers(t, q)
}

package e2e

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/draftmill/draftmill/storage/bucket/buckettest"
)

// The results lie in an object store that answers with errors, late, cut off and
// changed, while workers are killed.
func TestChaosABadObjectStore(t *testing.T) {
	fullOnly(t, "TestAJobOnS3 is near")
	f := faults.begin(t, "the object store answers 500, 409, 412, late, cut off or changed", "S3 (versitygw), 3 workers, 3 of them killed")
	store := buckettest.Start(t)
	want := undisturbed(t, standard())
	n := 0
	proxy := buckettest.NewProxy(t, store, func(r *http.Request) buckettest.Fault {
		n++
		switch creates := buckettest.Creates(r); {
		case n%31 == 0:
			return buckettest.Fault{Status: 500}
		case n%37 == 0 && creates:
			return buckettest.Fault{Status: 409}
		case n%7 == 0 && creates: // it is done, and the answer denies it
			return buckettest.Fault{Status: 500, After: true}
		case n%11 == 0 && creates:
			return buckettest.Fault{Status: 412, After: true}
		case n%41 == 0:
			return buckettest.Fault{Delay: 300 * time.Millisecond}
		case n%13 == 0 && r.Method == http.MethodGet:
			return buckettest.Fault{Cut: true}
		case n%17 == 0 && r.Method == http.MethodGet:
			return buckettest.Fault{Spoil: true}
		}
		return buckettest.Fault{}
	})
	tr := newTrial(t, f, startCluster(t, 1), standard())
	tr.out, tr.here = buckettest.URL(proxy.Endpoint, "runs"), filepath.Join(store.Dir, "runs", chaosJob)
	tr.submit()
	for range 3 {
		tr.worker(slow)
	}
	for range 3 {
		tr.commits(3)
		tr.kill(tr.workers[0])
		tr.workers = tr.workers[1:]
		tr.worker(slow)
	}
	tr.complete(patience)
	tr.out = store.URL("runs") // the oracle looks at what is there, not at what the proxy makes of it
	tr.holds(want)
	tr.dismiss()
	f.Disturbed += proxy.Faults()
	if proxy.Faults() < 30 {
		t.Errorf("only %d requests were disturbed", proxy.Faults())
	}
}

package bucket

import (
	"strings"
	"testing"
)

// A place has one way to be written, whatever was given, and no error gives a
// password away.
func FuzzPlaces(f *testing.F) {
	for _, place := range []string{"s3://b/p/q/?region=eu-west-1", "gs://b", "mem://x/../y", "file:///tmp/x", "a/../b", "s3://u:planted@b/x", "s3://b/%2e%2e/x%20y#z", "://", "s3:/x"} {
		f.Add(place)
	}
	f.Fuzz(func(t *testing.T, place string) {
		got, err := Clean(place)
		if err != nil {
			if strings.Contains(place, ":planted@") && strings.Contains(err.Error(), "planted") {
				t.Errorf("%q: %v", place, err)
			}
			return
		}
		again, err := Clean(got)
		if again != got || err != nil {
			t.Errorf("%q is %q and then %q: %v", place, got, again, err)
		}
		if out, name := Split(Join(place, "job-1")); name != "job-1" {
			t.Errorf("%q: %q and %q", place, out, name)
		}
	})
}

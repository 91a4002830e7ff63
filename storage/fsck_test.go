package storage

import (
	"bytes"
	"context"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/storage/bucket"
	"github.com/draftmill/draftmill/storage/bucket/buckettest"
)

// jobAt is a planned job at a place.
func jobAt(t *testing.T, place string, shards int) *Job {
	t.Helper()
	j, err := CreateJob(place, "he", []byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.WritePlan(shards, int64(shards*shardRows), []string{"sps"}); err != nil {
		t.Fatal(err)
	}
	return j
}

// places runs a test on a folder and on a real S3 server.
func places(t *testing.T, test func(t *testing.T, place func() string)) {
	t.Run("folder", func(t *testing.T) { test(t, t.TempDir) })
	t.Run("s3", func(t *testing.T) {
		s := buckettest.Start(t)
		test(t, func() string { return s.URL("t-" + unique()) })
	})
}

func put(t *testing.T, b bucket.Bucket, key string, data []byte) {
	t.Helper()
	if err := b.Replace(t.Context(), key, data); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, b bucket.Bucket, key string) []byte {
	t.Helper()
	data, err := b.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Each damage is found, by its name and nothing else, changes nothing until it is
// mended, and leaves a job that completes after what is missing was decoded again.
func TestFsck(t *testing.T) {
	final, manifest := finalKey("completions", "sps", 1), shardManifestKey("sps", 1)
	var first []byte // shard 0's completions
	type damage struct {
		do   func(t *testing.T, b bucket.Bucket)
		want []string // kind and path of the findings
		redo bool     // shard 1 has to be decoded again
	}
	damages := map[string]damage{
		"nothing": {do: func(*testing.T, bucket.Bucket) {}},
		"a result is gone": {func(t *testing.T, b bucket.Bucket) { b.Remove(t.Context(), final) },
			[]string{"marks _SUCCESS", "missing " + final}, true},
		"a result is changed": {func(t *testing.T, b bucket.Bucket) {
			data := get(t, b, final)
			data[len(data)/2] ^= 1
			put(t, b, final, data)
		}, []string{"marks _SUCCESS", "damaged " + final}, true},
		"a result is cut off": {func(t *testing.T, b bucket.Bucket) {
			put(t, b, final, get(t, b, final)[:100])
		}, []string{"marks _SUCCESS", "damaged " + final}, true},
		"a result of another shard": {func(t *testing.T, b bucket.Bucket) { put(t, b, final, first) },
			[]string{"marks _SUCCESS", "damaged " + final}, true},
		"a commit is gone": {func(t *testing.T, b bucket.Bucket) { b.Remove(t.Context(), manifest) },
			[]string{"marks _SUCCESS", "missing " + manifest, "doubled " + final, "doubled " + finalKey("loops", "sps", 1)}, true},
		"a commit is damaged": {func(t *testing.T, b bucket.Bucket) { put(t, b, manifest, []byte("{")) },
			[]string{"marks _SUCCESS", "damaged " + manifest}, true},
		"a result twice": {func(t *testing.T, b bucket.Bucket) {
			put(t, b, "completions/mode=sps/part-00001 (copy).parquet", get(t, b, final))
		}, []string{"doubled completions/mode=sps/part-00001 (copy).parquet"}, false},
		"a shard too many": {func(t *testing.T, b bucket.Bucket) {
			put(t, b, shardManifestKey("sps", 7), bytes.ReplaceAll(get(t, b, manifest), []byte(`"shard": 1`), []byte(`"shard": 7`)))
			put(t, b, finalKey("completions", "sps", 7), get(t, b, final))
			put(t, b, finalKey("loops", "sps", 7), get(t, b, finalKey("loops", "sps", 1)))
		}, []string{"doubled " + shardManifestKey("sps", 7)}, false},
		"a temporary file": {func(t *testing.T, b bucket.Bucket) {
			put(t, b, "_staging/sps-part-00001-0011223344556677.completions.parquet", nil)
		},
			[]string{"stray _staging/sps-part-00001-0011223344556677.completions.parquet"}, false},
		"no success": {func(t *testing.T, b bucket.Bucket) { b.Remove(t.Context(), successFile) },
			[]string{"marks _SUCCESS"}, false},
		"no manifest": {func(t *testing.T, b bucket.Bucket) { b.Remove(t.Context(), manifestFile) },
			[]string{"marks _SUCCESS"}, false},
		"the manifest is damaged": {func(t *testing.T, b bucket.Bucket) { put(t, b, manifestFile, []byte("[]")) },
			[]string{"marks manifest.json"}, false},
		"the manifest lists another file": {func(t *testing.T, b bucket.Bucket) {
			put(t, b, manifestFile, bytes.Replace(get(t, b, manifestFile), []byte(`"sha256": "`), []byte(`"sha256": "00`), 1))
		}, []string{"marks manifest.json"}, false},
		"an interrupted move": {func(t *testing.T, b bucket.Bucket) {
			name := string(get(t, b, manifest))
			name = name[strings.Index(name, `"staging": "`)+len(`"staging": "`):]
			name = name[:strings.Index(name, `"`)]
			if _, err := b.Move(t.Context(), final, stagingKey(name)); err != nil {
				t.Fatal(err)
			}
		}, []string{"marks _SUCCESS", "stray _staging/*"}, false},
	}
	places(t, func(t *testing.T, place func() string) {
		for name, d := range damages {
			t.Run(name, func(t *testing.T) {
				j := jobAt(t, place(), 2)
				for shard := range 2 {
					commitShard(t, j, "sps", shard, "w")
				}
				if done, err := j.Finalize(t.Context()); !done || err != nil {
					t.Fatal(done, err)
				}
				first = get(t, j.b, finalKey("completions", "sps", 0))
				d.do(t, j.b)
				j = reopen(t, j)
				before := objects(t, j.b)
				x := findings(t, j, d.want)
				if after := objects(t, j.b); !slices.Equal(after, before) {
					t.Errorf("examining has changed %q to %q", before, after)
				}
				unlock, err := j.Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer unlock()
				if err := j.Repair(t.Context(), x, true); err != nil {
					t.Fatal(err)
				}
				if d.redo {
					if j.Done() {
						t.Error("complete without a shard")
					}
					findings(t, j, []string{"missing " + manifest})
					if !commitShard(t, j, "sps", 1, "w") {
						t.Error("the shard cannot be committed again")
					}
				}
				if done, err := j.Finalize(t.Context()); !done || err != nil {
					t.Errorf("%v %v", done, err)
				}
				findings(t, j, nil)
				rows := 0
				if err := j.ReadCompletions("sps", func(Completion) error { rows++; return nil }); err != nil || rows != 2*shardRows {
					t.Errorf("%d rows: %v", rows, err)
				}
			})
		}
	})
}

// findings examines a job and compares what is found.
func findings(t *testing.T, j *Job, want []string) *Examination {
	t.Helper()
	x, err := j.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range x.Findings {
		p := f.Path
		for _, w := range want {
			if dir, any := strings.CutSuffix(w, "*"); any && strings.HasPrefix(f.Kind+" "+p, dir) {
				p = path.Dir(p) + "/*"
			}
		}
		got = append(got, f.Kind+" "+p)
	}
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("found\n %q\nwant\n %q\n%+v", got, want, x.Findings)
	}
	return x
}

func objects(t *testing.T, b bucket.Bucket) (keys []string) {
	t.Helper()
	list, err := b.List(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if !strings.HasPrefix(e.Key, locksDir) {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// Shards are looked at several at a time.
func TestFsckOfManyShards(t *testing.T) {
	const shards = 30
	j := jobAt(t, t.TempDir(), shards)
	for shard := range shards {
		commitShard(t, j, "sps", shard, "w")
	}
	checkComplete(t, j, "sps", shards)
	for range 50 {
		if e := findings(t, reopen(t, j), nil); e.Whole != shards || e.Files != 2*shards {
			t.Fatalf("%d shards and %d files are whole, want %d and %d", e.Whole, e.Files, shards, 2*shards)
		}
	}
}

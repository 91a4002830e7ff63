package storage

import (
	"context"
	"encoding/json"
	"path"
	"regexp"
)

// hostsDir has what workers say of their machines, an object for each worker.
const hostsDir = "_hosts"

// A Host is what a worker found on its machine for one job: what bounds its
// speed. It is no part of the job.
type Host struct {
	Worker      string  `json:"worker"`
	Bandwidth   float64 `json:"read_bytes_per_second"` // of memory, all processors together
	TargetBytes int     `json:"target_bytes"`          // of weights that a pass over one token reads
	DraftBytes  int     `json:"draft_bytes,omitempty"` // 0: no draft model, or none that was looked at
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// NoteHost keeps what a worker found, in place of what it found before.
func (j *Job) NoteHost(ctx context.Context, h Host) error {
	return wrapf(j.b.Replace(ctx, path.Join(hostsDir, unfit.ReplaceAllString(h.Worker, "-")+".json"), jsonBytes(h)), "note the host of job %s", j.name)
}

// Hosts are what the job's workers found; those that cannot be read are left out.
func (j *Job) Hosts() ([]Host, error) {
	ctx := context.Background()
	list, err := j.b.List(ctx, hostsDir)
	if err != nil {
		return nil, wrapf(err, "read the hosts of job %s", j.name)
	}
	var hosts []Host
	for _, info := range list {
		var h Host
		if data, err := j.b.Get(ctx, info.Key); err == nil && json.Unmarshal(data, &h) == nil && h.Bandwidth > 0 {
			hosts = append(hosts, h)
		}
	}
	return hosts, nil
}

package pipeline

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/draftmill/draftmill/storage/bucket"
)

// Blame says where the cause of an error lies. It decides what becomes of a shard.
type Blame int

const (
	// BlameUnknown is every error that nobody classified; it counts as an attempt at the shard.
	BlameUnknown Blame = iota
	// BlameMessage is a shard that no worker can ever do. It is set aside at once.
	BlameMessage
	// BlameWorker is a fault of this worker: its models, device, memory or mounts. The shard is handed back and the
	// attempt is not counted.
	BlameWorker
	// BlameDisk is a disk without room, or that cannot be written. The shard is handed back, the attempt is not
	// counted, and the worker waits.
	BlameDisk
	// BlameNetwork is a queue, an object store or another worker (one that was stopped while it held a lock) that does
	// not answer. It is waited for.
	BlameNetwork
	// BlameDevice is a device that is gone: no process that uses it can go on. The shard is handed back, the attempt is
	// not counted, and the worker stops.
	BlameDevice
)

func (b Blame) String() string {
	return [...]string{"unknown", "message", "worker", "disk", "network", "device"}[b]
}

// A Fault is an error with the blame for it. Find it with errors.As, or ask [BlameFor].
type Fault struct {
	Blame Blame
	Err   error
}

func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap gives the cause.
func (f *Fault) Unwrap() error { return f.Err }

// blame wraps an error; one that says already whose fault it is stays as it is.
func blame(b Blame, err error) error {
	if err == nil || BlameFor(err) != BlameUnknown {
		return err
	}
	return &Fault{b, err}
}

// diskErrors are what a disk says that has no room or cannot be written.
var diskErrors = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.ESTALE}

// BlameFor returns the blame for an error. An error of a Decoder whose device is gone has a method DeviceLost that says so.
func BlameFor(err error) Blame {
	var f *Fault
	if errors.As(err, &f) {
		return f.Blame
	}
	var device interface{ DeviceLost() bool }
	if errors.As(err, &device) && device.DeviceLost() {
		return BlameDevice
	}
	if bucket.Unreachable(err) || errors.Is(err, bucket.ErrLocked) {
		return BlameNetwork
	}
	for _, e := range diskErrors {
		if errors.Is(err, e) {
			return BlameDisk
		}
	}
	if errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, fs.ErrPermission) {
		return BlameWorker
	}
	return BlameUnknown
}

package pipeline

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/draftmill/draftmill/storage/bucket"
)

func TestBlameFor(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Blame
	}{
		{errors.New("something"), BlameUnknown},
		{&Fault{BlameMessage, errors.New("no shard")}, BlameMessage},
		{fmt.Errorf("commit: %w", syscall.ENOSPC), BlameDisk},
		{fmt.Errorf("load: %w", syscall.ENOMEM), BlameWorker},
		{fmt.Errorf("open: %w", fs.ErrPermission), BlameWorker},
		{fmt.Errorf("commit: %w", bucket.ErrUnreachable), BlameNetwork},
		{fmt.Errorf("commit: %w", bucket.ErrLocked), BlameNetwork},
	} {
		if got := BlameFor(fmt.Errorf("shard 7: %w", c.err)); got != c.want {
			t.Errorf("%v: blame %v, want %v", c.err, got, c.want)
		}
	}
}

package bucket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"time"

	"gocloud.dev/gcerrors"
	"google.golang.org/api/googleapi"
)

// How long a store is asked. Tests shorten it.
var (
	patience   = time.Minute      // for one operation, all its attempts together
	attempt    = 20 * time.Second // for one attempt, and a second more for each slowest bytes
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// slowest is how many bytes a second a transfer is worth waiting for.
const slowest = 256 << 10

// mostWrong is after how many answers with a wrong checksum an object is taken for damaged in its store.
const mostWrong = 4

// errTaken is a conditional write that came second.
var errTaken = errors.New("the object exists")

// try does an operation on an object of so many bytes until the store has
// answered it, with growing pauses between attempts.
func (o *objects) try(ctx context.Context, what, key string, size int, op func(context.Context) error) error {
	limit := attempt + time.Duration(size/slowest)*time.Second
	end := time.Now().Add(patience + limit)
	wrong := 0 // answers whose checksum was wrong
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		within, cancel := context.WithTimeout(ctx, limit)
		err := op(within)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s %s: %w", what, o.name(key), ctx.Err())
		}
		again, why := judge(err)
		// The library's error for it has no name.
		if strings.Contains(err.Error(), "checksum did not match") {
			wrong++
		}
		switch {
		case wrong == mostWrong: // not on its way
			return fmt.Errorf("%s %s: %w: %s", what, o.name(key), ErrDamaged, oneLine(err))
		case !again && errors.Is(why, fs.ErrNotExist):
			return &fs.PathError{Op: what, Path: o.name(key), Err: fs.ErrNotExist}
		case !again:
			return fmt.Errorf("%s %s: %w", what, o.name(key), why)
		case time.Now().Add(wait).After(end):
			return fmt.Errorf("%s %s: %w: %s", what, o.name(key), ErrUnreachable, oneLine(err))
		}
		if err := pause(ctx, wait); err != nil {
			return fmt.Errorf("%s %s: %w", what, o.name(key), err)
		}
	}
}

// pause waits about d, so that callers that failed together come back apart.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// judge says whether another attempt may succeed, and what it was if not.
func judge(err error) (again bool, why error) {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS} { // of the temporary file
		if errors.Is(err, e) {
			return false, err
		}
	}
	switch gcerrors.Code(err) {
	case gcerrors.NotFound:
		return false, fs.ErrNotExist
	case gcerrors.FailedPrecondition, gcerrors.AlreadyExists:
		return false, errTaken
	case gcerrors.PermissionDenied:
		return false, fmt.Errorf("%w: %s", fs.ErrPermission, oneLine(err))
	case gcerrors.Unimplemented:
		return false, errors.New(oneLine(err))
	}
	switch status := httpStatus(err); {
	case status == http.StatusPreconditionFailed:
		return false, errTaken
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return false, fmt.Errorf("%w: %s", fs.ErrPermission, oneLine(err))
	// 400 is also what stores say of a body that was cut off on its way, 409 that another conditional write is under way.
	case status == http.StatusMovedPermanently, status == http.StatusTemporaryRedirect, status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		return false, errors.New(oneLine(err))
	}
	return true, err
}

// httpStatus is what the store answered, or 0.
func httpStatus(err error) int {
	var aws interface{ HTTPStatusCode() int }
	if errors.As(err, &aws) {
		return aws.HTTPStatusCode()
	}
	var google *googleapi.Error
	if errors.As(err, &google) {
		return google.Code
	}
	return 0
}

// oneLine is a foreign error as a part of a line.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 400 {
		text = strings.ToValidUTF8(text[:400], "") + "..."
	}
	return text
}

package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Locks in a store that only has conditional writes.
//
// A lock is a folder of numbered records. Who creates the record with the
// highest number holds the lock, as long as he writes the record anew, with
// another content, every leaseBeat. Others see by its content, and by their own
// clock alone, that he is alive: a record that stays as it is for leaseTime is
// of a process that is gone or stands still, and so is its lock. Nobody's clock
// is compared with anybody else's. Records below the highest are removed late,
// so that a number is not given twice; who has created one looks whether it is
// the highest after all.
//
// A holder that stood still learns from Held that its time is over. What it
// had asked of the store before may still happen after: a lease keeps out other
// writers in all but that instant. What is guarded by it must therefore be found
// out by digests, and not be lost, when it goes wrong: see storage.

// How often a holder shows that it lives, and when it is taken for dead.
var (
	leaseBeat = 2 * time.Second
	leaseTime = 7 * time.Second
)

// released is the content of a record whose holder has let go.
const released = "released"

type lease struct {
	o      *objects
	key    string // of its record
	stop   context.CancelFunc
	beaten chan struct{} // closed when the beat has ended

	mu   sync.Mutex
	last time.Time // when it was seen to be alive
	lost error
}

func (o *objects) TryLock(ctx context.Context, key, holder string) (Lock, error) {
	number, keys, err := o.highest(ctx, key)
	if err != nil {
		return nil, err
	}
	if number > 0 {
		if err := o.over(ctx, key, recordKey(key, number)); err != nil {
			return nil, err
		}
	}
	number++
	l := &lease{o: o, key: recordKey(key, number), beaten: make(chan struct{}), last: time.Now()}
	content := func(n int) []byte { return fmt.Appendf(nil, "%s\n%s %d\n", holder, unique(), n) }
	created, err := o.CreateOnce(ctx, l.key, content(0))
	if err != nil {
		return nil, err
	}
	now, _, err := o.highest(ctx, key)
	if err != nil {
		return nil, err
	}
	if !created || now != number {
		if created {
			_ = o.Remove(ctx, l.key)
		}
		return nil, fmt.Errorf("%s: %w", o.name(key), ErrLocked)
	}
	for _, old := range keys {
		if old < number-1 {
			_ = o.Remove(ctx, recordKey(key, old)) // the next holder tries again
		}
	}
	// The beat outlives ctx, as the lock does.
	beating, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	go l.beat(beating, content)
	return l, nil
}

func recordKey(key string, number int) string { return path.Join(key, fmt.Sprintf("%012d", number)) }

// highest is the highest number of a lock's records, 0 without any, and all numbers.
func (o *objects) highest(ctx context.Context, key string) (int, []int, error) {
	list, err := o.List(ctx, key)
	if err != nil {
		return 0, nil, err
	}
	var all []int
	most := 0
	for _, e := range list {
		if n, err := strconv.Atoi(path.Base(e.Key)); err == nil && n > 0 {
			all, most = append(all, n), max(most, n)
		}
	}
	return most, all, nil
}

// over is nil when the holder of a record has let go, or is gone. It watches
// the record for a while to find out.
func (o *objects) over(ctx context.Context, key, record string) error {
	var was []byte
	begun := time.Now()
	for wait := leaseBeat / 64; ; wait = min(2*wait, leaseBeat/2) {
		got, err := o.Get(ctx, record)
		if errors.Is(err, ErrDamaged) { // being written, or left so by who died writing it: a content like any other
			got, err = []byte("damaged"), nil
		}
		switch {
		case NotExist(err): // he lost it to another one, who is alive
			return fmt.Errorf("%s: %w", o.name(key), ErrLocked)
		case err != nil:
			return err
		case string(got) == released:
			return nil
		case was != nil && !bytes.Equal(was, got):
			holder, _, _ := strings.Cut(string(got), "\n")
			return fmt.Errorf("%s: %w (%s)", o.name(key), ErrLocked, holder)
		case time.Since(begun) > leaseTime:
			return nil
		}
		was = got
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// beat shows that the holder lives.
func (l *lease) beat(ctx context.Context, content func(int) []byte) {
	defer close(l.beaten)
	ticker := time.NewTicker(leaseBeat)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		begun := time.Now()
		if l.Held() != nil {
			return
		}
		within, cancel := context.WithTimeout(ctx, leaseTime/2)
		err := l.o.put(within, l.key, content(n), false)
		cancel()
		if err == nil {
			l.mu.Lock()
			l.last = begun
			l.mu.Unlock()
		}
	}
}

// Held takes off a beat: a holder must be sure of its lock for longer than
// others are of its end.
func (l *lease) Held() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil && time.Since(l.last) > leaseTime-leaseBeat {
		l.lost = fmt.Errorf("%s: the lock was lost: %w, or this process stood still", l.o.name(l.key), ErrUnreachable)
	}
	return l.lost
}

func (l *lease) Release() error {
	l.stop()
	<-l.beaten
	lost := l.Held()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = errors.New("the lock was released")
	if lost != nil {
		return nil // it is another one's: its record is removed by who took it
	}
	return l.o.Replace(context.Background(), l.key, []byte(released))
}

package queue

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// lossy is a network between a client and a server that loses, of each kind of question, the first one or its answer.
type lossy struct {
	answers bool // loses answers, else questions

	mu   sync.Mutex
	on   bool
	most int             // how many are lost
	lost map[string]bool // kinds of questions
	deaf map[string]bool // inboxes whose answer is lost
}

// loses says whether the question about subject, whose answer goes to inbox, is the first of its kind. What hands out or
// gives back a shard is said once, what is no question is not waited for, and a payload is waited for longer than a test.
func (l *lossy) loses(subject, inbox string, data []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := strings.Join(strings.Split(subject, ".")[:min(5, strings.Count(subject, ".")+1)], ".")
	switch {
	case strings.HasPrefix(subject, "$O."):
		kind = subject[:strings.LastIndex(subject, ".")]
	case strings.HasPrefix(subject, "$KV."), strings.HasPrefix(subject, shardSubjects), strings.HasPrefix(subject, deadSubjects):
		kind = strings.Join(strings.Split(subject, ".")[:2], ".")
	case strings.HasPrefix(subject, "$JS.ACK."):
		kind = string(data)
	}
	switch objects := "$O." + payloadBucket; {
	case !l.on, l.lost[kind], len(l.lost) == l.most, inbox == "":
		return false
	case strings.Contains(subject, ".MSG.NEXT."), strings.HasPrefix(kind, "-NAK"):
		return false
	case kind == "$JS.API.CONSUMER.CREATE.OBJ_"+payloadBucket, kind == objects+".C", kind == objects+".M" && !bytes.Contains(data, []byte(`"deleted":true`)):
		return false
	}
	l.lost[kind] = true
	if l.answers {
		l.deaf[inbox] = true
	}
	return !l.answers
}

// losesAnswer says whether what comes to inbox is an answer to be lost.
func (l *lossy) losesAnswer(inbox string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deaf[inbox]
}

// set switches losing on or off and returns how many questions were lost since it was on.
func (l *lossy) set(on bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.lost)
	l.on, l.most, l.lost, l.deaf = on, 100, map[string]bool{}, map[string]bool{}
	return n
}

func (l *lossy) limit(most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = most
}

// carry copies NATS's protocol from one end to the other, but for what is lost.
func (l *lossy) carry(to io.Writer, from io.Reader) error {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return err
		}
		fields := strings.Fields(string(line))
		var payload []byte
		drop := false
		if len(fields) > 0 {
			switch verb := strings.ToUpper(fields[0]); verb {
			case "PUB", "HPUB", "MSG", "HMSG":
				size, err := strconv.Atoi(fields[len(fields)-1])
				if err != nil {
					return err
				}
				payload = make([]byte, size+2)
				if _, err := io.ReadFull(in, payload); err != nil {
					return err
				}
				inbox := ""
				if n := len(fields) - strings.Count(verb[:1], "H"); n == 4 {
					inbox = fields[2]
				}
				if strings.HasSuffix(verb, "PUB") {
					drop = l.loses(fields[1], inbox, bytes.TrimSpace(payload))
				} else {
					drop = l.losesAnswer(fields[1])
				}
			}
		}
		if drop {
			continue
		}
		if _, err := to.Write(append(line, payload...)); err != nil {
			return err
		}
	}
}

// newLossy serves the address to and returns the network with its own address.
func newLossy(t *testing.T, to string, answers bool) (*lossy, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	l := &lossy{answers: answers}
	l.set(false)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer client.Close()
				server, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer server.Close()
				wg.Go(func() {
					_ = l.carry(server, client) // ends with the client's connection
					server.Close()
				})
				_ = l.carry(client, server)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		wg.Wait()
	})
	return l, "nats://" + listener.Addr().String()
}

// A question that gets no answer is asked again, wherever it is, and comes to the same whether the server heard it or not.
func TestALostAnswerEndsNothing(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]bool{"questions": false, "answers": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := embed(t, t.TempDir(), EmbedOptions{Listen: "127.0.0.1:-1", MaxPayload: 64 << 10})
			network, url := newLossy(t, strings.TrimPrefix(server.URL(), "nats://"), answers)
			q, sound := openURL(t, url, time.Hour), open(t, server, time.Hour)
			q.answer = 50 * time.Millisecond
			s := source(t, q)
			large := noise(100 << 10)
			lose := func(step string, f func(ctx context.Context) error) {
				t.Helper()
				network.set(true)
				if step == "connect" || step == "publish a large shard" { // whose later waits are long
					network.limit(1)
				}
				err := f(t.Context())
				if n := network.set(false); n == 0 {
					t.Errorf("%s: nothing was lost", step)
				}
				if err != nil {
					t.Fatalf("%s: %v", step, err)
				}
			}
			lose("publish", func(ctx context.Context) error {
				fresh, err := q.Publish(ctx, "job/run/ars/1", []byte("data of job/run/ars/1"))
				if err == nil && !fresh {
					err = errors.New("not the first")
				}
				return err
			})
			lose("publish a large shard", func(ctx context.Context) error {
				fresh, err := q.Publish(ctx, "job/run/ars/2", large)
				if err == nil && !fresh {
					err = errors.New("not the first")
				}
				return err
			})
			publish(t, sound, true, "job/run/ars/3", "job/run/ars/4", "other/run/ars/1")
			lose("set the priority", func(ctx context.Context) error { return q.Prioritize(ctx, "job/run", 3) })
			lose("list", func(ctx context.Context) error {
				keys, err := q.Queued(ctx, "job/run")
				if err == nil && len(keys) != 4 {
					err = fmt.Errorf("%v", keys)
				}
				return err
			})
			lose("look", func(ctx context.Context) error {
				_, err := q.Oldest(ctx)
				return err
			})

			var d *Delivery
			next := func(step, key string) {
				t.Helper()
				lose(step, func(context.Context) error {
					s.mu.Lock()
					s.looked = time.Time{}
					s.mu.Unlock()
					d = take(t, s, key, 1)
					return nil
				})
			}
			next("take", "job/run/ars/1")
			lose("acknowledge", func(ctx context.Context) error { return d.Ack(ctx) })
			next("take a large shard", "job/run/ars/2")
			if !bytes.Equal(d.Data(), large) {
				t.Error("the large shard changed")
			}
			lose("reject", func(ctx context.Context) error { return d.Reject(ctx, errors.New("no")) })
			next("take", "job/run/ars/3")
			lose("reject", func(ctx context.Context) error { return d.Reject(ctx, errors.New("no")) })

			lose("list the dead letters", func(ctx context.Context) error {
				letters, err := q.DeadLetters(ctx, "job")
				if err == nil && len(letters) != 2 {
					err = fmt.Errorf("%+v", letters)
				}
				return err
			})
			lose("read a dead letter", func(ctx context.Context) error {
				data, err := q.DeadLetterData(ctx, "job/run/ars/2")
				if err == nil && !bytes.Equal(data, large) {
					err = errors.New("it changed")
				}
				return err
			})
			lose("retry", func(ctx context.Context) error {
				n, err := q.Retry(ctx, "job/run")
				if err == nil && n != 2 {
					err = fmt.Errorf("%d", n)
				}
				return err
			})
			pending(t, sound, "job/run", 3)
			if letters, err := sound.DeadLetters(t.Context(), ""); err != nil || len(letters) != 0 {
				t.Errorf("dead letters: %+v (%v)", letters, err)
			}
			d = take(t, source(t, sound), "job/run/ars/4", 1)
			check(t, d.Reject(t.Context(), nil))
			lose("purge", func(ctx context.Context) error { return q.Purge(ctx, "job/run") })
			lose("purge the dead letters", func(ctx context.Context) error { return q.PurgeDeadLetters(ctx, "job") })
			pending(t, sound, "", 1)
			check(t, take(t, source(t, sound), "other/run/ars/1", 1).Ack(t.Context()))
			eventually(t, "the end of the run", func() bool { // its consumer learns of the acknowledgement a little later than we
				lose("finish", func(ctx context.Context) error { return q.Finish(ctx, "other/run") })
				left, err := sound.runs(t.Context(), "")
				check(t, err)
				return len(left) == 0
			})
			leftovers(t, sound)
			lose("connect", func(ctx context.Context) error {
				other, err := Connect(ctx, url, Options{})
				if err == nil {
					err = other.Close()
				}
				return err
			})
		})
	}
}

package e2e

import (
	"net"
	"sync"
	"testing"
)

// network stands between clients and a server. It can stand still, as a broken
// network does: connections stay, and nothing comes through until it is mended.
type network struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	moves *sync.Cond
	held  bool
	left  int // bytes from clients that still pass; negative: any number
	conns map[net.Conn]bool
}

// newNetwork leads to a server's address.
func newNetwork(t *testing.T, to string) *network {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &network{listener: l, to: to, left: -1, conns: map[net.Conn]bool{}}
	n.moves = sync.NewCond(&n.mu)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close() // as if nobody listened
				continue
			}
			n.mu.Lock()
			n.conns[client], n.conns[server] = true, true
			n.mu.Unlock()
			all.Go(func() { n.pass(server, client, true) })
			all.Go(func() { n.pass(client, server, false) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		n.set(false)
		n.cut()
		all.Wait()
	})
	return n
}

func (n *network) url() string { return "nats://" + n.listener.Addr().String() }

// pass carries bytes one way until either side ends.
func (n *network) pass(to, from net.Conn, counted bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 4<<10)
	for {
		count, err := from.Read(b)
		if count > 0 {
			n.wait(count, counted)
		}
		if _, werr := to.Write(b[:count]); err != nil || werr != nil {
			return
		}
	}
}

// wait returns when so many bytes may go on.
func (n *network) wait(bytes int, counted bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if counted && n.left >= 0 {
		if n.left -= bytes; n.left <= 0 {
			n.left, n.held = -1, true
		}
	}
	for n.held {
		n.moves.Wait()
	}
}

// set stops the network, or mends it.
func (n *network) set(held bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = held
	n.moves.Broadcast()
}

// limit stops it when clients have sent so many bytes more.
func (n *network) limit(bytes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left = bytes
}

// stands says whether it is stopped.
func (n *network) stands() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.held
}

// cut ends every connection.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.Close()
	}
	clear(n.conns)
}

// Package queuetest helps tests that start servers.
package queuetest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// The ports that systems hand out to who asks for any, and to connections, begin here or above.
const firstPort, lastPort = 10000, 32767

var (
	mu    sync.Mutex
	given = map[int]bool{}
)

// Address is an address of host at which nobody listens, and nobody will by chance: a server may be started there, ended
// and started again.
func Address(tb testing.TB, host string) string {
	tb.Helper()
	mu.Lock()
	defer mu.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if given[port] {
			continue
		}
		given[port] = true
		address := net.JoinHostPort(host, strconv.Itoa(port))
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			tb.Fatal(err)
		}
		return address
	}
	tb.Fatalf("%s has no free port", host)
	return ""
}

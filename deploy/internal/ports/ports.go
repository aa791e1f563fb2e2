// Package ports finds addresses of this machine for processes that are told where to listen.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// kept are what holds the numbers that this process has got, as long as it runs.
var kept struct {
	sync.Mutex
	all []net.PacketConn
}

// Free answers addresses of this machine where nobody listens. Their ports are below those that connections get by
// themselves, so that none of these takes one before a process listens there, or while it is started anew. Nobody who asks
// here gets one of them until this process ends: who got one may not listen there yet, and has the UDP port of that number.
func Free(count int) (addresses []string, err error) {
	const first, last, attempts = 10_000, 32_000, 1000
	for range attempts {
		if len(addresses) == count {
			return addresses, nil
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.IntN(last-first)))
		var taken net.PacketConn
		if taken, err = net.ListenPacket("udp4", address); err != nil {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp4", address); err != nil {
			_ = taken.Close()
			continue
		}
		_ = l.Close()
		kept.Lock()
		kept.all = append(kept.all, taken)
		kept.Unlock()
		addresses = append(addresses, address)
	}
	return nil, fmt.Errorf("find %d free ports: %w", count, err)
}

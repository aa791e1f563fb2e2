// Package ports finds free addresses of this machine, for processes that get their address from a variable or an argument.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// reserved holds a UDP socket for each port that this process has found, until it ends.
var reserved struct {
	sync.Mutex
	sockets []net.PacketConn
}

// Free returns addresses of this machine that nothing listens on. Their ports are below the range that the kernel gives to
// outgoing connections, so no connection uses one before a process listens there, or while that process restarts. No other
// caller of Free gets one of them until this process ends, because this process keeps the UDP port of the same number.
func Free(count int) (addresses []string, err error) {
	const first, last, attempts = 10_000, 32_000, 1000
	for range attempts {
		if len(addresses) == count {
			return addresses, nil
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.IntN(last-first)))
		var udp net.PacketConn
		if udp, err = net.ListenPacket("udp4", address); err != nil {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp4", address); err != nil {
			_ = udp.Close()
			continue
		}
		_ = l.Close()
		reserved.Lock()
		reserved.sockets = append(reserved.sockets, udp)
		reserved.Unlock()
		addresses = append(addresses, address)
	}
	return nil, fmt.Errorf("find %d free ports: %w", count, err)
}

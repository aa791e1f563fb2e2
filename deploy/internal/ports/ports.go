// Package ports finds addresses of this machine for processes that are told where to listen.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Free answers addresses of this machine where nobody listens. Their ports are below those that connections get by
// themselves, so that none of these takes one before a process listens there, or while it is started anew.
func Free(count int) (addresses []string, err error) {
	const first, last, attempts = 10_000, 32_000, 1000
	for range attempts {
		if len(addresses) == count {
			return addresses, nil
		}
		var l net.Listener
		if l, err = net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.IntN(last-first)))); err == nil {
			defer l.Close() // not before all are found
			addresses = append(addresses, l.Addr().String())
		}
	}
	return nil, fmt.Errorf("find %d free ports: %w", count, err)
}

package share

import (
	"net"
	"sync"
)

// Listen listens for TCP connections. It closes a connection at once if its address, its network or all together have too many.
func Listen(address string, limit *Limit) (net.Listener, error) {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	inner, err := net.ListenTCP("tcp", resolved)
	if err != nil {
		return nil, err
	}
	return &listener{inner, limit}, nil
}

type listener struct {
	*net.TCPListener
	limit *Limit
}

// Accept returns the next connection that the limit admits.
func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		from := AddressOf(accepted.RemoteAddr())
		if l.limit.Enter(from) != None {
			l.limit.Refuse(from)
			_ = accepted.Close()
			continue
		}
		return &conn{accepted, sync.OnceFunc(func() { l.limit.Leave(from) })}, nil
	}
}

// conn is a connection that counts until it is closed. It embeds *net.TCPConn, because responses use its sendfile.
type conn struct {
	*net.TCPConn
	leave func()
}

func (c *conn) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}

package process

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

// handshakeTimeout bounds a TLS handshake.
const handshakeTimeout = 10 * time.Second

// WithTLS returns a listener that accepts from both listeners. It does TLS handshakes on the encrypted one in the
// background, so a slow handshake delays no other connection. It has the address of the plain listener, and closes both.
func WithTLS(plain, encrypted net.Listener, config *tls.Config) net.Listener {
	l := &tlsListener{plain: plain, encrypted: encrypted, config: config, accepted: make(chan accepted)}
	l.closed, l.cancel = context.WithCancel(context.Background())
	l.working.Go(func() { l.accept(plain, func(c net.Conn) { l.deliver(accepted{conn: c}) }) })
	l.working.Go(func() {
		l.accept(encrypted, func(c net.Conn) { l.working.Go(func() { l.handshake(tls.Server(c, l.config)) }) })
	})
	return l
}

// tlsListener accepts plain and encrypted connections. Handshakes run at the same time, so a slow one delays no other.
type tlsListener struct {
	plain, encrypted net.Listener
	config           *tls.Config
	accepted         chan accepted
	closed           context.Context
	cancel           context.CancelFunc
	working          sync.WaitGroup
}

// accepted is the result of an Accept.
type accepted struct {
	conn net.Conn
	err  error
}

// accept passes each connection to handle until the listener is closed.
func (l *tlsListener) accept(from net.Listener, handle func(net.Conn)) {
	for {
		c, err := from.Accept()
		switch {
		case err == nil:
			handle(c)
		case errors.Is(err, net.ErrClosed):
			return
		default: // net/http retries temporary errors after a pause
			l.deliver(accepted{err: err})
		}
		if l.closed.Err() != nil {
			return
		}
	}
}

// deliver passes a connection to Accept, or closes it if the listener is closed.
func (l *tlsListener) deliver(a accepted) {
	select {
	case l.accepted <- a:
	case <-l.closed.Done():
		if a.conn != nil {
			_ = a.conn.Close()
		}
	}
}

// handshake delivers a connection once its TLS handshake has succeeded.
func (l *tlsListener) handshake(c *tls.Conn) {
	ctx, cancel := context.WithTimeout(l.closed, handshakeTimeout)
	defer cancel()
	err := c.HandshakeContext(ctx)
	protocol := c.ConnectionState().NegotiatedProtocol
	switch {
	case err != nil, protocol != "" && protocol != http1 && protocol != http2: // acme-tls/1 ends with the handshake
		_ = c.Close()
	case protocol == http2:
		l.deliver(accepted{conn: c}) // net/http needs a *tls.Conn for HTTP/2
	default:
		l.deliver(accepted{conn: encryptedConn{c}})
	}
}

const http1, http2 = "http/1.1", "h2"

// encryptedConn is a TLS connection for HTTP/1.1.
type encryptedConn struct{ *tls.Conn }

func (l *tlsListener) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.closed.Done():
		return nil, net.ErrClosed
	}
}

func (l *tlsListener) Close() error {
	l.cancel()
	err := errors.Join(l.plain.Close(), l.encrypted.Close())
	l.working.Wait()
	return err
}

func (l *tlsListener) Addr() net.Addr { return l.plain.Addr() }

package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

const (
	// dialTimeout covers the connection and the TLS handshake together.
	dialTimeout = 3 * time.Second
	// maxHeadBytes bounds the head of a response, in bytes.
	maxHeadBytes = 64 << 10
)

// connection is a connection to an instance of a service. One exchange at a time uses it.
type connection struct {
	secure       *tls.Conn
	tcp          *net.TCPConn // below secure
	raw          syscall.RawConn
	reader       *bufio.Reader
	writer       *bufio.Writer
	readLimit    int64 // how many bytes may still be read
	instance     *instance
	createdAt    time.Time
	idleSince    time.Time
	reportResult func(error) // tells the instance's breaker the result of the exchange; nil once it was told
}

// report tells the breaker the result of the exchange. Only the first call counts.
func (c *connection) report(err error) {
	reportResult := c.reportResult
	c.reportResult = nil
	switch {
	case reportResult == nil:
	case err == nil, errors.Is(err, errNotInstanceFault):
		reportResult(err)
	default:
		c.instance.reportFailure(reportResult, failure{error: err})
	}
}

// dial connects to an instance.
func dial(ctx context.Context, address string, config *tls.Config) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	plain, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &connection{createdAt: time.Now(), tcp: plain.(*net.TCPConn), secure: tls.Client(plain, config)}
	if err = c.secure.HandshakeContext(ctx); err == nil {
		c.raw, err = c.tcp.SyscallConn()
	}
	if err != nil {
		c.abort()
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	c.reader, c.writer = bufio.NewReader(c), bufio.NewWriter(c.secure)
	return c, nil
}

// Read reads at most readLimit bytes. The connection's bufio.Reader uses it.
func (c *connection) Read(p []byte) (int, error) {
	if c.readLimit <= 0 {
		return 0, errHeadTooLong
	}
	n, err := c.secure.Read(p)
	c.readLimit -= int64(n)
	return n, err
}

var errHeadTooLong = errors.New("the head of the response is too long")

// abort closes the connection without TLS's closing message, so that what was sent cannot look complete.
func (c *connection) abort() { _ = c.tcp.Close() }

// isReusable reports whether an idle connection is still open and the service has sent nothing on it. A service that has ended
// sends its closing message.
func (c *connection) isReusable() bool {
	if c.reader.Buffered() > 0 || time.Since(c.idleSince) > idleTimeout {
		return false
	}
	isQuiet := false
	err := c.raw.Control(func(fd uintptr) {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK) // Go's sockets do not block
		isQuiet = errors.Is(err, syscall.EAGAIN)
	})
	return err == nil && isQuiet
}

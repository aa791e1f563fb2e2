package process

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
)

// Refuser is a handler that also answers what net/http refuses by itself: a malformed or too large header, an unknown
// transfer coding, or an unknown expectation.
type Refuser interface {
	http.Handler
	// Refuse returns the response to send instead of net/http's, which has this status and message.
	Refuse(status int, message string) *http.Response
}

// interceptRefusals makes the server send the refuser's responses. A server bypasses its handler only before the handler has
// seen a request: from the connection's beginning, or from the end of the last response on it.
func interceptRefusals(server *http.Server, refuser Refuser, listener net.Listener) net.Listener {
	type key struct{}
	server.DisableGeneralOptionsHandler = true
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, key{}, c) }
	server.ConnState = func(c net.Conn, state http.ConnState) {
		if c, ok := c.(*refusingConn); ok && state == http.StateIdle {
			c.handled.Store(false)
		}
	}
	next := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(key{}).(*refusingConn); ok {
			c.handled.Store(true)
			if encrypted, ok := c.Conn.(encryptedConn); ok {
				state := encrypted.ConnectionState()
				r.TLS = &state
			}
		}
		next.ServeHTTP(w, r)
	})
	return refusingListener{listener, refuser}
}

// refusingListener wraps each connection, so that a refuser answers instead of net/http.
type refusingListener struct {
	net.Listener
	refuser Refuser
}

func (l refusingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if _, ok := c.(*tls.Conn); ok { // HTTP/2 does not refuse in this way
		return c, nil
	}
	return &refusingConn{Conn: c, refuser: l.refuser}, nil
}

// refusingConn is a connection on which a refuser answers instead of net/http.
type refusingConn struct {
	net.Conn
	refuser Refuser
	handled atomic.Bool // the handler has the request
}

// Write replaces a response that net/http writes by itself, before any handler has the request.
func (c *refusingConn) Write(p []byte) (int, error) {
	if c.handled.Load() {
		return c.Conn.Write(p)
	}
	status, message, ok := parseRefusal(p)
	if !ok {
		return c.Conn.Write(p)
	}
	var answer bytes.Buffer
	if err := c.refuser.Refuse(status, message).Write(&answer); err != nil {
		return 0, err
	}
	_, err := c.Conn.Write(answer.Bytes())
	return len(p), err
}

// CloseWrite lets net/http close a connection so that its last response is still read.
func (c *refusingConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// parseRefusal parses the first line of a response of net/http, such as HTTP/1.1 400 Bad Request: missing required Host
// header.
func parseRefusal(answer []byte) (status int, message string, ok bool) {
	line, _, _ := bytes.Cut(answer, []byte("\r\n"))
	version, rest, _ := bytes.Cut(line, []byte(" "))
	code, text, _ := bytes.Cut(rest, []byte(" "))
	if !bytes.HasPrefix(version, []byte("HTTP/1.")) || len(code) != 3 {
		return 0, "", false
	}
	for _, digit := range code {
		if digit < '0' || digit > '9' {
			return 0, "", false
		}
		status = 10*status + int(digit-'0')
	}
	return status, string(text), status >= http.StatusBadRequest
}

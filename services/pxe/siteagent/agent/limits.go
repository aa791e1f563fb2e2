package agent

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/services/pxe/siteagent/share"
)

// limits bound what callers and machines use at the same time. The control plane comes from few addresses, and machines from one
// each. All machines of a network can be in one IPv6 /64.
type limits struct {
	connections, machineConnections *share.Limit
	requests, machineRequests       *share.Limit
	logins, sftpConnections         *share.Limit // SSH connections before and after authentication
}

const maxLogins = 64

func newLimits(refusals *share.Refusals) limits {
	return limits{
		connections:        share.NewLimit("connections", share.Max{Total: 1024, PerNetwork: 512, PerAddress: 256}, refusals),
		machineConnections: share.NewLimit("machine-connections", share.Max{Total: 8192, PerNetwork: 4096, PerAddress: 32}, refusals),
		requests:           share.NewLimit("requests", share.Max{Total: 256, PerNetwork: 192, PerAddress: 192}, refusals),
		machineRequests:    share.NewLimit("machine-requests", share.Max{Total: 4096, PerNetwork: 2048, PerAddress: 32}, refusals),
		logins:             share.NewLimit("sftp-logins", share.Max{Total: maxLogins, PerNetwork: 16, PerAddress: 8}, refusals),
		sftpConnections:    share.NewLimit("sftp-connections", share.Max{Total: 64, PerNetwork: 48, PerAddress: 48}, refusals),
	}
}

// Listen listens for the control plane and other agents.
func (a *Agent) Listen(address string) (net.Listener, error) {
	return share.Listen(address, a.limits.connections)
}

// ListenMachines listens for machines.
func (a *Agent) ListenMachines(address string) (net.Listener, error) {
	return share.Listen(address, a.limits.machineConnections)
}

// limitRequests bounds the requests in progress. It ends a request whose body does not arrive in time, and a response that makes
// no progress.
func (a *Agent) limitRequests(limit *share.Limit, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connection := http.NewResponseController(w)
		_ = connection.SetWriteDeadline(time.Now().Add(ioTimeout)) // fails without a connection, as in tests
		hasBody := r.ContentLength != 0
		if hasBody {
			_ = connection.SetReadDeadline(time.Now().Add(a.bodyTimeout))
		}
		peer, _ := netip.ParseAddrPort(r.RemoteAddr) // an unknown address counts as one caller
		if limit.Enter(peer.Addr()) != share.None {
			limit.Refuse(peer.Addr())
			closeUnread(w, r)
			refusal := problem.New(problem.Unavailable, "Too many requests are in progress. Try again later.")
			problem.Write(w, r, slog.New(slog.DiscardHandler), refusal) // Refuse writes the log
			return
		}
		defer limit.Leave(peer.Addr())
		if hasBody {
			r.Body = &bodyReader{r.Body, connection}
		}
		if err := problem.CheckPath(r.URL); err != nil {
			problem.Write(w, r, a.log, err)
			return
		}
		next.ServeHTTP(&deadlineWriter{w, connection}, r)
	})
}

// closeUnread closes the connection after the response, so that the server does not wait for the rest of the body.
func closeUnread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
}

// bodyReader ends the deadline for a body once the body is complete.
type bodyReader struct {
	io.ReadCloser
	connection *http.ResponseController
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.connection.SetReadDeadline(time.Time{}) // fails without a connection, as in tests
	}
	return n, err
}

// deadlineReader ends a request if the caller sends nothing for ioTimeout. It is for bodies that may take long in all.
type deadlineReader struct {
	io.ReadCloser
	connection *http.ResponseController
}

func (b *deadlineReader) Read(p []byte) (int, error) {
	_ = b.connection.SetReadDeadline(time.Now().Add(ioTimeout)) // fails without a connection, as in tests
	return b.ReadCloser.Read(p)
}

// deadlineWriter ends a response if the caller reads nothing for ioTimeout.
type deadlineWriter struct {
	http.ResponseWriter
	connection *http.ResponseController
}

// Unwrap gives http.ResponseController the connection.
func (a *deadlineWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *deadlineWriter) Write(p []byte) (int, error) {
	_ = a.connection.SetWriteDeadline(time.Now().Add(ioTimeout)) // fails without a connection, as in tests
	return a.ResponseWriter.Write(p)
}

// ReadFrom copies in pieces, so that the deadline moves on. Each piece uses sendfile where possible.
func (a *deadlineWriter) ReadFrom(from io.Reader) (all int64, err error) {
	const piece = 1 << 20
	for {
		_ = a.connection.SetWriteDeadline(time.Now().Add(ioTimeout)) // fails without a connection, as in tests
		n, err := io.CopyN(a.ResponseWriter, from, piece)
		all += n
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

package process

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
)

// refusingHandler is a handler that also answers what net/http refuses, as the gateway does.
type refusingHandler struct{ http.Handler }

func (refusingHandler) Refuse(status int, _ string) *http.Response {
	return &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Close: true, Body: http.NoBody}
}

// A request whose end a proxy in front of the server may see elsewhere is the last one on its connection, or is refused. Bytes that
// follow it are no request.
func TestSmuggledRequests(t *testing.T) {
	t.Parallel()
	const next = "GET /smuggled HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	const chunked = "Transfer-Encoding: chunked\r\n"
	body := "2\r\n{}\r\n0\r\n\r\n"
	for name, request := range map[string]struct {
		head, body string
		status     string
	}{
		"both lengths":        {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n" + chunked, "0\r\n\r\n", "200"},
		"both, the other way": {"POST / HTTP/1.1\r\nHost: x\r\n" + chunked + "Content-Length: 12\r\n", body, "200"},
		"both in a GET":       {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n" + chunked, "0\r\n\r\n", "200"},
		"both, kept alive": {
			"POST / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nContent-Length: 5\r\n" + chunked, "0\r\n\r\n", "200",
		},
		"chunks in HTTP/1.0":       {"POST / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nContent-Length: 0\r\n" + chunked, "", "200"},
		"two codings":              {"POST / HTTP/1.1\r\nHost: x\r\n" + chunked + "Transfer-Encoding: identity\r\n", body, "501"},
		"a list of codings":        {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity, chunked\r\n", body, "501"},
		"an unknown coding":        {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nTransfer-Encoding: xchunked\r\n", "", "501"},
		"two lengths":              {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 36\r\n", "", "400"},
		"a list of lengths":        {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0, 0\r\n", "", "400"},
		"a length with a sign":     {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +0\r\n", "", "400"},
		"a space before the colon": {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\nContent-Length: 0\r\n", "", "400"},
		"a folded header":          {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nTransfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n", "200"},
		"a bare line feed":         {"POST / HTTP/1.1\r\nHost: x\r\n" + chunked, "2\n{}\n0\n\n", ""},
	} {
		for kind, wrap := range map[string]func(http.Handler) http.Handler{
			"plain":    func(h http.Handler) http.Handler { return h },
			"refusing": func(h http.Handler) http.Handler { return refusingHandler{h} },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				var smuggled atomic.Bool
				address := startServing(t, wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if r.URL.Path == "/smuggled" {
						smuggled.Store(true)
					}
				})))
				c, err := net.Dial("tcp", address)
				testkit.Must(t, err)
				defer c.Close()
				testkit.Must(t, c.SetDeadline(time.Now().Add(time.Minute)))
				_, err = io.WriteString(c, request.head+"\r\n"+request.body+next)
				testkit.Must(t, err)
				got, err := io.ReadAll(c) // until the server closes the connection
				if _, status, _ := strings.Cut(string(got), " "); !strings.HasPrefix(status, request.status) {
					t.Errorf("got %q, want the status %s", got, request.status)
				}
				if err != nil && !strings.Contains(err.Error(), "reset") {
					t.Errorf("got %v, want the connection closed", err)
				}
				if smuggled.Load() || strings.Count(string(got), "HTTP/1.") != 1 {
					t.Errorf("got %q, want one response", got)
				}
			})
		}
	}
}

// A request that has one length keeps its connection.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	address := startServing(t, http.NotFoundHandler())
	c, err := net.Dial("tcp", address)
	testkit.Must(t, err)
	defer c.Close()
	testkit.Must(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"+
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	testkit.Must(t, err)
	if got, err := io.ReadAll(c); err != nil || strings.Count(string(got), "HTTP/1.1 404") != 2 {
		t.Errorf("got %q and %v, want two responses", got, err)
	}
}

// startServing serves until the test ends, and returns the address.
func startServing(t *testing.T, handler http.Handler) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = Serve(ctx, listener, handler, slog.New(slog.DiscardHandler)) })
	t.Cleanup(func() {
		cancel()
		serving.Wait()
	})
	return listener.Addr().String()
}

package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/process"
)

// readingService reads each body to its end.
type readingService struct{}

func (readingService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
}

// serveImpatiently serves the gateway, gives callers two seconds to make progress, and returns the gateway's address.
func (d *testGateway) serveImpatiently() string {
	d.gateway.progressTimeout = 2 * drainTimeout
	return d.serve()
}

// serve serves the gateway and returns its address.
func (d *testGateway) serve() string {
	d.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(d.t.Context())
	served := make(chan error, 1)
	go func() { served <- process.Serve(ctx, listener, d.gateway, slog.New(slog.DiscardHandler)) }()
	d.t.Cleanup(func() {
		stop()
		<-served
	})
	return listener.Addr().String()
}

// Callers that send requests and read no response are cut off.
func TestCallersTakeNothing(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := d.identity.issue(1)
	address := d.serveImpatiently()
	for _, path := range []string{healthPath, docsPath + "/swagger-ui-bundle.js", "/nowhere", "/port-speed"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
				t.Fatal(err)
			}
			question := strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: x\r\nX-Api-Key: "+key+"\r\n\r\n", 1000)
			for err == nil {
				_, err = io.WriteString(conn, question)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("got a connection that stays open, want it closed")
			}
		})
	}
}

// Callers that keep a connection without using it are cut off.
func TestSlowCallers(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	d.gateway.upstreams["network"] = readingService{}
	key := d.identity.issue(1)
	address := d.serveImpatiently()
	post := "POST /port-speed HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
	for _, c := range []struct {
		name, sent, dribble string
		answer              string // its first line, empty: none
	}{
		{"a header that does not end", "GET / HTTP/1.1\r\nHost: x\r\n", "X-Y: z\r\n", ""},
		{"a header that is too large", "GET / HTTP/1.1\r\nHost: x\r\nX-Y: " + strings.Repeat("z", 64<<10) + "\r\n\r\n", "", "HTTP/1.1 431"},
		{"a body that stops", post + "X-Api-Key: " + key + "\r\n\r\n{", "", "HTTP/1.1 400"},
		{"a body that trickles", post + "X-Api-Key: " + key + "\r\n\r\n{", " ", "HTTP/1.1 400"},
		{"a body that stops, with an unknown key", post + "X-Api-Key: wrong\r\n\r\n{", "", "HTTP/1.1 401"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			began := time.Now()
			if err := conn.SetDeadline(began.Add(testTimeout)); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprint(conn, c.sent); err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			defer func() { <-done }()
			go func() {
				defer close(done)
				for c.dribble != "" {
					if _, err := fmt.Fprint(conn, c.dribble); err != nil {
						return
					}
					time.Sleep(500 * time.Millisecond)
				}
			}()
			in := bufio.NewReader(conn)
			line, err := in.ReadString('\n')
			if !strings.HasPrefix(line, c.answer) || c.answer == "" && line != "" && !strings.HasPrefix(line, "HTTP/1.1 408") {
				t.Errorf("got %q, %v, want %q at its start", line, err, c.answer)
			}
			if _, err := io.Copy(io.Discard, in); err != nil {
				if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
					t.Errorf("got a connection that is open after %v, want it closed", time.Since(began))
				}
			}
			t.Logf("%q and cut after %v", strings.TrimSpace(line), time.Since(began).Round(100*time.Millisecond))
		})
	}
}

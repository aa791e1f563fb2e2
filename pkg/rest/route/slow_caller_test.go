package route

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// singleListener accepts one connection.
type singleListener struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (s *singleListener) Accept() (c net.Conn, err error) {
	err = net.ErrClosed
	s.once.Do(func() { c, err = s.Conn, nil })
	if err != nil {
		<-s.closed
	}
	return c, err
}

func (s *singleListener) Close() error   { close(s.closed); return nil }
func (s *singleListener) Addr() net.Addr { return s.LocalAddr() }

// A list ends if its caller stops reading.
func TestStalledReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		caller, connection := net.Pipe()
		aborted := make(chan time.Duration, 1)
		server := &http.Server{
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				began := time.Now()
				defer func() {
					aborted <- time.Since(began)
					panic(recover())
				}()
				endless := func(yield func(any, error) bool) {
					for yield(map[string]string{"name": "an item"}, nil) {
					}
				}
				timer := time.NewTimer(answerTimeout)
				_ = writeItems(w, &exchange{request: r, timer: timer}, &Items{Header: http.Header{}, Rows: endless})
			}),
		}
		var serving sync.WaitGroup
		listener := &singleListener{Conn: connection, closed: make(chan struct{})}
		serving.Go(func() { _ = server.Serve(listener) })
		if _, err := io.WriteString(caller, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if elapsed := <-aborted; elapsed != progressTimeout {
			t.Errorf("got the end after %v, want it after %v", elapsed, progressTimeout)
		}
		if text, err := io.ReadAll(caller); err != nil || len(text) > 0 {
			t.Errorf("got %q, %v, want nothing", text, err)
		}
		_ = server.Close()
		serving.Wait()
	})
}

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

// single is a listener of one connection.
type single struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (s *single) Accept() (c net.Conn, err error) {
	err = net.ErrClosed
	s.once.Do(func() { c, err = s.Conn, nil })
	if err != nil {
		<-s.closed
	}
	return c, err
}

func (s *single) Close() error   { close(s.closed); return nil }
func (s *single) Addr() net.Addr { return s.LocalAddr() }

// A list ends where its caller takes nothing of it.
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
				late := time.NewTimer(answerTimeout)
				_ = writeItems(w, &exchange{request: r, timer: late}, &Items{Header: http.Header{}, Rows: endless})
			}),
		}
		var exchangeFrom sync.WaitGroup
		listener := &single{Conn: connection, closed: make(chan struct{})}
		exchangeFrom.Go(func() { _ = server.Serve(listener) })
		if _, err := io.WriteString(caller, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if elapsed := <-aborted; elapsed != progressTimeout {
			t.Errorf("got an end after %v, want %v", elapsed, progressTimeout)
		}
		if text, err := io.ReadAll(caller); err != nil || len(text) > 0 {
			t.Errorf("got %q, %v, want nothing", text, err)
		}
		_ = server.Close()
		exchangeFrom.Wait()
	})
}

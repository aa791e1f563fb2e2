package main

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// slowLine is a proxy to an address that passes on at most rate bytes a second from there.
type slowLine struct {
	rate int64
	mu   sync.Mutex // held while a part is on the line
}

// startSlowLine starts a proxy from one address to another one, until the test ends.
func startSlowLine(t *testing.T, at, to string, rate int64) {
	t.Helper()
	listener, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	l := &slowLine{rate: rate}
	var serving sync.WaitGroup
	var mu sync.Mutex
	open, closed := map[net.Conn]bool{}, false
	keep := func(c net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		open[c] = true
		return !closed
	}
	serving.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer near.Close()
				far, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer far.Close()
				if !keep(near) || !keep(far) {
					return
				}
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					delete(open, near)
					delete(open, far)
				}()
				serving.Go(func() {
					_, _ = io.Copy(far, near)
					_ = far.Close()
				})
				_, _ = io.Copy(near, &slowly{far, l})
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		closed = true
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
}

// slowly reads over a line. All connections share its rate.
type slowly struct {
	io.Reader
	line *slowLine
}

func (s *slowly) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p[:min(len(p), 16<<10)])
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	time.Sleep(time.Duration(n) * time.Second / time.Duration(s.line.rate))
	return n, err
}

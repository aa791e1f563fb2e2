package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress says what an import is doing: on a terminal in one line that changes, elsewhere in a line now and then.
type progress struct {
	mu    sync.Mutex
	doing string
	done  int
	of    int // 0: not known
}

func (p *progress) begin(doing string, of int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doing, p.done, p.of = doing, 0, of
}

func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
}

func (p *progress) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == 0 {
		return p.doing
	}
	return fmt.Sprintf("%s: %d of %d", p.doing, p.done, p.of)
}

// show writes to w until stop is called, which leaves nothing half-written.
func (p *progress) show(w io.Writer) (stop func()) {
	every, line, end := 5*time.Second, "%s\n", ""
	if isTerminal(w) {
		every, line, end = 200*time.Millisecond, "\r%s\x1b[K", "\r\x1b[K"
	}
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(w, line, p)
			case <-ended:
				fmt.Fprint(w, end)
				return
			}
		}
	}()
	return func() { close(ended); <-stopped }
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

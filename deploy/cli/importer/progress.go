package importer

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress prints the current step of an import. On a terminal it rewrites one line. Elsewhere it prints a line every
// five seconds.
type progress struct {
	mu    sync.Mutex
	doing string
	done  int
	total int // 0: unknown
}

// begin starts a step with the given number of items; 0: unknown.
func (p *progress) begin(doing string, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doing, p.done, p.total = doing, 0, total
}

// step counts one finished item.
func (p *progress) step() { p.add(1) }

// add counts finished items.
func (p *progress) add(items int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += items
}

func (p *progress) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total == 0 {
		return p.doing
	}
	return fmt.Sprintf("%s: %d of %d", p.doing, p.done, p.total)
}

// show prints the progress to w until stop is called. stop waits for the last line to be written.
func (p *progress) show(w io.Writer) (stop func()) {
	interval, line, end := 5*time.Second, "%s\n", ""
	if isTerminal(w) {
		interval, line, end = 200*time.Millisecond, "\r%s\x1b[K", "\r\x1b[K"
	}
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(interval)
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

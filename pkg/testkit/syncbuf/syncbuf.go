// Package syncbuf has a buffer for the output of processes and loggers under test.
package syncbuf

import (
	"bytes"
	"sync"
)

// Buffer can be read while it is being written.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

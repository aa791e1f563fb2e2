package child

import "sync"

// Tail is a writer that keeps the last 4 KiB written to it.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 4 << 10 // bytes

func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if n := len(t.text) - tailSize; n > 0 {
		t.text = append(t.text[:0], t.text[n:]...)
	}
	return len(p), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

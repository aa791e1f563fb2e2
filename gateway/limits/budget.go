package limits

import (
	"context"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
)

// budgetTimeout is how long a claim waits for others to free bytes.
const budgetTimeout = 2 * time.Second

// Budget bounds a memory that callers share, in bytes: in all, and for each caller. A claim that waits for much delays nobody
// who needs little.
type Budget struct {
	Timeout time.Duration // of a claim that waits

	mu      sync.Mutex
	claimed map[any]int64 // by Share.Of
	freed   chan struct{} // closed when bytes were freed
}

// NewBudget returns a budget without claims.
func NewBudget() *Budget {
	return &Budget{Timeout: budgetTimeout, claimed: map[any]int64{}, freed: make(chan struct{})}
}

// Share bounds what somebody may claim of a budget.
type Share struct {
	Of   any // comparable
	Max  int64
	Kind problem.Kind // of the error where the share is used up
}

// Claim is what one body takes of a budget. It counts against each of its shares.
type Claim struct {
	budget *Budget
	shares []Share
	bytes  int64 // guarded by budget.mu once others may free them
}

// Claim returns a claim of no bytes.
func (b *Budget) Claim(shares ...Share) *Claim { return &Claim{budget: b, shares: shares} }

// Bytes returns how much was claimed.
func (c *Claim) Bytes() int64 { return c.bytes }

// Take waits until all shares have room for so many bytes, and claims them.
func (c *Claim) Take(ctx context.Context, bytes int64) error {
	ctx, cancel := context.WithTimeout(ctx, c.budget.Timeout)
	defer cancel()
	for {
		freed, err := c.Try(bytes)
		if err == nil {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return err
		}
	}
}

// Try claims so many bytes at once. Where a share has no room, the channel is closed when it is worth another try.
func (c *Claim) Try(bytes int64) (freed <-chan struct{}, err error) {
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range c.shares {
		if b.claimed[s.Of]+bytes > s.Max {
			err := problem.New(s.Kind, "More than %d bytes of bodies at the same time.", s.Max)
			err.RetryAfter = time.Second
			return b.freed, err
		}
	}
	c.bytes = bytes
	for _, s := range c.shares {
		b.claimed[s.Of] += bytes
	}
	return nil, nil
}

// Free gives all bytes back.
func (c *Claim) Free() { c.Keep(0) }

// Keep gives back all but so many bytes.
func (c *Claim) Keep(bytes int64) {
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	less := c.bytes - max(bytes, 0)
	if less <= 0 {
		return
	}
	c.bytes -= less
	for _, s := range c.shares {
		if b.claimed[s.Of] -= less; b.claimed[s.Of] == 0 {
			delete(b.claimed, s.Of)
		}
	}
	close(b.freed)
	b.freed = make(chan struct{})
}

// IsFree tells whether nothing is claimed.
func (b *Budget) IsFree() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.claimed) == 0
}

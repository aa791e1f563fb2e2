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
	Key  any // comparable
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

// Acquire waits until all shares have room for so many bytes, and claims them.
func (c *Claim) Acquire(ctx context.Context, bytes int64) error {
	ctx, cancel := context.WithTimeout(ctx, c.budget.Timeout)
	defer cancel()
	for {
		freed, err := c.TryAcquire(bytes)
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

// TryAcquire claims so many bytes at once. Where a share has no room, the channel is closed when it is worth another try.
func (c *Claim) TryAcquire(bytes int64) (freed <-chan struct{}, err error) {
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range c.shares {
		if b.claimed[s.Key]+bytes > s.Max {
			err := problem.New(s.Kind, "More than %d bytes of bodies at the same time.", s.Max)
			err.RetryAfter = time.Second
			return b.freed, err
		}
	}
	c.bytes = bytes
	for _, s := range c.shares {
		b.claimed[s.Key] += bytes
	}
	return nil, nil
}

// Release gives all bytes back.
func (c *Claim) Release() { c.ShrinkTo(0) }

// ShrinkTo gives back all but so many bytes.
func (c *Claim) ShrinkTo(bytes int64) {
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	freedBytes := c.bytes - max(bytes, 0)
	if freedBytes <= 0 {
		return
	}
	c.bytes -= freedBytes
	for _, s := range c.shares {
		if b.claimed[s.Key] -= freedBytes; b.claimed[s.Key] == 0 {
			delete(b.claimed, s.Key)
		}
	}
	close(b.freed)
	b.freed = make(chan struct{})
}

// IsEmpty tells whether nothing is claimed.
func (b *Budget) IsEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.claimed) == 0
}

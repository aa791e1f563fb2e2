package limits

import (
	"context"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
)

// budgetTimeout is how long a claim waits for others to release bytes.
const budgetTimeout = 2 * time.Second

// Budget bounds memory that callers share, in bytes: in all, and for each caller. A large claim that waits does not delay small
// ones.
type Budget struct {
	Timeout time.Duration // how long Acquire waits

	mu      sync.Mutex
	claimed map[any]int64 // by Share.Key
	freed   chan struct{} // closed when bytes are released
}

// NewBudget returns a budget without claims.
func NewBudget() *Budget {
	return &Budget{Timeout: budgetTimeout, claimed: map[any]int64{}, freed: make(chan struct{})}
}

// Share bounds what one caller, or a group of callers, may claim of a budget.
type Share struct {
	Key  any // comparable
	Max  int64
	Kind problem.Kind // of the error if the share is used up
}

// Claim is the part of a budget that one body uses. It counts against each of its shares.
type Claim struct {
	budget *Budget
	shares []Share
	bytes  int64 // guarded by budget.mu once others may release them
}

// Claim returns a claim of no bytes.
func (b *Budget) Claim(shares ...Share) *Claim { return &Claim{budget: b, shares: shares} }

// Bytes returns how many bytes are claimed.
func (c *Claim) Bytes() int64 { return c.bytes }

// Acquire waits until all shares have enough bytes left, and claims them. It fails after the budget's Timeout.
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

// TryAcquire claims bytes at once. If a share has not enough left, it returns a channel that is closed when another try makes
// sense.
func (c *Claim) TryAcquire(bytes int64) (freed <-chan struct{}, err error) {
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range c.shares {
		if b.claimed[s.Key]+bytes > s.Max {
			err := problem.New(s.Kind, "Request bodies in progress would exceed %d bytes. Try again in a second.", s.Max)
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

// Release releases all bytes.
func (c *Claim) Release() { c.ShrinkTo(0) }

// ShrinkTo releases all but this many bytes.
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

// IsEmpty reports whether nothing is claimed.
func (b *Budget) IsEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.claimed) == 0
}

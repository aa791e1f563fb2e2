package route

import (
	"net/http"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	// maxSheet is the maximum size of a CSV body in bytes.
	maxSheet = 8 << 20
	// maxLargeSheets is how many CSV bodies above maxBody a process holds at a time, and maxOwnSheets how many of one owner.
	maxLargeSheets, maxOwnSheets = 4, 2
	// sheetRetryInterval is the wait that refused callers are told.
	sheetRetryInterval = 10 * time.Second
)

// largeSheets counts the large CSV bodies in this process.
var largeSheets = sheetCounter{held: map[principal.Owner]int{}}

type sheetCounter struct {
	mu    sync.Mutex
	total int                     // guarded by mu
	held  map[principal.Owner]int // guarded by mu
}

// acquire counts a sheet of an owner, until release is called. It fails if there are too many.
func (c *sheetCounter) acquire(owner principal.Owner) (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := problem.TooManyRequests
	if c.total == maxLargeSheets {
		kind = problem.Unavailable
	}
	if c.total == maxLargeSheets || c.held[owner] == maxOwnSheets {
		f := problem.New(kind, "Too many large imports are in progress. Try again in %d seconds.", int(sheetRetryInterval.Seconds()))
		f.RetryAfter = sheetRetryInterval
		return nil, f
	}
	c.total++
	c.held[owner]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.total--
		if c.held[owner]--; c.held[owner] == 0 {
			delete(c.held, owner)
		}
	}, nil
}

// ReadSheet reads a CSV body within its limits of size, number and time. The time for the response begins after it.
func ReadSheet(r *http.Request) ([]byte, error) {
	s := exchangeFrom(r.Context())
	if r.ContentLength < 0 || r.ContentLength > maxBody {
		var owner principal.Owner
		if p := principal.FromContext(r.Context()).Principal; p != nil {
			owner = p.Owner
		}
		var err error
		if s.release, err = largeSheets.acquire(owner); err != nil {
			return nil, err
		}
	}
	text, err := readUpTo(r, maxSheet)
	if err == nil {
		s.timer.Reset(answerTimeout)
	}
	return text, err
}

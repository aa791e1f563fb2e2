package lockout

import (
	"maps"
	"sync"
	"time"
)

// mostCounted bounds how many counters a process keeps; beyond these it forgets, first, those that have ended.
const mostCounted = 100_000

// own counts in the process, as shared does in Redis.
type own struct {
	mu     sync.Mutex
	counts map[string]*count
}

type count struct {
	guesses int
	until   time.Time
}

func newOwn() *own { return &own{counts: map[string]*count{}} }

func (o *own) take(all []counter) (locked time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for _, c := range all {
		if is := o.counts[c.name]; is != nil && is.guesses >= c.limit && is.until.After(now) {
			locked = max(locked, is.until.Sub(now))
		}
	}
	if locked > 0 {
		return locked
	}
	o.makeRoom(now, len(all))
	for _, c := range all {
		is := o.counts[c.name]
		if is == nil || !is.until.After(now) {
			is = &count{until: now.Add(Time)}
			o.counts[c.name] = is
		}
		if is.guesses++; is.guesses >= c.limit {
			is.until = now.Add(Time)
		}
	}
	return 0
}

// makeRoom forgets what has ended, and any others where that is not enough.
func (o *own) makeRoom(now time.Time, more int) {
	if len(o.counts)+more <= mostCounted {
		return
	}
	maps.DeleteFunc(o.counts, func(_ string, is *count) bool { return !is.until.After(now) })
	for name := range o.counts {
		if len(o.counts)+more <= mostCounted {
			return
		}
		delete(o.counts, name)
	}
}

func (o *own) giveBack(all []counter, right bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range all {
		if is := o.counts[c.name]; is != nil && right && c.forgotten {
			delete(o.counts, c.name)
		} else if is != nil && is.guesses > 0 {
			is.guesses--
		}
	}
}

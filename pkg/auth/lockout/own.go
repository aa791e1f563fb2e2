package lockout

import (
	"maps"
	"sync"
	"time"
)

// maxCounters bounds how many counters a process keeps. Beyond it, expired counters are dropped first.
const maxCounters = 100_000

// localCounters counts guesses in this process, as shared does in Redis.
type localCounters struct {
	mu     sync.Mutex
	counts map[string]*count
}

// count is the state of one counter. It starts again after until.
type count struct {
	guesses int
	until   time.Time
}

func newLocalCounters() *localCounters { return &localCounters{counts: map[string]*count{}} }

// reserve returns for how long the counters are locked, or counts a guess and returns 0.
func (o *localCounters) reserve(all []counter) (locked time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for _, c := range all {
		if current := o.counts[c.name]; current != nil && current.guesses >= c.limit && current.until.After(now) {
			locked = max(locked, current.until.Sub(now))
		}
	}
	if locked > 0 {
		return locked
	}
	o.evict(now, len(all))
	for _, c := range all {
		current := o.counts[c.name]
		if current == nil || !current.until.After(now) {
			current = &count{until: now.Add(c.duration)}
			o.counts[c.name] = current
		}
		if current.guesses++; current.guesses >= c.limit {
			current.until = now.Add(c.duration)
		}
	}
	return 0
}

// evict drops expired counters, and any others if that does not make space for more.
func (o *localCounters) evict(now time.Time, more int) {
	if len(o.counts)+more <= maxCounters {
		return
	}
	maps.DeleteFunc(o.counts, func(_ string, current *count) bool { return !current.until.After(now) })
	for name := range o.counts {
		if len(o.counts)+more <= maxCounters {
			return
		}
		delete(o.counts, name)
	}
}

// release takes a counted guess back. After a right guess it also resets the counters with resetOnSuccess.
func (o *localCounters) release(all []counter, right bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range all {
		if current := o.counts[c.name]; current != nil && right && c.resetOnSuccess {
			delete(o.counts, c.name)
		} else if current != nil && current.guesses > 0 {
			current.guesses--
		}
	}
}

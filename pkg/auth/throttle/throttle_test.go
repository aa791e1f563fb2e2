package throttle

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
)

// begins returns after how long each of several simultaneous calls begins its work.
func begins(t *testing.T, q *Queue, number int, work time.Duration, proved bool, fails error) (after []time.Duration) {
	t.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for range number {
		all.Go(func() {
			got, err := q.Do(t.Context(), func() (bool, error) {
				after = append(after, time.Since(began)) // the race detector finds two at the same time
				time.Sleep(work)
				return proved, fails
			})
			if got != proved || !errors.Is(err, fails) {
				t.Errorf("got %v, %v, want %v, %v", got, err, proved, fails)
			}
		})
	}
	all.Wait()
	return after
}

// Calls run one at a time. A rest follows a guess, and nothing else.
func TestTurns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		work   time.Duration
		proved bool
		fails  error
		every  time.Duration
	}{
		"guesses":               {50 * time.Millisecond, false, nil, 200 * time.Millisecond},
		"right ones":            {50 * time.Millisecond, true, nil, 50 * time.Millisecond},
		"what cannot be proved": {50 * time.Millisecond, false, context.DeadlineExceeded, 200 * time.Millisecond},
		"what takes nothing":    {0, false, nil, minRest},
		"what takes long":       {1500 * time.Millisecond, false, nil, 2500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for i, after := range begins(t, NewQueue(4), 4, c.work, c.proved, c.fails) {
					if after != time.Duration(i)*c.every {
						t.Errorf("number %d: got a start after %v, want %v", i, after, time.Duration(i)*c.every)
					}
				}
			})
		})
	}
}

// Who finds too many waiting, or waits for too long, is told to come later; who leaves makes room.
func TestFewWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const maxWaiting = 10
		q := NewQueue(maxWaiting)
		goOn := make(chan struct{})
		ctx, leave := context.WithCancel(t.Context())
		proof := func() (bool, error) { return true, nil }
		var all sync.WaitGroup
		all.Go(func() { _, _ = q.Do(t.Context(), func() (bool, error) { <-goOn; return true, nil }) })
		synctest.Wait()
		enter := func(ctx context.Context, want error) {
			all.Go(func() {
				if _, err := q.Do(ctx, proof); !errors.Is(err, want) {
					t.Errorf("a waiting caller: got %v, want %v", err, want)
				}
			})
			synctest.Wait()
		}
		refused := func() {
			t.Helper()
			if _, err := q.Do(t.Context(), proof); !problem.Is(err, problem.Unavailable) || problem.From(err).RetryAfter == 0 {
				t.Errorf("one caller too many: got %v, want unavailable with a time to try again", err)
			}
		}
		for range maxWaiting - 1 {
			enter(t.Context(), context.DeadlineExceeded)
		}
		enter(ctx, context.Canceled)
		refused()
		leave()
		synctest.Wait()
		enter(t.Context(), context.DeadlineExceeded)
		refused()
		time.Sleep(waitTimeout)
		synctest.Wait()
		enter(t.Context(), nil)
		close(goOn)
		all.Wait()
		if _, err := q.Do(t.Context(), proof); err != nil {
			t.Errorf("a caller after all were served: %v", err)
		}
		synctest.Wait()
		if len(q.waiting) != 0 || len(q.running) != 0 {
			t.Errorf("got %d waiting and %d at work, want none", len(q.waiting), len(q.running))
		}
	})
}

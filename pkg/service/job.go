package service

import (
	"context"
	"encoding/json"
	"time"
)

// Job is a kind of work that outlives the request that asked for it. A unit of work enqueues one (jobs.Enqueue); once that
// is committed, an instance of the service does it, and again where it failed or the process was killed that did it. So
// it may be done twice, and does no harm by that.
type Job struct {
	Kind string // webhook-delivery; never changed once it is released
	// Timeout is how long an attempt may take; 0: a minute. The context ends with it.
	Timeout time.Duration
	// Attempts is after how many that failed the job is given up; 0: 25, which takes three weeks.
	Attempts int
	// Backoff is how long after a failed attempt, the first being 1, the next one begins; nil: its number to the power of
	// four, in seconds.
	Backoff func(attempt int) time.Duration
	Workers int  // how many of this kind a process does at a time; 0: 4
	Unique  bool // one that has not ended with the same arguments stands for another one
	Do      func(context.Context, *Attempt) error
}

// Attempt is a job that is being done. What it changes is recorded as a change by who enqueued it.
type Attempt struct {
	Job    int64 // its id in its service
	Number int   // from 1
	Last   bool  // the job is given up if this one fails
	Args   json.RawMessage
	// Progress shows how far the job is to who looks at it, such as {"files": 3, "of": 20}, and is known to its next attempt.
	Progress func(ctx context.Context, progress any) error
	Earlier  json.RawMessage // the progress that was shown last; nil: none
}

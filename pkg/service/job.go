package service

import (
	"context"
	"encoding/json"
	"time"
)

// Job is a kind of work that outlives the request that asked for it. A unit of work enqueues a job with jobs.Enqueue.
// After the commit an instance of the service runs it. A job runs again if it failed or if its process was killed, so it
// must do no harm when it runs twice.
type Job struct {
	Kind string // such as webhook-delivery; never changes after its release
	// Timeout is how long an attempt may take, and how long its context lives; 0: a minute.
	Timeout time.Duration
	// Attempts is how many failed attempts end the job; 0: 25, which takes three weeks.
	Attempts int
	// Backoff returns how long to wait after a failed attempt, the first being 1. nil: its number to the power of four,
	// in seconds.
	Backoff func(attempt int) time.Duration
	Workers int  // how many jobs of the kind a process runs at a time; 0: 4
	Unique  bool // enqueuing does nothing while an equal job has not ended
	Do      func(context.Context, *Attempt) error
}

// Attempt is one run of a job. Its changes are recorded as changes of the caller that enqueued the job.
type Attempt struct {
	Job    int64 // the job's id in its service
	Number int   // from 1
	Last   bool  // the job is given up if this attempt fails
	Args   json.RawMessage
	// Progress stores how far the job is, such as {"files": 3, "of": 20}. The job's view shows it, and the next attempt
	// gets it.
	Progress func(ctx context.Context, progress any) error
	Earlier  json.RawMessage // the last stored progress; nil: none
}

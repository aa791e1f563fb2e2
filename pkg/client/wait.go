package client

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Waiting asks for the state of a job or an install at first every 200 milliseconds, and later every 5 seconds.
const (
	minPollInterval = 200 * time.Millisecond
	maxPollInterval = 5 * time.Second
)

// poll calls get until isFinal holds for what it returns. It calls each, which may be nil, for every answer.
func poll[T any](ctx context.Context, get func() (*T, error), isFinal func(*T) bool, each func(*T)) (*T, error) {
	for interval := minPollInterval; ; interval = min(interval*3/2, maxPollInterval) {
		item, err := get()
		if err != nil {
			return nil, err
		}
		if each != nil {
			each(item)
		}
		if isFinal(item) {
			return item, nil
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return item, context.Cause(ctx)
		}
	}
}

// EndedError is the error of a job or an install that has ended without success.
type EndedError struct {
	Name   string // such as install 7
	State  string // failed or cancelled
	Reason string
}

func (e *EndedError) Error() string {
	text := e.Name + " was " + e.State
	if e.State == "failed" {
		text = e.Name + " failed"
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Wait returns a job that has ended. The error of a job that was not done is an *EndedError. each is called for every state in
// between, and may be nil.
func (s *JobService) Wait(ctx context.Context, id string, each func(*ViewedJob)) (*ViewedJob, error) {
	get := func() (*ViewedJob, error) { return s.Get(ctx, id) }
	job, err := poll(ctx, get, func(j *ViewedJob) bool { return slices.Contains([]string{"done", "failed", "cancelled"}, j.State) }, each)
	if err == nil && job.State != "done" {
		err = &EndedError{"job " + id, job.State, job.Error}
	}
	return job, err
}

// Wait returns an install that has ended. The error of one that did not succeed is an *EndedError. each is called for every state
// in between, and may be nil.
func (s *InstallService) Wait(ctx context.Context, id int64, each func(*Install)) (*Install, error) {
	get := func() (*Install, error) { return s.Get(ctx, id) }
	isFinal := func(i *Install) bool { return slices.Contains([]string{"installed", "failed", "cancelled"}, i.Status) }
	install, err := poll(ctx, get, isFinal, each)
	if err == nil && install.Status != "installed" {
		err = &EndedError{fmt.Sprintf("install %d", id), install.Status, install.Error}
	}
	return install, err
}

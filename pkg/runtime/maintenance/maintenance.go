// Package maintenance is how an operator stops changes for a while: by a file, which is in no database, so that it counts
// while one is restored.
package maintenance

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	// pollInterval is how often it is looked for by what goes on by itself. Each change looks for itself.
	pollInterval = time.Second
	// retryAfter is when callers are told to come back.
	retryAfter = 30 * time.Second
	// maxReason is how much of the file callers are told, in bytes.
	maxReason = 500
)

// File is where it would be; empty: nowhere. While it is there, nothing is changed.
type File string

// UnmarshalText reads the file's name.
func (f *File) UnmarshalText(text []byte) error {
	*f = File(text)
	return nil
}

// Reason is what is in the file, for callers, and whether there is one. One that cannot be read counts.
func (f File) Reason() (reason string, isActive bool) {
	if f == "" {
		return "", false
	}
	content, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return "", false
	}
	reason = strings.TrimSpace(strings.ToValidUTF8(string(content[:min(len(content), maxReason)]), ""))
	if reason == "" {
		reason = "No reason is given."
	}
	return reason, true
}

// Refuse is the answer to a change, nil where there is no maintenance.
func (f File) Refuse() error {
	reason, isActive := f.Reason()
	if !isActive {
		return nil
	}
	refusal := problem.New(problem.Unavailable, "The installation is in maintenance, and nothing can be changed: %s", reason)
	refusal.RetryAfter = retryAfter
	return refusal
}

// Begin makes the file.
func (f File) Begin(reason string) error { return os.WriteFile(string(f), []byte(reason+"\n"), 0o644) }

// End removes it, where it is there.
func (f File) End() error {
	if err := os.Remove(string(f)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RunOutside does work whenever there is no maintenance, until ctx ends. The work's context ends when there is.
func (f File) RunOutside(ctx context.Context, work func(context.Context)) {
	for f.await(ctx, false) {
		working, stop := context.WithCancel(ctx)
		var done sync.WaitGroup
		done.Go(func() { work(working) })
		f.await(ctx, true)
		stop()
		done.Wait()
	}
}

// await waits until there is maintenance, or none any more. It fails when ctx ends.
func (f File) await(ctx context.Context, wanted bool) bool {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if _, isActive := f.Reason(); isActive == wanted {
			return ctx.Err() == nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

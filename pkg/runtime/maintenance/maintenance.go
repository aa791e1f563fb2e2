// Package maintenance lets an operator stop changes for a while by creating a file. A file works even while a database is
// restored.
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
	// pollInterval is how often tasks look for the file. Each change looks for itself.
	pollInterval = time.Second
	// retryAfter is when callers are told to try again.
	retryAfter = 30 * time.Second
	// maxReason bounds how much of the file callers see, in bytes.
	maxReason = 500
)

// File is the path of the maintenance file; empty: maintenance is never active. While the file exists, changes are refused.
type File string

// UnmarshalText sets the path.
func (f *File) UnmarshalText(text []byte) error {
	*f = File(text)
	return nil
}

// Reason returns the file's text, for callers, and whether maintenance is active. A file that cannot be read counts as
// active.
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
		reason = "No reason was given."
	}
	return reason, true
}

// Refuse returns the 503 error for a change during maintenance, or nil if maintenance is not active.
func (f File) Refuse() error {
	reason, isActive := f.Reason()
	if !isActive {
		return nil
	}
	refusal := problem.New(problem.Unavailable, "The installation is in maintenance and accepts no changes. Reason: %s", reason)
	refusal.RetryAfter = retryAfter
	return refusal
}

// Begin creates the file.
func (f File) Begin(reason string) error { return os.WriteFile(string(f), []byte(reason+"\n"), 0o644) }

// End removes the file if it exists.
func (f File) End() error {
	if err := os.Remove(string(f)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RunOutside runs work while maintenance is not active, and restarts it after maintenance, until ctx ends. The context of
// work ends when maintenance begins.
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

// await waits until maintenance is active or not, as wanted. It returns false if ctx ends.
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

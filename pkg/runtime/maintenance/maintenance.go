// Package maintenance lets operators stop changes for a while: by a switch that is stored in each service's schema, or by a
// file. A file works even while the database is replaced.
package maintenance

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	// pollInterval is how often tasks look whether maintenance began or ended. Each change looks for itself.
	pollInterval = time.Second
	// retryAfter is when callers are told to try again.
	retryAfter = 30 * time.Second
	// maxReason bounds how much of the reason callers see, in bytes.
	maxReason = 500
)

// Ways to begin maintenance, as Status has them.
const (
	BySwitch = "switch"
	ByFile   = "file"
)

// Status describes maintenance that is active.
type Status struct {
	Since  time.Time `json:"since,omitzero"` // zero: unknown
	Reason string    `json:"reason"`         // for callers
	By     string    `json:"by"`             // BySwitch or ByFile
}

// Reason returns the text of an operator as callers see it.
func Reason(text string) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), maxReason)], ""))
	if text == "" {
		return "No reason was given."
	}
	return text
}

// File is the path of the maintenance file; empty: there is none. While the file exists, changes are refused.
type File string

// UnmarshalText sets the path.
func (f *File) UnmarshalText(text []byte) error {
	*f = File(text)
	return nil
}

// Status returns the maintenance that the file declares, with the file's text as the reason; nil: there is no file. A file that
// cannot be read counts as one without text.
func (f File) Status() *Status {
	if f == "" {
		return nil
	}
	file, err := os.Open(string(f))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return &Status{Reason: Reason(""), By: ByFile}
	}
	defer file.Close()
	text, _ := io.ReadAll(io.LimitReader(file, maxReason))
	s := &Status{Reason: Reason(string(text)), By: ByFile}
	if info, err := file.Stat(); err == nil {
		s.Since = info.ModTime().UTC()
	}
	return s
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

// Switch tells an instance of a service whether maintenance is active: by the file, or by what the service's schema has stored.
type Switch struct {
	File   File
	stored atomic.Pointer[Status]
}

// Set sets the state that the schema has stored; nil: maintenance is off.
func (s *Switch) Set(stored *Status) { s.stored.Store(stored) }

// Status returns the maintenance that is active; nil: none is. The file comes first.
func (s *Switch) Status() *Status {
	if status := s.File.Status(); status != nil {
		return status
	}
	return s.stored.Load()
}

// Refuse returns the 503 error for a change during maintenance, or nil if maintenance is not active.
func (s *Switch) Refuse() error {
	status := s.Status()
	if status == nil {
		return nil
	}
	refusal := problem.New(problem.Unavailable, "The installation is in maintenance and accepts no changes. Reason: %s", status.Reason)
	refusal.RetryAfter = retryAfter
	return refusal
}

// RunOutside runs work while maintenance is not active, and restarts it after maintenance, until ctx ends. The context of
// work ends when maintenance begins.
func (s *Switch) RunOutside(ctx context.Context, work func(context.Context)) {
	for s.await(ctx, false) {
		working, stop := context.WithCancel(ctx)
		var done sync.WaitGroup
		done.Go(func() { work(working) })
		s.await(ctx, true)
		stop()
		done.Wait()
	}
}

// await waits until maintenance is active or not, as wanted. It returns false if ctx ends.
func (s *Switch) await(ctx context.Context, wanted bool) bool {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if isActive := s.Status() != nil; isActive == wanted {
			return ctx.Err() == nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

package pxe

import (
	"context"
	"time"

	"github.com/ironplane/ironplane/pkg/service"
)

// Imports returns the import job with a short silence timeout, and without pauses between few attempts.
func (s *Service) Imports(silence time.Duration, attempts int) service.Job {
	s.isos.SilenceTimeout = silence
	s.isos.ImportJob.Attempts, s.isos.ImportJob.Backoff = attempts, func(int) time.Duration { return 0 }
	return s.isos.ImportJob
}

// Sweep runs the hourly deletion of unused files.
func (s *Service) Sweep(ctx context.Context) error { return s.sweep(ctx) }

package pxe

import (
	"context"
	"time"

	"github.com/ironplane/ironplane/pkg/service"
)

// Imports has imports be given up on soon: a server that sends nothing for so long, and one that so many attempts brought nothing of.
func (s *Service) Imports(silence time.Duration, attempts int) service.Job {
	s.isos.SilenceTimeout = silence
	s.isos.ImportJob.Attempts, s.isos.ImportJob.Backoff = attempts, func(int) time.Duration { return 0 }
	return s.isos.ImportJob
}

// Sweep is what is done every hour.
func (s *Service) Sweep(ctx context.Context) error { return s.sweep(ctx) }

package integration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
)

// detachAll marks integrations as detaching, so that their keys and new clients are refused. It enqueues jobs that detach
// them from their clients and then delete them. Integrations that are already detaching are left alone.
func (s *Integrations) detachAll(ctx context.Context, tx *pg.Tx, integrations []Integration) error {
	if err := guard.Has(permission.UsersClients).Check(principal.FromContext(ctx), permission.Write, 0); err != nil {
		return err
	}
	tx.Unrecorded("the integrations are already being deleted")
	var ids []int64
	for _, i := range integrations {
		if err := mayWrite(ctx, tx, i.ID); err != nil {
			return err
		}
		if ids = append(ids, i.ID); i.Detaching {
			continue
		}
		after := i
		after.Detaching = true
		if err := tx.QueryRow(ctx, "UPDATE integration SET detaching = true, version = version + 1 WHERE id = $1 RETURNING version", i.ID).
			Scan(&after.Version); err != nil {
			return fmt.Errorf("detach integration %d: %w", i.ID, err)
		}
		tx.Record(pg.Record{Kind: "integration", Action: pg.Edited, Targets: after.target(), Before: i, After: after})
		s.revoke(tx, i.ID)
		if err := s.enqueueDetach(ctx, tx, i.ID); err != nil {
			return err
		}
	}
	return s.leases.AcquirePermanent(ctx, tx, ids)
}

func (i *Integration) target() []pg.Target {
	return []pg.Target{{Type: "integration", Noun: "integration", ID: i.ID, Name: i.Name, Version: i.Version}}
}

// detachArgs are the arguments of the job.
type detachArgs struct {
	Integration int64 `json:"integration"`
}

// detachProgress is the progress of the job.
type detachProgress struct {
	Clients int64 `json:"clients_left"`
}

const (
	// detachSlice is how long an attempt works before other jobs get their turn.
	detachSlice      = 20 * time.Second
	maxDetachBackoff = time.Minute
)

// Job detaches an integration from its clients and deletes it.
func (s *Integrations) Job() service.Job {
	return service.Job{Kind: "integration-detach", Unique: true, Workers: 1, Do: jobs.Do(s.detach),
		Backoff: func(attempt int) time.Duration { return min(time.Second<<min(attempt-1, 10), maxDetachBackoff) }}
}

func (s *Integrations) enqueueDetach(ctx context.Context, tx *pg.Tx, id int64) error {
	job := s.Job()
	return jobs.Enqueue(ctx, tx, &job, detachArgs{id})
}

// Resume enqueues jobs for all integrations that are being detached. A job may have failed, been cancelled, or been lost in
// a restore.
func (s *Integrations) Resume(ctx context.Context) error {
	var ids []int64
	if err := s.db.QueryRow(ctx, "SELECT ARRAY(SELECT id FROM integration WHERE detaching ORDER BY id)").
		Scan(&ids); err != nil ||
		len(ids) == 0 {
		return err
	}
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the deletion is recorded later")
		for _, id := range ids {
			if err := s.enqueueDetach(ctx, tx, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// detach is an attempt of the job. It detaches clients in batches and deletes the integration after the last one.
func (s *Integrations) detach(ctx context.Context, attempt *service.Attempt, args detachArgs) error {
	err := s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the request recorded it")
		return s.leases.AcquirePermanent(ctx, tx, []int64{args.Integration}) // a restored backup may lack the lease
	})
	if err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < detachSlice; {
		n, err := s.leases.Detach(ctx, args.Integration)
		if err != nil {
			return err
		}
		if n == 0 {
			return s.deleteDetached(ctx, args.Integration)
		}
		var left detachProgress
		if err := s.db.QueryRow(ctx, "SELECT coalesce(sum(clients), 0) FROM integration_count WHERE id = $1", args.Integration).
			Scan(&left.Clients); err != nil {
			return fmt.Errorf("count the remaining clients: %w", err)
		}
		if err := attempt.Progress(ctx, left); err != nil {
			return err
		}
	}
	return jobs.Snooze(0)
}

var view = pg.NewView[Integration]("integration_view")

// deleteDetached deletes an integration that has no clients any more.
func (s *Integrations) deleteDetached(ctx context.Context, id int64) error {
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		i, err := view.Find(ctx, tx, "id = $1 AND detaching", id)
		if errors.Is(err, pgx.ErrNoRows) {
			tx.Unrecorded("the integration is already deleted")
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.leases.Acquire(ctx, tx, []int64{id}); err != nil {
			return err
		}
		tx.Record(pg.Record{Kind: "integration", Action: pg.Deleted, Targets: i.target(), Before: i})
		return s.delete(ctx, tx, &i)
	})
}

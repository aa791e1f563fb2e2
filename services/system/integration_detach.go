package system

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

// detachIntegrations refuses the integrations' keys and new clients from now on, and has them deleted once their clients are
// nobody's. What is on that way already stays there.
func (s *Service) detachIntegrations(ctx context.Context, tx *pg.Tx, integrations []Integration) error {
	if err := guard.Has(permission.UsersClients).Check(principal.From(ctx), permission.Write, 0); err != nil {
		return err
	}
	tx.Unrecorded("they are being deleted already")
	var ids []int64
	for _, i := range integrations {
		if err := mayWriteIntegration(ctx, tx, i.ID); err != nil {
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
		if err := s.detachLater(ctx, tx, i.ID); err != nil {
			return err
		}
	}
	return s.closing.Stay(ctx, tx, ids)
}

func (i *Integration) target() []pg.Target {
	return []pg.Target{{Type: "integration", Noun: "integration", ID: i.ID, Name: i.Name, Version: i.Version}}
}

// detaching is the job that takes an integration from its clients, and deletes it.
type detaching struct {
	Integration int64 `json:"integration"`
}

// clientsLeft is how far it is.
type clientsLeft struct {
	Clients int64 `json:"clients_left"`
}

const (
	// detachSlice is for how long an attempt goes on, before others have their turn.
	detachSlice      = 20 * time.Second
	maxDetachBackoff = time.Minute // between two attempts
)

func (s *Service) detachJob() service.Job {
	return service.Job{Kind: "integration-detach", Unique: true, Workers: 1, Do: jobs.Do(s.detach),
		Backoff: func(attempt int) time.Duration { return min(time.Second<<min(attempt-1, 10), maxDetachBackoff) }}
}

func (s *Service) detachLater(ctx context.Context, tx *pg.Tx, id int64) error {
	job := s.detachJob()
	return jobs.Enqueue(ctx, tx, &job, detaching{id})
}

// goOnDetaching has a job go on that was given up, cancelled, or lost with an old backup's.
func (s *Service) goOnDetaching(ctx context.Context) error {
	var ids []int64
	if err := s.db.QueryRow(ctx, "SELECT ARRAY(SELECT id FROM integration WHERE detaching ORDER BY id)").
		Scan(&ids); err != nil ||
		len(ids) == 0 {
		return err
	}
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what comes of it is recorded")
		for _, id := range ids {
			if err := s.detachLater(ctx, tx, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Service) detach(ctx context.Context, attempt *service.Attempt, of detaching) error {
	err := s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("it was recorded when it was asked for")
		return s.closing.Stay(ctx, tx, []int64{of.Integration}) // an old backup has lost that
	})
	if err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < detachSlice; {
		n, err := s.closing.Detach(ctx, of.Integration)
		if err != nil {
			return err
		}
		if n == 0 {
			return s.deleteDetached(ctx, of.Integration)
		}
		var left clientsLeft
		if err := s.db.QueryRow(ctx, "SELECT coalesce(sum(clients), 0) FROM integration_count WHERE id = $1", of.Integration).
			Scan(&left.Clients); err != nil {
			return fmt.Errorf("count the clients that are left: %w", err)
		}
		if err := attempt.Progress(ctx, left); err != nil {
			return err
		}
	}
	return jobs.Later(0)
}

var integrationView = pg.NewView[Integration]("integration_view")

func (s *Service) deleteDetached(ctx context.Context, id int64) error {
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		i, err := integrationView.One(ctx, tx, "id = $1 AND detaching", id)
		if errors.Is(err, pgx.ErrNoRows) {
			tx.Unrecorded("it is deleted already")
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.closing.Close(ctx, tx, []int64{id}); err != nil {
			return err
		}
		tx.Record(pg.Record{Kind: "integration", Action: pg.Deleted, Targets: i.target(), Before: i})
		return s.deleteIntegration(ctx, tx, &i)
	})
}

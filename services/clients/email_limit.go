package clients

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/settings"
)

// countAddress counts a client's create, and an edit that sends an address: not one of an account that the client reads, so
// that it can send back what it has read.
func (s *Service) countAddress(ctx context.Context, verb rest.Verbs, address string) error {
	caller := callingClient(ctx)
	if caller == 0 || verb == rest.Editing && address == "" {
		return nil
	}
	if verb == rest.Editing {
		var canRead bool
		err := s.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM client c JOIN client_reached r ON r.id = c.id "+
			"WHERE lower(c.email) = lower($2) AND r.viewer = $1)", caller, address).
			Scan(&canRead)
		if err != nil || canRead {
			return err
		}
	}
	return s.countEmail(ctx)
}

// countEmail counts that a client names an address of its own choice, or has a mail sent: whether an account is there, it
// could find out. All accounts that one has created, and that these have, count as one with it, or each new one would have a
// limit of its own. It counts before anything is done, whatever comes of that, in the database, for all instances at once.
func (s *Service) countEmail(ctx context.Context) error {
	caller := callingClient(ctx)
	if caller == 0 {
		return nil
	}
	limit := settings.ClientEmails.In(s.settings.Values())
	var wait time.Duration
	err := s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what it is counted for is recorded")
		var root int64
		if err := tx.QueryRow(ctx, "SELECT coalesce((SELECT root_id FROM client WHERE id = $1), $1)", caller).Scan(&root); err != nil {
			return err
		}
		if err := tx.Lock(ctx, "emails of clients", root); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `
			WITH used AS (SELECT at FROM email_use WHERE root_id = $1 AND at > clock_timestamp() - interval '1 hour' ORDER BY at DESC LIMIT $2),
			full_until AS (SELECT min(at) + interval '1 hour' AS at FROM used HAVING count(*) = $2),
			counted AS (INSERT INTO email_use (root_id, at) SELECT $1, clock_timestamp() WHERE NOT EXISTS (SELECT FROM full_until))
			SELECT at - clock_timestamp() FROM full_until`, root, limit).Scan(&wait)
		if errors.Is(err, pgx.ErrNoRows) {
			wait, err = 0, nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("count what client %d does with addresses: %w", caller, err)
	}
	if wait == 0 {
		return nil
	}
	f := problem.New(
		problem.TooManyRequests,
		"A client, with all that it has created, makes accounts, changes addresses and has mails sent %d times an hour.",
		limit,
	)
	f.RetryAfter, f.Limit = wait, fmt.Sprintf(`"emails";q=%d;w=3600`, limit)
	return f
}

// deleteOldEmailUses forgets what counts no more.
func (s *Service) deleteOldEmailUses(ctx context.Context) error {
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("it counts no more")
		_, err := tx.Exec(ctx, "DELETE FROM email_use WHERE at < clock_timestamp() - interval '1 hour'")
		return err
	})
}

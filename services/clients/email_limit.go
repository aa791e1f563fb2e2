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

// countAddress counts a client's creation of an account, and an edit that sends an address. An address of an account that the
// client can read does not count, so that the client can send back what it has read.
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

// countEmail counts an operation of a client on an address of its choice, or a mail that it requests. Both reveal whether an
// account with the address exists, so guessing is limited. The client shares one limit with the accounts that it has created, and
// with those that these have created: otherwise each new account would add a limit of its own. The count is made before anything
// else, whatever the result, and in the database, so that it holds for all instances.
func (s *Service) countEmail(ctx context.Context) error {
	caller := callingClient(ctx)
	if caller == 0 {
		return nil
	}
	limit := settings.ClientEmails.In(s.settings.Values())
	var wait time.Duration
	err := s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the counted change has a record of its own")
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
		return fmt.Errorf("count a use of an address by client %d: %w", caller, err)
	}
	if wait == 0 {
		return nil
	}
	f := problem.New(
		problem.TooManyRequests,
		"The limit of %d new accounts, address changes and mails an hour is reached. It covers the client and the accounts that it has created.",
		limit,
	)
	f.RetryAfter, f.Limit = wait, fmt.Sprintf(`"emails";q=%d;w=3600`, limit)
	return f
}

// pruneEmailLimit deletes uses that are too old to count.
func (s *Service) pruneEmailLimit(ctx context.Context) error {
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the uses are too old to count")
		_, err := tx.Exec(ctx, "DELETE FROM email_use WHERE at < clock_timestamp() - interval '1 hour'")
		return err
	})
}

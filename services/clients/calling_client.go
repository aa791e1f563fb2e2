package clients

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

// linkExisting answers a client who makes an account that there is: it is linked, and nothing of it is changed or shown.
func (s *Service) linkExisting(ctx context.Context, tx *pg.Tx, b *clientBody) (*ViewedClient, error) {
	caller := callingClient(ctx)
	if caller == 0 {
		return nil, nil
	}
	if err := lockClients(ctx, tx, caller); errors.Is(err, pgx.ErrNoRows) {
		return nil, problem.New(problem.Forbidden, "The calling client is gone.")
	} else if err != nil {
		return nil, err
	}
	*b = clientBody{Email: b.Email, First: b.First, Last: b.Last} // the rest is not a client's to give
	to := linkTarget{kind: "named", Email: &b.Email, First: &b.First, Last: &b.Last}
	err := tx.QueryRow(ctx, "SELECT id FROM client WHERE lower(email) = lower($1) FOR KEY SHARE", b.Email).Scan(&to.ID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the address: %w", err)
	}
	if to.ID == caller {
		return nil, problem.Member("/email", "invalid", "is the client's own")
	}
	if _, err := s.link(ctx, tx, caller, to); problem.Is(err, problem.Invalid) {
		return nil, problem.Member("/email", "cycle", "is of an account that has the client below itself")
	} else if err != nil {
		return nil, err
	}
	viewed, err := visibleClients.Get(ctx, tx, to.ID, whereVisible(ctx))
	return &viewed, err
}

// insertClient makes a client, and of who is one the link to it. Where somebody else was just faster with the address, it
// begins again.
func (s *Service) insertClient(ctx context.Context, tx *pg.Tx, b *clientBody) (id int64, err error) {
	caller := callingClient(ctx)
	if caller == 0 {
		id, err = clientTable.Insert(ctx, tx, b)
		return id, retryOnConflict(err)
	}
	const insertSQL = "INSERT INTO client (email, first, last, root_id) SELECT $1, $2, $3, coalesce(root_id, id) FROM client " +
		"WHERE id = $4 ON CONFLICT (lower(email)) DO NOTHING RETURNING id"
	err = tx.QueryRow(ctx, insertSQL, b.Email, b.First, b.Last, caller).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, pg.RestartAfter(func(context.Context) error { return nil })
	}
	if err == nil {
		_, err = s.link(ctx, tx, caller, linkTarget{ID: id, kind: "created"})
	}
	return id, err
}

// checkClientEdit returns an error where a client edits what it may not. Of its own account a client writes the name. It writes
// address and password, too, if it has just signed in or sends the current password. Of an account that it has created, it
// writes the name, and the address until the account is claimed.
func (b *clientBody) checkClientEdit(ctx context.Context, tx *pg.Tx, caller, id int64, before *clientBody) error {
	allowed := *before
	allowed.First, allowed.Last = b.First, b.Last
	if caller == id {
		if !b.Password.IsZero() || b.Email != before.Email {
			if !b.isFresh && (b.confirmedHash == nil || !equal(b.confirmedHash, before.PasswordHash)) {
				return problem.Member("/current_password", "wrong", "must be the current password")
			}
			allowed.Email = b.Email
		}
		if before.Verify.Require && !b.Verify.Require && !b.secondFactorConfirmed {
			return problem.New(
				problem.Forbidden,
				"That no second factor is required any more takes a code that the same key or session confirmed within the last 10 minutes.",
			)
		}
		allowed.Verify.Require = b.Verify.Require
	} else {
		claimed, err := findCreated(ctx, tx, caller, id)
		if err != nil {
			return err
		}
		if !claimed {
			allowed.Email = b.Email
		}
	}
	switch {
	case caller != id && !b.Password.IsZero() || b.Email != allowed.Email:
		return problem.New(problem.Forbidden, "A client does not write this account's email or password.")
	case b.Verify != allowed.Verify || b.Disabled != allowed.Disabled:
		return problem.New(problem.Forbidden, "A client does not write this account's verify or disabled.")
	case !equal(b.Billing.ID, allowed.Billing.ID) || b.Billing.IgnoreAutoSuspend != allowed.Billing.IgnoreAutoSuspend || !equal(
		b.Billing.Integration, allowed.Billing.Integration,
	):
		return problem.New(problem.Forbidden, "A client writes no billing.")
	}
	return nil
}

// refuseActing refuses who uses an account by a session that is not its own.
func refuseActing(ctx context.Context) error {
	if principal.From(ctx).Principal.Acting {
		return problem.New(
			problem.Forbidden,
			"A session of somebody who acts for the account, or followed a link, writes no email, password, verify or super links.",
		)
	}
	return nil
}

// findCreated tells of an account that a client has created, as long as that link stands, whether it is claimed. Any other one is
// an error.
func findCreated(ctx context.Context, tx *pg.Tx, creator, id int64) (claimed bool, err error) {
	err = tx.QueryRow(ctx, `
		SELECT c.claimed_at IS NOT NULL FROM client c JOIN sub_link l ON l.child_id = c.id
		WHERE c.id = $1 AND l.client_id = $2 AND l.kind = 'created' FOR SHARE OF c`, id, creator).Scan(&claimed)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, errUnreadable(ctx, tx, []int64{id})
	}
	if err != nil {
		err = fmt.Errorf("look who has created client %d: %w", id, err)
	}
	return claimed, err
}

// checkMailAllowed says whether a client may have a mail sent to an account.
func checkMailAllowed(ctx context.Context, tx *pg.Tx, caller, id int64) error {
	claimed, err := findCreated(ctx, tx, caller, id)
	if err == nil && claimed {
		err = problem.New(problem.Forbidden, "The account is its own, and chooses its password itself.")
	}
	return err
}

// askSecondFactor asks identity whether the calling key has confirmed a second factor of late.
func (s *Service) askSecondFactor(ctx context.Context, b *clientBody) error {
	ctx, cancel := s.peers.Limit(ctx, askTimeout)
	defer cancel()
	var answer credentials.Confirmed
	err := s.peers.Ask(ctx, "identity", fmt.Sprintf("%s/%d", credentials.ConfirmedPath, principal.From(ctx).Principal.KeyID), &answer)
	if errors.Is(err, mesh.ErrAway) {
		err = problem.New(problem.Unavailable, "Whether a second factor was confirmed cannot be found out right now.").Because(err)
	}
	b.secondFactorConfirmed = answer.Confirmed
	return err
}

// confirmPassword compares the current password with the calling client's.
func (s *Service) confirmPassword(ctx context.Context, b *clientBody) error {
	var hash *string
	err := s.db.QueryRow(ctx, "SELECT password_hash FROM client WHERE id = $1", callingClient(ctx)).Scan(&hash)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read the client's password: %w", err)
	}
	if hash == nil {
		return nil
	}
	matches, err := s.lockouts.Confirm(ctx, s.db, s.hasher, b.CurrentPassword, *hash)
	if matches {
		b.confirmedHash = hash
	}
	return err
}

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

// linkExisting links the account that already has the address of a client's order. Nothing of the account is changed or shown. It
// returns nil if the caller is no client, or no account has the address.
func (s *Service) linkExisting(ctx context.Context, tx *pg.Tx, b *clientBody) (*ViewedClient, error) {
	caller := callingClient(ctx)
	if caller == 0 {
		return nil, nil
	}
	if err := lockClients(ctx, tx, caller); errors.Is(err, pgx.ErrNoRows) {
		return nil, problem.New(problem.Forbidden, "The calling client was deleted.")
	} else if err != nil {
		return nil, err
	}
	*b = clientBody{Email: b.Email, First: b.First, Last: b.Last} // a client sets no other members
	to := linkTarget{kind: "named", Email: &b.Email, First: &b.First, Last: &b.Last}
	err := tx.QueryRow(ctx, "SELECT id FROM client WHERE lower(email) = lower($1) FOR KEY SHARE", b.Email).Scan(&to.ID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the account with the address: %w", err)
	}
	if to.ID == caller {
		return nil, problem.Member("/email", "invalid", "is the caller's own address")
	}
	if _, err := s.link(ctx, tx, caller, to); problem.Is(err, problem.Invalid) {
		return nil, problem.Member("/email", "cycle", "belongs to an account above the caller")
	} else if err != nil {
		return nil, err
	}
	viewed, err := visibleClients.Get(ctx, tx, to.ID, whereVisible(ctx))
	return &viewed, err
}

// insertClient creates a client, and for a calling client the link to it. If another request has just created an account with the
// address, the unit of work starts again, and links that account.
func (s *Service) insertClient(ctx context.Context, tx *pg.Tx, b *clientBody) (id int64, err error) {
	caller := callingClient(ctx)
	if caller == 0 {
		suspended := b.Disabled
		b.Disabled = false
		if id, err = clientTable.Insert(ctx, tx, b); err != nil || !suspended {
			return id, retryOnConflict(err)
		}
		by, err := findSuspender(ctx, tx, id)
		if err == nil {
			_, err = tx.Exec(ctx, "INSERT INTO suspension (client_id, kind) VALUES ($1, $2)", id, by.kind)
		}
		return id, err
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

// checkClientEdit returns an error where a client edits what it may not. Of its own account a client writes the name and the
// language. It writes address and password, too, if it has just signed in or sends the current password. Of an account that it has
// created, it writes the name, the language, and the address until the account is claimed.
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
				"To stop requiring a second factor, confirm a code with the same key or session first. It counts for 10 minutes.",
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
		return problem.New(problem.Forbidden, "A client cannot change the email or password of this account.")
	case b.Verify != allowed.Verify || b.Disabled != allowed.Disabled:
		return problem.New(problem.Forbidden, "A client cannot change verify or disabled of this account.")
	case !equal(b.Billing.ID, allowed.Billing.ID) || b.Billing.IgnoreAutoSuspend != allowed.Billing.IgnoreAutoSuspend || !equal(
		b.Billing.Integration, allowed.Billing.Integration,
	):
		return problem.New(problem.Forbidden, "A client cannot change billing.")
	}
	return nil
}

// refuseActing returns an error for a session that acts for the account. Such a session is not the account's own.
func refuseActing(ctx context.Context) error {
	if principal.FromContext(ctx).Principal.Acting {
		return problem.New(
			problem.Forbidden,
			"A session that acts for the account, or that began with a link, cannot change email, password or verify.",
		)
	}
	return nil
}

// findCreated reports whether an account is claimed that the client created and is still linked to. For any other account it
// returns an error.
func findCreated(ctx context.Context, tx *pg.Tx, creator, id int64) (claimed bool, err error) {
	err = tx.QueryRow(ctx, `
		SELECT c.claimed_at IS NOT NULL FROM client c JOIN sub_link l ON l.child_id = c.id
		WHERE c.id = $1 AND l.client_id = $2 AND l.kind = 'created' FOR SHARE OF c`, id, creator).Scan(&claimed)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, errUnreadable(ctx, tx, []int64{id})
	}
	if err != nil {
		err = fmt.Errorf("find the creator of client %d: %w", id, err)
	}
	return claimed, err
}

// checkMailAllowed returns an error unless the client may have a mail sent to the account: it created the account, which is not
// claimed.
func checkMailAllowed(ctx context.Context, tx *pg.Tx, caller, id int64) error {
	claimed, err := findCreated(ctx, tx, caller, id)
	if err == nil && claimed {
		err = problem.New(problem.Forbidden, "The account is claimed. Only its owner can have a link for a new password sent.")
	}
	return err
}

// askSecondFactor asks identity whether the calling key has confirmed a second factor within the last minutes.
func (s *Service) askSecondFactor(ctx context.Context, b *clientBody) error {
	ctx, cancel := s.peers.Limit(ctx, askTimeout)
	defer cancel()
	var answer credentials.Confirmed
	err := s.peers.Ask(ctx, "identity", fmt.Sprintf("%s/%d", credentials.ConfirmedPath, principal.FromContext(ctx).Principal.KeyID), &answer)
	if errors.Is(err, mesh.ErrUnavailable) {
		err = problem.New(problem.Unavailable, "The second factor cannot be checked right now. Try again.").Because(err)
	}
	b.secondFactorConfirmed = answer.Confirmed
	return err
}

// confirmPassword compares the current password in the body with the calling client's. Failed attempts are limited.
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

package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/person"
)

// preparePasswords compares the current password with the caller's, and hashes the new password if the caller may set it. Hashing
// has few slots, and callers without that right must not take them.
func (s *Service) preparePasswords(ctx context.Context, _ rest.Verbs, b *adminBody) error {
	b.site = s.Settings.Values()
	caller := principal.FromContext(ctx).Principal
	if time.Since(caller.SignedIn) < credentials.FreshLoginTTL {
		b.isFresh = true
	} else if !b.CurrentPassword.IsZero() && caller.Owner.Type == principal.Admin {
		if err := s.confirmPassword(ctx, b); err != nil {
			return err
		}
	}
	var invalid problem.Fields
	if account.CheckPassword(b.Password, b.site, &invalid); len(invalid) > 0 { // Resolve says so later
		return nil
	}
	if b.confirmed == nil && !b.isFresh && !caller.Holds(permission.UsersAdmins, permission.Write) { // update says so later
		return nil
	}
	hash, err := s.Hasher.Hash(ctx, b.Password)
	b.hash = &hash
	return err
}

// confirmPassword compares the current password with the caller's, unless there were too many wrong ones. It logs a wrong one.
func (s *Service) confirmPassword(ctx context.Context, b *adminBody) error {
	var stored *string
	err := s.DB.QueryRow(ctx, "SELECT password_hash FROM admin WHERE id = $1", principal.FromContext(ctx).Principal.Owner.ID).Scan(&stored)
	if errors.Is(err, pgx.ErrNoRows) {
		return apikey.Invalid()
	}
	if err != nil {
		return fmt.Errorf("read the caller's password: %w", err)
	}
	if stored == nil {
		return nil
	}
	matches, err := s.Lockouts.Confirm(ctx, s.DB, s.Hasher, b.CurrentPassword, *stored)
	if matches {
		b.confirmed = stored
	}
	return err
}

// changeCredentials ends the links and sessions of an admin whose address or password changes, except for the calling session. It
// mails the admin at the old and the new address. It returns the names of the ended sessions' entries in Redis.
func (s *Service) changeCredentials(ctx context.Context, tx *pg.Tx, c access.Caller, id int64, b *adminBody) (names []string, err error) {
	p := person.Person{Owner: principal.Owner{Type: principal.Admin, ID: id}}
	if err := tx.QueryRow(ctx, "SELECT id, username, coalesce(email, '') FROM admin WHERE id = $1 FOR UPDATE", id).
		Scan(&p.ID, &p.Name, &p.Email); err != nil {
		return nil, fmt.Errorf("read admin %d: %w", id, err)
	}
	var changes []string
	if b.hash != nil {
		changes = append(changes, "The password was changed.")
	}
	if b.Email != p.Email {
		changes = append(changes, "The email address was changed.")
	}
	if len(changes) == 0 {
		return nil, nil
	}
	if err := keys.EndLinks(ctx, tx, p.Owner); err != nil {
		return nil, err
	}
	if err := s.People.Notify(ctx, tx, p, changes...); err != nil {
		return nil, err
	}
	if oldEmail := p.Email; b.Email != oldEmail && b.Email != "" {
		if p.Email = b.Email; oldEmail != "" {
			err = s.People.Notify(ctx, tx, p, changes...)
		}
		if err != nil {
			return nil, err
		}
	}
	return keys.End(ctx, tx, "owner_type = 'admin' AND owner_id = $1 AND kind <> 'lasting' AND id <> $2", id, c.KeyID)
}

// checkOwnEdit refuses changes that an admin may not make to its own account. refusal is why the admin may not write to admins:
// then it may change nothing but its password. To change the address or the password takes a recent login or the current password.
func checkOwnEdit(ctx context.Context, tx *pg.Tx, b *adminBody, refusal error) error {
	if refusal != nil && !problem.Is(refusal, problem.Forbidden) {
		return refusal
	}
	id := principal.FromContext(ctx).Principal.Owner.ID
	var changesOthers, changesEmail, isConfirmed, hasNoPassword bool
	err := tx.QueryRow(ctx, `
		SELECT username <> $2 OR receive_copies <> $3 OR disabled <> $4, coalesce(email, '') <> $5, coalesce(password_hash = $6, false), password_hash IS NULL
		FROM admin WHERE id = $1`, id, b.Username, b.ReceiveCopies, b.Disabled, b.Email, b.confirmed).Scan(&changesOthers, &changesEmail, &isConfirmed, &hasNoPassword)
	switch {
	case err != nil:
		return fmt.Errorf("read admin %d: %w", id, err)
	case refusal != nil && (changesOthers || changesEmail):
		return problem.New(problem.Forbidden, "%s Without it you can change only your own password.", problem.From(refusal).Detail)
	case !changesEmail && b.Password.IsZero(), b.isFresh, isConfirmed, hasNoPassword && refusal == nil:
		return nil
	}
	return problem.Member("/current_password", "wrong", "must be the current password")
}

// SetPassword changes an admin's password. The error is pgx.ErrNoRows if p's password is no longer the current one.
func SetPassword(ctx context.Context, tx *pg.Tx, p person.Person, hash string) error {
	var version int64
	err := tx.QueryRow(ctx, "UPDATE admin SET version = version + 1, password_hash = $3 "+
		"WHERE id = $1 AND password_hash = $2 AND NOT disabled RETURNING version", p.ID, p.Hash, hash).
		Scan(&version)
	if err != nil {
		return err
	}
	target := p.Target()
	target.Version = version
	tx.Record(
		pg.Record{
			Kind:    "admin",
			Action:  pg.Edited,
			Targets: []pg.Target{target},
			Before:  secret.Marked(struct{}{}, "password"),
			After:   secret.Marked(struct{}{}, "password"),
		},
	)
	return nil
}

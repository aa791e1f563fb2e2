package mfa

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/person"
)

// asNotFound turns the error for an account in a body into the one for an account in a path.
func asNotFound(err error) error {
	if learn, ok := errors.AsType[pg.RestartAfter](err); ok {
		return pg.RestartAfter(func(ctx context.Context) error { return asNotFound(learn(ctx)) })
	}
	if problem.Is(err, problem.Invalid) {
		return pgx.ErrNoRows
	}
	return err
}

// removeSecondFactors removes an account's authenticators and codes. The account's owner has to confirm a code first.
func (s *Service) removeSecondFactors(ctx context.Context, tx *pg.Tx, owner principal.Owner) (rest.Message, error) {
	c, err := access.LockCaller(ctx, tx)
	if err != nil {
		return rest.Message{}, err
	}
	if err := s.Rules.Hold(ctx, tx, owner); err != nil {
		return rest.Message{}, asNotFound(err)
	}
	if err := s.Rules.CheckWrite(ctx, tx, c, owner); err != nil {
		return rest.Message{}, err
	}
	_, verified, err := countAuthenticators(ctx, tx, owner, 0)
	if err != nil {
		return rest.Message{}, err
	}
	if c.Owner == owner && verified > 0 {
		if err := requireConfirmation(ctx, tx, c.KeyID); err != nil {
			return rest.Message{}, err
		}
	}
	n, err := keys.EndSecondFactors(ctx, tx, owner)
	if err != nil {
		return rest.Message{}, err
	}
	tx.Unrecorded("there was no authenticator")
	if n > 0 {
		var name *string
		if err := tx.QueryRow(ctx, "SELECT coalesce((SELECT username FROM admin WHERE $1 = 'admin' AND id = $2), (SELECT name FROM ref "+
			"WHERE type = $1 AND id = $2))", owner.Type, owner.ID).
			Scan(&name); err != nil {
			return rest.Message{}, fmt.Errorf("read the name of %s: %w", owner.URL(), err)
		}
		tx.Record(
			pg.Record{
				Kind:    string(owner.Type),
				Part:    "authenticators",
				Action:  "removed",
				Targets: []pg.Target{person.Target(owner, name)},
				Before:  map[string]int64{"authenticators": n},
				After:   struct{}{},
			},
		)
		if verified > 0 {
			err = s.People.NotifyOwner(ctx, tx, owner, "All authenticators were removed. Sign-ins are no longer confirmed by them.")
		}
	}
	return rest.Message{Message: fmt.Sprintf("Authenticators removed: %d.", n)}, err
}

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

// noItem turns the error for an account that a body names into the one for a path.
func noItem(err error) error {
	if learn, ok := errors.AsType[pg.RestartAfter](err); ok {
		return pg.RestartAfter(func(ctx context.Context) error { return noItem(learn(ctx)) })
	}
	if problem.Is(err, problem.Invalid) {
		return pgx.ErrNoRows
	}
	return err
}

// removeSecondFactors removes an account's authenticators with their codes. The owner has to confirm a code before.
func (s *Service) removeSecondFactors(ctx context.Context, tx *pg.Tx, of principal.Owner) (rest.Message, error) {
	c, err := access.Locked(ctx, tx)
	if err != nil {
		return rest.Message{}, err
	}
	if err := s.Rules.Hold(ctx, tx, of); err != nil {
		return rest.Message{}, noItem(err)
	}
	if err := s.Rules.MayWrite(ctx, tx, c, of); err != nil {
		return rest.Message{}, err
	}
	_, verified, err := countAuthenticators(ctx, tx, of, 0)
	if err != nil {
		return rest.Message{}, err
	}
	if c.Owner == of && verified > 0 {
		if err := mustBeConfirmed(ctx, tx, c.KeyID); err != nil {
			return rest.Message{}, err
		}
	}
	n, err := keys.EndSecondFactors(ctx, tx, of)
	if err != nil {
		return rest.Message{}, err
	}
	tx.Unrecorded("there was no authenticator")
	if n > 0 {
		var name *string
		if err := tx.QueryRow(ctx, "SELECT coalesce((SELECT username FROM admin WHERE $1 = 'admin' AND id = $2), (SELECT name FROM ref "+
			"WHERE type = $1 AND id = $2))", of.Type, of.ID).
			Scan(&name); err != nil {
			return rest.Message{}, fmt.Errorf("read the name of %s: %w", of.URL(), err)
		}
		tx.Record(
			pg.Record{
				Kind:    string(of.Type),
				Part:    "authenticators",
				Action:  "removed",
				Targets: []pg.Target{person.Target(of, name)},
				Before:  map[string]int64{"authenticators": n},
				After:   struct{}{},
			},
		)
		if verified > 0 {
			err = s.People.NotifyOwner(ctx, tx, of, "The authenticators, by which sign-ins were confirmed, were removed.")
		}
	}
	return rest.Message{Message: fmt.Sprintf("Authenticators removed: %d.", n)}, err
}

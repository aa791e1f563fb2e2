package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/person"
)

// ErrNotSignedIn returns the same error for an unknown name and for a wrong password.
func ErrNotSignedIn() error {
	return problem.New(problem.Unauthenticated, "The name or the password is incorrect.")
}

// SignIn begins the session of a person that has proved to own the account. It refuses it if the password has changed in the
// meantime.
func (s *Service) SignIn(ctx context.Context, tx *pg.Tx, p person.Person) (keys.APIKey, error) {
	if p.Owner.Type == principal.Admin {
		var same bool
		err := tx.QueryRow(ctx, "SELECT coalesce(password_hash, '') = $2 AND NOT disabled FROM admin WHERE id = $1 FOR SHARE", p.ID, p.Hash).
			Scan(&same)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && !same {
			return keys.APIKey{}, ErrNotSignedIn()
		}
		if err != nil {
			return keys.APIKey{}, fmt.Errorf("compare the stored password hash: %w", err)
		}
	} else if err := s.Rules.Clients.Hold(ctx, tx, p.ID, "/email"); problem.Is(err, problem.Invalid) {
		return keys.APIKey{}, ErrNotSignedIn()
	} else if err != nil {
		return keys.APIKey{}, err
	}
	key, err := s.begin(ctx, tx, Options{Kind: keys.Login, Owner: p.Owner, Credentials: p.Version})
	if err != nil {
		return key, err
	}
	if err := s.People.Claim(ctx, tx, p, credentials.SignedIn); err != nil {
		return key, err
	}
	var isNew bool // the network decides only whether a mail is sent
	err = tx.QueryRow(ctx, `
		INSERT INTO signed_in_from (owner_type, owner_id, network) VALUES ($1, $2, $3)
		ON CONFLICT (owner_type, owner_id, network) DO UPDATE SET last_at = now() RETURNING xmax = 0`, p.Owner.Type, p.ID, access.Network(ctx)).Scan(&isNew)
	if err != nil {
		return key, fmt.Errorf("store the network of a sign-in: %w", err)
	}
	if isNew {
		if err := s.People.Notify(ctx, tx, p, "Somebody signed in to the account from a new address."); err != nil {
			return key, err
		}
	}
	tx.Record(
		pg.Record{
			Kind:    "auth.session",
			Action:  "began",
			Targets: []pg.Target{p.Target(), keys.Target(&key)},
			After:   map[string]any{"expires_at": key.ExpiresAt},
		},
	)
	return key, nil
}

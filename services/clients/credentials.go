package clients

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/guard"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/process/credentials"
)

// whose names a client by its address or its id.
type whose struct {
	Email string `query:"email"`
	ID    int64  `query:"id"`
}

// credentialsRoute answers identity who has an address, and what his password is compared with.
func (s *Service) credentialsRoute() rest.Route {
	return rest.Read[whose, credentials.Account]{Path: credentials.Path, Guard: guard.Peers("identity"), Do: func(ctx context.Context, req whose) (a credentials.Account, err error) {
		by, value := "lower(email) = lower($1)", any(req.Email)
		if req.ID != 0 {
			by, value = "id = $1", req.ID
		}
		err = s.db.QueryRow(ctx, "SELECT id, name, first, last, email, coalesce(password_hash, ''), disabled, require_verify, credentials FROM client WHERE "+by, value).
			Scan(&a.ID, &a.Name, &a.First, &a.Last, &a.Email, &a.Hash, &a.Disabled, &a.Require, &a.Version)
		if errors.Is(err, pgx.ErrNoRows) {
			return credentials.Account{}, nil
		}
		return a, err
	}}
}

// changeCredentials ends the sessions of a client of which the address or the password is changed, but for the caller's own.
func changeCredentials(ctx context.Context, tx *pg.Tx, id int64) error {
	own := int64(0)
	if p := principal.From(ctx).Principal; p != nil && p.Owner == (principal.Owner{Type: principal.Client, ID: id}) {
		own = p.KeyID
	}
	_, err := tx.Exec(ctx, "UPDATE client SET credentials = credentials + 1, credentials_key = $2 WHERE id = $1", id, own)
	if err != nil {
		return fmt.Errorf("end the sessions of client %d: %w", id, err)
	}
	return nil
}

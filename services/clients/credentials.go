package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
)

// accountQuery names a client by its address or its id.
type accountQuery struct {
	Email string `query:"email"`
	ID    int64  `query:"id"`
}

// credentialsRoute returns the route by which identity reads the account with an address, and its password's hash.
func (s *Service) credentialsRoute() rest.Route {
	return rest.Read[accountQuery, credentials.Account]{
		Path:  credentials.Path,
		Guard: guard.Peers("identity"),
		Do: func(ctx context.Context, req accountQuery) (a credentials.Account, err error) {
			by, value := "lower(email) = lower($1)", any(req.Email)
			if req.ID != 0 {
				by, value = "id = $1", req.ID
			}
			err = s.db.QueryRow(ctx, `
				SELECT id, name, first, last, email, coalesce(password_hash, ''), (SELECT v.suspended FROM client_view v WHERE v.id = client.id),
					require_verify, credentials, claimed_at IS NOT NULL, signed_in_at IS NOT NULL, unproven,
					coalesce(language, '') FROM client WHERE `+by, value).
				Scan(&a.ID, &a.Name, &a.First, &a.Last, &a.Email, &a.Hash, &a.Disabled, &a.Require, &a.Version, &a.Claimed, &a.SignedIn, &a.Unproven,
					&a.Language)
			if errors.Is(err, pgx.ErrNoRows) {
				return credentials.Account{}, nil
			}
			return a, err
		},
	}
}

// endSessions ends all sessions of a client whose address or password is changed, except the caller's own. After a change of the
// address by somebody else, the account counts as unproven.
func endSessions(ctx context.Context, tx *pg.Tx, id int64, email bool) error {
	own := int64(0)
	if p := principal.FromContext(ctx).Principal; p != nil && p.Owner == (principal.Owner{Type: principal.Client, ID: id}) {
		own = p.KeyID
	}
	_, err := tx.Exec(
		ctx,
		"UPDATE client SET credentials = credentials + 1, credentials_key = $2::bigint, unproven = CASE WHEN $3 THEN $2::bigint <> 0 ELSE "+
			"unproven END WHERE id = $1",
		id,
		own,
		email,
	)
	if err != nil {
		return fmt.Errorf("end the sessions of client %d: %w", id, err)
	}
	return nil
}

var clientView = pg.NewView[ViewedClient]("client_view")

// applyChange applies a change of a client's credentials that identity announces, unless they were changed since.
func (s *Service) applyChange(ctx context.Context, tx *pg.Tx, m events.Message) error {
	var c credentials.Change
	if err := json.Unmarshal(m.Content, &c); err != nil {
		return fmt.Errorf("read the change of credentials: %w", err)
	}
	if c.Action == credentials.Rehashed {
		_, err := tx.Exec(ctx, "UPDATE client SET password_hash = $3 WHERE id = $1 AND credentials = $2", c.Client, c.Version, m.Secret.Reveal())
		return err
	}
	var claimed, unproven bool
	err := tx.QueryRow(
		ctx, "SELECT claimed_at IS NOT NULL, unproven FROM client WHERE id = $1 AND credentials = $2 FOR UPDATE", c.Client, c.Version,
	).
		Scan(&claimed, &unproven)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("hold client %d: %w", c.Client, err)
	}
	if c.Action == credentials.SignedIn || c.Proven {
		if _, err := tx.Exec(
			ctx,
			"UPDATE client SET signed_in_at = coalesce(signed_in_at, now()), unproven = unproven AND NOT $2 WHERE id = $1",
			c.Client,
			c.Proven,
		); err != nil {
			return fmt.Errorf("note that client %d signed in: %w", c.Client, err)
		}
	}
	if c.Proven && (!claimed || unproven) {
		if err := deleteSuperLinks(ctx, tx, c.Client); err != nil {
			return err
		}
	}
	if claimed && c.Action != credentials.Password {
		return nil
	}
	return s.claim(ctx, tx, &c, m.Secret)
}

// claim marks the account as claimed by its owner, and sets the password if the owner has chosen one.
func (s *Service) claim(ctx context.Context, tx *pg.Tx, c *credentials.Change, hash secret.String) error {
	before, err := clientView.Get(ctx, tx, c.Client)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE client SET version = version + 1, claimed_at = coalesce(claimed_at, now()) WHERE id = $1", c.Client)
	if err != nil {
		return fmt.Errorf("claim client %d: %w", c.Client, err)
	}
	var secrets []string
	if c.Action == credentials.Password {
		secrets = []string{"password"}
		if err := endSessions(ctx, tx, c.Client, false); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE client SET password_hash = $2 WHERE id = $1", c.Client, hash.Reveal()); err != nil {
			return fmt.Errorf("change the password of client %d: %w", c.Client, err)
		}
		s.revoke(tx, c.Client)
	}
	after, err := clientView.Get(ctx, tx, c.Client)
	if err != nil {
		return err
	}
	tx.Record(pg.Record{Kind: "client", Action: pg.Edited, Before: before, After: secret.Marked(after, secrets...),
		Targets: []pg.Target{{Type: "client", Noun: "client", ID: after.ID, Name: after.Name, Version: after.Version}}})
	return nil
}

// deleteSuperLinks deletes the links by which other clients read an account, except links that were made with the permission
// users.clients.
func deleteSuperLinks(ctx context.Context, tx *pg.Tx, client int64) error {
	rows, err := tx.Query(ctx, "SELECT id FROM super_link WHERE client_id = $1 AND NOT given ORDER BY id FOR UPDATE", client)
	if err != nil {
		return fmt.Errorf("look for the super links of client %d: %w", client, err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("look for the super links of client %d: %w", client, err)
	}
	for _, id := range ids {
		link, err := superLinks.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM super_link WHERE id = $1", id); err != nil {
			return fmt.Errorf("delete super link %d: %w", id, err)
		}
		tx.Record(pg.Record{Kind: "client.super", Action: pg.Deleted, Before: link, Targets: []pg.Target{
			{
				Type:    fmt.Sprintf("client/%d/super", client),
				Noun:    "super link",
				ID:      id,
				Name:    link.Name,
				Version: link.Version,
			},
			clientTarget(link.Grantee.ID, link.Name),
		}})
	}
	return nil
}

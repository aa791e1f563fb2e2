package identity

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/settings"
)

type keyHash struct {
	Hash string `path:"hash"`
}

// entryRoutes answer the gateway's questions about keys and admins, and leave the answers where it looks first.
func (s *Service) entryRoutes() []rest.Route {
	gateway := guard.Peers(principal.Gateway)
	return []rest.Route{
		rest.Read[keyHash, keycache.Key]{Path: "/internal/key/{hash}", Guard: gateway,
			Do: func(ctx context.Context, req keyHash) (keycache.Key, error) {
				return keycache.Fill(ctx, s.entries, keycache.KeyName(req.Hash), func(ctx context.Context) (keycache.Key, error) {
					return s.keyEntry(ctx, req.Hash)
				})
			}},
		rest.Read[rest.Item, keycache.Owner]{
			Path:  "/internal/owner/admin/{admin_id}",
			Guard: guard.Peers(principal.Gateway, settings.Keeper), // which delivers to webhooks what their makers may read
			Do: func(ctx context.Context, req rest.Item) (keycache.Owner, error) {
				owner := principal.Owner{Type: principal.Admin, ID: req.ID}
				return keycache.Fill(ctx, s.entries, keycache.OwnerName(owner), func(ctx context.Context) (keycache.Owner, error) {
					return s.adminEntry(ctx, req.ID)
				})
			},
		},
		rest.Read[rest.None, keycache.Imports]{Path: "/internal/imports", Guard: gateway,
			Do: func(ctx context.Context, _ rest.None) (keycache.Imports, error) {
				return keycache.Fill(ctx, s.entries, keycache.ImportsName, func(ctx context.Context) (i keycache.Imports, err error) {
					err = s.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM api_key WHERE imported)").Scan(&i.Any)
					return i, err
				})
			}},
	}
}

func (s *Service) keyEntry(ctx context.Context, hash string) (keycache.Key, error) {
	raw, err := hex.DecodeString(hash)
	if err != nil {
		return keycache.Key{}, pgx.ErrNoRows
	}
	var key keycache.Key
	var limits *[]string
	var networks []string
	var actorType *principal.OwnerType
	var signedIn *time.Time
	err = s.db.QueryRow(ctx, `
		SELECT k.id, owner_type, owner_id, least(expires_at, until), bound, actor_type, coalesce(actor_id, 0), CASE kind WHEN 'login' THEN created_at END, coalesce(credentials, 0), allowed_cidrs
		FROM (SELECT id, NULL::timestamptz AS until FROM api_key WHERE hash = $1 UNION ALL SELECT key_id, until FROM session_value WHERE hash = $1) value JOIN api_key k USING (id)`, raw).
		Scan(&key.ID, &key.Owner.Type, &key.Owner.ID, &key.Expires, &limits, &actorType, &key.Actor.ID, &signedIn, &key.Credentials, &networks)
	if errors.Is(err, pgx.ErrNoRows) {
		return keycache.Key{}, nil
	}
	key.Bound, key.Networks = parseBound(limits), networksOf(networks)
	if actorType != nil {
		key.Actor.Type = *actorType
	}
	if signedIn != nil {
		key.SignedIn = *signedIn
	}
	return key, err
}

func (s *Service) adminEntry(ctx context.Context, id int64) (keycache.Owner, error) {
	var owner keycache.Owner
	var permissions []string
	err := s.db.QueryRow(ctx, "SELECT NOT disabled, username, permissions FROM admin WHERE id = $1", id).
		Scan(&owner.Active, &owner.Name, &permissions)
	if errors.Is(err, pgx.ErrNoRows) {
		return keycache.Owner{}, nil
	}
	owner.Grants = principal.ParseGrants(permissions)
	return owner, err
}

// revoke removes, with the commit of tx, what the gateways believe by these names. It is called once in a unit of work:
// where Redis cannot be told, each call waits.
func (s *Service) revoke(tx *pg.Tx, names ...string) {
	tx.AfterCommit(func(ctx context.Context) error { return s.entries.Remove(ctx, names...) })
}

func adminName(id int64) string {
	return keycache.OwnerName(principal.Owner{Type: principal.Admin, ID: id})
}

func keyName(hash []byte) string { return keycache.KeyName(hex.EncodeToString(hash)) }

func adminGrants(ctx context.Context, q pg.Querier, id int64) (principal.Grants, error) {
	var permissions []string
	err := q.QueryRow(ctx, "SELECT permissions FROM admin WHERE id = $1", id).Scan(&permissions)
	if err != nil {
		return 0, fmt.Errorf("read the permissions of admin %d: %w", id, err)
	}
	return principal.ParseGrants(permissions), nil
}

// lockAccounts lets those changes go one after the other that depend on what accounts hold: two admins who strip
// each other, or a grant by somebody who is just being stripped.
func lockAccounts(ctx context.Context, tx *pg.Tx) error { return tx.Lock(ctx, "accounts", 0) }

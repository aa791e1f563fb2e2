// Package access identifies a request's caller, and decides which accounts the caller may write to. Changes of accounts and keys
// read the calling key again in their unit of work, under a lock, because the gateway's answer may be some seconds old.
package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
)

// Caller is the calling key and its owner, as the unit of work reads them. The gateway's answer may be some seconds old, and in
// that time a revoked key could create its own successor.
type Caller struct {
	Owner           principal.Owner
	Grants          principal.Grants // of the owner, within the key's bound
	Bound           Bound
	KeyID           int64
	KeyExpires      *rest.Timestamp // nil: never
	Networks        []string        // that the key may be used from; none: all
	SessionNetworks []string        // that its sessions may be used from; none: as Networks
	Latest          *time.Time      // when keys that it creates have to expire; nil: never
	Maker           *int64          // the integration that made the key for its client; nil: somebody else made it
}

// Allow checks that the calling key is still valid. Each change of accounts and keys begins with it.
func Allow(ctx context.Context, tx *pg.Tx) error {
	_, err := LockCaller(ctx, tx)
	return err
}

// AllowMutation is Allow with the signature of rest.Mutation's Allow.
func AllowMutation[Req any](ctx context.Context, tx *pg.Tx, _ Req) error { return Allow(ctx, tx) }

// LockCaller takes the lock of accounts, and reads the calling key. A revocation of the key, or of its owner's permissions,
// therefore comes either before or after this unit of work.
func LockCaller(ctx context.Context, tx *pg.Tx) (Caller, error) {
	if principal.FromContext(ctx).Principal.Acting {
		return Caller{}, guard.ErrActing()
	}
	if err := Lock(ctx, tx); err != nil {
		return Caller{}, err
	}
	return ReadCaller(ctx, tx)
}

// ReadCaller reads the calling key under the lock that Allow took. It reads it once in a unit of work, because the unit of work
// may delete the key.
func ReadCaller(ctx context.Context, tx *pg.Tx) (Caller, error) {
	if c, known := tx.Caller.(Caller); known {
		return c, nil
	}
	found := principal.FromContext(ctx).Principal
	c := Caller{Owner: found.Owner, Grants: found.Grants, KeyID: found.KeyID}
	var permissions []string // of an admin; other services store those of other accounts
	var boundNames *[]string
	var isLogin bool
	err := tx.QueryRow(ctx, `
		SELECT k.expires_at, k.bound, a.permissions, k.kind = 'login', k.allowed_cidrs, k.session_cidrs, k.maker_id FROM api_key k LEFT JOIN admin a ON a.id = k.admin_id
		WHERE k.id = $1 AND k.owner_type = $2 AND k.owner_id = $3 AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
			AND a.disabled IS NOT TRUE`,
		found.KeyID, found.Owner.Type, found.Owner.ID).Scan(
		&c.KeyExpires, &boundNames, &permissions, &isLogin, &c.Networks, &c.SessionNetworks, &c.Maker,
	)
	if errors.Is(err, pgx.ErrNoRows) {
		return Caller{}, apikey.Invalid()
	}
	if err != nil {
		return Caller{}, fmt.Errorf("read the calling key: %w", err)
	}
	if c.KeyExpires != nil && !isLogin { // a login's session can create lasting keys
		c.Latest = &c.KeyExpires.Time
	}
	if c.Owner.Type == principal.Admin {
		c.Grants = principal.ParseGrants(permissions)
	}
	if c.Bound = ParseBound(boundNames); c.Bound != nil {
		c.Grants &= *c.Bound
	}
	tx.Caller = c
	return c, nil
}

// Lock serializes the changes that depend on the permissions of accounts. Without it two admins could revoke each other's
// permissions, or an admin could grant a permission while losing it.
func Lock(ctx context.Context, tx *pg.Tx) error { return tx.Lock(ctx, "accounts", 0) }

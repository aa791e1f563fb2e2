// Package access tells who makes a request, and which accounts the caller may write to. Changes of accounts and keys read the
// calling key again in their unit of work, under a lock, because the gateway's answer may be a moment old.
package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// Caller is the calling key and its owner, as the unit of work reads them. What the gateway found may be a moment old, and in
// that moment a revoked key could make itself a successor.
type Caller struct {
	Owner      principal.Owner
	Grants     principal.Grants // what the owner holds, within the key's bound
	Bound      Bound
	KeyID      int64
	KeyExpires *rest.Timestamp // nil: never
	Networks   []string        // that the key is good from; none: all
	Latest     *time.Time      // by when the keys that it makes have to expire; nil: never
}

// Allow begins each change of accounts and keys. It checks that the calling key is still good.
func Allow(ctx context.Context, tx *pg.Tx) error {
	_, err := Locked(ctx, tx)
	return err
}

// Allowed is Allow in the form of a rest.Mutation's Allow.
func Allowed[Req any](ctx context.Context, tx *pg.Tx, _ Req) error { return Allow(ctx, tx) }

// Locked takes the lock of accounts and reads the calling key. So whatever revokes the key, or takes permissions of its owner,
// comes before or after this unit of work.
func Locked(ctx context.Context, tx *pg.Tx) (Caller, error) {
	if principal.From(ctx).Principal.Acting {
		return Caller{}, ErrActing()
	}
	if err := Lock(ctx, tx); err != nil {
		return Caller{}, err
	}
	return Of(ctx, tx)
}

// Of reads the calling key under the lock that Allow took. It reads once, because the unit of work may delete the key.
func Of(ctx context.Context, tx *pg.Tx) (Caller, error) {
	if c, known := tx.Caller.(Caller); known {
		return c, nil
	}
	found := principal.From(ctx).Principal
	c := Caller{Owner: found.Owner, Grants: found.Grants, KeyID: found.KeyID}
	var permissions []string // of an admin; what others hold, this service does not keep
	var limits *[]string
	var isLogin bool
	err := tx.QueryRow(ctx, `
		SELECT k.expires_at, k.bound, a.permissions, k.kind = 'login', k.allowed_cidrs FROM api_key k LEFT JOIN admin a ON a.id = k.admin_id
		WHERE k.id = $1 AND k.owner_type = $2 AND k.owner_id = $3 AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
			AND a.disabled IS NOT TRUE`,
		found.KeyID, found.Owner.Type, found.Owner.ID).Scan(&c.KeyExpires, &limits, &permissions, &isLogin, &c.Networks)
	if errors.Is(err, pgx.ErrNoRows) {
		return Caller{}, apikey.Invalid()
	}
	if err != nil {
		return Caller{}, fmt.Errorf("read the calling key: %w", err)
	}
	if c.KeyExpires != nil && !isLogin { // a login's session can make lasting keys
		c.Latest = &c.KeyExpires.Time
	}
	if c.Owner.Type == principal.Admin {
		c.Grants = principal.ParseGrants(permissions)
	}
	if c.Bound = ParseBound(limits); c.Bound != nil {
		c.Grants &= *c.Bound
	}
	tx.Caller = c
	return c, nil
}

// Lock serializes the changes that depend on what accounts hold. Else two admins could strip each other, or an admin could
// grant a permission while losing it.
func Lock(ctx context.Context, tx *pg.Tx) error { return tx.Lock(ctx, "accounts", 0) }

// ErrActing returns the refusal of acting sessions, which write no credentials.
func ErrActing() error {
	return problem.New(
		problem.Forbidden,
		"A session of somebody who acts for the account, or followed a link, writes no keys, sessions, passwords and the like.",
	)
}

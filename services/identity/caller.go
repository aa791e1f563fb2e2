package identity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// caller is the calling key and its owner as they are: what the gateway found may be a moment old, and where accounts
// and keys are written that moment would be enough for a revoked key to make itself a successor.
type caller struct {
	owner    principal.Owner
	grants   principal.Grants // what the owner holds, within the key's bound
	bound    bound
	key      int64
	ends     *rest.Timestamp // when the key does
	networks []string        // that the key is good from
	expires  *time.Time      // when what it makes ends at the latest; nil: never
}

// allow begins each change of accounts and keys: it looks whether the calling key still stands.
func allow(ctx context.Context, tx *pg.Tx) error {
	_, err := lockedCaller(ctx, tx)
	return err
}

// allowed is allow for a change of any request.
func allowed[Req any](ctx context.Context, tx *pg.Tx, _ Req) error { return allow(ctx, tx) }

// lockedCaller reads the calling key under lockAccounts, and so before or after all that revokes the key or takes
// something of its owner.
func lockedCaller(ctx context.Context, tx *pg.Tx) (caller, error) {
	if principal.From(ctx).Principal.Acting {
		return caller{}, errActing()
	}
	if err := lockAccounts(ctx, tx); err != nil {
		return caller{}, err
	}
	return callerOf(ctx, tx)
}

// callerOf reads the calling key, under the lock that allow took, once: a unit of work may take the key away.
func callerOf(ctx context.Context, tx *pg.Tx) (caller, error) {
	if c, known := tx.Caller.(caller); known {
		return c, nil
	}
	found := principal.From(ctx).Principal
	c := caller{owner: found.Owner, grants: found.Grants, key: found.KeyID}
	var permissions []string // of an admin; what others hold, this service does not keep
	var limits *[]string
	var kind string
	err := tx.QueryRow(ctx, `
		SELECT k.expires_at, k.bound, a.permissions, k.kind, k.allowed_cidrs FROM api_key k LEFT JOIN admin a ON a.id = k.admin_id
		WHERE k.id = $1 AND k.owner_type = $2 AND k.owner_id = $3 AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
			AND a.disabled IS NOT TRUE`,
		found.KeyID, found.Owner.Type, found.Owner.ID).Scan(&c.ends, &limits, &permissions, &kind, &c.networks)
	if errors.Is(err, pgx.ErrNoRows) {
		return caller{}, apikey.Invalid()
	}
	if err != nil {
		return caller{}, fmt.Errorf("read the calling key: %w", err)
	}
	if c.ends != nil && kind != login { // by which lasting keys can be made
		c.expires = &c.ends.Time
	}
	if c.owner.Type == principal.Admin {
		c.grants = principal.ParseGrants(permissions)
	}
	if c.bound = parseBound(limits); c.bound != nil {
		c.grants &= *c.bound
	}
	tx.Caller = c
	return c, nil
}

// permissionOver guards what belongs to owners of this type.
func permissionOver(t principal.OwnerType) permission.Permission {
	switch t {
	case principal.Admin:
		return permission.UsersAdmins
	case principal.Client:
		return permission.UsersClients
	default:
		return permission.SystemIntegrations
	}
}

// mayWrite tells whether the caller may write to an account. Nobody lifts himself: that takes the write of the
// account's permission, and all that the account holds.
func (s *Service) mayWrite(ctx context.Context, tx *pg.Tx, c caller, account principal.Owner) error {
	needed := permissionOver(account.Type)
	if !c.grants.Holds(principal.Grant(needed, permission.Write)) {
		return problem.New(problem.Forbidden, "The key lacks %s write.", needed)
	}
	if account.Type == principal.Client {
		return s.mayWriteClient(ctx, tx, c, account.ID)
	}
	its, err := s.grantsOf(ctx, tx, account)
	if err != nil {
		return err
	}
	return guard.MayGive(c.grants, its, "The account holds")
}

// grantsOf is what an admin or integration holds, of an integration as far as it was heard of: what is made for it in the meantime is
// bound by what its maker holds.
func (s *Service) grantsOf(ctx context.Context, tx *pg.Tx, account principal.Owner) (principal.Grants, error) {
	if account.Type == principal.Admin {
		return adminGrants(ctx, tx, account.ID)
	}
	var its struct {
		Grants principal.Grants `json:"grants"`
	}
	err := s.integrations.HoldDetail(ctx, tx, account.ID, ownerPointer, &its)
	return its.Grants, err
}

// mayWriteClient refuses an integration the clients of others.
func (s *Service) mayWriteClient(ctx context.Context, tx *pg.Tx, c caller, id int64) error {
	if c.owner.Type != principal.Integration {
		return nil
	}
	var its struct {
		Integration int64 `json:"integration"`
	}
	if err := s.clients.HoldDetail(ctx, tx, id, ownerPointer, &its); err != nil {
		return err
	}
	if its.Integration != c.owner.ID {
		return problem.New(problem.Forbidden, "An integration writes to its own clients alone.")
	}
	return nil
}

// mayWriteKeys tells whether the caller may write to the keys of an account: to those of the own one it always may.
func (s *Service) mayWriteKeys(ctx context.Context, tx *pg.Tx, c caller, account principal.Owner) error {
	if c.owner == account {
		return nil
	}
	return s.mayWrite(ctx, tx, c, account)
}

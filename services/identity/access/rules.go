package access

import (
	"context"
	"fmt"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
)

// Rules decides which accounts a caller may write to.
type Rules struct {
	Clients, Integrations *events.Refs
}

// ownerPointer is where a body names an owner.
const ownerPointer = "/owner/url"

// PermissionOver returns the permission for what belongs to owners of this type.
func PermissionOver(t principal.OwnerType) permission.Permission {
	switch t {
	case principal.Admin:
		return permission.UsersAdmins
	case principal.Client:
		return permission.UsersClients
	default:
		return permission.SystemIntegrations
	}
}

// AdminGrants reads what an admin holds.
func AdminGrants(ctx context.Context, q pg.Querier, id int64) (principal.Grants, error) {
	var permissions []string
	err := q.QueryRow(ctx, "SELECT permissions FROM admin WHERE id = $1", id).Scan(&permissions)
	if err != nil {
		return 0, fmt.Errorf("read the permissions of admin %d: %w", id, err)
	}
	return principal.ParseGrants(permissions), nil
}

// MayWrite refuses a caller that may not write to an account. The caller has to hold the write of the account's permission, and
// everything that the account holds, so that nobody gains permissions through another account.
func (r *Rules) MayWrite(ctx context.Context, tx *pg.Tx, c Caller, account principal.Owner) error {
	needed := PermissionOver(account.Type)
	if !c.Grants.Holds(principal.Grant(needed, permission.Write)) {
		return problem.New(problem.Forbidden, "The key lacks %s write.", needed)
	}
	if account.Type == principal.Client {
		return r.mayWriteClient(ctx, tx, c, account.ID)
	}
	its, err := r.grantsOf(ctx, tx, account)
	if err != nil {
		return err
	}
	return guard.MayGive(c.Grants, its, "The account holds")
}

// grantsOf returns what an admin or integration holds. Of an integration that is the latest that this service has heard. Keys
// made for it in the meantime are bound by what their maker holds.
func (r *Rules) grantsOf(ctx context.Context, tx *pg.Tx, account principal.Owner) (principal.Grants, error) {
	if account.Type == principal.Admin {
		return AdminGrants(ctx, tx, account.ID)
	}
	var its struct {
		Grants principal.Grants `json:"grants"`
	}
	err := r.Integrations.HoldDetail(ctx, tx, account.ID, ownerPointer, &its)
	return its.Grants, err
}

// mayWriteClient refuses an integration that writes to another one's client.
func (r *Rules) mayWriteClient(ctx context.Context, tx *pg.Tx, c Caller, id int64) error {
	if c.Owner.Type != principal.Integration {
		return nil
	}
	var its struct {
		Integration int64 `json:"integration"`
	}
	if err := r.Clients.HoldDetail(ctx, tx, id, ownerPointer, &its); err != nil {
		return err
	}
	if its.Integration != c.Owner.ID {
		return problem.New(problem.Forbidden, "An integration writes to its own clients alone.")
	}
	return nil
}

// MayWriteKeys refuses a caller that may not write to the keys of an account. It may always write to its own.
func (r *Rules) MayWriteKeys(ctx context.Context, tx *pg.Tx, c Caller, account principal.Owner) error {
	if c.Owner == account {
		return nil
	}
	return r.MayWrite(ctx, tx, c, account)
}

// MayActFor refuses a caller that may not act for an account. It may act for itself and, with users.clients write, for clients;
// an integration acts for its own clients only.
func (r *Rules) MayActFor(ctx context.Context, tx *pg.Tx, c Caller, owner principal.Owner) error {
	if c.Owner == owner {
		return nil
	}
	if owner.Type != principal.Client {
		return problem.New(problem.Forbidden, "Nobody acts for an admin or an integration.")
	}
	if !c.Grants.Holds(principal.Grant(permission.UsersClients, permission.Write)) {
		return problem.New(problem.Forbidden, "The key lacks %s write.", permission.UsersClients)
	}
	if err := r.Clients.Hold(ctx, tx, owner.ID, ownerPointer); err != nil {
		return err
	}
	return r.mayWriteClient(ctx, tx, c, owner.ID)
}

// Hold checks that an owner exists, and keeps it from being deleted until the unit of work has ended.
func (r *Rules) Hold(ctx context.Context, tx *pg.Tx, owner principal.Owner) error {
	switch owner.Type {
	case principal.Admin:
		exists := false
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM admin WHERE id = $1)", owner.ID).Scan(&exists); err != nil {
			return fmt.Errorf("look for %s: %w", owner.URL(), err)
		}
		if exists {
			return nil
		}
	case principal.Integration:
		return r.Integrations.Hold(ctx, tx, owner.ID, ownerPointer)
	case principal.Client:
		return r.Clients.Hold(ctx, tx, owner.ID, ownerPointer)
	}
	return problem.Member(ownerPointer, "not_found", "names something that does not exist")
}

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

// ownerPointer is the member of a body that names an owner.
const ownerPointer = "/owner/url"

// PermissionFor returns the permission that covers the accounts of this type, and what belongs to them.
func PermissionFor(t principal.OwnerType) permission.Permission {
	switch t {
	case principal.Admin:
		return permission.UsersAdmins
	case principal.Client:
		return permission.UsersClients
	default:
		return permission.SystemIntegrations
	}
}

// ReadAdminGrants reads the permissions of an admin.
func ReadAdminGrants(ctx context.Context, q pg.Querier, id int64) (principal.Grants, error) {
	var permissions []string
	err := q.QueryRow(ctx, "SELECT permissions FROM admin WHERE id = $1", id).Scan(&permissions)
	if err != nil {
		return 0, fmt.Errorf("read the permissions of admin %d: %w", id, err)
	}
	return principal.ParseGrants(permissions), nil
}

// CheckWrite refuses a caller that may not write to an account. The caller needs write access to accounts of this type, and every
// permission that the account holds. Otherwise it could gain permissions through the account.
func (r *Rules) CheckWrite(ctx context.Context, tx *pg.Tx, c Caller, account principal.Owner) error {
	needed := PermissionFor(account.Type)
	if !c.Grants.Holds(principal.Grant(needed, permission.Write)) {
		return problem.New(problem.Forbidden, "The key lacks %s write.", needed)
	}
	if account.Type == principal.Client {
		return r.checkWriteClient(ctx, tx, c, account.ID)
	}
	held, err := r.readGrants(ctx, tx, account)
	if err != nil {
		return err
	}
	return guard.CheckGrantable(c.Grants, held, "The account holds")
}

// readGrants returns the permissions of an admin or an integration. This service may know an older set of an integration's
// permissions. Keys that are created in that time are bound by their creator's permissions.
func (r *Rules) readGrants(ctx context.Context, tx *pg.Tx, account principal.Owner) (principal.Grants, error) {
	if account.Type == principal.Admin {
		return ReadAdminGrants(ctx, tx, account.ID)
	}
	var held struct {
		Grants principal.Grants `json:"grants"`
	}
	err := r.Integrations.HoldDetail(ctx, tx, account.ID, ownerPointer, &held)
	return held.Grants, err
}

// checkWriteClient refuses an integration that writes to another integration's client.
func (r *Rules) checkWriteClient(ctx context.Context, tx *pg.Tx, c Caller, id int64) error {
	if c.Owner.Type != principal.Integration {
		return nil
	}
	var held struct {
		Integration int64 `json:"integration"`
	}
	if err := r.Clients.HoldDetail(ctx, tx, id, ownerPointer, &held); err != nil {
		return err
	}
	if held.Integration != c.Owner.ID {
		return problem.New(problem.Forbidden, "An integration can change only its own clients.")
	}
	return nil
}

// CheckWriteKeys refuses a caller that may not write to the keys of an account. Every caller may write to its own keys.
func (r *Rules) CheckWriteKeys(ctx context.Context, tx *pg.Tx, c Caller, account principal.Owner) error {
	if c.Owner == account {
		return nil
	}
	return r.CheckWrite(ctx, tx, c, account)
}

// CheckActFor refuses a caller that may not act for an account. A caller may act for itself, and with users.clients write for
// clients. An integration acts for its own clients only, and a client for clients below it: isAbove says whether it is one.
func (r *Rules) CheckActFor(ctx context.Context, tx *pg.Tx, c Caller, owner principal.Owner, isAbove bool) error {
	if c.Owner == owner {
		return nil
	}
	if owner.Type != principal.Client {
		return problem.New(problem.Forbidden, "A caller can act for clients only, not for admins or integrations.")
	}
	if !isAbove && !c.Grants.Holds(principal.Grant(permission.UsersClients, permission.Write)) {
		return problem.New(problem.Forbidden, "The key lacks %s write.", permission.UsersClients)
	}
	if err := r.Clients.Hold(ctx, tx, owner.ID, ownerPointer); err != nil {
		return err
	}
	return r.checkWriteClient(ctx, tx, c, owner.ID)
}

// Hold checks that an owner exists, and keeps it from being deleted until the unit of work ends.
func (r *Rules) Hold(ctx context.Context, tx *pg.Tx, owner principal.Owner) error {
	switch owner.Type {
	case principal.Admin:
		exists := false
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM admin WHERE id = $1)", owner.ID).Scan(&exists); err != nil {
			return fmt.Errorf("look up %s: %w", owner.URL(), err)
		}
		if exists {
			return nil
		}
	case principal.Integration:
		return r.Integrations.Hold(ctx, tx, owner.ID, ownerPointer)
	case principal.Client:
		return r.Clients.Hold(ctx, tx, owner.ID, ownerPointer)
	}
	return problem.Member(ownerPointer, "not_found", "names an account that does not exist")
}

package admin

import (
	"context"
	"fmt"
	"net/http"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// editPermissions is the request by which an admin's permissions are edited.
type editPermissions = rest.EditItem[principal.PermissionSet]

// Permissions are the permissions of an admin. Their version is the admin's.
type Permissions struct {
	rest.Versioned
	principal.PermissionSet
}

// permissionRoutes returns the operations on an admin's permissions.
func (s *Service) permissionRoutes() []rest.Route {
	const path = "/admin/{admin_id}/permission"
	return []rest.Route{
		rest.Read[rest.Item, Permissions]{
			Path:    path,
			Guard:   guard.HasOrSelf(permission.UsersAdmins, principal.Admin),
			Name:    "getAdminPermissions",
			Summary: "View an admin's permissions",
			Do: func(ctx context.Context, req rest.Item) (answer Permissions, err error) {
				var names []string
				err = s.DB.QueryRow(ctx, "SELECT version, permissions FROM admin WHERE id = $1", req.ID).Scan(&answer.Version, &names)
				answer.PermissionSet = principal.SetOf(principal.ParseGrants(names))
				return answer, err
			},
		},
		rest.Mutation[editPermissions, Permissions]{
			Method:  http.MethodPatch,
			Path:    path,
			Guard:   guard.ForCredentials(guard.Has(permission.UsersAdmins)),
			Name:    "updateAdminPermissions",
			Summary: "Edit an admin's permissions",
			Effect:  rest.Effect{Logs: rest.LogsItem, Retry: rest.RetrySafe, ViewPath: path},
			Example: `{"network": {"groups": {"read": true}}}`,
			Allow:   access.AllowMutation[editPermissions],
			Do:      s.editPermissions,
		},
	}
}

// editPermissions changes the permissions of an admin. The caller must hold each permission that is added, and users.admins write
// cannot be taken from the last admin that holds it.
func (s *Service) editPermissions(ctx context.Context, tx *pg.Tx, req editPermissions) (Permissions, error) {
	var none Permissions
	c, err := access.ReadCaller(ctx, tx)
	if err != nil {
		return none, err
	}
	var name string
	var version int64
	var names []string
	err = tx.QueryRow(ctx, "SELECT username, version, permissions FROM admin WHERE id = $1 FOR UPDATE", req.ID).Scan(&name, &version, &names)
	if err != nil {
		return none, err
	}
	if err := req.Match.Check(version); err != nil {
		return none, err
	}
	before := principal.ParseGrants(names)
	current := principal.SetOf(before)
	set, err := req.Body.Merge(&current, current)
	if err != nil {
		return none, err
	}
	after := set.Grants()
	if after == before {
		tx.Unrecorded("the permissions did not change")
		return Permissions{rest.Versioned{Version: version}, *set}, nil
	}
	if err := s.Rules.CheckWrite(ctx, tx, c, principal.Owner{Type: principal.Admin, ID: req.ID}); err != nil {
		return none, err
	}
	if err := guard.CheckGrantable(c.Grants, after&^before, "The set grants"); err != nil {
		return none, err
	}
	if !after.Holds(AdminsWrite) {
		last, err := IsLast(ctx, tx, req.ID)
		if err != nil {
			return none, err
		}
		if last {
			return none, problem.Member("/users/admins/write", "last_admin", "cannot be taken from the last admin who holds it")
		}
	}
	_, err = tx.Exec(ctx, "UPDATE admin SET version = version + 1, permissions = $2 WHERE id = $1", req.ID, after.Rewrite(names))
	if err != nil {
		return none, fmt.Errorf("edit the permissions of admin %d: %w", req.ID, err)
	}
	keys.Revoke(tx, s.Entries, EntryName(req.ID))
	tx.Record(
		pg.Record{
			Kind:    "admin",
			Part:    "permission",
			Action:  pg.Edited,
			Targets: []pg.Target{{Type: "admin", Noun: "admin", ID: req.ID, Name: name}},
			Before:  current,
			After:   *set,
		},
	)
	return Permissions{rest.Versioned{Version: version + 1}, *set}, nil
}

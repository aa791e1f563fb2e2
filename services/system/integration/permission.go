package integration

import (
	"context"
	"fmt"
	"net/http"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
)

// editPermissions is the request to edit an integration's permissions.
type editPermissions = rest.EditItem[principal.PermissionSet]

// Permissions is an integration's PermissionSet. Its version is the integration's.
type Permissions struct {
	rest.Versioned
	principal.PermissionSet
}

func (s *Integrations) permissions() []rest.Route {
	const path = "/integration/{integration_id}/permission"
	return []rest.Route{
		rest.Read[rest.Item, rest.Single[Permissions]]{
			Path:    path,
			Guard:   guard.HasOrSelf(permission.SystemIntegrations, principal.Integration),
			Name:    "getIntegrationPermissions",
			Summary: "View an integration's permissions",
			Doc:     "The array has one item.",
			Do: func(ctx context.Context, req rest.Item) (rest.Single[Permissions], error) {
				var p Permissions
				var names []string
				err := s.db.QueryRow(ctx, "SELECT version, permissions FROM integration WHERE id = $1", req.ID).Scan(&p.Version, &names)
				p.PermissionSet = principal.SetOf(principal.ParseGrants(names))
				return rest.Single[Permissions]{p}, err
			},
		},
		rest.Mutation[editPermissions, Permissions]{
			Method:  http.MethodPatch,
			Path:    path,
			Guard:   guard.Has(permission.SystemIntegrations),
			Name:    "updateIntegrationPermissions",
			Summary: "Edit an integration's permissions",
			Effect:  rest.Effect{Logs: rest.LogsItem, Retry: rest.RetrySafe, ViewPath: path},
			Example: `{"network": {"groups": {"read": true}}}`,
			Do:      s.editPermissions,
		},
	}
}

// editPermissions changes the permissions of an integration. The caller must hold every permission of the new set.
func (s *Integrations) editPermissions(ctx context.Context, tx *pg.Tx, req editPermissions) (Permissions, error) {
	var none Permissions
	var name string
	var version int64
	var names []string
	err := tx.QueryRow(ctx, "SELECT name, version, permissions FROM integration WHERE id = $1 FOR UPDATE", req.ID).
		Scan(&name, &version, &names)
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
	if err := mayWrite(ctx, tx, req.ID); err != nil {
		return none, err
	}
	if err := guard.CheckGrantable(principal.FromContext(ctx).Principal.Grants, after, "The set grants"); err != nil {
		return none, err
	}
	if _, err = tx.Exec(
		ctx,
		"UPDATE integration SET version = version + 1, permissions = $2 WHERE id = $1",
		req.ID,
		after.Rewrite(names),
	); err != nil {
		return none, fmt.Errorf("edit the permissions of integration %d: %w", req.ID, err)
	}
	s.revoke(tx, req.ID)
	tx.Record(pg.Record{Kind: "integration", Part: "permission", Action: pg.Edited, Before: current, After: *set,
		Targets: []pg.Target{{Type: "integration", Noun: "integration", ID: req.ID, Name: name, Version: version + 1}}})
	return Permissions{rest.Versioned{Version: version + 1}, *set}, nil
}

// Package restore finds the keys, permissions and accounts that a restore from a backup has brought back, and revokes them again.
package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/knowngrants"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// Types are the types of changes that Find reads.
var Types = []string{
	"auth.key.deleted",
	"auth.key.edited",
	"admin.deleted",
	"admin.edited",
	"admin.permission.edited",
	"auth.verify.auth.deleted",
	"auth.verify.auth.edited",
	"admin.authenticators.removed",
	"client.authenticators.removed",
	"auth.provider.deleted",
	"auth.provider.edited",
}

// outcomes is how the lost changes had left keys, admins, second factors and identity providers.
type outcomes struct {
	keys   map[int64]*keyOutcome
	admins map[int64]*adminOutcome
	// factors reports of each authenticator whether it was removed. without has the accounts whose authenticators were all removed.
	factors map[int64]bool
	without map[principal.Owner]bool
	// providers reports of each identity provider whether it was deleted.
	providers map[int64]bool
}

// add adds a lost change.
func (o *outcomes) add(l service.LostChange) error {
	switch l.Type {
	case "auth.key.deleted":
		entryFor(&o.keys, l.ID).deleted = true
	case "auth.key.edited":
		entryFor(&o.keys, l.ID).addEdit(l)
	case "admin.deleted":
		entryFor(&o.admins, l.ID).deleted = true
	case "admin.edited":
		entryFor(&o.admins, l.ID).addEdit(l)
	case "admin.permission.edited":
		return entryFor(&o.admins, l.ID).addPermissionEdit(l)
	case "auth.verify.auth.deleted":
		o.factors[l.ID] = true
	case "auth.verify.auth.edited":
		if c, set := l.Changes["verified"]; set {
			o.factors[l.ID] = string(c.After) == "false"
		}
	case "auth.provider.edited", "auth.provider.deleted":
		o.providers[l.ID] = l.Type == "auth.provider.deleted"
	case "admin.authenticators.removed":
		o.without[principal.Owner{Type: principal.Admin, ID: l.ID}] = true
	case "client.authenticators.removed":
		o.without[principal.Owner{Type: principal.Client, ID: l.ID}] = true
	}
	return nil
}

// newFinding returns something that the restore has brought back, with the change that repairs it.
func newFinding(label string, repair func(context.Context, *pg.Tx) error) service.RestoredAccess {
	return service.RestoredAccess{Description: label, Revoke: repair}
}

// ErrLastAdmin says that a change would leave no admin that can edit permissions. It is left to that admin.
var ErrLastAdmin = errors.New("only the last admin with users.admins write can do this")

// Find returns what a restore has brought back, with the changes that revoke it again. Keys come first, and accounts to delete
// come last.
func Find(ctx context.Context, q pg.Querier, lost []service.LostChange) (all []service.RestoredAccess, err error) {
	o := outcomes{factors: map[int64]bool{}, without: map[principal.Owner]bool{}, providers: map[int64]bool{}}
	for _, l := range lost {
		if err := o.add(l); err != nil {
			return nil, err
		}
	}
	extension, err := knowngrants.Find(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(o.keys)) {
		key, err := keys.View.Get(ctx, q, id)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read API key %d: %w", id, err)
		}
		all = append(all, o.keys[id].find(&key, extension)...)
	}
	factors, err := o.findFactors(ctx, q)
	if err != nil {
		return nil, err
	}
	providers, err := o.findProviders(ctx, q)
	if err != nil {
		return nil, err
	}
	all = append(append(all, factors...), providers...)
	var deleted []service.RestoredAccess
	for _, id := range slices.Sorted(maps.Keys(o.admins)) {
		a, err := admin.View.Get(ctx, q, id)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read admin %d: %w", id, err)
		}
		outcome := o.admins[id]
		if label := fmt.Sprintf("admin %d (%s)", id, a.Username); outcome.deleted {
			deleted = append(deleted, newFinding(label+" was deleted", deleteAdmin(id)))
			continue
		}
		found, err := outcome.find(ctx, q, &a, extension)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return append(all, deleted...), nil
}

// formatGrants returns the names of grants for people.
func formatGrants(g principal.Grants) string {
	if g == 0 {
		return "nothing"
	}
	return strings.Join(g.Names(), ", ")
}

// extendFirst extends sets of permissions by the new ones before it repairs. Otherwise the next start could extend the repaired
// set.
func extendFirst(repair func(context.Context, *pg.Tx) error) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		if err := access.Extend(ctx, tx); err != nil {
			return err
		}
		return repair(ctx, tx)
	}
}

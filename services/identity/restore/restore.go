// Package restore finds the keys, permissions and accounts that a restore from a backup has brought back, and takes them away again.
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

// lostChanges is what the changes had taken away that the restore lost.
type lostChanges struct {
	keys   map[int64]*lostKey
	admins map[int64]*lostAdmin
	// factors says of authenticators whether they were removed, and without names the accounts that lost all of theirs.
	factors map[int64]bool
	without map[principal.Owner]bool
	// providers says of identity providers whether they were deleted.
	providers map[int64]bool
}

func (t *lostChanges) note(l service.Lost) error {
	switch l.Type {
	case "auth.key.deleted":
		changesOf(&t.keys, l.ID).deleted = true
	case "auth.key.edited":
		changesOf(&t.keys, l.ID).edited(l)
	case "admin.deleted":
		changesOf(&t.admins, l.ID).deleted = true
	case "admin.edited":
		changesOf(&t.admins, l.ID).edited(l)
	case "admin.permission.edited":
		return changesOf(&t.admins, l.ID).permitted(l)
	case "auth.verify.auth.deleted":
		t.factors[l.ID] = true
	case "auth.verify.auth.edited":
		if c, set := l.Changes["verified"]; set {
			t.factors[l.ID] = string(c.After) == "false"
		}
	case "auth.provider.edited", "auth.provider.deleted":
		t.providers[l.ID] = l.Type == "auth.provider.deleted"
	case "admin.authenticators.removed":
		t.without[principal.Owner{Type: principal.Admin, ID: l.ID}] = true
	case "client.authenticators.removed":
		t.without[principal.Owner{Type: principal.Client, ID: l.ID}] = true
	}
	return nil
}

func restored(what string, take func(context.Context, *pg.Tx) error) service.CameBack {
	return service.CameBack{What: what, Take: take}
}

// ErrLastAdmin says that the last admin who can edit what others hold was spared, who is to do the rest.
var ErrLastAdmin = errors.New("it is left to the last admin who holds users.admins write")

// Find returns what the restore brought back, with what takes it away again: keys first, and the accounts to delete last.
func Find(ctx context.Context, q pg.Querier, lost []service.Lost) (all []service.CameBack, err error) {
	t := lostChanges{factors: map[int64]bool{}, without: map[principal.Owner]bool{}, providers: map[int64]bool{}}
	for _, l := range lost {
		if err := t.note(l); err != nil {
			return nil, err
		}
	}
	news, err := knowngrants.Find(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(t.keys)) {
		key, err := keys.View.Get(ctx, q, id)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read API key %d: %w", id, err)
		}
		all = append(all, t.keys[id].find(&key, news)...)
	}
	factors, err := t.findFactors(ctx, q)
	if err != nil {
		return nil, err
	}
	providers, err := t.findProviders(ctx, q)
	if err != nil {
		return nil, err
	}
	all = append(append(all, factors...), providers...)
	var deleted []service.CameBack
	for _, id := range slices.Sorted(maps.Keys(t.admins)) {
		a, err := admin.View.Get(ctx, q, id)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read admin %d: %w", id, err)
		}
		fate := t.admins[id]
		if what := fmt.Sprintf("admin %d (%s)", id, a.Username); fate.deleted {
			deleted = append(deleted, restored(what+" was deleted", deleteAdmin(id)))
			continue
		}
		found, err := fate.find(ctx, q, &a, news)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return append(all, deleted...), nil
}

func listed(g principal.Grants) string {
	if g == 0 {
		return "nothing"
	}
	return strings.Join(g.Names(), ", ")
}

// afterExtension is take once the sets are extended by permissions that are new: the next start adds none to what take leaves.
func afterExtension(take func(context.Context, *pg.Tx) error) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		if err := access.Extend(ctx, tx); err != nil {
			return err
		}
		return take(ctx, tx)
	}
}

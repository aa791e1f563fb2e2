package restore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/knowngrants"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/admin"
)

// adminOutcome is how the lost changes had left an admin.
type adminOutcome struct {
	deleted, replaced, disabled bool // replaced: a new password was set
	revoked                     principal.Grants
}

// addEdit adds a lost edit of the admin.
func (o *adminOutcome) addEdit(l service.LostChange) {
	if _, set := l.Changes["password"]; set {
		o.replaced = true
	}
	if c, set := l.Changes["disabled"]; set {
		o.disabled = string(c.After) == "true"
	}
}

// addPermissionEdit adds a lost edit of the admin's permissions.
func (o *adminOutcome) addPermissionEdit(l service.LostChange) error {
	for member, c := range l.Changes {
		dot := strings.LastIndexByte(member, '.')
		if dot < 0 {
			return fmt.Errorf("%q is not a permission", member)
		}
		grant := principal.ParseGrants([]string{member[:dot] + " " + member[dot+1:]})
		if o.revoked |= grant; string(c.After) == "true" {
			o.revoked &^= grant
		}
	}
	return nil
}

// find returns the changes that make an admin what the lost changes had made it. extension has the grants that the next start adds
// to sets that held everything.
func (o *adminOutcome) find(
	ctx context.Context,
	q pg.Querier,
	a *admin.Admin,
	extension knowngrants.Extension,
) (all []service.RestoredAccess, err error) {
	label := fmt.Sprintf("admin %d (%s)", a.ID, a.Username)
	if o.disabled && !a.Disabled {
		all = append(all, newFinding(label+" was disabled", editAdmin(a.ID, "disabled = true", true)))
	}
	var hasPassword bool
	var names []string
	if err := q.QueryRow(ctx, "SELECT password_hash IS NOT NULL, permissions FROM admin WHERE id = $1", a.ID).
		Scan(&hasPassword, &names); err != nil {
		return nil, fmt.Errorf("read admin %d: %w", a.ID, err)
	}
	if o.replaced && hasPassword {
		all = append(all, newFinding(label+" had a new password", editAdmin(a.ID, "password_hash = NULL", false)))
	}
	held := principal.ParseGrants(names)
	if back := o.revoked & extension.Apply(held); back != 0 {
		all = append(all, newFinding(label+" had lost "+formatGrants(back), extendFirst(stripAdmin(a, held, back))))
	}
	return all, nil
}

// checkNotLast returns ErrLastAdmin if no other enabled admin can edit permissions.
func checkNotLast(ctx context.Context, tx *pg.Tx, id int64) error {
	if err := access.Lock(ctx, tx); err != nil {
		return err
	}
	last, err := admin.IsLast(ctx, tx, id)
	if err == nil && last {
		err = ErrLastAdmin
	}
	return err
}

// editAdmin returns the repair that sets columns of an admin. disables says that it disables the admin, and otherwise it removes
// the password.
func editAdmin(id int64, set string, disables bool) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		if disables {
			if err := checkNotLast(ctx, tx, id); err != nil {
				return err
			}
		}
		before, err := admin.View.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE admin SET version = version + 1, "+set+" WHERE id = $1", id); err != nil {
			return err
		}
		after, err := admin.View.Get(ctx, tx, id)
		var marks []string
		if !disables {
			marks = []string{"password"}
		}
		tx.Record(
			pg.Record{
				Kind:    "admin",
				Action:  pg.Edited,
				Targets: []pg.Target{admin.Target(&after)},
				Before:  before,
				After:   secret.Marked(after, marks...),
			},
		)
		return err
	}
}

// stripAdmin revokes the grants back from an admin. It also revokes grants that the admin has gained since held was read, which
// are new permissions.
func stripAdmin(a *admin.Admin, held, back principal.Grants) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		before, err := access.ReadAdminGrants(ctx, tx, a.ID)
		if err != nil {
			return err
		}
		if back.Holds(admin.AdminsWrite) {
			err = checkNotLast(ctx, tx, a.ID)
		}
		spared := errors.Is(err, ErrLastAdmin)
		if err != nil && !spared {
			return err
		}
		after := before & held &^ back
		if spared {
			after |= admin.AdminsWrite
		}
		if _, err := tx.Exec(ctx, "UPDATE admin SET version = version + 1, permissions = $2 WHERE id = $1", a.ID, after.Names()); err != nil {
			return err
		}
		tx.Record(
			pg.Record{
				Kind:    "admin",
				Part:    "permission",
				Action:  pg.Edited,
				Targets: []pg.Target{admin.Target(a)},
				Before:  principal.SetOf(before),
				After:   principal.SetOf(after),
			},
		)
		if spared {
			return ErrLastAdmin
		}
		return nil
	}
}

// deleteAdmin returns the repair that deletes an admin.
func deleteAdmin(id int64) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		if err := checkNotLast(ctx, tx, id); err != nil {
			return err
		}
		a, err := admin.View.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM admin WHERE id = $1", id)
		tx.Record(pg.Record{Kind: "admin", Action: pg.Deleted, Targets: []pg.Target{admin.Target(&a)}, Before: a})
		return err
	}
}

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

// lostAdmin is what the lost changes made of an admin.
type lostAdmin struct {
	deleted, replaced, disabled bool // replaced: the password
	taken                       principal.Grants
}

func (f *lostAdmin) edited(l service.Lost) {
	if _, set := l.Changes["password"]; set {
		f.replaced = true
	}
	if c, set := l.Changes["disabled"]; set {
		f.disabled = string(c.After) == "true"
	}
}

func (f *lostAdmin) permitted(l service.Lost) error {
	for member, c := range l.Changes {
		dot := strings.LastIndexByte(member, '.')
		if dot < 0 {
			return fmt.Errorf("%q is no permission", member)
		}
		grant := principal.ParseGrants([]string{member[:dot] + " " + member[dot+1:]})
		if f.taken |= grant; string(c.After) == "true" {
			f.taken &^= grant
		}
	}
	return nil
}

// find finds what is there again of an admin. news is what the next start adds to sets that held everything.
func (f *lostAdmin) find(
	ctx context.Context,
	q pg.Querier,
	a *admin.Admin,
	news knowngrants.Extension,
) (all []service.CameBack, err error) {
	what := fmt.Sprintf("admin %d (%s)", a.ID, a.Username)
	if f.disabled && !a.Disabled {
		all = append(all, restored(what+" was disabled", editAdmin(a.ID, "disabled = true", true)))
	}
	var hasPassword bool
	var names []string
	if err := q.QueryRow(ctx, "SELECT password_hash IS NOT NULL, permissions FROM admin WHERE id = $1", a.ID).
		Scan(&hasPassword, &names); err != nil {
		return nil, fmt.Errorf("read admin %d: %w", a.ID, err)
	}
	if f.replaced && hasPassword {
		all = append(all, restored(what+" had got another password", editAdmin(a.ID, "password_hash = NULL", false)))
	}
	held := principal.ParseGrants(names)
	if back := f.taken & news.Of(held); back != 0 {
		all = append(all, restored(what+" was stripped of "+listed(back), afterExtension(strip(a, held, back))))
	}
	return all, nil
}

// spareLast returns ErrLastAdmin where this admin is the last one who can edit what others hold.
func spareLast(ctx context.Context, tx *pg.Tx, id int64) error {
	if err := access.Lock(ctx, tx); err != nil {
		return err
	}
	last, err := admin.IsLast(ctx, tx, id)
	if err == nil && last {
		err = ErrLastAdmin
	}
	return err
}

func editAdmin(id int64, set string, disables bool) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		if disables {
			if err := spareLast(ctx, tx, id); err != nil {
				return err
			}
		}
		was, err := admin.View.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE admin SET version = version + 1, "+set+" WHERE id = $1", id); err != nil {
			return err
		}
		is, err := admin.View.Get(ctx, tx, id)
		var marks []string
		if !disables {
			marks = []string{"password"}
		}
		tx.Record(
			pg.Record{Kind: "admin", Action: pg.Edited, Targets: []pg.Target{admin.Target(&is)}, Before: was, After: secret.Marked(is, marks...)},
		)
		return err
	}
}

// strip takes back from an admin, and what the admin gained since held was read: permissions that are new.
func strip(a *admin.Admin, held, back principal.Grants) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		had, err := access.AdminGrants(ctx, tx, a.ID)
		if err != nil {
			return err
		}
		if back.Holds(admin.Administers) {
			err = spareLast(ctx, tx, a.ID)
		}
		spared := errors.Is(err, ErrLastAdmin)
		if err != nil && !spared {
			return err
		}
		left := had & held &^ back
		if spared {
			left |= admin.Administers
		}
		if _, err := tx.Exec(ctx, "UPDATE admin SET version = version + 1, permissions = $2 WHERE id = $1", a.ID, left.Names()); err != nil {
			return err
		}
		tx.Record(
			pg.Record{
				Kind:    "admin",
				Part:    "permission",
				Action:  pg.Edited,
				Targets: []pg.Target{admin.Target(a)},
				Before:  principal.SetOf(had),
				After:   principal.SetOf(left),
			},
		)
		if spared {
			return ErrLastAdmin
		}
		return nil
	}
}

func deleteAdmin(id int64) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		if err := spareLast(ctx, tx, id); err != nil {
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

package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/secret"
)

// TakenAway is what was taken away of keys and accounts, as the log has it, by changes that the service has lost because
// it was restored from a backup. The zero TakenAway is nothing.
type TakenAway struct {
	keys   map[int64]*keyFate
	admins map[int64]*adminFate
}

// keyFate is what became of a key.
type keyFate struct {
	deleted, replaced bool
	owner             string // whom it was given to; empty: it stayed whose it was
	expires, bound    *json.RawMessage
}

// adminFate is what became of an account.
type adminFate struct {
	deleted, replaced, disabled bool // replaced: the password
	taken                       principal.Grants
}

// Logged is what a change did to the members of an item.
type Logged map[string]struct{ Before, After json.RawMessage }

// LoggedTypes are the types of changes that Note makes something of.
func LoggedTypes() []string {
	return []string{"auth.key.deleted", "auth.key.edited", "admin.deleted", "admin.edited", "admin.permission.edited"}
}

// Note notes a change of one of LoggedTypes. They come in their order.
func (t *TakenAway) Note(kind string, id int64, changes Logged) error {
	switch kind {
	case "auth.key.deleted":
		fateOf(&t.keys, id).deleted = true
	case "auth.key.edited":
		fateOf(&t.keys, id).edited(changes)
	case "admin.deleted":
		fateOf(&t.admins, id).deleted = true
	case "admin.edited":
		fateOf(&t.admins, id).edited(changes)
	case "admin.permission.edited":
		return fateOf(&t.admins, id).permitted(changes)
	}
	return nil
}

func fateOf[Fate any](all *map[int64]*Fate, id int64) *Fate {
	if *all == nil {
		*all = map[int64]*Fate{}
	}
	if (*all)[id] == nil {
		(*all)[id] = new(Fate)
	}
	return (*all)[id]
}

func (f *keyFate) edited(changes Logged) {
	if _, set := changes["key"]; set {
		f.replaced = true
	}
	if c, set := changes["owner.url"]; set {
		_ = json.Unmarshal(c.After, &f.owner)
	}
	if c, set := changes["expires_at.iso_8601"]; set {
		f.expires = &c.After
	}
	if c, set := changes["bound"]; set {
		f.bound = &c.After
	}
}

func (f *adminFate) edited(changes Logged) {
	if _, set := changes["password"]; set {
		f.replaced = true
	}
	if c, set := changes["disabled"]; set {
		f.disabled = string(c.After) == "true"
	}
}

func (f *adminFate) permitted(changes Logged) error {
	for member, c := range changes {
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

// CameBack is something that was taken away and is there again.
type CameBack struct {
	What string // API key 7 (billing) was deleted
	take func(context.Context, *pg.Tx) error
}

// ErrLastAdmin says that something is left, so that there is an admin who can do what remains to be done.
var ErrLastAdmin = errors.New("it is left to the last admin who holds users.admins write")

// Take takes it away again, and records that.
func (c CameBack) Take(ctx context.Context, tx *pg.Tx) error { return c.take(ctx, tx) }

// CameBack looks what of it is there again: keys first, and accounts that are to be deleted last.
func (t *TakenAway) CameBack(ctx context.Context, q pg.Querier) (all []CameBack, err error) {
	for _, id := range slices.Sorted(maps.Keys(t.keys)) {
		key, err := keyView.Get(ctx, q, id)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read API key %d: %w", id, err)
		}
		all = append(all, t.keys[id].cameBack(&key)...)
	}
	var deleted []CameBack
	for _, id := range slices.Sorted(maps.Keys(t.admins)) {
		admin, err := adminView.Get(ctx, q, id)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read admin %d: %w", id, err)
		}
		fate := t.admins[id]
		if what := fmt.Sprintf("admin %d (%s)", id, admin.Username); fate.deleted {
			deleted = append(deleted, CameBack{what + " was deleted", deleteAgain(id)})
			continue
		}
		found, err := fate.cameBack(ctx, q, &admin)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return append(all, deleted...), nil
}

var adminView = pg.NewView[Admin]("admin_view")

func (f *keyFate) cameBack(key *APIKey) (all []CameBack) {
	what := fmt.Sprintf("API key %d (%s)", key.ID, key.Name)
	switch {
	case f.deleted:
		return []CameBack{{what + " was deleted", deleteKeyAgain(key.ID)}}
	case f.replaced:
		return []CameBack{{what + " had got another value", deleteKeyAgain(key.ID)}}
	case f.owner != "" && f.owner != key.Owner.URL:
		return []CameBack{{what + " had been given to " + f.owner, deleteKeyAgain(key.ID)}}
	}
	if f.expires != nil {
		var expires time.Time
		if json.Unmarshal(*f.expires, &expires) == nil && (key.ExpiresAt == nil || key.ExpiresAt.After(expires)) {
			all = append(all, CameBack{what + " was to expire at " + expires.UTC().Format(time.RFC3339), editKeyAgain(key.ID, "expires_at = $2", expires)})
		}
	}
	if f.bound != nil {
		var names []string
		is := parseBound(key.Bound)
		if json.Unmarshal(*f.bound, &names) == nil {
			if narrow := principal.ParseGrants(names); is == nil || *is&^narrow != 0 {
				both := within(is, &narrow)
				all = append(all, CameBack{what + " was bound to " + listed(narrow), editKeyAgain(key.ID, "bound = $2", both.Names())})
			}
		}
	}
	return all
}

func listed(g principal.Grants) string {
	if g == 0 {
		return "nothing"
	}
	return strings.Join(g.Names(), ", ")
}

func (f *adminFate) cameBack(ctx context.Context, q pg.Querier, admin *Admin) (all []CameBack, err error) {
	what := fmt.Sprintf("admin %d (%s)", admin.ID, admin.Username)
	if f.disabled && !admin.Disabled {
		all = append(all, CameBack{what + " was disabled", editAdminAgain(admin.ID, "disabled = true", true)})
	}
	var hasPassword bool
	var names []string
	if err := q.QueryRow(ctx, "SELECT password_hash IS NOT NULL, permissions FROM admin WHERE id = $1", admin.ID).Scan(&hasPassword, &names); err != nil {
		return nil, fmt.Errorf("read admin %d: %w", admin.ID, err)
	}
	if f.replaced && hasPassword {
		all = append(all, CameBack{what + " had got another password", editAdminAgain(admin.ID, "password_hash = NULL", false)})
	}
	if back := f.taken & principal.ParseGrants(names); back != 0 {
		all = append(all, CameBack{what + " was stripped of " + listed(back), stripAgain(admin, back)})
	}
	return all, nil
}

func deleteKeyAgain(id int64) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		key, err := keyView.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM api_key WHERE id = $1", id)
		tx.Record(pg.Record{Kind: "auth.key", Action: pg.Deleted, Targets: []pg.Target{keyTarget(&key)}, Before: key})
		return err
	}
}

func keyTarget(key *APIKey) pg.Target {
	return pg.Target{Type: "auth/key", Noun: "API key", ID: key.ID, Name: key.Name, Version: key.Version}
}

func editKeyAgain(id int64, set string, value any) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		was, err := keyView.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE api_key SET version = version + 1, "+set+" WHERE id = $1", id, value); err != nil {
			return err
		}
		is, err := keyView.Get(ctx, tx, id)
		tx.Record(pg.Record{Kind: "auth.key", Action: pg.Edited, Targets: []pg.Target{keyTarget(&is)}, Before: was, After: is})
		return err
	}
}

func adminTarget(admin *Admin) pg.Target {
	return pg.Target{Type: "admin", Noun: "admin", ID: admin.ID, Name: admin.Username, Version: admin.Version}
}

// spareLast fails where the admin is the last one who can undo what is done.
func spareLast(ctx context.Context, tx *pg.Tx, id int64) error {
	if err := lockAccounts(ctx, tx); err != nil {
		return err
	}
	last, err := lastAdmin(ctx, tx, id)
	if err == nil && last {
		err = ErrLastAdmin
	}
	return err
}

func editAdminAgain(id int64, set string, disables bool) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		if disables {
			if err := spareLast(ctx, tx, id); err != nil {
				return err
			}
		}
		was, err := adminView.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE admin SET version = version + 1, "+set+" WHERE id = $1", id); err != nil {
			return err
		}
		is, err := adminView.Get(ctx, tx, id)
		var marks []string
		if !disables {
			marks = []string{"password"}
		}
		tx.Record(pg.Record{Kind: "admin", Action: pg.Edited, Targets: []pg.Target{adminTarget(&is)}, Before: was, After: secret.Marked(is, marks...)})
		return err
	}
}

func stripAgain(admin *Admin, back principal.Grants) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		had, err := adminGrants(ctx, tx, admin.ID)
		if err != nil {
			return err
		}
		if back.Holds(administers) {
			err = spareLast(ctx, tx, admin.ID)
		}
		spared := errors.Is(err, ErrLastAdmin)
		if err != nil && !spared {
			return err
		}
		left := had &^ back
		if spared {
			left |= administers
		}
		if _, err := tx.Exec(ctx, "UPDATE admin SET version = version + 1, permissions = $2 WHERE id = $1", admin.ID, left.Names()); err != nil {
			return err
		}
		tx.Record(pg.Record{Kind: "admin", Part: "permission", Action: pg.Edited, Targets: []pg.Target{adminTarget(admin)}, Before: principal.SetOf(had), After: principal.SetOf(left)})
		if spared {
			return ErrLastAdmin
		}
		return nil
	}
}

func deleteAgain(id int64) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		if err := spareLast(ctx, tx, id); err != nil {
			return err
		}
		admin, err := adminView.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM admin WHERE id = $1", id)
		tx.Record(pg.Record{Kind: "admin", Action: pg.Deleted, Targets: []pg.Target{adminTarget(&admin)}, Before: admin})
		return err
	}
}

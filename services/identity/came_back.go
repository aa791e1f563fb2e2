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

	"github.com/ironplane/ironplane/pkg/auth/knowngrants"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
)

// takes are the types of changes that taken makes something of.
var takes = []string{
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

// taken is what was taken away of keys and accounts by changes that the service has lost.
type taken struct {
	keys   map[int64]*keyFate
	admins map[int64]*adminFate
	// Of second factors: those that were removed, and the accounts of which all were.
	factors map[int64]bool
	without map[principal.Owner]bool
	// providers are identity providers, and whether they were deleted.
	providers map[int64]bool
}

// keyFate is what became of a key.
type keyFate struct {
	deleted, replaced bool
	owner             string // whom it was given to; empty: it stayed whose it was
	expires, bound    *json.RawMessage
	networks          *json.RawMessage
}

// adminFate is what became of an account.
type adminFate struct {
	deleted, replaced, disabled bool // replaced: the password
	taken                       principal.Grants
}

func (t *taken) note(l service.Lost) error {
	switch l.Type {
	case "auth.key.deleted":
		fateOf(&t.keys, l.ID).deleted = true
	case "auth.key.edited":
		fateOf(&t.keys, l.ID).edited(l)
	case "admin.deleted":
		fateOf(&t.admins, l.ID).deleted = true
	case "admin.edited":
		fateOf(&t.admins, l.ID).edited(l)
	case "admin.permission.edited":
		return fateOf(&t.admins, l.ID).permitted(l)
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

func fateOf[Fate any](all *map[int64]*Fate, id int64) *Fate {
	if *all == nil {
		*all = map[int64]*Fate{}
	}
	if (*all)[id] == nil {
		(*all)[id] = new(Fate)
	}
	return (*all)[id]
}

func (f *keyFate) edited(l service.Lost) {
	if _, set := l.Changes["key"]; set {
		f.replaced = true
	}
	if c, set := l.Changes["owner.url"]; set {
		_ = json.Unmarshal(c.After, &f.owner)
	}
	if c, set := l.Changes["expires_at.iso_8601"]; set {
		f.expires = &c.After
	}
	if c, set := l.Changes["bound"]; set {
		f.bound = &c.After
	}
	if c, set := l.Changes["allowed_cidrs"]; set {
		f.networks = &c.After
	}
}

func (f *adminFate) edited(l service.Lost) {
	if _, set := l.Changes["password"]; set {
		f.replaced = true
	}
	if c, set := l.Changes["disabled"]; set {
		f.disabled = string(c.After) == "true"
	}
}

func (f *adminFate) permitted(l service.Lost) error {
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

func back(what string, take func(context.Context, *pg.Tx) error) service.CameBack {
	return service.CameBack{What: what, Take: take}
}

// ErrLastAdmin says that something is left, so that there is an admin who can do what remains to be done.
var ErrLastAdmin = errors.New("it is left to the last admin who holds users.admins write")

// cameBack looks what is there again: keys first, and accounts that are to be deleted last.
func cameBack(ctx context.Context, q pg.Querier, lost []service.Lost) (all []service.CameBack, err error) {
	t := taken{factors: map[int64]bool{}, without: map[principal.Owner]bool{}, providers: map[int64]bool{}}
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
		key, err := keyView.Get(ctx, q, id)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read API key %d: %w", id, err)
		}
		all = append(all, t.keys[id].cameBack(&key, news)...)
	}
	factors, err := t.factorsBack(ctx, q)
	if err != nil {
		return nil, err
	}
	providers, err := t.providersBack(ctx, q)
	if err != nil {
		return nil, err
	}
	all = append(append(all, factors...), providers...)
	var deleted []service.CameBack
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
			deleted = append(deleted, back(what+" was deleted", deleteAgain(id)))
			continue
		}
		found, err := fate.cameBack(ctx, q, &admin, news)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return append(all, deleted...), nil
}

var adminView = pg.NewView[Admin]("admin_view")

// cameBack finds what is there again of a key. news is what the next start adds to bounds that covered everything.
func (f *keyFate) cameBack(key *APIKey, news knowngrants.Extension) (all []service.CameBack) {
	what := fmt.Sprintf("API key %d (%s)", key.ID, key.Name)
	switch {
	case f.deleted:
		return []service.CameBack{back(what+" was deleted", deleteKeyAgain(key.ID))}
	case f.replaced:
		return []service.CameBack{back(what+" had got another value", deleteKeyAgain(key.ID))}
	case f.owner != "" && f.owner != key.Owner.URL:
		return []service.CameBack{back(what+" had been given to "+f.owner, deleteKeyAgain(key.ID))}
	}
	if f.expires != nil {
		var expires time.Time
		if json.Unmarshal(*f.expires, &expires) == nil && (key.ExpiresAt == nil || key.ExpiresAt.After(expires)) {
			all = append(all, back(what+" was to expire at "+expires.UTC().Format(time.RFC3339), editKeyAgain(key.ID, "expires_at = $2", expires)))
		}
	}
	if f.bound != nil {
		var names []string
		is := parseBound(key.Bound)
		if json.Unmarshal(*f.bound, &names) == nil {
			if narrow := principal.ParseGrants(names); is == nil || news.Of(*is)&^narrow != 0 {
				both := within(is, &narrow)
				narrowed := afterExtension(editKeyAgain(key.ID, "bound = $2", both.Names()))
				all = append(all, back(what+" was bound to "+listed(narrow), narrowed))
			}
		}
	}
	if f.networks != nil {
		var networks []string
		if json.Unmarshal(*f.networks, &networks) == nil && len(networks) > 0 &&
			(len(key.Networks) == 0 || outside(key.Networks, networks).IsValid()) {
			all = append(
				all,
				back(what+" was to be good from "+strings.Join(networks, ", ")+" alone", editKeyAgain(key.ID, "allowed_cidrs = $2", networks)),
			)
		}
	}
	return all
}

// factorsBack looks for second factors that are there again. Who has one that was lost or stolen would sign in with it.
func (t *taken) factorsBack(ctx context.Context, q pg.Querier) (all []service.CameBack, err error) {
	removed, without := []int64{}, []string{}
	for id, is := range t.factors {
		if is {
			removed = append(removed, id)
		}
	}
	for of := range t.without {
		without = append(without, of.URL())
	}
	rows, err := q.Query(ctx, "SELECT id FROM authenticator_view WHERE id = ANY ($1) OR owner_url = ANY ($2) ORDER BY id", removed, without)
	if err != nil {
		return nil, fmt.Errorf("look for authenticators: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look for authenticators: %w", err)
	}
	for _, id := range ids {
		a, err := authenticatorView.Get(ctx, q, id)
		if err != nil {
			return nil, fmt.Errorf("read authenticator %d: %w", id, err)
		}
		all = append(all, back(fmt.Sprintf("authenticator %d (%s) of %s was removed", id, a.Name, a.Owner.URL), removeFactorAgain(id)))
	}
	return all, nil
}

// providersBack looks for identity providers that are there again, or are as they were before they were edited.
func (t *taken) providersBack(ctx context.Context, q pg.Querier) (all []service.CameBack, err error) {
	for _, id := range slices.Sorted(maps.Keys(t.providers)) {
		p, err := providerView.Get(ctx, q, id)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && p.Disabled && !t.providers[id] {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read identity provider %d: %w", id, err)
		}
		what := fmt.Sprintf("identity provider %d (%s)", id, p.Name)
		if t.providers[id] {
			all = append(all, back(what+" was deleted", takeProviderAgain(id, "DELETE FROM openid_provider WHERE id = $1", pg.Deleted)))
		} else {
			all = append(
				all,
				back(
					what+" was edited, so that nobody is to sign in by it until somebody has looked at it",
					takeProviderAgain(id, "UPDATE openid_provider SET version = version + 1, disabled = true WHERE id = $1", pg.Edited),
				),
			)
		}
	}
	return all, nil
}

func takeProviderAgain(id int64, sql string, action pg.Action) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		p, err := providerView.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sql, id); err != nil {
			return err
		}
		was := p
		record := pg.Record{Kind: "auth.provider", Action: action, Before: was}
		if action == pg.Edited {
			p.Version, p.Disabled = p.Version+1, true
			record.After = p
		}
		record.Targets = []pg.Target{{Type: "auth/provider", Noun: "identity provider", ID: id, Name: p.Name, Version: p.Version}}
		tx.Record(record)
		return nil
	}
}

func removeFactorAgain(id int64) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		a, err := authenticatorView.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM authenticator WHERE id = $1", id)
		tx.Record(pg.Record{
			Kind:   "auth.verify.auth",
			Action: pg.Deleted,
			Before: a,
			Targets: []pg.Target{
				{Type: "auth/verify/auth", Noun: "authenticator", ID: id, Name: a.Name, Version: a.Version},
				accountTarget(a.account(), a.Owner.Name),
			},
		})
		return err
	}
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
		if err := extendSets(ctx, tx); err != nil {
			return err
		}
		return take(ctx, tx)
	}
}

// cameBack finds what is there again of an admin. news is what the next start adds to sets that held everything.
func (f *adminFate) cameBack(ctx context.Context, q pg.Querier, admin *Admin, news knowngrants.Extension) (all []service.CameBack, err error) {
	what := fmt.Sprintf("admin %d (%s)", admin.ID, admin.Username)
	if f.disabled && !admin.Disabled {
		all = append(all, back(what+" was disabled", editAdminAgain(admin.ID, "disabled = true", true)))
	}
	var hasPassword bool
	var names []string
	if err := q.QueryRow(ctx, "SELECT password_hash IS NOT NULL, permissions FROM admin WHERE id = $1", admin.ID).
		Scan(&hasPassword, &names); err != nil {
		return nil, fmt.Errorf("read admin %d: %w", admin.ID, err)
	}
	if f.replaced && hasPassword {
		all = append(all, back(what+" had got another password", editAdminAgain(admin.ID, "password_hash = NULL", false)))
	}
	held := principal.ParseGrants(names)
	if again := f.taken & news.Of(held); again != 0 {
		all = append(all, back(what+" was stripped of "+listed(again), afterExtension(stripAgain(admin, held, again))))
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
		tx.Record(
			pg.Record{Kind: "admin", Action: pg.Edited, Targets: []pg.Target{adminTarget(&is)}, Before: was, After: secret.Marked(is, marks...)},
		)
		return err
	}
}

// stripAgain takes back from an admin, and what the admin gained since held was read: permissions that are new.
func stripAgain(admin *Admin, held, back principal.Grants) func(context.Context, *pg.Tx) error {
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
		left := had & held &^ back
		if spared {
			left |= administers
		}
		if _, err := tx.Exec(ctx, "UPDATE admin SET version = version + 1, permissions = $2 WHERE id = $1", admin.ID, left.Names()); err != nil {
			return err
		}
		tx.Record(
			pg.Record{
				Kind:    "admin",
				Part:    "permission",
				Action:  pg.Edited,
				Targets: []pg.Target{adminTarget(admin)},
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

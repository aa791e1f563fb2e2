package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/knowngrants"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// lostKey is what the lost changes made of a key.
type lostKey struct {
	deleted, replaced bool
	owner             string // the new owner's path; empty: it was not moved
	expires, bound    *json.RawMessage
	networks          *json.RawMessage
}

func (f *lostKey) edited(l service.Lost) {
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

// find finds what is there again of a key. news is what the next start adds to bounds that covered everything.
func (f *lostKey) find(key *keys.APIKey, news knowngrants.Extension) (all []service.CameBack) {
	what := fmt.Sprintf("API key %d (%s)", key.ID, key.Name)
	switch {
	case f.deleted:
		return []service.CameBack{restored(what+" was deleted", deleteKey(key.ID))}
	case f.replaced:
		return []service.CameBack{restored(what+" had got another value", deleteKey(key.ID))}
	case f.owner != "" && f.owner != key.Owner.URL:
		return []service.CameBack{restored(what+" had been given to "+f.owner, deleteKey(key.ID))}
	}
	if f.expires != nil {
		var expires time.Time
		if json.Unmarshal(*f.expires, &expires) == nil && (key.ExpiresAt == nil || key.ExpiresAt.After(expires)) {
			all = append(all, restored(what+" was to expire at "+expires.UTC().Format(time.RFC3339), editKey(key.ID, "expires_at = $2", expires)))
		}
	}
	if f.bound != nil {
		var names []string
		is := access.ParseBound(key.Bound)
		if json.Unmarshal(*f.bound, &names) == nil {
			if narrow := principal.ParseGrants(names); is == nil || news.Of(*is)&^narrow != 0 {
				both := access.Within(is, &narrow)
				narrowed := afterExtension(editKey(key.ID, "bound = $2", both.Names()))
				all = append(all, restored(what+" was bound to "+listed(narrow), narrowed))
			}
		}
	}
	if f.networks != nil {
		var networks []string
		if json.Unmarshal(*f.networks, &networks) == nil && len(networks) > 0 &&
			(len(key.Networks) == 0 || keys.Outside(key.Networks, networks).IsValid()) {
			all = append(
				all,
				restored(what+" was to be good from "+strings.Join(networks, ", ")+" alone", editKey(key.ID, "allowed_cidrs = $2", networks)),
			)
		}
	}
	return all
}

// changesOf returns the entry for an id, which it makes where there is none.
func changesOf[T any](all *map[int64]*T, id int64) *T {
	if *all == nil {
		*all = map[int64]*T{}
	}
	if (*all)[id] == nil {
		(*all)[id] = new(T)
	}
	return (*all)[id]
}

func deleteKey(id int64) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		key, err := keys.View.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM api_key WHERE id = $1", id)
		tx.Record(pg.Record{Kind: "auth.key", Action: pg.Deleted, Targets: []pg.Target{keys.Target(&key)}, Before: key})
		return err
	}
}

func editKey(id int64, set string, value any) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		was, err := keys.View.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE api_key SET version = version + 1, "+set+" WHERE id = $1", id, value); err != nil {
			return err
		}
		is, err := keys.View.Get(ctx, tx, id)
		tx.Record(pg.Record{Kind: "auth.key", Action: pg.Edited, Targets: []pg.Target{keys.Target(&is)}, Before: was, After: is})
		return err
	}
}

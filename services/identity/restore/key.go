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

// keyOutcome is how the lost changes had left a key.
type keyOutcome struct {
	deleted, replaced bool
	owner             string // the new owner's path; "": the key was not moved
	expires, bound    *json.RawMessage
	networks          *json.RawMessage
	sessionNetworks   *json.RawMessage
}

// addEdit adds a lost edit of the key.
func (o *keyOutcome) addEdit(l service.LostChange) {
	if _, set := l.Changes["key"]; set {
		o.replaced = true
	}
	if c, set := l.Changes["owner.url"]; set {
		_ = json.Unmarshal(c.After, &o.owner)
	}
	if c, set := l.Changes["expires_at.iso_8601"]; set {
		o.expires = &c.After
	}
	if c, set := l.Changes["bound"]; set {
		o.bound = &c.After
	}
	if c, set := l.Changes["allowed_cidrs"]; set {
		o.networks = &c.After
	}
	if c, set := l.Changes["session_cidrs"]; set {
		o.sessionNetworks = &c.After
	}
}

// find returns the changes that make a key what the lost changes had made it. extension has the grants that the next start adds to
// bounds that covered everything.
func (o *keyOutcome) find(key *keys.APIKey, extension knowngrants.Extension) (all []service.RestoredAccess) {
	label := fmt.Sprintf("API key %d (%s)", key.ID, key.Name)
	switch {
	case o.deleted:
		return []service.RestoredAccess{newFinding(label+" was deleted", deleteKey(key.ID))}
	case o.replaced:
		return []service.RestoredAccess{newFinding(label+" had a new value", deleteKey(key.ID))}
	case o.owner != "" && o.owner != key.Owner.URL:
		return []service.RestoredAccess{newFinding(label+" was moved to "+o.owner, deleteKey(key.ID))}
	}
	if o.expires != nil {
		var expires time.Time
		if json.Unmarshal(*o.expires, &expires) == nil && (key.ExpiresAt == nil || key.ExpiresAt.After(expires)) {
			all = append(
				all,
				newFinding(label+" was set to expire at "+expires.UTC().Format(time.RFC3339), editKey(key.ID, "expires_at = $2", expires)),
			)
		}
	}
	if o.bound != nil {
		var names []string
		bound := access.ParseBound(key.Bound)
		if json.Unmarshal(*o.bound, &names) == nil {
			if narrow := principal.ParseGrants(names); bound == nil || extension.Apply(*bound)&^narrow != 0 {
				both := access.Intersect(bound, &narrow)
				narrowed := extendFirst(editKey(key.ID, "bound = $2", both.Names()))
				all = append(all, newFinding(label+" was bound to "+formatGrants(narrow), narrowed))
			}
		}
	}
	return append(all, o.findNetworks(key, label)...)
}

// findNetworks returns the changes that limit a key and its sessions to the networks of the lost changes.
func (o *keyOutcome) findNetworks(key *keys.APIKey, label string) (all []service.RestoredAccess) {
	own := key.Networks
	var networks []string
	if o.networks != nil && json.Unmarshal(*o.networks, &networks) == nil && isWider(own, networks) {
		own = networks
		all = append(all, newFinding(label+" was limited to "+strings.Join(networks, ", "), editKey(key.ID, "allowed_cidrs = $2", networks)))
	}
	networks = nil
	if o.sessionNetworks == nil || json.Unmarshal(*o.sessionNetworks, &networks) != nil {
		return all
	}
	limit := keys.ForSessions(own, networks)
	if isWider(keys.ForSessions(own, key.SessionNetworks), limit) {
		text := label + "'s sessions were limited to " + strings.Join(limit, ", ")
		all = append(all, newFinding(text, editKey(key.ID, "session_cidrs = $2", networks)))
	}
	return all
}

// isWider tells whether some networks have addresses outside a limit. No networks are all addresses.
func isWider(networks, limit []string) bool {
	return len(limit) > 0 && (len(networks) == 0 || keys.FirstOutside(networks, limit).IsValid())
}

// entryFor returns the entry for an id, and creates it if there is none.
func entryFor[T any](all *map[int64]*T, id int64) *T {
	if *all == nil {
		*all = map[int64]*T{}
	}
	if (*all)[id] == nil {
		(*all)[id] = new(T)
	}
	return (*all)[id]
}

// deleteKey returns the repair that deletes a key.
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

// editKey returns the repair that sets a column of a key.
func editKey(id int64, set string, value any) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		before, err := keys.View.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE api_key SET version = version + 1, "+set+" WHERE id = $1", id, value); err != nil {
			return err
		}
		after, err := keys.View.Get(ctx, tx, id)
		tx.Record(pg.Record{Kind: "auth.key", Action: pg.Edited, Targets: []pg.Target{keys.Target(&after)}, Before: before, After: after})
		return err
	}
}

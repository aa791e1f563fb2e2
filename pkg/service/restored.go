package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/secret"
)

// LostChange is a change that a restore from a backup lost, as other services know it.
type LostChange struct {
	Type    string // client.edited
	ID      int64
	Version int64                                              // the item's version after the change
	Changes map[string]struct{ Before, After json.RawMessage } // by member; nil: unknown
}

// RestoredAccess is a right of a key or an account that a lost change had revoked, and that the restore brought back.
type RestoredAccess struct {
	Description string                              // such as "API key 7 (billing) was deleted"
	Revoke      func(context.Context, *pg.Tx) error // revokes it again, and records that
}

// FindRestoredAccounts returns a function that finds accounts whose rights a restore brought back. kind is the table,
// with the columns version, name and disabled, and the kind of its changes; the view is kind_view. An account with edits
// of unknown content is to be disabled.
func FindRestoredAccounts[T any](kind string) func(context.Context, pg.Querier, []LostChange) ([]RestoredAccess, error) {
	view := pg.NewView[T](kind + "_view")
	return func(ctx context.Context, q pg.Querier, lost []LostChange) (all []RestoredAccess, err error) {
		fates := map[int64]*accountFate{}
		for _, l := range lost {
			if fates[l.ID] == nil {
				fates[l.ID] = &accountFate{}
			}
			fates[l.ID].add(l)
		}
		for _, id := range slices.Sorted(maps.Keys(fates)) {
			is := account[T]{kind: kind, view: view, id: id}
			err := q.QueryRow(ctx, "SELECT version, name, disabled FROM "+pgx.Identifier{kind}.Sanitize()+" WHERE id = $1", id).
				Scan(&is.version, &is.name, &is.disabled)
			if errors.Is(err, pgx.ErrNoRows) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("read %s %d: %w", kind, id, err)
			}
			all = append(all, is.findRestored(fates[id])...)
		}
		return all, nil
	}
}

// accountFate is what the lost changes did to an account.
type accountFate struct {
	deleted, disabled, replaced bool  // replaced: it got another password
	maxExplained, maxKnown      int64 // the highest version with known content, and the highest known version
}

func (f *accountFate) add(l LostChange) {
	f.deleted = f.deleted || strings.HasSuffix(l.Type, "."+string(pg.Deleted))
	if f.maxKnown = max(f.maxKnown, l.Version); l.Changes == nil {
		return
	}
	f.maxExplained = max(f.maxExplained, l.Version)
	if c, set := l.Changes["disabled"]; set {
		f.disabled = string(c.After) == "true"
	}
	if _, set := l.Changes["password"]; set {
		f.replaced = true
	}
}

// account is an account's state after the restore.
type account[T any] struct {
	kind     string
	view     *pg.View[T]
	id       int64
	version  int64
	name     string
	disabled bool
}

func (a account[T]) findRestored(f *accountFate) (all []RestoredAccess) {
	label := fmt.Sprintf("%s %d (%s)", a.kind, a.id, a.name)
	switch {
	case f.deleted:
		return []RestoredAccess{{Description: label + " was deleted", Revoke: a.delete}}
	case f.disabled && !a.disabled:
		all = append(all, RestoredAccess{Description: label + " was disabled", Revoke: a.edit("disabled = true")})
	case f.maxKnown > max(f.maxExplained, a.version) && !a.disabled:
		all = append(
			all,
			RestoredAccess{
				Description: label + " had unknown changes: revoking disables it",
				Revoke:      a.edit("disabled = true"),
			},
		)
	}
	if f.replaced {
		all = append(all, RestoredAccess{Description: label + " had another password", Revoke: a.edit("password_hash = NULL", "password")})
	}
	return all
}

func (a account[T]) record(tx *pg.Tx, action pg.Action, version int64, before, after any) {
	tx.Record(
		pg.Record{
			Kind:    a.kind,
			Action:  action,
			Targets: []pg.Target{{Type: a.kind, Noun: a.kind, ID: a.id, Name: a.name, Version: version}},
			Before:  before,
			After:   after,
		},
	)
}

func (a account[T]) delete(ctx context.Context, tx *pg.Tx) error {
	before, err := a.view.Get(ctx, tx, a.id)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "DELETE FROM "+pgx.Identifier{a.kind}.Sanitize()+" WHERE id = $1", a.id)
	a.record(tx, pg.Deleted, a.version, before, nil)
	return err
}

// edit returns a function that sets a column. It marks members that have secrets in the record.
func (a account[T]) edit(set string, secrets ...string) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		before, err := a.view.Get(ctx, tx, a.id)
		if err != nil {
			return err
		}
		var version int64
		if err := tx.QueryRow(
			ctx, "UPDATE "+pgx.Identifier{a.kind}.Sanitize()+" SET version = version + 1, "+set+" WHERE id = $1 RETURNING version", a.id,
		).
			Scan(&version); err != nil {
			return err
		}
		is, err := a.view.Get(ctx, tx, a.id)
		a.record(tx, pg.Edited, version, before, secret.Marked(is, secrets...))
		return err
	}
}

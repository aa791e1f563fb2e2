package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

// Refs is what a service knows, in its table ref, of another service's items that it refers to. It follows the owner's
// changes, and asks the owner once about an item that it does not know yet.
type Refs struct {
	Owner string // the service that has the items
	Type  string // the collection's path without the first slash and without ids: pxe/dhcp, client/sub
	DB    *pg.DB // of the service that refers to them
	Peers mesh.Peers
	// Clear removes all references to a deleted item. Until it commits, no new ones can be added.
	Clear func(ctx context.Context, tx *pg.Tx, id int64, name string) error
	// FindUsage describes how an item is used here, which prevents its deletion: "has 2 clients". Empty if it is not
	// used; nil if the owner never asks.
	FindUsage func(ctx context.Context, q pg.Querier, id int64) (string, error)
	// Detach removes some of the references to an item so that it can be deleted, and returns how many; nil if the owner
	// never asks.
	Detach func(ctx context.Context, tx *pg.Tx, id int64, name string) (int64, error)
}

// item is the owner's response about an item.
type item struct {
	Exists  bool            `json:"exists"`
	Name    string          `json:"name"`
	Version int64           `json:"version"`
	Detail  json.RawMessage `json:"detail,omitempty"`  // of this version
	Leased  bool            `json:"closing,omitempty"` // the item has a deletion lease
}

func refPath(kind string) string { return "/internal/ref/" + kind }

// RefRoute tells the services that refer to them about the items of a table. detail is SQL for more members, as jsonb.
func RefRoute(db *pg.DB, kind, table, detail string, readers ...string) rest.Route {
	sql := "SELECT name, version, " + detail + ", (SELECT until > clock_timestamp() FROM closing c WHERE c.type = $2 AND c.id = $1) FROM " +
		pgx.Identifier{table}.Sanitize() + " WHERE id = $1"
	return rest.Read[rest.Item, item]{
		Path:  refPath(kind) + "/{id}",
		Guard: guard.Peers(readers...),
		Do: func(ctx context.Context, req rest.Item) (item, error) {
			for {
				found := item{Exists: true}
				var lease *bool
				err := db.QueryRow(ctx, sql, req.ID, kind).Scan(&found.Name, &found.Version, &found.Detail, &lease)
				if errors.Is(err, pgx.ErrNoRows) {
					return item{}, nil
				}
				if err != nil || lease == nil || *lease {
					found.Leased = lease != nil
					return found, err
				}
				if err := endExpired(ctx, db, kind, req.ID); err != nil {
					return item{}, err
				}
			}
		},
	}
}

// Hold makes sure that an item exists, and that it is not deleted before the unit of work has ended. If it does not
// exist, the error is about the member at pointer.
func (r *Refs) Hold(ctx context.Context, tx *pg.Tx, id int64, pointer string) error {
	return r.HoldDetail(ctx, tx, id, pointer, nil)
}

// HoldDetail does the same and reads the owner's detail of the item, as of the last change that this service has heard
// of.
func (r *Refs) HoldDetail(ctx context.Context, tx *pg.Tx, id int64, pointer string, detail any) error {
	var isDeleted bool
	var version int64
	var lease *int64
	var text []byte
	err := tx.QueryRow(ctx, "SELECT gone, version, closing, detail FROM ref WHERE type = $1 AND id = $2 FOR SHARE", r.Type, id).
		Scan(&isDeleted, &version, &lease, &text)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("hold %s %d: %w", r.Type, id, err)
	}
	if isDeleted {
		return notFound(pointer)
	}
	if version == 0 || lease != nil || detail != nil && text == nil { // the item is unknown or leased, or its detail is missing
		return pg.RestartAfter(func(ctx context.Context) error { return r.fetch(ctx, id, pointer, lease) })
	}
	if detail == nil {
		return nil
	}
	return wrap(fmt.Sprintf("read the detail of %s %d", r.Type, id), json.Unmarshal(text, detail))
}

// fetch asks the owner about an item that is unknown here, or that has a deletion lease with this token.
func (r *Refs) fetch(ctx context.Context, id int64, pointer string, lease *int64) error {
	found, err := r.ask(ctx, id)
	if errors.Is(err, mesh.ErrUnavailable) {
		return problem.New(problem.Unavailable, "The service that has /%s/%d could not be asked whether it exists. Try again.", r.Type, id).
			Because(err)
	}
	if err != nil {
		return err
	}
	if !found.Exists {
		return notFound(pointer)
	}
	if lease != nil && found.Leased {
		return problem.Member(pointer, "closing", "is being deleted")
	}
	return r.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the owner records its changes")
		if err := r.store(ctx, tx, pg.Target{ID: id, Name: found.Name, Version: found.Version}, false, found.Detail); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE ref SET closing = NULL WHERE type = $1 AND id = $2 AND closing = $3", r.Type, id, lease)
		return wrap("end the lease of "+r.Type, err)
	})
}

func (r *Refs) ask(ctx context.Context, id int64) (found item, err error) {
	ctx, cancel := r.Peers.Limit(ctx, askTimeout)
	defer cancel()
	err = r.Peers.Ask(ctx, r.Owner, refPath(r.Type)+"/"+strconv.FormatInt(id, 10), &found)
	return found, err
}

// askTimeout is how long the owner may take to respond.
const askTimeout = 3 * time.Second

// store writes what is known of an item. Older versions change nothing, and a deleted item stays deleted: its deletion
// may have arrived while the owner was asked.
func (r *Refs) store(ctx context.Context, tx *pg.Tx, of pg.Target, isDeleted bool, detail json.RawMessage) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO ref (type, id, name, version, gone, detail) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (type, id) DO UPDATE SET name = EXCLUDED.name, version = EXCLUDED.version, gone = EXCLUDED.gone, detail = EXCLUDED.detail
		WHERE NOT ref.gone AND (EXCLUDED.gone OR ref.version < EXCLUDED.version OR ref.version = EXCLUDED.version AND ref.detail IS NULL)`,
		r.Type, of.ID, of.Name, of.Version, isDeleted, detail)
	return wrap("store "+r.Type, err)
}

// Consumer returns the consumer that follows the owner's changes.
func (r *Refs) Consumer() *Consumer {
	return &Consumer{
		Source:    r.Owner,
		Reconcile: r.reconcile,
		Kind:      strings.ReplaceAll(r.Type, "/", "."),
		Apply: func(ctx context.Context, tx *pg.Tx, changes []Event) error {
			for _, e := range changes {
				for _, target := range e.Targets {
					if err := r.apply(ctx, tx, e.Action, target); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
}

// reconcile asks the owner about all its known items after the owner was restored from a backup.
func (r *Refs) reconcile(ctx context.Context, tx *pg.Tx, _ Restore) error {
	rows, err := tx.Query(ctx, "SELECT id, name, gone FROM ref WHERE type = $1 ORDER BY id FOR UPDATE", r.Type)
	if err != nil {
		return fmt.Errorf("hold %s: %w", r.Type, err)
	}
	known, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		ID        int64
		Name      string
		IsDeleted bool
	}])
	if err != nil {
		return fmt.Errorf("hold %s: %w", r.Type, err)
	}
	for _, of := range known {
		found, err := r.ask(ctx, of.ID)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(
			ctx,
			"UPDATE ref SET gone = NOT $3, name = CASE WHEN $3 THEN $4 ELSE name END, version = $5, detail = $6, closing = NULL "+
				"WHERE type = $1 AND id = $2",
			r.Type,
			of.ID,
			found.Exists,
			found.Name,
			found.Version,
			found.Detail,
		); err != nil {
			return fmt.Errorf("store %s %d: %w", r.Type, of.ID, err)
		}
		if !found.Exists && !of.IsDeleted {
			if err := r.Clear(ctx, tx, of.ID, of.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply stores the changed name of a referenced item. If the item was deleted, it clears the references.
func (r *Refs) apply(ctx context.Context, tx *pg.Tx, action pg.Action, target pg.Target) error {
	if !r.isOf(target) {
		return nil
	}
	isDeleted := action == pg.Deleted
	if err := r.store(ctx, tx, target, isDeleted, nil); err != nil || !isDeleted {
		return err
	}
	return r.Clear(ctx, tx, target.ID, target.Name)
}

// isOf reports whether a target is an item of the collection. A collection below an item has that item's id in its path: client/4/sub.
func (r *Refs) isOf(target pg.Target) bool {
	parts := strings.Split(target.Type, "/")
	parts = slices.DeleteFunc(parts, func(part string) bool {
		_, err := strconv.ParseInt(part, 10, 64)
		return err == nil
	})
	return strings.Join(parts, "/") == r.Type
}

func notFound(pointer string) error {
	return problem.Member(pointer, "not_found", "does not exist")
}

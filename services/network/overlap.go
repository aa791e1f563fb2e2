package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// lockScopes makes writers of one scope wait for each other. Without it, simultaneous overlapping writes deadlock in the
// exclusion constraint. A create of one entity needs no lock: ON CONFLICT waits for the other writer without a row of its own.
func lockScopes(ctx context.Context, tx *pg.Tx, change rest.Verbs, rows ...*ipEntityBody) error {
	if change == rest.Creating {
		return nil
	}
	var scopes []int64
	for _, b := range rows {
		if b.v4.First != nil {
			scopes = append(scopes, v4.scopeOf(*b.v4.First, int64(b.Group)))
		}
		if b.v6.First != nil {
			scopes = append(scopes, v6.scopeOf(*b.v6.First, int64(b.Group)))
		}
	}
	return tx.Lock(ctx, addressSpaceLock, scopes...)
}

// findOverlaps returns the error that names an overlapping entity for each family, or nil.
func (b *ipEntityBody) findOverlaps(ctx context.Context, tx *pg.Tx, id int64) (refusal, err error) {
	var invalid problem.Fields
	err = errors.Join(
		v4.findOverlap(ctx, tx, "/v4/address", b.v4.First, b.v4.Last, b.Group, id, &invalid),
		v6.findOverlap(ctx, tx, "/v6/address", b.v6.First, b.v6.Last, b.Group, id, &invalid))
	if err != nil {
		return nil, err
	}
	return invalid.Err(), nil
}

// findOverlap adds an error if an entity other than id overlaps with the addresses from first to last.
func (f *family) findOverlap(
	ctx context.Context,
	tx *pg.Tx,
	pointer string,
	first, last *netip.Addr,
	group rest.RefID,
	id int64,
	invalid *problem.Fields,
) error {
	scope := f.writeSQL("{v}_scope($3, $4, $2)")
	found, err := entityView.Find(
		ctx,
		tx,
		"id = (SELECT id FROM ip_entity WHERE id <> $1 AND "+f.overlapSQL("$3", "$4", scope, scope)+" ORDER BY id LIMIT 1)",
		id,
		group,
		first,
		last,
	)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the overlapping entity: %w", err)
	}
	invalid.Add(
		pointer,
		"overlaps",
		"overlaps with IP entity %d (%s) in IP group %d (%s)",
		found.ID,
		found.FullIP,
		found.Group.ID,
		found.Group.Name,
	)
	(*invalid)[len(*invalid)-1].Existing = &rest.Ref{ID: found.ID, Name: found.FullIP}
	return nil
}

// isOverlap reports whether err comes from an exclusion constraint.
func isOverlap(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == "23P01"
}

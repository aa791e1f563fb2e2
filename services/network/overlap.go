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

// lockScopes lets transactions that write into one scope go one after the other. Without that, simultaneous
// overlapping writes wait for each other in a circle.
func lockScopes(ctx context.Context, tx *pg.Tx, rows ...*ipEntityBody) error {
	var scopes []int64
	for _, b := range rows {
		if b.v4.First != nil {
			scopes = append(scopes, v4.scope(*b.v4.First, int64(b.Group)))
		}
		if b.v6.First != nil {
			scopes = append(scopes, v6.scope(*b.v6.First, int64(b.Group)))
		}
	}
	return tx.Lock(ctx, addressSpace, scopes...)
}

// inTheWay names the entities that lie where this one was to lie, one a family.
func (b *ipEntityBody) inTheWay(ctx context.Context, tx *pg.Tx, id int64) (refusal, err error) {
	var invalid problem.Fields
	err = errors.Join(
		v4.inTheWay(ctx, tx, "/v4/address", b.v4.First, b.v4.Last, b.Group, id, &invalid),
		v6.inTheWay(ctx, tx, "/v6/address", b.v6.First, b.v6.Last, b.Group, id, &invalid))
	if err != nil {
		return nil, err
	}
	return invalid.Err(), nil
}

// inTheWay names an entity, other than that of this id, which lies where another one was to lie.
func (f *family) inTheWay(
	ctx context.Context,
	tx *pg.Tx,
	pointer string,
	first, last *netip.Addr,
	group rest.RefID,
	id int64,
	invalid *problem.Fields,
) error {
	scope := f.in("{v}_scope($3, $4, $2)")
	found, err := entityView.One(
		ctx,
		tx,
		"id = (SELECT id FROM ip_entity WHERE id <> $1 AND "+f.overlapping("$3", "$4", scope, scope)+" ORDER BY id LIMIT 1)",
		id,
		group,
		first,
		last,
	)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the entity in the way: %w", err)
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

// isOverlap tells whether err is an exclusion constraint's refusal.
func isOverlap(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == "23P01"
}

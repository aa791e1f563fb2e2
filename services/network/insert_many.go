package network

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/settings"
)

const (
	insertEntitiesSQL = `
		INSERT INTO ip_entity (group_id, nickname, billing_id, vlan,
			v4_first, v4_last, v4_bits, v4_mask, v4_router, v6_first, v6_last, v6_bits, v6_router)
		SELECT group_id, nickname, billing_id, vlan,
			v4_first, v4_last, v4_bits, v4_mask, v4_router, v6_first, v6_last, v6_bits, v6_router
		FROM unnest(@group_id::bigint[], @nickname::text[], @billing_id::text[], @vlan::int[],
			@v4_first::inet[], @v4_last::inet[], @v4_bits::int[], @v4_mask::int[], @v4_router::inet[],
			@v6_first::inet[], @v6_last::inet[], @v6_bits::int[], @v6_router::inet[]) WITH ORDINALITY
			AS item (group_id, nickname, billing_id, vlan,
				v4_first, v4_last, v4_bits, v4_mask, v4_router, v6_first, v6_last, v6_bits, v6_router, n)
		ORDER BY n RETURNING id`

	holdEntitiesSQL = `
		INSERT INTO ip_assignment (entity_id, group_id, owner_id, server_id, server_name, note)
		SELECT * FROM unnest(@entity_id::bigint[], @group_id::bigint[], @owner_id::bigint[], @server_id::bigint[], @server_name::text[], @note::text[])`
)

// insertEntities inserts entities with one statement, and assigns or reserves them with another. Triggers that count run once
// for all of them, so this is many times faster than inserting each by itself. The ids are in the order of rows.
func (s *Service) insertEntities(ctx context.Context, tx *pg.Tx, rows []*ipEntityBody) ([]int64, error) {
	inserted, err := tx.Query(ctx, insertEntitiesSQL, pgx.StrictNamedArgs{
		"group_id":   column(rows, func(b *ipEntityBody) int64 { return int64(b.Group) }),
		"nickname":   column(rows, func(b *ipEntityBody) *string { return b.Nickname }),
		"billing_id": column(rows, func(b *ipEntityBody) *string { return b.BillingID }),
		"vlan":       column(rows, func(b *ipEntityBody) *int32 { return b.VLAN }),
		"v4_first":   column(rows, func(b *ipEntityBody) *netip.Addr { return b.v4.First }),
		"v4_last":    column(rows, func(b *ipEntityBody) *netip.Addr { return b.v4.Last }),
		"v4_bits":    column(rows, func(b *ipEntityBody) *int { return b.v4.Bits }),
		"v4_mask":    column(rows, func(b *ipEntityBody) *int { return b.v4.Mask }),
		"v4_router":  column(rows, func(b *ipEntityBody) *netip.Addr { return b.v4.Gateway }),
		"v6_first":   column(rows, func(b *ipEntityBody) *netip.Addr { return b.v6.First }),
		"v6_last":    column(rows, func(b *ipEntityBody) *netip.Addr { return b.v6.Last }),
		"v6_bits":    column(rows, func(b *ipEntityBody) *int { return b.v6.Bits }),
		"v6_router":  column(rows, func(b *ipEntityBody) *netip.Addr { return b.v6.Gateway }),
	})
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(inserted, pgx.RowTo[int64])
	if err != nil {
		return nil, err
	}
	slices.Sort(ids) // they are numbered in the order of the rows
	return ids, s.holdEntities(ctx, tx, ids, rows)
}

// holdEntities assigns, reserves or quarantines new entities, as their bodies say.
func (s *Service) holdEntities(ctx context.Context, tx *pg.Tx, ids []int64, rows []*ipEntityBody) error {
	var heldIDs, quarantinedIDs []int64
	var held []*ipEntityBody
	for i, b := range rows {
		switch b.Status {
		case available:
		case quarantined:
			quarantinedIDs = append(quarantinedIDs, ids[i])
		default:
			heldIDs, held = append(heldIDs, ids[i]), append(held, b)
		}
	}
	if quarantinedIDs != nil {
		if err := endHold(ctx, tx, quarantinedIDs, settings.Quarantine.In(s.Settings.Values())); err != nil {
			return fmt.Errorf("quarantine %d IP entities: %w", len(quarantinedIDs), err)
		}
	}
	if held == nil {
		return nil
	}
	_, err := tx.Exec(ctx, holdEntitiesSQL, pgx.StrictNamedArgs{
		"entity_id":   heldIDs,
		"group_id":    column(held, func(b *ipEntityBody) int64 { return int64(b.Group) }),
		"owner_id":    column(held, func(b *ipEntityBody) *int64 { return b.Owner.ID }),
		"server_id":   column(held, func(b *ipEntityBody) *int64 { return b.Owner.Server.ID }),
		"server_name": column(held, func(b *ipEntityBody) *string { return b.Owner.Server.Name }),
		"note":        column(held, func(b *ipEntityBody) *string { return b.Note }),
	})
	if err != nil {
		return fmt.Errorf("assign or reserve %d IP entities: %w", len(held), err)
	}
	return nil
}

// column returns one value of each row.
func column[T any](rows []*ipEntityBody, value func(*ipEntityBody) T) []T {
	values := make([]T, len(rows))
	for i, b := range rows {
		values[i] = value(b)
	}
	return values
}

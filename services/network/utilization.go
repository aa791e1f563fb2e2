package network

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/jackc/pgx/v5"
	"go4.org/netipx"

	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/rest"
)

// Utilization says how full a group is.
type Utilization struct {
	Used             int64       `json:"used" doc:"entities that are assigned to somebody"`
	Free             int64       `json:"free" doc:"entities that are assigned to nobody"`
	LargestFreeBlock LargestFree `json:"largest_free_block" doc:"the lowest of the largest prefixes that are free as a whole: a free entity that is one, or free addresses that fill it"`
}

// LargestFree is a prefix, or an address, of each family that has any.
type LargestFree struct {
	V4 string `json:"v4,omitempty"`
	V6 string `json:"v6,omitempty"`
}

func (s *Service) utilization() rest.Route {
	return rest.Read[rest.Item, Utilization]{Path: "/group/{group_id}/utilization", Guard: principal.NetworkGroups,
		Summary: "View how full an IP group is", Extension: true, Do: s.utilizationOf}
}

func (s *Service) utilizationOf(ctx context.Context, req rest.Item) (u Utilization, err error) {
	err = s.db.QueryRow(ctx, `
		SELECT entities_count - free, free
		FROM ip_group_view, (SELECT count(*) AS free FROM ip_free WHERE group_id = $1) counted WHERE id = $1`, req.ID).Scan(&u.Used, &u.Free)
	if err != nil {
		return u, err
	}
	if u.LargestFreeBlock.V4, err = s.largestFree(ctx, v4, req.ID); err != nil {
		return u, err
	}
	u.LargestFreeBlock.V6, err = s.largestFree(ctx, v6, req.ID)
	return u, err
}

// freeRuns are the largest free prefixes, and the runs of free single addresses, from the first to the last.
const freeRuns = `
	(SELECT {v}_first, set_masklen(broadcast(set_masklen({v}_first, {v}_bits)), {bits}) FROM ip_free
	WHERE group_id = $1 AND {v}_bits < {bits} ORDER BY {v}_bits, {v}_first LIMIT 1)
	UNION ALL
	SELECT min(first), max(first) FROM (
		SELECT first, sum(begins) OVER (ORDER BY first) AS run FROM (
			SELECT {v}_first AS first, (lag({v}_first) OVER (ORDER BY {v}_first) IS DISTINCT FROM {v}_first - 1)::int AS begins
			FROM ip_free WHERE group_id = $1 AND {v}_first IS NOT NULL AND {v}_bits = {bits}) singles) runs
	GROUP BY run`

// largestFree is the lowest of the largest prefixes that are free; empty: none is.
func (s *Service) largestFree(ctx context.Context, f *family, group int64) (string, error) {
	rows, err := s.db.Query(ctx, f.in(freeRuns), group)
	if err != nil {
		return "", fmt.Errorf("find free blocks: %w", err)
	}
	var first, last netip.Addr
	var largest netip.Prefix
	_, err = pgx.ForEachRow(rows, []any{&first, &last}, func() error {
		for _, p := range netipx.IPRangeFrom(first, last).Prefixes() {
			if !largest.IsValid() || p.Bits() < largest.Bits() || p.Bits() == largest.Bits() && p.Addr().Less(largest.Addr()) {
				largest = p
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("find free blocks: %w", err)
	case !largest.IsValid():
		return "", nil
	case largest.IsSingleIP():
		return largest.Addr().String(), nil
	default:
		return largest.String(), nil
	}
}

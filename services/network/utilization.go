package network

import (
	"context"
	"net/netip"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/rest"
)

// Utilization says how full a group is.
type Utilization struct {
	Used             int64       `json:"used" doc:"entities that are assigned to somebody"`
	Free             int64       `json:"free" doc:"entities that are assigned to nobody"`
	LargestFreeBlock LargestFree `json:"largest_free_block" doc:"the lowest of the largest prefixes that are free as a whole: a free entity that is one, or up to 1,024 free addresses that fill it. It can be allocated"`
}

// LargestFree is a prefix, or an address, of each family that has any.
type LargestFree struct {
	V4 string `json:"v4,omitempty"`
	V6 string `json:"v6,omitempty"`
}

func (s *Service) utilization() rest.Route {
	return rest.Read[rest.Item, Utilization]{
		Path:      "/group/{group_id}/utilization",
		Guard:     guard.Has(permission.NetworkGroups),
		Name:      "getIPGroupUtilization",
		Summary:   "View how full an IP group is",
		Extension: true,
		Do:        s.utilizationOf,
	}
}

// findUtilization sees all at one moment, and of what is not folded yet what it changes.
var findUtilization = `
	SELECT entities_count - free, free, (` + v4.in(findLargest) + `), (` + v6.in(findLargest) + `)
	FROM ip_group_view CROSS JOIN (
		SELECT coalesce((SELECT free FROM ip_free_count WHERE group_id = $1), 0)
			+ coalesce((SELECT sum(free) FROM ip_free_delta WHERE group_id = $1), 0)::bigint AS free) counted
	WHERE id = $1`

// findLargest finds the lowest of the largest prefixes that are free: an entity that is one, or what addresses of a chunk
// fill.
const findLargest = `
	WITH changed AS MATERIALIZED (SELECT DISTINCT {v}_chunk AS chunk FROM ip_free_delta WHERE group_id = $1 AND {v}_chunk IS NOT NULL)
	SELECT set_masklen(first, bits) FROM (
		(SELECT {v}_first AS first, {v}_bits AS bits FROM ip_free WHERE group_id = $1 AND {v}_bits < {bits} ORDER BY {v}_bits, {v}_first LIMIT 1)
		UNION ALL
		(SELECT first, bits FROM ip_free_chunk WHERE group_id = $1 AND bits BETWEEN {bits} - 10 AND {bits} AND chunk <> ALL (ARRAY(SELECT chunk FROM changed))
		ORDER BY bits, chunk LIMIT 1)
		UNION ALL
		SELECT l.first, l.bits FROM changed CROSS JOIN LATERAL largest_free($1, chunk) l
	) block ORDER BY bits, first LIMIT 1`

func (s *Service) utilizationOf(ctx context.Context, req rest.Item) (u Utilization, err error) {
	var largest struct{ v4, v6 *netip.Prefix }
	err = s.db.QueryRow(ctx, findUtilization, req.ID).Scan(&u.Used, &u.Free, &largest.v4, &largest.v6)
	u.LargestFreeBlock = LargestFree{prefixOrAddress(largest.v4), prefixOrAddress(largest.v6)}
	return u, err
}

func prefixOrAddress(p *netip.Prefix) string {
	switch {
	case p == nil:
		return ""
	case p.IsSingleIP():
		return p.Addr().String()
	default:
		return p.String()
	}
}

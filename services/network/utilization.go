package network

import (
	"context"
	"net/netip"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/rest"
)

// Utilization counts the used and free entities of a group.
type Utilization struct {
	Used             int64       `json:"used" doc:"the number of assigned entities"`
	Free             int64       `json:"free" doc:"the number of available entities"`
	Reserved         int64       `json:"reserved" ext:"true" doc:"the number of reserved entities"`
	Quarantined      int64       `json:"quarantined" ext:"true" doc:"the number of quarantined entities"`
	LargestFreeBlock LargestFree `json:"largest_free_block" doc:"the largest prefix that can be allocated: a free entity, or up to 1,024 free addresses that fill it; of several, the lowest"`
}

// LargestFree is the largest free prefix or address of each family. It is empty for a family without free entities.
type LargestFree struct {
	V4 string `json:"v4,omitempty" doc:"an IPv4 prefix or address"`
	V6 string `json:"v6,omitempty" doc:"an IPv6 prefix or address"`
}

func (s *Service) utilization() rest.Route {
	return rest.Read[rest.Item, Utilization]{
		Path:      "/group/{group_id}/utilization",
		Guard:     guard.Has(permission.NetworkGroups),
		Name:      "getIPGroupUtilization",
		Summary:   "View how full an IP group is",
		Extension: true,
		Do:        s.findUtilization,
	}
}

// utilizationSQL reads all counts in one snapshot, with the deltas that are not folded yet. Entities whose quarantine has
// just ended still count as quarantined there, so they are counted by their index.
var utilizationSQL = `
	SELECT entities_count - free - held_reserved - quarantined, free + due, held_reserved, quarantined - due, (` +
	v4.writeSQL(freeBlockSQL) + `), (` + v6.writeSQL(freeBlockSQL) + `)
	FROM ip_group_view g CROSS JOIN (
		SELECT coalesce((SELECT free FROM ip_free_count WHERE group_id = $1), 0)
			+ coalesce((SELECT sum(free) FROM ip_free_delta WHERE group_id = $1), 0)::bigint AS free) free
	CROSS JOIN (
		SELECT coalesce(sum(h.reserved), 0)::bigint AS reserved, coalesce(sum(h.quarantined), 0)::bigint AS quarantined FROM (
			SELECT reserved, quarantined FROM ip_held_count WHERE group_id = $1
			UNION ALL
			SELECT reserved, quarantined FROM ip_held_delta WHERE group_id = $1) h) held (held_reserved, quarantined)
	CROSS JOIN (SELECT count(*) AS due FROM ip_assignment WHERE available_at <= now() AND group_id = $1) due
	WHERE g.id = $1`

// freeBlockSQL finds the largest free prefix, the lowest of several: a free entity, or a block that the free addresses
// of a chunk fill.
const freeBlockSQL = `
	WITH due AS MATERIALIZED (
		SELECT e.{v}_first AS first, free_bits(e.{v}_first, e.{v}_last, e.{v}_bits) AS bits
		FROM ip_assignment a JOIN ip_entity e ON e.id = a.entity_id WHERE a.available_at <= now() AND a.group_id = $1 AND e.{v}_first IS NOT NULL),
	changed AS MATERIALIZED (
		SELECT DISTINCT chunk FROM (
			SELECT {v}_chunk AS chunk FROM ip_free_delta WHERE group_id = $1 UNION ALL SELECT free_chunk(first, bits) FROM due) each
		WHERE chunk IS NOT NULL)
	SELECT set_masklen(first, bits) FROM (
		(SELECT {v}_first AS first, {v}_bits AS bits FROM ip_free WHERE group_id = $1 AND {v}_bits < {bits} ORDER BY {v}_bits, {v}_first LIMIT 1)
		UNION ALL
		SELECT first, bits FROM due WHERE bits < {bits}
		UNION ALL
		(SELECT first, bits FROM ip_free_chunk WHERE group_id = $1 AND bits BETWEEN {bits} - 10 AND {bits} AND chunk <> ALL (ARRAY(SELECT chunk FROM changed))
		ORDER BY bits, chunk LIMIT 1)
		UNION ALL
		SELECT l.first, l.bits FROM changed CROSS JOIN LATERAL largest_free($1, chunk, true) l
	) block ORDER BY bits, first LIMIT 1`

func (s *Service) findUtilization(ctx context.Context, req rest.Item) (u Utilization, err error) {
	var blocks struct{ v4, v6 *netip.Prefix }
	err = s.db.QueryRow(ctx, utilizationSQL, req.ID).Scan(&u.Used, &u.Free, &u.Reserved, &u.Quarantined, &blocks.v4, &blocks.v6)
	u.LargestFreeBlock = LargestFree{prefixOrAddress(blocks.v4), prefixOrAddress(blocks.v6)}
	return u, err
}

// prefixOrAddress returns a prefix as a text, without the length if it has one address.
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

package network

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// removal is which entities of a group are to be deleted together: those that lie in a span, or those of some ids.
type removal struct {
	span
	IDs []rest.RefID `json:"ids" doc:"instead of from and to, or of prefix" example:"[3, 4]"`
}

// Resolve checks what the tags cannot say.
func (r *removal) Resolve(invalid *problem.Fields) {
	switch {
	case r.named() && len(r.IDs) > 0:
		invalid.Add("/ids", "conflict", "cannot stand beside from, to and prefix")
	case r.named():
		r.read(invalid)
	case len(r.IDs) == 0:
		invalid.Add("/ids", "required", "is required, or prefix is, or from with to")
	}
}

// Removed is the answer to a removal.
type Removed struct {
	Count   int    `json:"count" example:"16"`
	Message string `json:"message" example:"16 IP entities deleted."`
}

// removed is what stands of a removal in its record.
type removed struct {
	rest.Bulk
	From   *string      `json:"from,omitempty"`
	To     *string      `json:"to,omitempty"`
	Prefix *string      `json:"prefix,omitempty"`
	IDs    []rest.RefID `json:"ids,omitempty"`
}

type removalRequest struct {
	Group int64 `path:"*"`
	Body  rest.Body[removal]

	installed []used // entities that machines are being installed with
}

// used is an entity that another service uses, and how.
type used struct {
	ID   int64  `json:"id"`
	Uses string `json:"uses"`
}

func (s *Service) entityRemoval() rest.Route {
	return rest.Mutation[removalRequest, Removed]{
		Method:    http.MethodPost,
		Path:      "/group/{group_id}/entity/bulk-delete",
		Guard:     guard.Has(permission.NetworkEntities),
		Name:      "deleteIPEntities",
		Summary:   "Delete many IP entities of an IP group",
		Extension: true,
		Effect: rest.Effect{
			Logs:  rest.LogsSummary,
			Retry: rest.RetryRefused,
		},
		Example: `{"from": "198.51.100.8", "to": "198.51.100.15"}`,
		Do:      remove,
		Prepare: func(ctx context.Context, req *removalRequest) error {
			if err := s.peers.Ask(ctx, "pxe", "/internal/installed-entities", &req.installed); err != nil {
				return problem.New(problem.Unavailable, "Whether machines are being installed with them cannot be found out right now.").Because(err)
			}
			return nil
		},
	}
}

func remove(ctx context.Context, tx *pg.Tx, req removalRequest) (Removed, error) {
	r, err := req.Body.New()
	if err != nil {
		return Removed{}, err
	}
	var group rest.Ref
	if err := tx.QueryRow(ctx, "SELECT id, name FROM ip_group WHERE id = $1", req.Group).Scan(&group.ID, &group.Name); err != nil {
		return Removed{}, err
	}
	if err := allocateAlone(ctx, tx, req.Group); err != nil { // who allocates locks entities in the order of their addresses
		return Removed{}, err
	}
	ids, err := r.hold(ctx, tx, group)
	if err == nil {
		err = refuseInstalled(req.installed, ids)
	}
	if err == nil {
		err = refuseAssigned(ctx, tx, ids)
	}
	if err != nil {
		return Removed{}, err
	}
	some, err := entityView.Some(ctx, tx, ids[:min(len(ids), mostTargets)])
	if err != nil {
		return Removed{}, fmt.Errorf("read what is to be deleted: %w", err)
	}
	// What is free would go with its entity, too, but one by one.
	for _, sql := range []string{"DELETE FROM ip_free WHERE entity_id = ANY ($1)", "DELETE FROM ip_entity WHERE id = ANY ($1)"} {
		if _, err := tx.Exec(ctx, sql, ids); err != nil {
			return Removed{}, fmt.Errorf("delete %d IP entities: %w", len(ids), err)
		}
	}
	record := pg.Record{Kind: "entity", Action: pg.Deleted,
		Before: removed{rest.Bulk{Count: len(ids), First: ids[0], Last: ids[len(ids)-1]}, r.From, r.To, r.Prefix, r.IDs}}
	for i := range some {
		record.Targets = append(record.Targets, some[i].target())
	}
	tx.Record(record)
	return Removed{len(ids), counted(len(ids)) + " deleted."}, nil
}

func counted(entities int) string {
	if entities == 1 {
		return "1 IP entity"
	}
	return fmt.Sprintf("%d IP entities", entities)
}

// hold keeps other writers off the entities, and answers their ids in ascending order.
func (r *removal) hold(ctx context.Context, tx *pg.Tx, group rest.Ref) ([]int64, error) {
	const held = "SELECT id FROM ip_entity WHERE group_id = $1 AND %s ORDER BY id LIMIT %d FOR UPDATE"
	if !r.named() {
		ids, err := heldIDs(ctx, tx, fmt.Sprintf(held, "id = ANY ($2)", len(r.IDs)), group.ID, r.IDs)
		if err != nil || len(ids) == len(r.IDs) {
			return ids, err
		}
		var missing []string
		for _, id := range r.IDs {
			if !slices.Contains(ids, int64(id)) {
				missing = append(missing, fmt.Sprint(id))
			}
		}
		return nil, problem.Member(
			"/ids",
			"not_found",
			"name no IP entities of IP group %d (%s): %s",
			group.ID,
			group.Name,
			firstOf(missing, len(missing)),
		)
	}
	if err := r.refuseCut(ctx, tx, group); err != nil {
		return nil, err
	}
	within := r.family.in("{first} BETWEEN $2 AND $3 AND {v}_last <= $3")
	ids, err := heldIDs(ctx, tx, fmt.Sprintf(held, within, longestSeries+1), group.ID, r.first, r.last)
	switch {
	case err != nil:
		return nil, err
	case len(ids) == 0:
		return nil, problem.Member(r.where, "not_found", "leaves no IP entity of IP group %d (%s) to delete", group.ID, group.Name)
	case len(ids) > longestSeries:
		return nil, problem.Member(r.where, "out_of_range", "deletes more than the %d IP entities that one call can delete", longestSeries)
	}
	return ids, nil
}

func heldIDs(ctx context.Context, tx *pg.Tx, sql string, args ...any) ([]int64, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("hold IP entities: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("hold IP entities: %w", err)
	}
	return ids, nil
}

// refuseCut names the entities that lie only partly in the span: of each end, there is at most one.
func (r *removal) refuseCut(ctx context.Context, tx *pg.Tx, group rest.Ref) error {
	rows, err := tx.Query(ctx, r.family.in(`
		SELECT 'IP entity ' || id || ' (' || full_ip || ')' FROM ip_entity
		WHERE group_id = $1 AND (`+r.family.anywhere("$2")+` AND {v}_first < $2 OR `+r.family.anywhere("$3")+` AND {v}_last > $3) ORDER BY id`), group.ID, r.first, r.last)
	if err != nil {
		return fmt.Errorf("find IP entities across the ends: %w", err)
	}
	cut, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("find IP entities across the ends: %w", err)
	}
	if len(cut) > 0 {
		return problem.Member(r.where, "straddles", "cuts through %s", strings.Join(cut, " and "))
	}
	return nil
}

// mostNamed is how many of those that are in the way are named.
const mostNamed = 5

// refuseAssigned names the first of the entities that somebody has.
func refuseAssigned(ctx context.Context, tx *pg.Tx, ids []int64) error {
	var count int
	var first []int64
	err := tx.QueryRow(ctx, "SELECT count(*), coalesce((array_agg(entity_id ORDER BY entity_id))[:$2], '{}') FROM ip_assignment "+
		"WHERE entity_id = ANY ($1)", ids, mostNamed).
		Scan(&count, &first)
	if err != nil {
		return fmt.Errorf("look who has the entities: %w", err)
	}
	if count == 0 {
		return nil
	}
	assigned, err := entityView.Some(ctx, tx, first)
	if err != nil {
		return fmt.Errorf("look who has the entities: %w", err)
	}
	names := make([]string, len(assigned))
	for i, e := range assigned {
		names[i] = fmt.Sprintf("IP entity %d (%s) to %s", e.ID, e.FullIP, e.Owner)
	}
	return problem.New(
		problem.Conflict,
		"Assigned are %d of %s: %s. POST /entity/{entity_id}/release takes one back.",
		count,
		counted(len(ids)),
		firstOf(names, count),
	)
}

// refuseInstalled names the first of the entities that a machine is being installed with.
func refuseInstalled(installed []used, ids []int64) error {
	for _, one := range installed {
		if _, found := slices.BinarySearch(ids, one.ID); found {
			return problem.New(problem.Conflict, "IP entity %d %s.", one.ID, one.Uses)
		}
	}
	return nil
}

// firstOf names the first of so many.
func firstOf(names []string, count int) string {
	if count <= mostNamed {
		return strings.Join(names, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(names[:mostNamed], "; "), count-mostNamed)
}

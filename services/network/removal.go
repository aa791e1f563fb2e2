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

// removal selects the entities of a group to delete: those inside a span, or those with these ids.
type removal struct {
	span
	IDs []rest.RefID `json:"ids" doc:"instead of from and to or prefix: the ids of the entities" example:"[3, 4]"`
}

// Resolve checks what tags cannot express.
func (r *removal) Resolve(invalid *problem.Fields) {
	switch {
	case r.isSet() && len(r.IDs) > 0:
		invalid.Add("/ids", "conflict", "cannot be combined with from, to or prefix")
	case r.isSet():
		r.read(invalid)
	case len(r.IDs) == 0:
		invalid.Add("/ids", "required", "is required, unless prefix or from and to are set")
	}
}

// Removed is the answer to a removal.
type Removed struct {
	Count   int    `json:"count" example:"16" doc:"the number of deleted entities"`
	Message string `json:"message" example:"16 IP entities deleted." doc:"the same for people"`
}

// removalRecord is the record of a removal in the log.
type removalRecord struct {
	rest.Bulk
	From   *string      `json:"from,omitempty"`
	To     *string      `json:"to,omitempty"`
	Prefix *string      `json:"prefix,omitempty"`
	IDs    []rest.RefID `json:"ids,omitempty"`
}

type removalRequest struct {
	Group int64 `path:"*"`
	Body  rest.Body[removal]

	installed []usedEntity // entities of running installs
}

// usedEntity is an entity that another service uses, and a text that says how.
type usedEntity struct {
	ID    int64  `json:"id"`
	Usage string `json:"uses"`
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
				return problem.New(problem.Unavailable, "The pxe service cannot be asked right now whether installs use these IP entities. Try again.").
					Because(err)
			}
			return nil
		},
	}
}

// remove deletes the entities of a group that the body selects. All of them are deleted, or none.
func remove(ctx context.Context, tx *pg.Tx, req removalRequest) (Removed, error) {
	r, err := req.Body.New()
	if err != nil {
		return Removed{}, err
	}
	var group rest.Ref
	if err := tx.QueryRow(ctx, "SELECT id, name FROM ip_group WHERE id = $1", req.Group).Scan(&group.ID, &group.Name); err != nil {
		return Removed{}, err
	}
	if err := allocateAlone(ctx, tx, req.Group); err != nil { // allocations lock entities in the order of their addresses, not of their ids
		return Removed{}, err
	}
	ids, err := r.lockEntities(ctx, tx, group)
	if err == nil {
		err = refuseInstalled(req.installed, ids)
	}
	if err == nil {
		err = refuseAssigned(ctx, tx, ids)
	}
	if err == nil {
		err = refuseQuarantined(ctx, tx, ids)
	}
	if err != nil {
		return Removed{}, err
	}
	some, err := entityView.GetMany(ctx, tx, ids[:min(len(ids), maxTargets)])
	if err != nil {
		return Removed{}, fmt.Errorf("read the entities to delete: %w", err)
	}
	for _, sql := range []string{ // the other rows would be deleted with their entities, but one by one
		"UPDATE ip_assignment SET note = NULL, available_at = now() WHERE entity_id = ANY ($1) AND owner_id IS NULL",
		freeSQL,
		"DELETE FROM ip_free WHERE entity_id = ANY ($1)",
		"DELETE FROM ip_entity WHERE id = ANY ($1)",
	} {
		if _, err := tx.Exec(ctx, sql, ids); err != nil {
			return Removed{}, fmt.Errorf("delete %d IP entities: %w", len(ids), err)
		}
	}
	record := pg.Record{Kind: "entity", Action: pg.Deleted,
		Before: removalRecord{rest.Bulk{Count: len(ids), First: ids[0], Last: ids[len(ids)-1]}, r.From, r.To, r.Prefix, r.IDs}}
	for i := range some {
		record.Targets = append(record.Targets, some[i].target())
	}
	tx.Record(record)
	return Removed{len(ids), countEntities(len(ids)) + " deleted."}, nil
}

// countEntities returns a number of entities as a text.
func countEntities(entities int) string {
	if entities == 1 {
		return "1 IP entity"
	}
	return fmt.Sprintf("%d IP entities", entities)
}

// lockEntities locks the selected entities and returns their ids in ascending order.
func (r *removal) lockEntities(ctx context.Context, tx *pg.Tx, group rest.Ref) ([]int64, error) {
	const held = "SELECT id FROM ip_entity WHERE group_id = $1 AND %s ORDER BY id LIMIT %d FOR UPDATE"
	if !r.isSet() {
		ids, err := lockIDs(ctx, tx, fmt.Sprintf(held, "id = ANY ($2)", len(r.IDs)), group.ID, r.IDs)
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
			"must be IP entities of IP group %d (%s), but these are not: %s",
			group.ID,
			group.Name,
			joinFirst(missing, len(missing)),
		)
	}
	if err := r.refusePartial(ctx, tx, group); err != nil {
		return nil, err
	}
	within := r.family.writeSQL("{first} BETWEEN $2 AND $3 AND {v}_last <= $3")
	ids, err := lockIDs(ctx, tx, fmt.Sprintf(held, within, maxSeries+1), group.ID, r.first, r.last)
	switch {
	case err != nil:
		return nil, err
	case len(ids) == 0:
		return nil, problem.Member(r.spanMember, "not_found", "has no IP entities of IP group %d (%s)", group.ID, group.Name)
	case len(ids) > maxSeries:
		return nil, problem.Member(r.spanMember, "out_of_range", "has more IP entities than one call can delete: %d", maxSeries)
	}
	return ids, nil
}

// lockIDs runs a SELECT … FOR UPDATE and returns the ids.
func lockIDs(ctx context.Context, tx *pg.Tx, sql string, args ...any) ([]int64, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("lock the IP entities: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("lock the IP entities: %w", err)
	}
	return ids, nil
}

// refusePartial refuses a span that cuts through an entity, and names the entities: at most one at each end.
func (r *removal) refusePartial(ctx context.Context, tx *pg.Tx, group rest.Ref) error {
	rows, err := tx.Query(ctx, r.family.writeSQL(`
		SELECT 'IP entity ' || id || ' (' || full_ip || ')' FROM ip_entity
		WHERE group_id = $1 AND (`+r.family.holdsAddress("$2")+` AND {v}_first < $2 OR `+r.family.holdsAddress("$3")+` AND {v}_last > $3) ORDER BY id`), group.ID, r.first, r.last)
	if err != nil {
		return fmt.Errorf("find entities that lie partly in the span: %w", err)
	}
	cut, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("find entities that lie partly in the span: %w", err)
	}
	if len(cut) > 0 {
		return problem.Member(r.spanMember, "straddles", "cuts through %s", strings.Join(cut, " and "))
	}
	return nil
}

// maxNamed is the number of items that an error names.
const maxNamed = 5

// refuseAssigned fails if any of the entities are assigned, and names the first ones.
func refuseAssigned(ctx context.Context, tx *pg.Tx, ids []int64) error {
	var count int
	var first []int64
	err := tx.QueryRow(ctx, "SELECT count(*), coalesce((array_agg(entity_id ORDER BY entity_id))[:$2], '{}') FROM ip_assignment "+
		"WHERE entity_id = ANY ($1) AND owner_id IS NOT NULL", ids, maxNamed).
		Scan(&count, &first)
	if err != nil {
		return fmt.Errorf("find assigned entities: %w", err)
	}
	if count == 0 {
		return nil
	}
	assigned, err := entityView.GetMany(ctx, tx, first)
	if err != nil {
		return fmt.Errorf("find assigned entities: %w", err)
	}
	names := make([]string, len(assigned))
	for i, e := range assigned {
		names[i] = fmt.Sprintf("IP entity %d (%s) to %s", e.ID, e.FullIP, e.Owner)
	}
	return problem.New(
		problem.Conflict,
		"%d of %s are assigned: %s. Release them first: POST /entity/{entity_id}/release.",
		count,
		countEntities(len(ids)),
		joinFirst(names, count),
	)
}

// refuseQuarantined fails if any of the entities are quarantined, and names the first ones.
func refuseQuarantined(ctx context.Context, tx *pg.Tx, ids []int64) error {
	var count int
	var names []string
	err := tx.QueryRow(ctx, `
		SELECT count(*), coalesce((array_agg('IP entity ' || e.id || ' (' || e.full_ip || ')' ORDER BY e.id))[:$2], '{}')
		FROM ip_assignment a JOIN ip_entity e ON e.id = a.entity_id WHERE a.entity_id = ANY ($1) AND a.available_at > now()`, ids, maxNamed).
		Scan(&count, &names)
	if err != nil {
		return fmt.Errorf("find quarantined entities: %w", err)
	}
	if count == 0 {
		return nil
	}
	return problem.New(
		problem.Conflict,
		"%d of %s are quarantined: %s. To delete them now, set their status to available first: PATCH /entity/{entity_id}.",
		count,
		countEntities(len(ids)),
		joinFirst(names, count),
	)
}

// refuseInstalled fails if a running install uses one of the entities.
func refuseInstalled(installed []usedEntity, ids []int64) error {
	for _, one := range installed {
		if _, found := slices.BinarySearch(ids, one.ID); found {
			return problem.New(problem.Conflict, "IP entity %d %s.", one.ID, one.Usage)
		}
	}
	return nil
}

// joinFirst joins the names, at most maxNamed of them, and says how many more there are.
func joinFirst(names []string, count int) string {
	if count <= maxNamed {
		return strings.Join(names, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(names[:maxNamed], "; "), count-maxNamed)
}

package network

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"net/netip"

	"github.com/jackc/pgx/v5"
	"go4.org/netipx"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// mostAllocated is how many entities one call can assign, and the addresses of a chunk of what is free.
const mostAllocated = 1024

// allocation is what a caller wants of a group.
type allocation struct {
	Count  *int32  `json:"count" min:"1" max:"1024" example:"2" doc:"how many entities; 1 where it is not sent"`
	Prefix *int32  `json:"prefix" min:"1" max:"128" doc:"instead of count: the length of a prefix of which all addresses are wanted" example:"29"`
	Family *string `json:"family" enum:"v4,v6" example:"v4" doc:"v4 where it is not sent"`
	Owner  struct {
		ID     int64 `json:"id" required:"create" min:"1" doc:"a client's id" example:"1"`
		Server struct {
			ID   *int64  `json:"id" min:"1" example:"4"`
			Name *string `json:"name" example:"fra1-s4"`
		} `json:"server"`
	} `json:"owner"`

	count  int
	family *family
}

// Resolve checks what the tags cannot say.
func (a *allocation) Resolve(invalid *problem.Fields) {
	a.count, a.family = 1, v4
	if a.Count != nil {
		a.count = int(*a.Count)
	}
	if a.Family != nil && *a.Family == v6.short {
		a.family = v6
	}
	if s := a.Owner.Server; s.ID == nil && s.Name != nil {
		invalid.Add("/owner/server/id", "required", "is required where another member of server is set")
	}
	switch {
	case a.Prefix == nil:
	case a.Count != nil:
		invalid.Add("/prefix", "conflict", "cannot stand beside count")
	case int(*a.Prefix) > a.family.bits:
		invalid.Add("/prefix", "out_of_range", "must be from 1 to %d", a.family.bits)
	}
}

type allocateRequest struct {
	Group int64 `path:"*"`
	Body  rest.Body[allocation]
}

type releaseRequest struct {
	ID    int64 `path:"*"`
	Match rest.IfMatch
}

func (s *Service) allocations() []rest.Route {
	return []rest.Route{
		rest.Mutation[allocateRequest, []IPEntity]{
			Method:    http.MethodPost,
			Path:      "/group/{group_id}/allocate",
			Guard:     guard.Has(permission.NetworkEntities),
			Name:      "allocateIPEntities",
			Summary:   "Assign free IP entities of an IP group to a client",
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsEach, Retry: rest.RetryRepeats},
			Example:   `{"count": 1, "owner": {"id": 1}}`,
			Do:        s.allocate,
		},
		rest.Mutation[releaseRequest, IPEntity]{
			Method:    http.MethodPost,
			Path:      "/entity/{entity_id}/release",
			Guard:     guard.Has(permission.NetworkEntities),
			Name:      "releaseIPEntity",
			Summary:   "Take an IP entity back from its client",
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsItem, Retry: rest.RetrySafe, ViewPath: "/entity/{entity_id}"},
			Do:        release,
		},
	}
}

// assigned is what an allocation changes of an entity.
type assigned struct {
	Owner *Owner `json:"owner"`
}

func (s *Service) allocate(ctx context.Context, tx *pg.Tx, req allocateRequest) ([]IPEntity, error) {
	wanted, err := req.Body.New()
	if err != nil {
		return nil, err
	}
	left := 0
	if err := tx.QueryRow(ctx, wanted.family.in(countFree), req.Group, wanted.count).Scan(&left); err != nil {
		return nil, err
	}
	if left < wanted.count { // with those that others are just taking
		return nil, wanted.exhausted(req.Group, left)
	}
	if err := s.clients.Hold(ctx, tx, wanted.Owner.ID, "/owner/id"); err != nil {
		return nil, err
	}
	take := wanted.lowest
	if wanted.Prefix != nil {
		take = wanted.block
	}
	ids, err := take(ctx, tx, req.Group)
	if err != nil {
		return nil, fmt.Errorf("allocate in IP group %d: %w", req.Group, err)
	}
	entities, err := entityView.Some(ctx, tx, ids)
	if err != nil {
		return nil, fmt.Errorf("read what was allocated: %w", err)
	}
	for i := range entities {
		tx.Record(
			pg.Record{
				Kind:    "entity",
				Action:  "allocated",
				Targets: []pg.Target{entities[i].target()},
				Before:  assigned{},
				After:   assigned{entities[i].Owner},
			},
		)
	}
	return entities, nil
}

func (e *IPEntity) target() pg.Target {
	return pg.Target{Type: "entity", Noun: "IP entity", ID: e.ID, Name: e.Name, Version: e.Version}
}

// errTooFew undoes what was taken where it is not enough.
var errTooFew = errors.New("too few are left")

// lowest assigns the lowest free entities that nobody is just taking.
//
// Where these seem to be too few, because others are taking some and might yet give them back, it waits until nobody
// is, and then knows. Before that it gives back itself what it took: of two who wait each could hold what the other
// one lacks.
func (a *allocation) lowest(ctx context.Context, tx *pg.Tx, group int64) (ids []int64, err error) {
	err = tx.Savepoint(ctx, func() error {
		ids, err = a.take(ctx, tx, beside, group)
		return err
	})
	if !errors.Is(err, errTooFew) {
		return ids, err
	}
	if err := allocateAlone(ctx, tx, group); err != nil {
		return nil, err
	}
	ids, err = a.take(ctx, tx, alone, group)
	if errors.Is(err, errTooFew) {
		return nil, a.exhausted(group, len(ids))
	}
	return ids, err
}

// allocateAlone waits until nobody else allocates in the group, and lets nobody begin.
func allocateAlone(ctx context.Context, tx *pg.Tx, group int64) error {
	if _, err := tx.Exec(ctx, "SELECT FROM allocating WHERE stripe = $1::bigint % 32 ORDER BY slot FOR UPDATE", group); err != nil {
		return fmt.Errorf("wait for other allocations in IP group %d: %w", group, err)
	}
	return nil
}

func (a *allocation) exhausted(group int64, left int) error {
	if a.Prefix != nil {
		return problem.Member("/prefix", "exhausted", "is the length of no %s prefix that is free in IP group %d", a.family.name, group)
	}
	return problem.Member("/count", "exhausted", "is more than the %d free %s entities of IP group %d", left, a.family.name, group)
}

// blockTries bounds how often a block is looked for again because an edit took a part of it.
const blockTries = 4

// block assigns all of the lowest prefix of the wanted length that is free: a free entity that is that prefix, or free
// single addresses that fill it.
func (a *allocation) block(ctx context.Context, tx *pg.Tx, group int64) (ids []int64, err error) {
	if err := allocateAlone(ctx, tx, group); err != nil {
		return nil, err
	}
	length := int(*a.Prefix)
	for range blockTries {
		var first netip.Addr
		if first, a.count, err = a.lowestBlock(ctx, tx, group, length); err != nil {
			return nil, err
		}
		if a.count == 0 {
			break
		}
		last := netipx.PrefixLastIP(netip.PrefixFrom(first, length))
		err = tx.Savepoint(ctx, func() error {
			ids, err = a.take(ctx, tx, aloneInBlock, group, first, last)
			return err
		})
		if !errors.Is(err, errTooFew) {
			return ids, err
		}
	}
	return nil, a.exhausted(group, 0)
}

// The statements name a family's columns by {v}.
const (
	countFree = `SELECT (SELECT count(*) FROM (SELECT FROM ip_free WHERE group_id = $1 AND {v}_first IS NOT NULL LIMIT $2) free) FROM ip_group WHERE id = $1`

	// takeFree assigns at most $5 free entities, the lowest first. That none is assigned twice is the primary key's part.
	takeFree = `
		WITH {slot} free AS MATERIALIZED (
			SELECT f.entity_id, f.{v}_first AS first FROM ip_free f JOIN ip_entity e ON e.id = f.entity_id
			WHERE f.group_id = $1 AND {where} ORDER BY f.{v}_first LIMIT $5 {lock}),
		assigned AS (
			INSERT INTO ip_assignment (entity_id, group_id, owner_id, server_id, server_name) SELECT entity_id, $1, $2, $3, $4 FROM free),
		edited AS (
			UPDATE ip_entity e SET version = version + 1 FROM free WHERE e.id = free.entity_id)
		SELECT entity_id FROM free ORDER BY first`

	// slot is any slot of the group's that nobody holds, or one that somebody does, for which it then waits.
	slot = `
		lowest AS MATERIALIZED (SELECT FROM allocating WHERE stripe = $1::bigint % 32 LIMIT 1 FOR UPDATE SKIP LOCKED),
		awaited AS MATERIALIZED (
			SELECT FROM allocating WHERE stripe = $1::bigint % 32 AND slot = pg_backend_pid() % 32 AND NOT EXISTS (SELECT FROM lowest) FOR UPDATE),`

	// The entity is locked first, as by who edits it: who had what is free and waited for the entity could not be got
	// out of the way of an edit that assigns it.
	skipping = `FOR NO KEY UPDATE OF e SKIP LOCKED FOR UPDATE OF f SKIP LOCKED`
	waiting  = `FOR NO KEY UPDATE OF e FOR UPDATE OF f`

	// findBlock finds the lowest free prefix of the length $2: an entity that is one, or $3 addresses in a row, in the
	// lowest chunk that has so large a block. Of chunks that are not folded yet it looks at what is free now.
	findBlock = `
		WITH changed AS MATERIALIZED (SELECT DISTINCT {v}_chunk AS chunk FROM ip_free_delta WHERE group_id = $1 AND {v}_chunk IS NOT NULL),
		large AS (
			SELECT low.chunk FROM generate_series({bits} - 10, $2) size CROSS JOIN LATERAL (
				SELECT chunk FROM ip_free_chunk WHERE group_id = $1 AND bits = size AND chunk <> ALL (ARRAY(SELECT chunk FROM changed)) ORDER BY chunk LIMIT 1) low
			UNION ALL
			SELECT chunk FROM changed CROSS JOIN LATERAL largest_free($1, chunk) l WHERE l.bits <= $2)
		SELECT first, size FROM (
			(SELECT {v}_first AS first, 1 AS size FROM ip_free
			WHERE group_id = $1 AND {v}_bits = $2 AND {v}_bits < {bits} ORDER BY {v}_first LIMIT 1)
			UNION ALL
			(SELECT first, $3::int FROM (SELECT chunk::inet FROM large ORDER BY chunk LIMIT 1) lowest CROSS JOIN LATERAL (
				SELECT {v}_first AS first, lead({v}_first, $3::int - 1) OVER (ORDER BY {v}_first) AS last FROM ip_free
				WHERE group_id = $1 AND {v}_first BETWEEN chunk AND set_masklen(broadcast(chunk), {bits}) AND {v}_bits = {bits}) run
			WHERE last = first + ($3::int - 1)::bigint AND set_masklen(first, $2) = network(set_masklen(first, $2)) ORDER BY first LIMIT 1)
		) block ORDER BY first LIMIT 1`
)

// way is how free entities are taken: with which slot, where from, and what is done about rows that others have locked.
type way struct{ slot, where, lock string }

var (
	beside       = way{slot, `(EXISTS (SELECT FROM lowest) OR EXISTS (SELECT FROM awaited)) AND f.{v}_first IS NOT NULL`, skipping}
	alone        = way{"", `f.{v}_first IS NOT NULL`, waiting}
	aloneInBlock = way{"", `f.{v}_first BETWEEN $6 AND $7`, waiting}
)

// take assigns the lowest free entities. Fewer than are wanted are errTooFew.
func (a *allocation) take(ctx context.Context, tx *pg.Tx, w way, group int64, args ...any) ([]int64, error) {
	sql := a.family.in(takeFree, "{slot}", w.slot, "{where}", a.family.in(w.where), "{lock}", w.lock)
	o := a.Owner
	rows, err := tx.Query(ctx, sql, append([]any{group, o.ID, o.Server.ID, o.Server.Name, a.count}, args...)...)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err == nil && len(ids) < a.count {
		err = errTooFew
	}
	return ids, err
}

// lowestBlock is where the lowest free prefix of this length begins, and of how many entities it consists; 0: there is
// none.
func (a *allocation) lowestBlock(ctx context.Context, tx *pg.Tx, group int64, length int) (first netip.Addr, size int, err error) {
	addresses := 0
	if free := a.family.bits - length; free < bits.Len(mostAllocated) {
		addresses = 1 << free
	}
	err = tx.QueryRow(ctx, a.family.in(findBlock), group, length, addresses).Scan(&first, &size)
	if errors.Is(err, pgx.ErrNoRows) {
		return first, 0, nil
	}
	if err != nil {
		return first, 0, fmt.Errorf("find a free block: %w", err)
	}
	return first, size, nil
}

// release is done also where there is nothing to do, so that it can be sent again.
func release(ctx context.Context, tx *pg.Tx, req releaseRequest) (IPEntity, error) {
	var version int64
	if err := tx.QueryRow(ctx, "SELECT version FROM ip_entity WHERE id = $1 FOR UPDATE", req.ID).Scan(&version); err != nil {
		return IPEntity{}, err
	}
	if err := req.Match.Check(version); err != nil {
		return IPEntity{}, err
	}
	before, err := entityView.Get(ctx, tx, req.ID)
	if err != nil {
		return before, err
	}
	if before.Owner == nil {
		tx.Unrecorded("the entity was assigned to nobody")
		return before, nil
	}
	_, err = tx.Exec(ctx, `
		WITH released AS (DELETE FROM ip_assignment WHERE entity_id = $1)
		UPDATE ip_entity SET version = version + 1 WHERE id = $1`, req.ID)
	if err != nil {
		return before, fmt.Errorf("release IP entity %d: %w", req.ID, err)
	}
	after, err := entityView.Get(ctx, tx, req.ID)
	if err != nil {
		return after, err
	}
	tx.Record(pg.Record{Kind: "entity", Action: "released", Targets: []pg.Target{after.target()}, Before: before, After: after})
	return after, nil
}

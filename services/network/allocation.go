package network

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"
	"go4.org/netipx"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// maxAllocated is the number of entities that one call can assign. Free addresses are counted in chunks of this size.
const maxAllocated = 1024

// allocation is the body of an allocation: how many entities, or which prefix, and for whom.
type allocation struct {
	Count  *int32  `json:"count" min:"1" max:"1024" example:"2" doc:"the number of entities; default 1"`
	Prefix *int32  `json:"prefix" min:"1" max:"128" doc:"instead of count: allocate all addresses of a prefix of this length" example:"29"`
	Family *string `json:"family" enum:"v4,v6" example:"v4" doc:"the address family; default v4"`
	Owner  struct {
		ID     int64 `json:"id" required:"create" min:"1" doc:"a client's id" example:"1"`
		Server struct {
			ID   *int64  `json:"id" min:"1" example:"4"`
			Name *string `json:"name" example:"fra1-s4"`
		} `json:"server" doc:"the server that uses the entities"`
	} `json:"owner" doc:"the client to assign the entities to"`

	count  int
	family *family
}

// Resolve checks the members that depend on each other and sets the defaults.
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
		invalid.Add("/prefix", "conflict", "cannot be combined with count")
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
			Guard:     guard.HasOrClient(permission.NetworkEntities),
			Name:      "releaseIPEntity",
			Summary:   "Release an IP entity from its client",
			Extension: true,
			Doc: "An IP entity that a reseller gave to its sub client returns to the reseller. Any other is quarantined. A client releases " +
				"what it owns, and what it gave to sub clients.",
			Effect: rest.Effect{Logs: rest.LogsItem, Retry: rest.RetrySafe, ViewPath: "/entity/{entity_id}"},
			Do:     s.release,
		},
		s.giving(),
	}
}

// ownership has the members of an entity that an allocation changes, for its record.
type ownership struct {
	Status string `json:"status"`
	Owner  *Owner `json:"owner"`
}

func (s *Service) allocate(ctx context.Context, tx *pg.Tx, req allocateRequest) ([]IPEntity, error) {
	wanted, err := req.Body.New()
	if err != nil {
		return nil, err
	}
	var free int
	var due, isReserved bool
	if err := tx.QueryRow(ctx, wanted.family.writeSQL(countFreeSQL), req.Group, wanted.count).Scan(&free, &due, &isReserved); err != nil {
		return nil, err
	}
	if isReserved && !mayAllocateReserved(ctx) {
		return nil, problem.New(
			problem.Forbidden,
			"IP group %d is reserved. Only an admin with network.groups write can allocate from it.",
			req.Group,
		)
	}
	if due && (free < wanted.count || wanted.Prefix != nil) {
		return nil, pg.RestartAfter(s.endQuarantinesOf(req.Group))
	}
	if free < wanted.count { // free includes entities that open transactions are assigning
		return nil, wanted.exhausted(ctx, tx, req.Group, free)
	}
	if err := s.clients.Hold(ctx, tx, wanted.Owner.ID, "/owner/id"); err != nil {
		return nil, err
	}
	assign := wanted.assignAddresses
	if wanted.Prefix != nil {
		assign = wanted.assignBlock
	}
	ids, err := assign(ctx, tx, req.Group)
	if due && problem.Is(err, problem.Invalid) { // others were faster
		return nil, pg.RestartAfter(s.endQuarantinesOf(req.Group))
	}
	if err != nil {
		return nil, fmt.Errorf("allocate in IP group %d: %w", req.Group, err)
	}
	entities, err := entityView.GetMany(ctx, tx, ids)
	if err != nil {
		return nil, fmt.Errorf("read the allocated entities: %w", err)
	}
	for i := range entities {
		tx.Record(
			pg.Record{
				Kind:    "entity",
				Action:  "allocated",
				Targets: []pg.Target{entities[i].target()},
				Before:  ownership{Status: available},
				After:   ownership{entities[i].Status, entities[i].Owner},
			},
		)
	}
	return entities, nil
}

// mayAllocateReserved reports whether the caller may allocate from reserved groups.
func mayAllocateReserved(ctx context.Context) bool {
	return isAdmin(ctx) && principal.FromContext(ctx).Principal.Holds(permission.NetworkGroups, permission.Write)
}

func (e *IPEntity) target() pg.Target {
	return pg.Target{Type: "entity", Noun: "IP entity", ID: e.ID, Name: e.Name, Version: e.Version}
}

// errTooFew rolls back a partial assignment.
var errTooFew = errors.New("too few entities are free")

// assignAddresses assigns the lowest free entities that no other transaction has locked.
//
// When too few are left, other transactions may still roll back. So it waits until no other allocation in the group is
// open, and tries again. It releases its own locks first: otherwise two callers could each hold what the other needs.
func (a *allocation) assignAddresses(ctx context.Context, tx *pg.Tx, group int64) (ids []int64, err error) {
	err = tx.Savepoint(ctx, func() error {
		ids, err = a.assign(ctx, tx, besideOthers, group)
		return err
	})
	if !errors.Is(err, errTooFew) {
		return ids, err
	}
	if err := allocateAlone(ctx, tx, group); err != nil {
		return nil, err
	}
	ids, err = a.assign(ctx, tx, alone, group)
	if errors.Is(err, errTooFew) {
		return nil, a.exhausted(ctx, tx, group, len(ids))
	}
	return ids, err
}

// allocateAlone waits until no other allocation in the group is open, and blocks new ones until the transaction ends.
func allocateAlone(ctx context.Context, tx *pg.Tx, group int64) error {
	if _, err := tx.Exec(ctx, "SELECT FROM allocating WHERE stripe = $1::bigint % 32 ORDER BY slot FOR UPDATE", group); err != nil {
		return fmt.Errorf("wait for other allocations in IP group %d: %w", group, err)
	}
	return nil
}

// exhausted returns the error for a group with too few free entities. It says when the next quarantine ends.
func (a *allocation) exhausted(ctx context.Context, tx *pg.Tx, group int64, free int) error {
	var next *time.Time
	if err := tx.QueryRow(ctx, a.family.writeSQL(nextFreeSQL), group).Scan(&next); err != nil {
		return fmt.Errorf("read when the next quarantine in IP group %d ends: %w", group, err)
	}
	quarantines := ""
	if next != nil {
		quarantines = fmt.Sprintf(". The next quarantined one is free at %s", next.UTC().Format(time.RFC3339))
	}
	if a.Prefix != nil {
		return problem.Member("/prefix", "exhausted", "cannot be allocated: IP group %d has no free %s /%d%s. "+
			"GET /group/%d/utilization shows its largest free block", group, a.family.name, *a.Prefix, quarantines, group)
	}
	return problem.Member("/count", "exhausted", "is too large: IP group %d has %d free %s entities%s",
		group, free, a.family.name, quarantines)
}

// maxBlockTries is how often a block is searched, since an edit may assign a part of it between search and assignment.
const maxBlockTries = 4

// assignBlock assigns the lowest free prefix of the requested length: either one free entity that is that prefix, or
// single addresses that fill it.
func (a *allocation) assignBlock(ctx context.Context, tx *pg.Tx, group int64) (ids []int64, err error) {
	if err := allocateAlone(ctx, tx, group); err != nil {
		return nil, err
	}
	length := int(*a.Prefix)
	for range maxBlockTries {
		var first netip.Addr
		if first, a.count, err = a.findBlock(ctx, tx, group, length); err != nil {
			return nil, err
		}
		if a.count == 0 {
			break
		}
		last := netipx.PrefixLastIP(netip.PrefixFrom(first, length))
		err = tx.Savepoint(ctx, func() error {
			ids, err = a.assign(ctx, tx, aloneInBlock, group, first, last)
			return err
		})
		if !errors.Is(err, errTooFew) {
			return ids, err
		}
	}
	return nil, a.exhausted(ctx, tx, group, 0)
}

// In these statements {v} stands for the prefix of a family's columns.
const (
	// countFreeSQL counts free entities up to $2. due says whether quarantines in the group have ended.
	countFreeSQL = `
		SELECT (SELECT count(*) FROM (SELECT FROM ip_free WHERE group_id = $1 AND {v}_first IS NOT NULL LIMIT $2) free),
			EXISTS (SELECT FROM ip_assignment WHERE available_at <= now() AND group_id = $1) AS due, reserved
		FROM ip_group WHERE id = $1`

	nextFreeSQL = `
		SELECT min(a.available_at) FROM ip_assignment a JOIN ip_entity e ON e.id = a.entity_id
		WHERE a.available_at > now() AND a.group_id = $1 AND e.{v}_first IS NOT NULL`

	// assignFreeSQL assigns at most $5 free entities, the lowest first. The primary key keeps any from being assigned twice.
	assignFreeSQL = `
		WITH {slot} free AS MATERIALIZED (
			SELECT f.entity_id, f.{v}_first AS first FROM ip_free f JOIN ip_entity e ON e.id = f.entity_id
			WHERE f.group_id = $1 AND {where} ORDER BY f.{v}_first LIMIT $5 {lock}),
		assigned AS (
			INSERT INTO ip_assignment (entity_id, group_id, owner_id, server_id, server_name) SELECT entity_id, $1, $2, $3, $4 FROM free),
		edited AS (
			UPDATE ip_entity e SET version = version + 1 FROM free WHERE e.id = free.entity_id)
		SELECT entity_id FROM free ORDER BY first`

	// slotSQL locks one of the group's slots: a free one, or else it waits for one.
	slotSQL = `
		lowest AS MATERIALIZED (SELECT FROM allocating WHERE stripe = $1::bigint % 32 LIMIT 1 FOR UPDATE SKIP LOCKED),
		awaited AS MATERIALIZED (
			SELECT FROM allocating WHERE stripe = $1::bigint % 32 AND slot = pg_backend_pid() % 32 AND NOT EXISTS (SELECT FROM lowest) FOR UPDATE),`

	// The entity is locked first, as by who edits it: who had what is free and waited for the entity could not be got
	// out of the way of an edit that assigns it.
	skipLockedSQL = `FOR NO KEY UPDATE OF e SKIP LOCKED FOR UPDATE OF f SKIP LOCKED`
	waitSQL       = `FOR NO KEY UPDATE OF e FOR UPDATE OF f`

	// findBlockSQL finds the lowest free prefix of the length $2: an entity that is one, or $3 addresses in a row, in the
	// lowest chunk that has so large a block. Of chunks that are not folded yet it looks at what is free now.
	findBlockSQL = `
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

// assignMode says how free entities are assigned: with or without a slot, from where, and whether locked rows are skipped.
type assignMode struct{ slot, where, lock string }

var (
	besideOthers = assignMode{
		slotSQL,
		`(EXISTS (SELECT FROM lowest) OR EXISTS (SELECT FROM awaited)) AND f.{v}_first IS NOT NULL`,
		skipLockedSQL,
	}
	alone        = assignMode{"", `f.{v}_first IS NOT NULL`, waitSQL}
	aloneInBlock = assignMode{"", `f.{v}_first BETWEEN $6 AND $7`, waitSQL}
)

// assign assigns the lowest free entities and returns their ids. It fails with errTooFew when there are too few.
func (a *allocation) assign(ctx context.Context, tx *pg.Tx, mode assignMode, group int64, args ...any) ([]int64, error) {
	sql := a.family.writeSQL(assignFreeSQL, "{slot}", mode.slot, "{where}", a.family.writeSQL(mode.where), "{lock}", mode.lock)
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

// findBlock returns the first address of the lowest free prefix of this length, and the number of its entities: 0 if
// there is no such prefix.
func (a *allocation) findBlock(ctx context.Context, tx *pg.Tx, group int64, length int) (first netip.Addr, size int, err error) {
	addresses := 0
	if free := a.family.bits - length; free < bits.Len(maxAllocated) {
		addresses = 1 << free
	}
	err = tx.QueryRow(ctx, a.family.writeSQL(findBlockSQL), group, length, addresses).Scan(&first, &size)
	if errors.Is(err, pgx.ErrNoRows) {
		return first, 0, nil
	}
	if err != nil {
		return first, 0, fmt.Errorf("find a free block: %w", err)
	}
	return first, size, nil
}

// release ends an entity's assignment: a sub client's entity returns to the reseller that gave it. It succeeds on an entity without
// an owner, so that the request can be repeated.
func (s *Service) release(ctx context.Context, tx *pg.Tx, req releaseRequest) (IPEntity, error) {
	before, err := lockAssigned(ctx, tx, req.ID, req.Match)
	if err != nil {
		return before, err
	}
	if before.Owner == nil {
		tx.Unrecorded("the entity had no owner already")
		return before, nil
	}
	if err := s.deletionLeases.Acquire(ctx, tx, []int64{req.ID}); err != nil { // no install uses it, or starts to
		return before, err
	}
	if before.Owner.Via != nil {
		return s.pass(ctx, tx, before, "returned", returnSQL)
	}
	if err := s.endOwnership(ctx, tx, []int64{req.ID}); err != nil {
		return before, fmt.Errorf("release IP entity %d: %w", req.ID, err)
	}
	after, err := entityView.Get(ctx, tx, req.ID)
	if err != nil {
		return after, err
	}
	tx.Record(pg.Record{Kind: "entity", Action: "released", Targets: []pg.Target{after.target()}, Before: before, After: after})
	return after, nil
}

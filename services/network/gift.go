package network

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/network/field"
)

// gift is the body of a request that gives an IP entity to a sub client.
type gift struct {
	Owner struct {
		ID int64 `json:"id" required:"create" min:"1" doc:"a client's id" example:"1"`
	} `json:"owner" doc:"the sub client that gets the entity"`
}

type giveRequest struct {
	ID    int64 `path:"*"`
	Match rest.IfMatch
	Body  rest.Body[gift]

	reseller int64 // who gives the entity
	link     int64 // the reseller's link to the sub client; 0: there is none
}

func (s *Service) giving() rest.Route {
	return rest.Mutation[giveRequest, IPEntity]{
		Method:    http.MethodPost,
		Path:      "/entity/{entity_id}/give",
		Guard:     guard.HasOrClient(permission.NetworkEntities),
		Name:      "giveIPEntity",
		Summary:   "Give an IP entity of a reseller to its sub client",
		Extension: true,
		Doc: "The sub client must have been created by the reseller, or linked to it by the operator. owner.via of the IP entity then names " +
			"the reseller. A release returns the IP entity to the reseller. It is quarantined when the link to the sub client ends.",
		Effect:  rest.Effect{Logs: rest.LogsItem, Retry: rest.RetrySafe, ViewPath: "/entity/{entity_id}"},
		Example: `{"owner": {"id": 1}}`,
		Prepare: s.prepareGift,
		Do:      s.give,
	}
}

// prepareGift finds the reseller that owns the entity, and its link to the sub client.
func (s *Service) prepareGift(ctx context.Context, req *giveRequest) error {
	to, err := req.Body.New()
	if err != nil {
		return nil // the transaction reports it
	}
	if req.reseller = principal.FromContext(ctx).Client(); req.reseller == 0 {
		const sql = "SELECT coalesce(via_id, owner_id, 0) FROM ip_assignment WHERE entity_id = $1 AND NOT owner_missing"
		err := s.db.QueryRow(ctx, sql, req.ID).Scan(&req.reseller)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the owner of IP entity %d: %w", req.ID, err)
		}
	}
	reach, err := credentials.AskReach(ctx, s.peers, req.reseller, to.Owner.ID)
	if reach.Whole {
		req.link = reach.Link
	}
	return err
}

// giveSQL passes an entity on to a sub client.
const giveSQL = `
	UPDATE ip_assignment SET owner_id = $2, owner_name = (SELECT name FROM ref WHERE type = 'client' AND id = $2),
		server_id = NULL, server_name = NULL, via_id = $3, via_link = $4 WHERE entity_id = $1`

// give passes an entity from a reseller to its sub client. It succeeds if the sub client has it already, so that the request can be
// repeated.
func (s *Service) give(ctx context.Context, tx *pg.Tx, req giveRequest) (IPEntity, error) {
	to, err := req.Body.New()
	if err != nil {
		return IPEntity{}, err
	}
	before, err := lockAssigned(ctx, tx, req.ID, req.Match)
	if err != nil {
		return before, err
	}
	switch owner := before.Owner; {
	case owner == nil || owner.Missing:
		return before, problem.New(problem.Conflict, "IP entity %d has no owner who could give it. Assign it to a client: PATCH /entity/%d.",
			req.ID, req.ID)
	case owner.Via != nil && owner.ID == to.Owner.ID && owner.Via.ID == req.reseller:
		tx.Unrecorded("the sub client has the entity already")
		return before, nil
	case owner.Via != nil && owner.Via.ID == req.reseller:
		return before, problem.New(problem.Conflict, "IP entity %d was given to %s. Release it first: POST /entity/%d/release.",
			req.ID, owner, req.ID)
	case owner.Via != nil:
		return before, problem.New(problem.Forbidden, "IP entity %d was given by client %s, and cannot be given to another client.",
			req.ID, describe(owner.Via.ID, owner.Via.Name))
	case owner.ID != req.reseller:
		return before, problem.New(problem.Conflict, "The owner of IP entity %d has changed meanwhile. Try again.", req.ID)
	case req.link == 0:
		return before, problem.Member("/owner/id", "not_found",
			"must be a sub client of client %d that it created, or that the operator gave it", req.reseller)
	}
	if err := s.links.Hold(ctx, tx, req.link, "/owner/id"); err != nil { // the link does not end before this is committed
		return before, err
	}
	if err := s.clients.Hold(ctx, tx, to.Owner.ID, "/owner/id"); err != nil {
		return before, err
	}
	if err := s.deletionLeases.Acquire(ctx, tx, []int64{req.ID}); err != nil { // no install uses it, or starts to
		return before, err
	}
	return s.pass(ctx, tx, before, "given", giveSQL, to.Owner.ID, req.reseller, req.link)
}

// pass changes the owner of an entity, clears what the former owner is known by, and records it.
func (s *Service) pass(ctx context.Context, tx *pg.Tx, before IPEntity, action pg.Action, sql string, args ...any) (IPEntity, error) {
	if _, err := tx.Exec(ctx, sql, append([]any{before.ID}, args...)...); err != nil {
		return before, fmt.Errorf("pass IP entity %d on: %w", before.ID, err)
	}
	if err := forgetOwners(ctx, tx, []int64{before.ID}); err != nil {
		return before, err
	}
	after, err := entityView.Get(ctx, tx, before.ID)
	if err != nil {
		return after, fmt.Errorf("read IP entity %d: %w", before.ID, err)
	}
	tx.Record(pg.Record{Kind: "entity", Action: action, Before: before, After: after,
		Targets: []pg.Target{after.target(), after.Owner.target(), before.Owner.target()}})
	return after, nil
}

// returnSQL gives an entity back to the reseller.
const returnSQL = `
	UPDATE ip_assignment SET owner_id = via_id, owner_name = (SELECT name FROM ref WHERE type = 'client' AND id = via_id),
		server_id = NULL, server_name = NULL WHERE entity_id = $1`

// lockAssigned locks an entity and returns it. A client sees the entities that it owns, and those that it gave to sub clients.
func lockAssigned(ctx context.Context, tx *pg.Tx, id int64, match rest.IfMatch) (IPEntity, error) {
	var version int64
	if err := tx.QueryRow(ctx, "SELECT version FROM ip_entity WHERE id = $1 FOR UPDATE", id).Scan(&version); err != nil {
		return IPEntity{}, err
	}
	var where []pg.Condition
	if client := principal.FromContext(ctx).Client(); client != 0 {
		where = []pg.Condition{{SQL: "(owner_id = $1 OR owner_via_id = $1) AND NOT owner_missing", Args: []any{client}}}
	}
	entity, err := entityView.Get(ctx, tx, id, where...)
	if err == nil {
		err = match.Check(version)
	}
	return entity, err
}

// readScope limits a client to the entities that are assigned to it. If it asks for their owner, or for one of them, it also sees
// those of a sub client that it reaches whole. With via it sees those that it gave to sub clients.
func (s *Service) readScope(ctx context.Context, asked url.Values, id int64) ([]pg.Condition, error) {
	client := principal.FromContext(ctx).Client()
	if client == 0 {
		return nil, nil
	}
	owner, _ := strconv.ParseInt(asked.Get("owner"), 10, 64)
	if asked.Has("owner_id") {
		owner, _ = strconv.ParseInt(asked.Get("owner_id"), 10, 64)
	}
	if id != 0 {
		err := s.db.QueryRow(ctx, "SELECT coalesce(owner_id, 0) FROM ip_assignment WHERE entity_id = $1", id).Scan(&owner)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, fmt.Errorf("read the owner of IP entity %d: %w", id, err)
		}
	}
	if asked.Get("via") == strconv.FormatInt(client, 10) {
		return []pg.Condition{{SQL: "owner_via_id = $1", Args: []any{client}}}, nil
	}
	isVisible, err := credentials.IsVisible(ctx, s.peers, client, owner)
	if !isVisible {
		owner = client
	}
	return []pg.Condition{{SQL: "owner_id = $1 AND NOT owner_missing", Args: []any{owner}}}, err
}

// endGifts handles the end of a reseller's link to a sub client: what the one gave the other is quarantined.
func (s *Service) endGifts(ctx context.Context, tx *pg.Tx, link int64, _ string) error {
	return s.releaseAll(ctx, tx, "via_link = $1", link)
}

// forgetOwners clears what the former owners of entities are known by.
func forgetOwners(ctx context.Context, tx *pg.Tx, ids []int64) error {
	if _, err := tx.Exec(ctx, "UPDATE ip_entity SET nickname = NULL, version = version + 1 WHERE id = ANY ($1)", ids); err != nil {
		return fmt.Errorf("clear the names of IP entities: %w", err)
	}
	return field.ClearReleased(ctx, tx, ids)
}

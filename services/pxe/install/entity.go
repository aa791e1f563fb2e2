package install

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/pxe/reference"
)

// entityState is what a change of an IP entity has of its addresses, and of whose they are.
type entityState struct {
	FullIP    string `json:"full_ip"`
	V6Address string `json:"v6_address"`
	Owner     struct {
		ID int64 `json:"id"`
	} `json:"owner"`
}

// FollowEntities returns the consumer of IP entities. Where the addresses of one come to be somebody else's, the machine that was
// installed with it is no longer given them.
func (s *Installs) FollowEntities() *events.Consumer {
	c := s.Entities.Consumer()
	c.Name = "entities"
	follow := c.Apply
	c.Apply = func(ctx context.Context, tx *pg.Tx, changes []events.Event) error {
		if err := follow(ctx, tx, changes); err != nil {
			return err
		}
		for _, e := range changes {
			left, client, err := leaves(e)
			if err != nil {
				return fmt.Errorf("read what became of an IP entity: %w", err)
			}
			for _, target := range e.Targets {
				if !left || target.Type != s.Entities.Type {
					continue
				}
				if err := s.entityLeft(ctx, tx, target.ID, client); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return c
}

// leaves tells whether the machines that were installed with an IP entity leave it, but for those of the client that has it from then
// on: it has other addresses, was taken back from a client, or was allocated to one.
func leaves(e events.Event) (left bool, client int64, err error) {
	if e.Before == nil || e.After == nil {
		return false, 0, nil
	}
	var before, after entityState
	if err := json.Unmarshal(e.Before, &before); err != nil {
		return false, 0, err
	}
	if err := json.Unmarshal(e.After, &after); err != nil {
		return false, 0, err
	}
	if before.FullIP != after.FullIP || before.V6Address != after.V6Address {
		return true, 0, nil
	}
	given := before.Owner.ID == 0 && e.Action != "allocated" // to whom it is may well have the machine
	return before.Owner.ID != after.Owner.ID && !given, after.Owner.ID, nil
}

// UsedEntities returns the internal route by which network asks, before it deletes many IP entities, which of them installs use.
func (s *Installs) UsedEntities() rest.Route {
	return rest.Read[rest.None, []usedEntity]{Path: "/internal/installed-entities", Guard: guard.Peers("network"), Do: s.usedEntities}
}

// usedEntity is an IP entity that a machine is being installed with.
type usedEntity struct {
	ID   int64  `json:"id"`
	Uses string `json:"uses"`
}

func (s *Installs) usedEntities(ctx context.Context, _ rest.None) ([]usedEntity, error) {
	rows, err := s.DB.Query(
		ctx,
		"SELECT host_entity_id, format('is used by install %s (%s), which has not ended', id, host_hostname) FROM install WHERE "+
			reference.InstallUnderWay+" ORDER BY 1",
	)
	if err != nil {
		return nil, fmt.Errorf("read which IP entities are used: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[usedEntity])
}

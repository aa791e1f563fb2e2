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

// entitySnapshot holds the addresses and the owner of an IP entity before or after a change.
type entitySnapshot struct {
	FullIP    string `json:"full_ip"`
	V6Address string `json:"v6_address"`
	Owner     struct {
		ID int64 `json:"id"`
	} `json:"owner"`
}

// FollowEntities returns the consumer of changes of IP entities. When an entity's addresses pass to another owner, DHCP
// stops offering them to the machine that was installed with the entity.
func (s *Installs) FollowEntities() *events.Consumer {
	c := s.Entities.Consumer()
	c.Name = "entities"
	follow := c.Apply
	c.Apply = func(ctx context.Context, tx *pg.Tx, changes []events.Event) error {
		if err := follow(ctx, tx, changes); err != nil {
			return err
		}
		for _, e := range changes {
			released, client, err := findReleased(e)
			if err != nil {
				return fmt.Errorf("parse the change of an IP entity: %w", err)
			}
			for _, target := range e.Targets {
				if !released || target.Type != s.Entities.Type {
					continue
				}
				if err := s.releaseEntity(ctx, tx, target.ID, client); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return c
}

// findReleased reports whether a change releases the addresses of the machines that were installed with the entity. It
// does if the addresses changed, or if the owner did. client (0: none) is the new owner: its own machines keep the
// addresses.
func findReleased(e events.Event) (released bool, client int64, err error) {
	if e.Before == nil || e.After == nil {
		return false, 0, nil
	}
	var before, after entitySnapshot
	if err := json.Unmarshal(e.Before, &before); err != nil {
		return false, 0, err
	}
	if err := json.Unmarshal(e.After, &after); err != nil {
		return false, 0, err
	}
	if before.FullIP != after.FullIP || before.V6Address != after.V6Address {
		return true, 0, nil
	}
	isAllocated := before.Owner.ID == 0 &&
		e.Action != "allocated" // an entity without an owner is assigned to a client, which may own the machine
	return before.Owner.ID != after.Owner.ID && !isAllocated, after.Owner.ID, nil
}

// UsedEntities returns the internal route that lists the IP entities of unfinished installs. The network service asks it
// before it deletes many entities.
func (s *Installs) UsedEntities() rest.Route {
	return rest.Read[rest.None, []usedEntity]{Path: "/internal/installed-entities", Guard: guard.Peers("network"), Do: s.usedEntities}
}

// usedEntity is an IP entity of an unfinished install.
type usedEntity struct {
	ID    int64  `json:"id"`
	Usage string `json:"uses"`
}

// usedEntities returns the IP entities of unfinished installs.
func (s *Installs) usedEntities(ctx context.Context, _ rest.None) ([]usedEntity, error) {
	rows, err := s.DB.Query(
		ctx,
		"SELECT host_entity_id, format('is used by install %s (%s) that has not ended', id, host_hostname) FROM install WHERE "+
			reference.InstallUnfinished+" AND NOT (by_client AND status = 'waiting') ORDER BY 1", // which a release cancels
	)
	if err != nil {
		return nil, fmt.Errorf("read the used IP entities: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[usedEntity])
}

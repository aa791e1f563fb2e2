package pxe

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// entityState is what a change of an IP entity has of its addresses, and of whose they are.
type entityState struct {
	FullIP    string `json:"full_ip"`
	V6Address string `json:"v6_address"`
	Owner     struct {
		ID int64 `json:"id"`
	} `json:"owner"`
}

// followEntities follows IP entities, of which the addresses may come to be others': a machine that was installed with one has it no
// longer then.
func (s *Service) followEntities() *events.Consumer {
	c := added(s.entities, "entities")
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
				if !left || target.Type != s.entities.Type {
					continue
				}
				if err := s.installs.EntityLeft(ctx, tx, target.ID, client); err != nil {
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

package network

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/fault"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/rest"
)

// IPGroup is a site's address space.
type IPGroup struct {
	rest.Versioned
	ID            int64    `json:"id" db:"id"`
	Name          string   `json:"name" db:"name"`
	BillingID     *string  `json:"billing_id,omitempty" db:"billing_id"`
	Reserved      bool     `json:"reserved" db:"reserved"`
	Entities      Entities `json:"entities" db:"entities_"`
	EntitiesCount int64    `json:"entitiesCount" db:"entities_count"`
	Servers       Servers  `json:"servers" db:"servers_"`

	Fields []ShownField `json:"fields,omitempty" doc:"with include=fields"`
}

// Entities counts a group's entities.
type Entities struct {
	Count int64 `json:"count" db:"count"`
}

// Servers counts the distinct servers that a group's entities are assigned to, and those of them in the inventory.
type Servers struct {
	Count     int64 `json:"count" db:"count"`
	Inventory int64 `json:"inventory" db:"inventory"`
}

type ipGroupBody struct {
	Name      string  `json:"name" db:"name" required:"create" example:"Frankfurt 1"`
	BillingID *string `json:"billing_id" db:"billing_id" example:"FRA1"`
	Reserved  bool    `json:"reserved" db:"reserved" example:"false"`
}

func (s *Service) ipGroups() []rest.Route {
	return rest.Resource[IPGroup, ipGroupBody]{
		DB: s.db, Path: "/group", ID: "group_id", Noun: "IP group",
		Guard: principal.NetworkGroups, Table: "ip_group", View: "ip_group_view",
		Includes: map[string]func(context.Context, pg.Querier, *IPGroup) error{"fields": func(ctx context.Context, q pg.Querier, item *IPGroup) (err error) {
			item.Fields, err = shownFields(ctx, q, "group", item.ID)
			return err
		}},
		By:     rest.By{Search: rest.SearchText, Sorts: []string{"name"}, Filters: map[string]string{"billing_id": "billing_id", "reserved": "reserved"}},
		Delete: deleteIPGroup,
	}.Routes()
}

// deleteIPGroup names what is in the way. That nothing comes into the way in between is the foreign key's part.
func deleteIPGroup(ctx context.Context, tx *pg.Tx, group *IPGroup) error {
	if n := group.EntitiesCount; n > 0 {
		first, err := entityView.One(ctx, tx, "id = (SELECT min(id) FROM ip_entity WHERE group_id = $1)", group.ID)
		if err != nil {
			return fmt.Errorf("find an entity of the group: %w", err)
		}
		users := fmt.Sprintf("IP entity %d (%s)", first.ID, first.Name)
		if n > 1 {
			users += fmt.Sprintf(" and %d more", n-1)
		}
		return fault.New(fault.Conflict, "IP group %d is in use by %s.", group.ID, users)
	}
	var id int64
	var name string
	err := tx.QueryRow(ctx, "SELECT id, name FROM forward_gateway WHERE id = (SELECT min(gateway_id) FROM forward_gateway_group WHERE group_id = $1)", group.ID).Scan(&id, &name)
	if err == nil {
		return fault.New(fault.Conflict, "IP group %d is in use by forwarding gateway %d (%s).", group.ID, id, name)
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("find a forwarding gateway of the group: %w", err)
	}
	_, err = tx.Exec(ctx, "DELETE FROM ip_group WHERE id = $1", group.ID)
	return err
}

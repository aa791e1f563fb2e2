package network

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/network/field"
)

// IPGroup is a site's address space.
type IPGroup struct {
	rest.Versioned
	ID            int64     `json:"id" db:"id"`
	Name          string    `json:"name" db:"name"`
	BillingID     *string   `json:"billing_id,omitempty" db:"billing_id"`
	Reserved      bool      `json:"reserved" db:"reserved" doc:"whether only admins with network.groups write can allocate from the group"`
	Entities      Entities  `json:"entities" db:"entities_" recorded:"false" doc:"counts the IP entities of the group"`
	EntitiesCount int64     `json:"entitiesCount" db:"entities_count" recorded:"false" doc:"the number of IP entities of the group"`
	Servers       Servers   `json:"servers" db:"servers_" recorded:"false" doc:"counts the servers of the group"`
	DHCPServer    *rest.Ref `json:"pxe_dhcp_server,omitempty" db:"pxe_dhcp_server_" doc:"the DHCP server of this site's machines"`

	Fields []field.ShownField `json:"fields,omitzero" doc:"with include=fields"`
}

// Entities counts a group's entities.
type Entities struct {
	Count int64 `json:"count" db:"count" doc:"the number of IP entities"`
}

// Servers counts the distinct servers of a group's entities, and how many of these are in the inventory.
type Servers struct {
	Count     int64 `json:"count" db:"count" doc:"the number of distinct servers"`
	Inventory int64 `json:"inventory" db:"inventory" doc:"the number of these servers in the inventory"`
}

type ipGroupBody struct {
	Name       string      `json:"name" db:"name" required:"create" example:"Frankfurt 1"`
	BillingID  *string     `json:"billing_id" db:"billing_id" example:"FRA1"`
	Reserved   bool        `json:"reserved" db:"reserved" example:"false" doc:"whether only admins with network.groups write can allocate from the group"`
	DHCPServer *rest.RefID `json:"pxe_dhcp_server" db:"pxe_dhcp_server_id" doc:"the id of a DHCP server from /pxe/dhcp"`
}

func (s *Service) ipGroups() []rest.Route {
	return rest.Resource[IPGroup, ipGroupBody]{
		Path:        "/group",
		ID:          "group_id",
		Noun:        "IP group",
		Retry:       rest.RetryRefused,
		EditExample: `{"name": "Frankfurt 2", "reserved": true}`,
		Guard:       guard.Has(permission.NetworkGroups),
		Table:       "ip_group",
		View:        "ip_group_view",
		Includes: map[string]func(context.Context, pg.Querier, *IPGroup) error{
			"fields": func(ctx context.Context, q pg.Querier, item *IPGroup) (err error) {
				item.Fields, err = field.ListShown(ctx, q, "group", item.ID)
				return err
			},
		},
		List: rest.ListOptions{
			Search: rest.SearchIn("search"),
			Sorts:  map[string]string{"name": "name"},
			Filters: map[string]string{
				"billing_id":         "billing_id",
				"name":               "name",
				"pxe_dhcp_server_id": "pxe_dhcp_server_id",
				"reserved":           "reserved",
			},
		},
		Check:  s.checkDHCPServer,
		Delete: deleteIPGroup,
	}.Routes()
}

// checkDHCPServer refuses a new DHCP server that does not exist, and keeps it from being deleted until the commit. One
// that stays the same is not checked: it may be about to be cleared.
func (s *Service) checkDHCPServer(ctx context.Context, tx *pg.Tx, _ int64, before, body *ipGroupBody) error {
	if body.DHCPServer == nil || before != nil && before.DHCPServer != nil && *before.DHCPServer == *body.DHCPServer {
		return nil
	}
	return s.dhcpServers.Hold(ctx, tx, int64(*body.DHCPServer), "/pxe_dhcp_server")
}

// clearDHCPServer removes a deleted DHCP server from the groups that refer to it.
func clearDHCPServer(ctx context.Context, tx *pg.Tx, id int64, name string) error {
	rows, err := tx.Query(ctx, `
		UPDATE ip_group SET pxe_dhcp_server_id = NULL, version = version + 1 WHERE pxe_dhcp_server_id = $1
		RETURNING 'group' AS type, 'IP group' AS noun, id, name, version`, id)
	if err != nil {
		return fmt.Errorf("clear DHCP server %d: %w", id, err)
	}
	groups, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pg.Target])
	if err != nil {
		return fmt.Errorf("clear DHCP server %d: %w", id, err)
	}
	for _, group := range groups {
		tx.Record(pg.Record{Kind: "group", Action: pg.Edited, Targets: []pg.Target{group},
			Before: map[string]rest.Ref{"pxe_dhcp_server": {ID: id, Name: name}}, After: struct{}{}})
	}
	return nil
}

// deleteIPGroup refuses while entities or forwarding gateways use the group. The foreign keys catch those that are
// added meanwhile.
func deleteIPGroup(ctx context.Context, tx *pg.Tx, group *IPGroup) error {
	if n := group.EntitiesCount; n > 0 {
		first, err := entityView.Find(ctx, tx, "id = (SELECT min(id) FROM ip_entity WHERE group_id = $1)", group.ID)
		if err != nil {
			return fmt.Errorf("find an entity of the group: %w", err)
		}
		users := fmt.Sprintf("IP entity %d (%s)", first.ID, first.Name)
		if n > 1 {
			users += fmt.Sprintf(" and %d more", n-1)
		}
		return problem.New(problem.Conflict, "IP group %d is in use by %s. Delete its entities first.", group.ID, users)
	}
	var id int64
	var name string
	err := tx.QueryRow(ctx, "SELECT id, name FROM forward_gateway WHERE id = (SELECT min(gateway_id) FROM forward_gateway_group "+
		"WHERE group_id = $1)", group.ID).
		Scan(&id, &name)
	if err == nil {
		return problem.New(problem.Conflict, "IP group %d is in use by forwarding gateway %d (%s). Delete it first.", group.ID, id, name)
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("find a forwarding gateway of the group: %w", err)
	}
	_, err = tx.Exec(ctx, "DELETE FROM ip_group WHERE id = $1", group.ID)
	return err
}

package pxe

import (
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/rest"
)

// Discovery is a machine that asked to boot but has no install.
type Discovery struct {
	rest.Versioned
	ID          int64             `json:"id" db:"id"`
	Name        string            `json:"name" db:"name" doc:"The MAC address of the machine."`
	Address     string            `json:"address" db:"address" doc:"The IP address that the machine had when it was last seen."`
	Facts       map[string]string `json:"facts" db:"facts" doc:"What the machine reported about itself, such as uuid, serial, manufacturer, product, firmware and further MAC addresses."`
	DHCPServer  *rest.Ref         `json:"dhcp_server,omitempty" db:"dhcp_server_" doc:"The DHCP server that the machine asked. Left out after its deletion."`
	FirstSeenAt rest.Timestamp    `json:"first_seen_at" db:"first_seen_at" doc:"When the machine was first seen."`
	SeenAt      rest.Timestamp    `json:"seen_at" db:"seen_at" doc:"When the machine was last seen."`
}

// discoveryBody names the column of a discovery. No operation takes it as a body.
type discoveryBody struct {
	Name string `db:"name"`
}

// discoveries returns the routes of discovered machines.
func (s *Service) discoveries() []rest.Route {
	return rest.Resource[Discovery, discoveryBody]{
		Path:       "/pxe/discovery",
		ID:         "discovery_id",
		Noun:       "discovered machine",
		Guard:      guard.Has(permission.PXEInstalls),
		Retry:      rest.RetryRefused,
		Table:      "discovery",
		View:       "discovery_view",
		Without:    rest.Creating | rest.Editing,
		Extensions: rest.Listing | rest.Viewing | rest.Deleting,
		List: rest.ListOptions{
			Sorts:   map[string]string{"seen_at": "seen_at"},
			Filters: map[string]string{"mac": "name", "dhcp_server": "dhcp_server_id"},
		},
	}.Routes()
}

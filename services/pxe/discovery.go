package pxe

import (
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/rest"
)

// Discovery is a machine that asked to boot, and that nobody named.
type Discovery struct {
	rest.Versioned
	ID          int64             `json:"id" db:"id"`
	Name        string            `json:"name" db:"name" doc:"the MAC address that it asked with"`
	Address     string            `json:"address" db:"address" doc:"which it had then"`
	Facts       map[string]string `json:"facts" db:"facts" doc:"what it said of itself, such as uuid, serial, manufacturer, product, firmware and its other MAC addresses"`
	DHCPServer  *rest.Ref         `json:"dhcp_server,omitempty" db:"dhcp_server_" doc:"whose agent it asked; left out once that is deleted"`
	FirstSeenAt rest.Timestamp    `json:"first_seen_at" db:"first_seen_at"`
	SeenAt      rest.Timestamp    `json:"seen_at" db:"seen_at"`
}

// discoveryBody is nothing that anybody sends.
type discoveryBody struct {
	Name string `db:"name"`
}

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

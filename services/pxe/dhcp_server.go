package pxe

import (
	"context"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/pxe/reference"
	"github.com/ironplane/ironplane/services/pxe/site"
)

// DHCPServer is the agent at a site that gives machines an address and a boot script.
type DHCPServer struct {
	rest.Versioned
	ID   int64  `json:"id" db:"id"`
	Name string `json:"name" db:"name"`
	HTTP HTTP   `json:"http" db:"http_" doc:"How the agent is called."`

	Health       *site.AgentHealth `json:"health,omitempty" ext:"true" doc:"The agent's health. Only with include=health."`
	HealthStatus string            `json:"-" db:"health"` // the filter of lists
}

// dhcpServerBody is the body that creates or edits a DHCP server.
type dhcpServerBody struct {
	Name string   `json:"name" db:"name" required:"create" example:"Frankfurt 1"`
	HTTP httpBody `json:"http" db:"http_" doc:"How the agent is called."`
}

// Resolve checks what struct tags cannot express.
func (b *dhcpServerBody) Resolve(invalid *problem.Fields) { b.HTTP.validate(invalid) }

// dhcpServers returns the routes of DHCP servers.
func (s *Service) dhcpServers() []rest.Route {
	return rest.Resource[DHCPServer, dhcpServerBody]{
		Path:        "/pxe/dhcp",
		ID:          "dhcp_id",
		Noun:        "DHCP server",
		Retry:       rest.RetryRefused,
		EditExample: `{"name": "Frankfurt 2"}`,
		Guard:       guard.Has(permission.PXESettings),
		Table:       "dhcp_server",
		View:        "dhcp_server_view",
		Box:         s.box,
		Check: func(_ context.Context, _ *pg.Tx, _ int64, before, body *dhcpServerBody) error {
			if before == nil {
				return nil
			}
			return body.HTTP.requireKey(&before.HTTP)
		},
		Delete: func(ctx context.Context, tx *pg.Tx, d *DHCPServer) error {
			return reference.DeleteUnlessInstalls(ctx, tx, "dhcp_server", "DHCP server", "dhcp_server_id", d.ID)
		},
		Includes: map[string]func(context.Context, pg.Querier, *DHCPServer) error{
			"health": func(ctx context.Context, q pg.Querier, one *DHCPServer) (err error) {
				one.Health, err = site.LoadHealth(ctx, q, site.DHCPServer, one.ID)
				return err
			},
		},
		List: rest.ListOptions{
			Search:  rest.SearchIn("search"),
			Sorts:   map[string]string{"name": "name", "host": "http_host"},
			Filters: map[string]string{"name": "name", "host": "http_host", "health": "health"},
		},
	}.Routes()
}

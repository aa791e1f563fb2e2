// Package pxe is the bounded context of network boot. There are DHCP servers; file servers, ISOs, drivers, preseeds,
// profiles and shell scripts are not built yet.
package pxe

import (
	"embed"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
)

// Name is the service's name, and its schema's.
const Name = "pxe"

//go:embed migrations/*.sql
var migrations embed.FS

// Definition is the service.
var Definition = service.Definition{Name: Name, Migrations: migrations, Seals: true, Sealed: []string{"dhcp_server.http_api_key"}, New: func(d service.Deps) service.Parts {
	return service.Parts{Routes: New(d.DB, d.Box).Routes(), Readers: []string{"network"}}
}}

// Service is the pxe service.
type Service struct {
	db  *pg.DB
	box *seal.Box
}

// New makes the service on its migrated schema.
func New(db *pg.DB, box *seal.Box) *Service { return &Service{db, box} }

// Routes are what the service answers.
func (s *Service) Routes() []rest.Route {
	dhcpServers := rest.Section{Name: "DHCP servers", Doc: "The agents at the sites that answer machines which ask for an address and what to boot."}.Of(s.dhcpServers())
	return append(dhcpServers, events.RefRoute(s.db, "pxe/dhcp", "dhcp_server", "NULL::jsonb", "network"))
}

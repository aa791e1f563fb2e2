// Package pxe is the bounded context of network boot. There are DHCP servers and file servers; ISOs, drivers,
// preseeds, profiles and shell scripts are not built yet.
package pxe

import (
	"embed"
	"slices"

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
var Definition = service.Definition{Name: Name, Migrations: migrations, Seals: true, Sealed: []string{"dhcp_server.http_api_key", "file_server.http_api_key"}, New: func(d service.Deps) service.Parts {
	s := New(d)
	return service.Parts{Routes: s.Routes(), Readers: []string{"network"}, Consumers: []*events.Consumer{s.groups.Consumer()}}
}}

// Service is the pxe service.
type Service struct {
	db     *pg.DB
	box    *seal.Box
	groups *events.Refs
}

// New makes the service on its migrated schema.
func New(d service.Deps) *Service {
	return &Service{db: d.DB, box: d.Box, groups: &events.Refs{Owner: "network", Type: "group", DB: d.DB, Peers: d.Peers, Cleared: clearGroup}}
}

// Routes are what the service answers.
func (s *Service) Routes() []rest.Route {
	return slices.Concat(
		rest.Section{Name: "DHCP servers", Doc: "The agents at the sites that answer machines which ask for an address and what to boot."}.Of(s.dhcpServers()),
		rest.Section{Name: "File servers", Doc: "The agents at the sites that have the files which installations read."}.Of(s.fileServers()),
		[]rest.Route{events.RefRoute(s.db, "pxe/dhcp", "dhcp_server", "NULL::jsonb", "network")},
	)
}

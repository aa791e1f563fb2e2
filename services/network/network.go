// Package network is the bounded context of IP space: groups, entities and their allocation,
// forwarding, custom fields and port speeds.
package network

import (
	"embed"
	"slices"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/wake"
	"github.com/ironplane/ironplane/services/network/field"
)

// Name is the service's name, and its schema's.
const Name = "network"

//go:embed migrations/*.sql schema/*/*.sql
var migrations embed.FS

// Definition is the service.
var Definition = service.Definition{
	Name:  Name,
	Paths: []string{"entity", "field", "forward", "group", "port-speed"},
	Topics: map[string][]permission.Permission{
		"group":      {permission.NetworkGroups},
		"entity":     {permission.NetworkEntities},
		"forward":    {permission.NetworkForward},
		"port-speed": {permission.NetworkSwitches},
		"field":      {permission.SystemSettings},
		"field.value": { // of all targets
			permission.UsersClients,
			permission.NetworkEntities,
			permission.NetworkGroups,
			permission.ServerSettings,
		},
	},
	Migrations: migrations,
	Parameters: parameters,
	Seals:      true,
	Sealed:     []string{"forward_gateway.api_key"},
	New: func(d service.Deps) service.Parts {
		s := New(d.DB, d.Box, d.Peers)
		return service.Parts{
			Routes:    s.Routes(),
			Loops:     s.Loops(d.Wakes),
			Readers:   []string{"clients", "pxe"},
			Consumers: []*events.Consumer{s.dhcpServers.Consumer(), s.clients.Consumer()},
		}
	},
}

// parameters keep the planner from what it misjudges here.
var parameters = map[string]string{
	// Of a page deep inside a list it thinks that a merge join begins there. The join begins at the first row.
	"enable_mergejoin": "off",
	// It knows little of what boxes hold. Where it takes a few rows for many, to start workers or to compile takes longer
	// than all else.
	"max_parallel_workers_per_gather": "0",
	"jit":                             "off",
}

// Service is the network service.
type Service struct {
	db          *pg.DB
	box         *seal.Box
	dhcpServers *events.Refs
	clients     *events.Refs
	closing     *events.Closing // of entities
	peers       mesh.Peers
}

// New makes the service on its migrated schema.
func New(db *pg.DB, box *seal.Box, peers mesh.Peers) *Service {
	return &Service{db, box,
		&events.Refs{Owner: "pxe", Type: "pxe/dhcp", DB: db, Peers: peers, Cleared: clearDHCPServer},
		&events.Refs{Owner: "clients", Type: "client", DB: db, Peers: peers, Cleared: missClient, Uses: assignedTo},
		&events.Closing{DB: db, Peers: peers, Type: "entity", Noun: "IP entity", Table: "ip_entity", Users: []string{"pxe"}}, peers}
}

// Routes are what the service answers.
func (s *Service) Routes() []rest.Route {
	return slices.Concat(
		rest.Section{Name: "IP groups", Doc: "An IP group is a site's address space."}.Routes(s.ipGroups(), []rest.Route{s.utilization()}),
		rest.Section{
			Name: "IP entities",
			Doc:  "An IP entity is an address, a range or a prefix, of IPv4, of IPv6 or of both. No two overlap.",
		}.Routes(
			s.ipEntities(),
			s.allocations(),
			[]rest.Route{entitySeries, s.entityRemoval()},
		),
		rest.Section{Name: "Forwarding", Doc: "Machines that forward ports or addresses to servers, and the ways in which they do."}.Routes(
			s.forwardGateways(), s.forwardTypes()),
		rest.Section{
			Name: "Custom fields",
			Doc:  "Fields of clients, IP entities, IP groups and servers beside those that the API has, and what they hold.",
		}.Routes(
			(&field.Fields{DB: s.db, Clients: s.clients}).Routes(),
		),
		rest.Section{Name: "Port speeds", Doc: "The speeds that switch ports are sold at."}.Routes(s.portSpeeds()),
		[]rest.Route{s.clients.CloseRoute(), s.clientServers(), events.RefRoute(s.db, "group", "ip_group", "NULL::jsonb", "pxe"),
			events.RefRoute(s.db, "entity", "ip_entity", "NULL::jsonb", "pxe"), s.machineAddress()},
	)
}

// Loops are what the service does besides answering.
func (s *Service) Loops(wakes *wake.Bus) []service.Loop {
	return []service.Loop{
		service.Woken(wakes.Listen(Name, wake.Changes), foldRest, "fold counts", s.FoldCounts),
		service.Every(time.Hour, "find the owners of before", s.FindOwners),
	}
}

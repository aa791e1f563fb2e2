// Package network serves IP space: groups, entities and their allocation, forwarding, custom fields and port speeds.
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
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/wake"
	"github.com/ironplane/ironplane/services/network/field"
)

// Name is the name of the service and of its database schema.
const Name = "network"

//go:embed migrations/*.sql schema/*/*.sql
var migrations embed.FS

// Definition describes the service to the programs that run it.
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
	Parameters: plannerParameters,
	Seals:      true,
	Sealed:     []string{"forward_gateway.api_key"},
	New: func(d service.Deps) service.Parts {
		s := New(d.DB, d.Box, d.Peers)
		return service.Parts{
			Metrics:   s.Metrics(),
			Routes:    s.Routes(),
			Tasks:     s.Loops(d.Wakes),
			Readers:   []string{"clients", "pxe"},
			Consumers: []*events.Consumer{s.dhcpServers.Consumer(), s.clients.Consumer(), s.followLinks()},
		}
	},
}

// plannerParameters are PostgreSQL settings that keep the planner from plans that are slow here.
var plannerParameters = map[string]string{
	// For a page deep inside a list the planner assumes that a merge join starts at that page. It starts at the first row.
	"enable_mergejoin": "off",
	// The planner has no good statistics on boxes. When it mistakes a few rows for many, starting workers or compiling
	// takes longer than the query.
	"max_parallel_workers_per_gather": "0",
	"jit":                             "off",
}

// Service answers the operations on IP space and keeps its counts up to date.
type Service struct {
	Settings *settings.Follower // its values say how long a quarantine is

	db             *pg.DB
	box            *seal.Box
	dhcpServers    *events.Refs
	clients        *events.Refs
	links          *events.Refs   // by which resellers reach sub clients
	deletionLeases *events.Leases // of IP entities; also while an ownership ends
	peers          mesh.Peers
}

// New returns a service on a database whose schema is migrated.
func New(db *pg.DB, box *seal.Box, peers mesh.Peers) *Service {
	s := &Service{
		Settings:       &settings.Follower{Peers: peers},
		db:             db,
		box:            box,
		dhcpServers:    &events.Refs{Owner: "pxe", Type: "pxe/dhcp", DB: db, Peers: peers, Clear: clearDHCPServer},
		deletionLeases: &events.Leases{DB: db, Peers: peers, Type: "entity", Noun: "IP entity", Table: "ip_entity", Users: []string{"pxe"}},
		peers:          peers,
	}
	s.clients = &events.Refs{Owner: "clients", Type: "client", DB: db, Peers: peers, Clear: s.releaseClient, FindUsage: describeAssignments}
	s.links = &events.Refs{Owner: "clients", Type: "client/sub", DB: db, Peers: peers, Clear: s.endGifts}
	return s
}

// followLinks returns the consumer of the links that end.
func (s *Service) followLinks() *events.Consumer {
	c := s.links.Consumer()
	c.Name = "links"
	return c
}

// Routes returns all operations of the service, internal ones included.
func (s *Service) Routes() []rest.Route {
	return slices.Concat(
		rest.Section{Name: "IP groups", Doc: "The address space of a site."}.Routes(s.ipGroups(), []rest.Route{s.utilization()}),
		rest.Section{
			Name: "IP entities",
			Doc:  "Addresses, ranges and prefixes of IPv4 and IPv6 within an IP group. No two of them overlap.",
		}.Routes(
			s.ipEntities(),
			s.allocations(),
			[]rest.Route{entitySeries, s.entityRemoval()},
		),
		rest.Section{Name: "Forwarding", Doc: "Gateways that forward ports or addresses to servers, and the types of forwarding."}.Routes(
			s.forwardGateways(), s.forwardTypes()),
		rest.Section{
			Name: "Custom fields",
			Doc:  "Fields that you add to clients, IP entities, IP groups and servers, and their values.",
		}.Routes(
			(&field.Fields{DB: s.db, Clients: s.clients}).Routes(),
		),
		rest.Section{Name: "Port speeds", Doc: "The port speeds that you sell."}.Routes(s.portSpeeds()),
		[]rest.Route{s.clients.LeaseRoute(), s.clientServers(), s.clientAddresses(),
			events.RefRoute(s.db, "group", "ip_group", "NULL::jsonb", "pxe"),
			events.RefRoute(s.db, "entity", "ip_entity", "NULL::jsonb", "pxe"), s.machineAddress()},
	)
}

// Loops returns the background tasks: settings are followed, counts are folded, quarantines end, and owners of old data are
// looked up.
func (s *Service) Loops(wakes *wake.Bus) []service.Task {
	s.Settings.Woken = wakes.Listen(settings.ServiceName, settings.Changed)
	return []service.Task{
		{Name: "settings-sync", Run: s.Settings.Follow},
		service.Every(time.Minute, "end-quarantines", s.EndQuarantines),
		service.OnWake(wakes.Listen(Name, wake.Changes), foldInterval, "count-folding", s.FoldCounts),
		service.Every(time.Hour, "owner-lookup", s.FindOwners),
	}
}

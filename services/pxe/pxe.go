// Package pxe is the bounded context of network boot. It serves DHCP servers, file servers and discovered machines; profiles and
// their templates, drivers and ISOs, and installs have packages of their own below it.
package pxe

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/egress"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/wake"
	"github.com/ironplane/ironplane/services/pxe/filesync"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/media"
	"github.com/ironplane/ironplane/services/pxe/site"
	"github.com/ironplane/ironplane/services/pxe/storage"
	"github.com/ironplane/ironplane/services/pxe/templates"
)

// Name is the service's name, and its schema's.
const Name = "pxe"

//go:embed migrations/*.sql schema/*/*.sql
var migrations embed.FS

// Definition is the service.
var Definition = service.Definition{
	Name:  Name,
	Paths: []string{"pxe"},
	Topics: map[string][]permission.Permission{
		"pxe":         {permission.PXESettings},
		"pxe.install": {permission.PXEInstalls},
	},
	Migrations: migrations,
	Seals:      true,
	Sealed: []string{
		"dhcp_server.http_api_key",
		"file_server.http_api_key",
		"install.password",
		"install.token",
		"iso.url",
		"iso_edition.license_key",
	},
	Sends: []string{"clients"},
	New:   func(d service.Deps) service.Parts { return New(d).Parts(d.Wakes) },
	Begin: begin,
}

// begin checks the configuration, and parses the stored templates again.
func begin(ctx context.Context, d service.Deps) error {
	if err := storage.CheckURL(d.Store); err != nil {
		return fmt.Errorf("IRONPLANE_STORE: %w", err)
	}
	if _, err := egress.Parse(d.AllowedNetworks); err != nil {
		return fmt.Errorf("IRONPLANE_ALLOWED_NETWORKS: %w", err)
	}
	return templates.Check(ctx, d.DB)
}

// Service is the pxe service: a part for each topic.
type Service struct {
	db       *pg.DB
	box      *seal.Box
	groups   *events.Refs // IP groups of network, which file servers name as their site
	settings *settings.Follower
	store    *storage.Store
	agents   *site.Agents
	profiles *templates.Profiles
	drivers  *media.Drivers
	isos     *media.ISOs
	installs *install.Installs
	syncs    *filesync.Syncs
}

const (
	// installRest is how often installs are looked through at most.
	installRest = time.Second
	// sweepInterval is how often files that nobody needs are deleted from the store.
	sweepInterval = time.Hour
	// sweepGrace is how long a piece of a file is kept that nobody refers to: longer than it takes to arrive.
	sweepGrace = 24 * time.Hour
)

// New makes the service on its migrated schema.
func New(d service.Deps) *Service {
	allowed, _ := egress.Parse(d.AllowedNetworks) // begin has refused a text that cannot be parsed
	current := &settings.Follower{Peers: d.Peers, Woken: d.Wakes.Listen(settings.Keeper, settings.Changed)}
	store := storage.New(d.DB, d.Store)
	installs := install.New(d.DB, d.Box, d.Peers, d.Outboxes["clients"], current.Values)
	agents := &site.Agents{
		DB:      d.DB,
		Box:     d.Box,
		Allowed: allowed,
		Hear:    installs.Hear,
		Heard:   installs.Heard,
		Push:    installs.Push,
		Woken:   d.Wakes.Listen(Name, wake.Changes),
	}
	return &Service{
		db:       d.DB,
		box:      d.Box,
		groups:   &events.Refs{Owner: "network", Type: "group", DB: d.DB, Peers: d.Peers, Cleared: clearGroup},
		settings: current,
		store:    store,
		agents:   agents,
		profiles: templates.New(d.DB, d.Peers),
		drivers:  media.NewDrivers(d.DB, store),
		isos:     media.NewISOs(d.DB, d.Box, store, allowed.Client(), current.Values),
		installs: installs,
		syncs: &filesync.Syncs{
			DB:     d.DB,
			Agents: agents,
			Store:  store,
			Most:   func() int { return settings.SyncChildren.In(current.Values()) },
		},
	}
}

// Parts returns what the service consists of, woken by the bus.
func (s *Service) Parts(wakes *wake.Bus) service.Parts {
	return service.Parts{
		Routes:  s.Routes(),
		Readers: []string{"network"},
		Consumers: []*events.Consumer{
			s.groups.Consumer(),
			s.installs.FollowEntities(),
			named(s.installs.Clients.Consumer(), "clients"),
			s.profiles.EmailTemplates.Consumer(),
		},
		Checks: s.store.Checks(),
		Jobs:   []service.Job{s.syncs.Job(), s.isos.ImportJob},
		Loops: []service.Loop{
			service.Every(sweepInterval, "store-sweep", s.sweep),
			{Name: "settings-sync", Run: s.settings.Follow},
			{Name: "agent-health", Run: s.agents.Look},
			service.Woken(wakes.Listen(Name, wake.Changes), installRest, "install-grants", s.installs.GrantAll),
			service.Woken(wakes.Listen(settings.Keeper, settings.Changed), installRest, "install-expiry", s.installs.Expire),
		},
	}
}

// named gives a consumer a name of its own. A second consumer of the same service needs one: it follows from the first change that
// its service still has.
func named(c *events.Consumer, name string) *events.Consumer {
	c.Name = name
	return c
}

// Routes are what the service answers.
func (s *Service) Routes() []rest.Route {
	return slices.Concat(
		rest.Section{
			Name: "DHCP servers",
			Doc:  "The agents at the sites that answer machines which ask for an address and what to boot.",
		}.Routes(s.dhcpServers()),
		rest.Section{
			Name: "File servers",
			Doc:  "The agents at the sites that have the files which installations read.",
		}.Routes(s.fileServers(), s.syncs.Routes()),
		rest.Section{
			Name: "Drivers",
			Doc:  "Files that installers need for a machine's hardware.",
		}.Routes(s.drivers.Routes()),
		rest.Section{
			Name: "ISOs",
			Doc:  "Images that machines are installed from, and the editions of Windows in them.",
		}.Routes(s.isos.Routes()),
		rest.Section{
			Name: "Profiles",
			Doc:  "Ways to install a machine, or to boot one over the network, and the templates that they put together.",
		}.Routes(s.profiles.Routes()),
		rest.Section{
			Name: "Installs",
			Doc:  "Installations of machines, and machines that asked to boot and that nobody named.",
		}.Routes(s.installs.Routes(), s.discoveries()),
		[]rest.Route{
			s.profiles.EmailTemplates.CloseRoute(),
			s.installs.Entities.CloseRoute(),
			s.installs.Clients.CloseRoute(),
			s.installs.UsedEntities(),
			events.RefRoute(s.db, "pxe/dhcp", "dhcp_server", "NULL::jsonb", "network"),
		},
	)
}

// sweep deletes what nobody needs from the store. Without a store there is nothing to delete.
func (s *Service) sweep(ctx context.Context) error {
	if err := s.drivers.ForgetUploads(ctx); err != nil {
		return err
	}
	err := s.store.Sweep(ctx, sweepGrace)
	if errors.Is(err, storage.ErrNone) {
		return nil
	}
	return err
}

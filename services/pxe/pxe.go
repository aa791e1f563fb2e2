// Package pxe is the service for network boot. It serves DHCP servers, file servers and discovered machines itself. Its
// subpackages serve profiles with their templates, drivers and ISOs, and installs.
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
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/wake"
	"github.com/ironplane/ironplane/services/pxe/filesync"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/media"
	"github.com/ironplane/ironplane/services/pxe/preflight"
	"github.com/ironplane/ironplane/services/pxe/site"
	"github.com/ironplane/ironplane/services/pxe/storage"
	"github.com/ironplane/ironplane/services/pxe/templates"
)

// Name is the name of the service and of its database schema.
const Name = "pxe"

//go:embed migrations/*.sql schema/*/*.sql
var migrations embed.FS

// Definition describes the service to the programs that run it.
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
	Sends:  []string{"clients"},
	New:    func(d service.Deps) service.Parts { return New(d).Parts(d.Wakes) },
	Checks: checks,
	Begin:  begin,
}

// checks returns checks of the settings that the service reads, and of what they name.
func checks(s service.Settings) []health.Check {
	all := []health.Check{
		{Name: "IRONPLANE_STORE: valid", Ask: func(context.Context) error {
			if err := storage.CheckURL(s.Store); err != nil {
				return fmt.Errorf("IRONPLANE_STORE: %w", err)
			}
			return nil
		}},
		{Name: "IRONPLANE_ALLOWED_NETWORKS: valid for the pxe service", Ask: func(context.Context) error {
			return egress.Check(s.AllowedNetworks)
		}},
		{Name: "site agents", Optional: true, Ask: func(context.Context) error {
			return health.NotTried("only the running service opens their keys; GET /pxe/dhcp and GET /pxe/file have their health")
		}},
	}
	if s.Store == "" {
		return all
	}
	return append(all, health.Check{Name: "IRONPLANE_STORE: the store can be reached", Optional: true, Ask: func(ctx context.Context) error {
		return storage.Probe(ctx, s.Store)
	}})
}

// begin parses the stored templates again.
func begin(ctx context.Context, d service.Deps) error {
	return templates.CheckStored(ctx, d.DB)
}

// Service is the pxe service. It consists of one part per topic.
type Service struct {
	db       *pg.DB
	box      *seal.Box
	groups   *events.Refs // the network service's IP groups, which are the sites of file servers
	settings *settings.Follower
	store    *storage.Store
	agents   *site.Agents
	profiles *templates.Profiles
	uploads  *media.Uploads
	drivers  *media.Drivers
	isos     *media.ISOs
	installs *install.Installs
	syncs    *filesync.Syncs
}

const (
	// minTaskInterval is the shortest time between two runs of a task that wake-ups start.
	minTaskInterval = time.Second
	// sweepInterval is how often unused files are deleted from the store.
	sweepInterval = time.Hour
	// sweepGrace is the age up to which an unreferenced blob is kept. It exceeds the time that one piece of a file takes
	// to arrive, so a blob that is being written is not deleted.
	sweepGrace = 24 * time.Hour
)

// New returns the service. Its database must have the current schema.
func New(d service.Deps) *Service {
	allowed, _ := egress.Parse(d.AllowedNetworks) // begin has already refused text that cannot be parsed
	current := &settings.Follower{Peers: d.Peers, Woken: d.Wakes.Listen(settings.ServiceName, settings.Changed)}
	store := storage.New(d.DB, d.Store)
	installs := install.New(d.DB, d.Box, d.Peers, d.Outboxes["clients"], current.Values)
	agents := &site.Agents{
		DB:               d.DB,
		Box:              d.Box,
		Allowed:          allowed,
		ApplyReports:     installs.ApplyReports,
		FreeRevokedSlots: installs.FreeRevokedSlots,
		PushMachines:     installs.PushMachines,
		Woken:            d.Wakes.Listen(Name, wake.Changes),
	}
	uploads := media.NewUploads(d.DB, store, current.Values)
	installs.Preflight = &preflight.Finder{DB: d.DB, Peers: d.Peers, OpenAgent: agents.Open}
	return &Service{
		db:       d.DB,
		box:      d.Box,
		groups:   &events.Refs{Owner: "network", Type: "group", DB: d.DB, Peers: d.Peers, Clear: clearGroup},
		settings: current,
		store:    store,
		agents:   agents,
		profiles: templates.New(d.DB, d.Peers),
		uploads:  uploads,
		drivers:  media.NewDrivers(d.DB, store, uploads),
		isos:     media.NewISOs(d.DB, d.Box, store, uploads, allowed.Client(), current.Values),
		installs: installs,
		syncs: &filesync.Syncs{
			DB:          d.DB,
			Agents:      agents,
			Store:       store,
			MaxChildren: func() int { return settings.SyncChildren.In(current.Values()) },
		},
	}
}

// Parts returns the routes, consumers, jobs and tasks of the service. wakes starts tasks early when there is work.
func (s *Service) Parts(wakes *wake.Bus) service.Parts {
	return service.Parts{
		Routes:  s.Routes(),
		Readers: []string{"network"},
		Consumers: []*events.Consumer{
			s.groups.Consumer(),
			s.installs.FollowEntities(),
			s.installs.FollowClients(),
			s.profiles.EmailTemplates.Consumer(),
		},
		Checks:  s.store.Checks(),
		Metrics: metrics(s.db),
		Jobs:    []service.Job{s.syncs.Job(), s.isos.ImportJob},
		Tasks: []service.Task{
			service.Every(sweepInterval, "store-sweep", s.sweep),
			{Name: "settings-sync", Run: s.settings.Follow},
			{Name: "agent-health", Run: s.agents.Poll},
			service.OnWake(wakes.Listen(Name, wake.Changes), minTaskInterval, "install-grants", s.installs.GrantAll),
			service.OnWake(wakes.Listen(Name, wake.Changes), minTaskInterval, "new-install-holds", s.installs.HoldSuspended),
			service.OnWake(wakes.Listen("clients", wake.Changes), minTaskInterval, "install-holds", s.installs.HoldSuspended),
			service.OnWake(wakes.Listen(settings.ServiceName, settings.Changed), minTaskInterval, "install-expiry", s.installs.Expire),
			service.OnWake(wakes.Listen(Name, wake.Changes), minTaskInterval, "profile-mails", s.profiles.AttachMails),
		},
	}
}

// Routes returns all routes of the service, the internal ones included.
func (s *Service) Routes() []rest.Route {
	return slices.Concat(
		rest.Section{
			Name: "DHCP servers",
			Doc:  "The agents at the sites that give machines an address and a boot script.",
		}.Routes(s.dhcpServers()),
		rest.Section{
			Name: "File servers",
			Doc:  "The agents at the sites that hold the files for installations.",
		}.Routes(s.fileServers(), s.syncs.Routes()),
		rest.Section{
			Name: "Drivers",
			Doc:  "Files that an installer needs for a machine's hardware.",
		}.Routes(s.uploads.Routes(), s.drivers.Routes()),
		rest.Section{
			Name: "ISOs",
			Doc:  "Installation images, and the editions of Windows in them.",
		}.Routes(s.isos.Routes()),
		rest.Section{
			Name: "Profiles",
			Doc:  "How to install a machine or boot it over the network, and the templates for that.",
		}.Routes(s.profiles.Routes()),
		rest.Section{
			Name: "Installs",
			Doc:  "Installations of machines, and machines that asked to boot but have no install.",
		}.Routes(s.installs.Routes(), s.discoveries()),
		[]rest.Route{
			s.profiles.EmailTemplates.LeaseRoute(),
			s.installs.Entities.LeaseRoute(),
			s.installs.Clients.LeaseRoute(),
			s.installs.UsedEntities(),
			s.installs.Mail(),
			events.RefRoute(s.db, "pxe/dhcp", "dhcp_server", "NULL::jsonb", "network"),
		},
	)
}

// sweep deletes expired uploads, and files and blobs that nothing refers to. It does nothing if no store is configured.
func (s *Service) sweep(ctx context.Context) error {
	if err := s.uploads.DeleteExpired(ctx); err != nil {
		return err
	}
	err := s.store.Sweep(ctx, sweepGrace)
	if errors.Is(err, storage.ErrNotConfigured) {
		return nil
	}
	return err
}

// Package pxe is the bounded context of network boot. There are DHCP servers and file servers, templates of what
// machines are given, drivers and ISOs, and profiles that put these together.
package pxe

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/egress"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/pxe/filesync"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/reference"
	"github.com/ironplane/ironplane/services/pxe/site"
	"github.com/ironplane/ironplane/services/pxe/storage"
	"github.com/ironplane/ironplane/services/pxe/templates"
)

// Name is the service's name, and its schema's.
const Name = "pxe"

//go:embed migrations/*.sql
var migrations embed.FS

// Definition is the service.
var Definition = service.Definition{
	Name:       Name,
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
	New: func(d service.Deps) service.Parts {
		s := New(d)
		return service.Parts{
			Routes:    s.Routes(),
			Readers:   []string{"network"},
			Consumers: []*events.Consumer{s.groups.Consumer(), s.followEntities(), added(s.clients, "clients"), s.profiles.EmailTemplates.Consumer()},
			Jobs:      []service.Job{s.syncs.Job(), s.importJob},
			Loops: []service.Loop{
				service.Every(sweepPause, "sweep of the store", s.sweep),
				{Name: "follow the settings", Run: s.settings.Follow},
				{Name: "ask agents how they are", Run: s.agents.Look},
				service.Every(
					time.Second,
					"let installs wait no longer that need not",
					s.installs.GrantAll,
				),
				service.Every(time.Second, "fail installs that take too long", s.installs.Expire),
			},
		}
	},
	Begin: begin,
}

// added follows items that the service did not refer to at first, from the first change on that their owner still has.
func added(refs *events.Refs, name string) *events.Consumer {
	c := refs.Consumer()
	c.Name = name
	return c
}

// begin looks at what the service is told, and at its templates.
func begin(ctx context.Context, d service.Deps) error {
	if err := storage.CheckURL(d.Store); err != nil {
		return fmt.Errorf("IRONPLANE_STORE: %w", err)
	}
	if _, err := egress.Parse(d.AllowedNetworks); err != nil {
		return fmt.Errorf("IRONPLANE_ALLOWED_NETWORKS: %w", err)
	}
	return templates.Check(ctx, d.DB)
}

// Service is the pxe service.
type Service struct {
	db        *pg.DB
	peers     mesh.Peers
	box       *seal.Box
	groups    *events.Refs
	entities  *events.Refs
	clients   *events.Refs
	profiles  *templates.Profiles
	installs  *install.Installs
	store     *storage.Store
	settings  *settings.Follower
	agents    *site.Agents
	syncs     *filesync.Syncs
	client    *http.Client  // for addresses that callers gave
	silence   time.Duration // for which these may send nothing of an ISO
	importJob service.Job
}

const (
	// sweepPause is between two sweeps of the store, and sweepGrace longer than a piece of a file takes to come.
	sweepPause, sweepGrace = time.Hour, 24 * time.Hour
)

// New makes the service on its migrated schema.
func New(d service.Deps) *Service {
	allowed, _ := egress.Parse(d.AllowedNetworks) // Begin has said what is wrong with it
	current := &settings.Follower{Peers: d.Peers}
	agents := &site.Agents{DB: d.DB, Box: d.Box, Allowed: allowed}
	installs := &install.Installs{DB: d.DB, Box: d.Box, Outbox: d.Outboxes["clients"], Settings: current.Values}
	agents.Hear, agents.Heard, agents.Push = installs.Hear, installs.Heard, installs.Push
	files := storage.New(d.DB, d.Store)
	s := &Service{
		db:       d.DB,
		peers:    d.Peers,
		box:      d.Box,
		store:    files,
		settings: current,
		agents:   agents,
		installs: installs,
		client:   allowed.Client(),
		silence:  longestSilence,
		syncs:    &filesync.Syncs{DB: d.DB, Agents: agents, Store: files, Most: func() int { return settings.SyncChildren.In(current.Values()) }},
		groups:   &events.Refs{Owner: "network", Type: "group", DB: d.DB, Peers: d.Peers, Cleared: clearGroup},
		entities: &events.Refs{Owner: "network", Type: "entity", DB: d.DB, Peers: d.Peers, Uses: reference.ByInstall("host_entity_id"),
			Cleared: func(ctx context.Context, tx *pg.Tx, id int64, _ string) error {
				return installs.EntityGone(ctx, tx, id)
			}},
		clients: &events.Refs{Owner: "clients", Type: "client", DB: d.DB, Peers: d.Peers, Uses: reference.ByInstall("client_id"),
			Cleared: func(context.Context, *pg.Tx, int64, string) error { return nil }}, // what was installed for it stays known
		profiles: templates.New(d.DB, d.Peers),
	}
	s.importJob = service.Job{
		Kind:     "iso-import",
		Timeout:  importTime,
		Attempts: importAttempts,
		Backoff:  importPause,
		Workers:  2,
		Unique:   true,
		Do:       jobs.Do(s.importISO),
	}
	return s
}

// Routes are what the service answers.
func (s *Service) Routes() []rest.Route {
	return slices.Concat(
		rest.Section{
			Name: "DHCP servers",
			Doc:  "The agents at the sites that answer machines which ask for an address and what to boot.",
		}.Of(
			s.dhcpServers(),
		),
		rest.Section{
			Name: "File servers",
			Doc:  "The agents at the sites that have the files which installations read.",
		}.Of(
			s.fileServers(),
			s.fileSyncs(),
		),
		rest.Section{Name: "Drivers", Doc: "Files that installers need for a machine's hardware."}.Of(s.driverUploads(), s.drivers()),
		rest.Section{
			Name: "ISOs",
			Doc:  "Images that machines are installed from, and the editions of Windows in them.",
		}.Of(
			s.isos(),
			s.editions(),
		),
		rest.Section{
			Name: "Profiles",
			Doc:  "Ways to install a machine, or to boot one over the network, and the templates that they put together.",
		}.Of(s.profiles.Routes()),
		rest.Section{
			Name: "Installs",
			Doc:  "Installations of machines, and machines that asked to boot and that nobody named.",
		}.Of(
			s.installRoutes(),
			s.discoveries(),
		),
		[]rest.Route{s.profiles.EmailTemplates.CloseRoute(), s.entities.CloseRoute(), s.clients.CloseRoute(),
			rest.Read[rest.None, []usedEntity]{Path: "/internal/installed-entities", Guard: guard.Peers("network"), Do: s.usedEntities},
			events.RefRoute(s.db, "pxe/dhcp", "dhcp_server", "NULL::jsonb", "network")},
	)
}

// sweep deletes from the store what nobody refers to.
func (s *Service) sweep(ctx context.Context) error {
	if err := s.forgetUploads(ctx); err != nil {
		return err
	}
	err := s.store.Sweep(ctx, sweepGrace)
	if errors.Is(err, storage.ErrNone) {
		return nil
	}
	return err
}

// Package clients is the service of the clients: their accounts, the integrations that they belong to, and the links by which
// clients read and manage one another.
package clients

import (
	"embed"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
)

// Name is the name of the service and of its schema.
const Name = "clients"

//go:embed migrations/*.sql schema/*/*.sql
var migrations embed.FS

// Definition declares the service.
var Definition = service.Definition{
	Name:            Name,
	Paths:           []string{"client"},
	Topics:          map[string][]permission.Permission{"client": {permission.UsersClients}},
	Migrations:      migrations,
	Fills:           true,
	Sends:           []string{"identity", "system"},
	Receives:        []string{"identity", "pxe"},
	RevocationTypes: []string{"client.deleted", "client.edited", "client.suspended", "client.unsuspended"},
	FindRestored:    service.FindRestoredAccounts[ViewedClient]("client"),
	New: func(d service.Deps) service.Parts {
		s := New(d)
		return service.Parts{
			Routes: s.Routes(),
			MessageHandlers: map[string]events.MessageHandler{
				credentials.ChangeKind: s.applyChange,
				mail.ChangedKind:       s.notifyForIdentity,
				mail.InstalledKind:     s.notifyInstalled,
			},
			Readers:   []string{"identity", "network", "pxe"},
			Consumers: []*events.Consumer{s.integrations.Consumer(), s.serverCounts.consumer()},
			Tasks: []service.Task{
				{Name: "settings-sync", Run: s.settings.Follow},
				s.serverCounts.loop(),
				service.Every(time.Hour, "prune-email-limit", s.pruneEmailLimit),
				service.Every(time.Hour, "prune-adoptions", s.pruneAdoptions),
			},
		}
	},
}

// Service is the clients service.
type Service struct {
	db             *pg.DB
	entries        *keycache.Store
	hasher         account.Hasher
	lockouts       *lockout.Lockouts
	settings       *settings.Follower
	peers          mesh.Peers
	systemOutbox   *events.Outbox // the system service sends the mails
	identityOutbox *events.Outbox
	integrations   *events.Refs
	serverCounts   *serverCounts
	leases         *events.Leases
}

// New returns the service. Its schema must be migrated.
func New(d service.Deps) *Service {
	s := &Service{
		db:             d.DB,
		entries:        d.Entries,
		hasher:         account.NewHasher(d.Tuning.PasswordMemory),
		lockouts:       lockout.New(d.Redis, d.Log),
		settings:       &settings.Follower{Peers: d.Peers, Woken: d.Wakes.Listen(settings.ServiceName, settings.Changed)},
		peers:          d.Peers,
		systemOutbox:   d.Outboxes["system"],
		identityOutbox: d.Outboxes["identity"],
		serverCounts:   newServerCounts(d.DB, d.Peers),
		leases: &events.Leases{
			DB:    d.DB,
			Peers: d.Peers,
			Type:  "client",
			Noun:  "client",
			Table: "client",
			Users: []string{"network", "pxe"},
		},
	}
	s.integrations = &events.Refs{
		Owner:     "system",
		Type:      string(principal.Integration),
		DB:        d.DB,
		Peers:     d.Peers,
		Clear:     s.clearIntegration,
		FindUsage: describeUse,
		Detach:    s.detachClients,
	}
	return s
}

// Routes returns the service's routes.
func (s *Service) Routes() []rest.Route {
	return append(
		rest.Section{
			Name: "Clients",
			Doc:  "Customers, who rent servers or resell them.",
		}.Routes(
			[]rest.Route{s.overdueRoute()}, // before /client/{client_id}, which its path matches too
			s.clientRoutes(),
			s.suspensionRoutes(),
			s.subLinkRoutes(),
			s.superLinkRoutes(),
			s.emailRoutes(),
			s.adoptionRoutes(),
		),
		s.entryRoute(),
		s.credentialsRoute(),
		s.reachRoute(),
		s.integrations.LeaseRoute(),
		s.addressRoute(),
		s.suspendedRoute(),
		s.recipientRoute(),
		s.serverCounts.integrationsRoute(),
		events.RefRoute(s.db, "client/sub", "sub_link_view", "NULL::jsonb", "network"),
		events.RefRoute(s.db, "client", "client", "jsonb_build_object('integration', integration_id)", "identity", "network", "pxe"),
	)
}

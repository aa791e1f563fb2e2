// Package clients is the bounded context of the people who rent servers: clients, and whose clients they are, and
// who of them reaches whom.
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

// Name is the service's name, and its schema's.
const Name = "clients"

//go:embed migrations/*.sql schema/*/*.sql
var migrations embed.FS

// Definition is the service.
var Definition = service.Definition{
	Name:       Name,
	Paths:      []string{"client"},
	Topics:     map[string][]permission.Permission{"client": {permission.UsersClients}},
	Migrations: migrations,
	Fills:      true,
	Sends:      []string{"identity", "system"},
	Receives:   []string{"identity", "pxe"},
	Takes:      []string{"client.deleted", "client.edited"},
	CameBack:   service.AccountsBack[ViewedClient]("client"),
	New: func(d service.Deps) service.Parts {
		s := New(d)
		return service.Parts{
			Routes: s.Routes(),
			Takes: map[string]events.Take{
				credentials.ChangeKind: s.applyChange,
				mail.ChangedKind:       s.notifyForIdentity,
				mail.InstalledKind:     s.notifyInstalled,
			},
			Readers:   []string{"identity", "network", "pxe"},
			Consumers: []*events.Consumer{s.integrations.Consumer(), s.serverCounts.consumer()},
			Loops: []service.Loop{
				{Name: "follow the settings", Run: s.settings.Follow},
				s.serverCounts.loop(),
				service.Every(time.Hour, "forget what clients did with addresses", s.deleteOldEmailUses),
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
	systemOutbox   *events.Outbox // to system, which sends mails
	identityOutbox *events.Outbox
	integrations   *events.Refs
	serverCounts   *serverCounts
	leases         *events.Closing
}

// New makes the service on its migrated schema.
func New(d service.Deps) *Service {
	return &Service{
		db:             d.DB,
		entries:        d.Entries,
		hasher:         account.NewHasher(d.Tuning.PasswordMemory),
		lockouts:       lockout.New(d.Redis, d.Log),
		settings:       &settings.Follower{Peers: d.Peers, Woken: d.Wakes.Listen(settings.Keeper, settings.Changed)},
		peers:          d.Peers,
		systemOutbox:   d.Outboxes["system"],
		identityOutbox: d.Outboxes["identity"],
		serverCounts:   newServerCounts(d.DB, d.Peers),
		integrations: &events.Refs{
			Owner:   "system",
			Type:    string(principal.Integration),
			DB:      d.DB,
			Peers:   d.Peers,
			Cleared: clearIntegration,
			Uses:    describeUse,
			Detach:  detachClients,
		},
		leases: &events.Closing{
			DB:    d.DB,
			Peers: d.Peers,
			Type:  "client",
			Noun:  "client",
			Table: "client",
			Users: []string{"network", "pxe"},
		},
	}
}

// Routes are what the service answers.
func (s *Service) Routes() []rest.Route {
	return append(
		rest.Section{
			Name: "Clients",
			Doc:  "The people who rent servers.",
		}.Of(
			s.clientRoutes(),
			s.subLinkRoutes(),
			s.superLinkRoutes(),
			s.emailRoutes(),
		),
		s.entryRoute(),
		s.credentialsRoute(),
		s.integrations.CloseRoute(),
		s.addressRoute(),
		events.RefRoute(s.db, "client", "client", "jsonb_build_object('integration', integration_id)", "identity", "network", "pxe"),
	)
}

// Package identity is the service for people and API keys: admins and their permissions, the keys of all accounts, and how people
// sign in. Each topic is a package below this one, and this package wires them together.
package identity

import (
	"context"
	"embed"
	"fmt"
	"slices"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/auth/throttle"
	"github.com/ironplane/ironplane/pkg/egress"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/wake"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/login"
	"github.com/ironplane/ironplane/services/identity/mfa"
	"github.com/ironplane/ironplane/services/identity/openid"
	"github.com/ironplane/ironplane/services/identity/passkey"
	"github.com/ironplane/ironplane/services/identity/person"
	"github.com/ironplane/ironplane/services/identity/restore"
	"github.com/ironplane/ironplane/services/identity/session"
)

// Name is the name of the service, and of its schema.
const Name = "identity"

//go:embed migrations/*.sql schema/*/*.sql
var migrations embed.FS

// Definition is the service.
var Definition = service.Definition{
	Name:  Name,
	Paths: []string{"admin", "auth", "browser-details", "client/*/verify"},
	Topics: map[string][]permission.Permission{
		"admin": {permission.UsersAdmins},
		"auth":  {permission.UsersAdmins, permission.UsersClients}, // of keys and sessions
	},
	Migrations:      migrations,
	Seals:           true,
	Sealed:          []string{"authenticator.secret", "verify_code.token", "openid_provider.client_secret", "openid_login.verifier"},
	Fills:           true,
	Sends:           []string{"clients", "system"},
	Receives:        []string{"clients"},
	RevocationTypes: restore.Types,
	FindRestored:    restore.Find,
	Checks:          checks,
	Begin:           begin,
	New: func(d service.Deps) service.Parts {
		s := New(d)
		return service.Parts{
			Routes:          s.Routes(),
			Jobs:            []service.Job{s.resets.Job(), s.people.NoticeJob(), s.people.FailedLoginJob()},
			MessageHandlers: map[string]events.MessageHandler{credentials.WelcomeKind: s.resets.Welcome},
			Consumers:       []*events.Consumer{s.rules.Clients.Consumer(), s.rules.Integrations.Consumer()},
			Tasks: []service.Task{
				{Name: "follow-settings", Run: s.settings.Follow},
				service.Every(sweepInterval, "delete-expired", s.sweep),
				service.OnWake(d.Wakes.Listen(Name, wake.Changes), keys.WarnInterval, "warn-expiring-keys", s.keys.Warn),
				service.OnWake(d.Wakes.Listen(Name, login.Attempted), 0, "log-attempts", s.logins.LogAttempts),
				service.Every(login.CountInterval, "log-unknown-names", s.logins.LogUnknownNames),
			},
		}
	},
}

// Service is the identity service. Its fields are its topics, and what they share.
type Service struct {
	db       *pg.DB
	settings *settings.Follower
	rules    *access.Rules
	people   *person.Directory
	keys     *keys.Service
	sessions *session.Service
	admins   *admin.Service
	factors  *mfa.Service
	openID   *openid.Service
	logins   *login.Logins
	resets   *login.Resets
	links    *login.Links
}

// checks returns checks of the settings that the service reads.
func checks(s service.Settings) []health.Check {
	return []health.Check{
		{Name: "IRONPLANE_PASSKEY_DOMAIN and IRONPLANE_PASSKEY_ORIGINS: valid", Ask: func(context.Context) error {
			_, err := parsePasskeys(s)
			return err
		}},
		{Name: "IRONPLANE_ALLOWED_NETWORKS: valid for the identity service", Ask: func(context.Context) error {
			return egress.Check(s.AllowedNetworks)
		}},
	}
}

// begin grants the permissions that are new in this version.
func begin(ctx context.Context, d service.Deps) error {
	return access.GrantNew(ctx, d.DB)
}

// parsePasskeys reads the operator's settings for security keys. It returns nil if they are not set.
func parsePasskeys(d service.Settings) (*passkey.Party, error) {
	party, err := passkey.Parse(d.PasskeyDomain, d.PasskeyOrigins, mfa.CodeTTL)
	if err != nil {
		return nil, fmt.Errorf("IRONPLANE_PASSKEY_DOMAIN and IRONPLANE_PASSKEY_ORIGINS: %w", err)
	}
	return party, nil
}

// maxWaiting bounds the unauthenticated requests that wait in each queue.
const maxWaiting = 100

// New returns the service on its migrated schema.
func New(d service.Deps) *Service {
	allowed, _ := egress.Parse(d.AllowedNetworks) // begin has refused invalid settings
	passkeys, _ := parsePasskeys(d.Settings)
	hasher, lockouts := account.NewHasher(d.Tuning.PasswordMemory), lockout.New(d.Redis, d.Log)
	s := &Service{
		db:       d.DB,
		settings: newSettings(d),
		rules:    &access.Rules{Clients: newRefs(d, "clients", principal.Client), Integrations: newRefs(d, "system", principal.Integration)},
		people:   &person.Directory{DB: d.DB, Peers: d.Peers, Mails: d.Outboxes["system"], ToClients: d.Outboxes["clients"]},
	}
	s.keys = &keys.Service{DB: d.DB, Entries: d.Entries, Settings: s.settings, Rules: s.rules, People: s.people}
	s.sessions = &session.Service{
		DB:       d.DB,
		Box:      d.Box,
		Entries:  d.Entries,
		Settings: s.settings,
		Rules:    s.rules,
		People:   s.people,
	}
	s.admins = &admin.Service{
		DB:       d.DB,
		Entries:  d.Entries,
		Hasher:   hasher,
		Lockouts: lockouts,
		Settings: s.settings,
		Rules:    s.rules,
		People:   s.people,
	}
	s.factors = &mfa.Service{
		DB:         d.DB,
		Box:        d.Box,
		Lockouts:   lockouts,
		Challenges: throttle.NewQueue(maxWaiting, d.Tuning.MinTimeout),
		Settings:   s.settings,
		Rules:      s.rules,
		People:     s.people,
		Sessions:   s.sessions,
		Mails:      d.Outboxes["system"],
		Passkeys:   passkeys,
	}
	s.openID = &openid.Service{DB: d.DB, Box: d.Box, Settings: s.settings, Sessions: s.sessions, Client: openid.NewClient(allowed)}
	s.logins = &login.Logins{
		DB:        d.DB,
		Hasher:    hasher,
		Lockouts:  lockouts,
		Passwords: throttle.NewQueue(maxWaiting, d.Tuning.MinTimeout),
		People:    s.people,
		Keys:      s.keys,
		Sessions:  s.sessions,
		Factors:   s.factors,
	}
	s.resets = &login.Resets{
		DB:       d.DB,
		Entries:  d.Entries,
		Hasher:   hasher,
		Settings: s.settings,
		People:   s.people,
		Mails:    d.Outboxes["system"],
	}
	s.links = &login.Links{DB: d.DB, Settings: s.settings, Rules: s.rules, People: s.people, Sessions: s.sessions, OpenID: s.openID}
	return s
}

// newRefs returns the references to another service's accounts. When an account is deleted, its keys are deleted too.
func newRefs(d service.Deps, owner string, t principal.OwnerType) *events.Refs {
	return &events.Refs{
		Owner: owner,
		Type:  string(t),
		DB:    d.DB,
		Peers: d.Peers,
		Clear: func(ctx context.Context, tx *pg.Tx, id int64, _ string) error {
			return keys.DeleteAccount(ctx, tx, d.Entries, principal.Owner{Type: t, ID: id})
		},
	}
}

// Routes returns the service's operations.
func (s *Service) Routes() []rest.Route {
	return slices.Concat(
		rest.Section{Name: "Admins", Doc: "The people who run the installation, and their permissions."}.Routes(s.admins.Routes()),
		rest.Section{
			Name: "API keys",
			Doc:  "Callers authenticate with API keys. A key has the permissions of its owner.",
		}.Routes(s.keys.Routes(), s.logins.Routes()),
		rest.Section{Name: "Sessions", Doc: "Keys that begin with a login, and expire."}.Routes(s.sessions.Routes()),
		rest.Section{Name: "Forgotten passwords", Doc: "Choose a new password by a mailed link."}.Routes(s.resets.Routes()),
		rest.Section{Name: "Single sign-on", Doc: "Links that sign a user in to a panel."}.Routes(s.links.Routes()),
		rest.Section{Name: "OpenID Connect", Doc: "Admins sign in with their company's identity provider."}.Routes(s.openID.Routes()),
		rest.Section{
			Name: "Two-factor authentication",
			Doc:  "Logins that need more than a password: codes of apps, codes by mail, security keys and recovery codes.",
		}.Routes(
			s.factors.Routes(),
		),
		rest.Section{Name: "Browser", Doc: "The caller's connection as the server sees it."}.Routes(browserRoutes()),
		s.admins.InternalRoutes(),
		s.keys.InternalRoutes(),
		s.factors.InternalRoutes(),
		[]rest.Route{settingsRoute(s.db)},
	)
}

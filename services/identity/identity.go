// Package identity is the bounded context of people and keys: admins, their permissions, and the API keys of
// everybody.
package identity

import (
	"context"
	"embed"
	"fmt"
	"slices"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/auth/throttle"
	"github.com/ironplane/ironplane/pkg/egress"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/openid"
	"github.com/ironplane/ironplane/services/identity/passkey"
)

// Name is the service's name, and its schema's.
const Name = "identity"

//go:embed migrations/*.sql schema/*/*.sql
var migrations embed.FS

// Definition is the service.
var Definition = service.Definition{
	Name:       Name,
	Migrations: migrations,
	Seals:      true,
	Sealed:     []string{"authenticator.secret", "verify_code.token", "openid_provider.client_secret", "openid_login.verifier"},
	Fills:      true,
	Sends:      []string{"clients", "system"},
	Receives:   []string{"clients"},
	Takes:      takes,
	CameBack:   cameBack,
	Begin:      begin,
	New: func(d service.Deps) service.Parts {
		s := New(d)
		return service.Parts{
			Routes:    s.Routes(),
			Jobs:      []service.Job{s.resetJob(), s.tellJob()},
			Takes:     map[string]events.Take{credentials.WelcomeKind: s.welcome},
			Consumers: []*events.Consumer{s.clients.Consumer(), s.integrations.Consumer()},
			Loops: []service.Loop{
				{Name: "follow the settings", Run: s.settings.Follow},
				service.Every(
					sweepPause,
					"delete what has ended",
					s.sweep,
				),
				service.Every(warnPause, "warn of keys that expire", s.warn),
				service.Every(attemptPause, "log attempts", s.logAttempts),
				service.Every(countPause, "log attempts by unknown names", s.logUnknownNames),
			},
		}
	},
}

// Service is the identity service.
type Service struct {
	db           *pg.DB
	entries      *keycache.Store
	hasher       account.Hasher
	lockouts     *lockout.Lockouts
	passwords    *throttle.Queue // from where their account was not signed in to
	challenges   *throttle.Queue // that nobody has
	settings     *settings.Follower
	peers        mesh.Peers
	outbox       *events.Outbox // to system, which sends mails
	toClients    *events.Outbox
	box          *seal.Box
	clients      *events.Refs
	integrations *events.Refs
	openID       *openid.Client
	passkeys     *passkey.Party // nil: they are not used here
}

// begin looks whether what operators say can be used, and grants the permissions that are new in this version.
func begin(ctx context.Context, d service.Deps) error {
	if _, err := egress.Parse(d.AllowedNetworks); err != nil {
		return err
	}
	if _, err := newParty(d); err != nil {
		return err
	}
	return grantNewPermissions(ctx, d.DB)
}

func newParty(d service.Deps) (*passkey.Party, error) {
	party, err := passkey.Parse(d.PasskeyDomain, d.PasskeyOrigins, verifyTime)
	if err != nil {
		return nil, fmt.Errorf("IRONPLANE_PASSKEY_DOMAIN and IRONPLANE_PASSKEY_ORIGINS: %w", err)
	}
	return party, nil
}

// mostStrangers is how many of either kind wait.
const mostStrangers = 50

// New makes the service on its migrated schema.
func New(d service.Deps) *Service {
	allowed, _ := egress.Parse(d.AllowedNetworks) // begin has said what is wrong with it
	s := &Service{
		openID:     openid.NewClient(allowed),
		db:         d.DB,
		entries:    d.Entries,
		hasher:     account.NewHasher(),
		lockouts:   lockout.New(d.Redis, d.Log),
		passwords:  throttle.NewQueue(mostStrangers),
		challenges: throttle.NewQueue(mostStrangers),
		settings:   newSettings(d),
		peers:      d.Peers,
		outbox:     d.Outboxes["system"],
		toClients:  d.Outboxes["clients"],
		box:        d.Box,
	}
	s.passkeys, _ = newParty(d)
	s.clients, s.integrations = s.refs("clients", principal.Client, d.Peers), s.refs("system", principal.Integration, d.Peers)
	return s
}

// refs are what is known of the accounts of this type, which another service has.
func (s *Service) refs(owner string, t principal.OwnerType, peers mesh.Peers) *events.Refs {
	return &events.Refs{
		Owner: owner,
		Type:  string(t),
		DB:    s.db,
		Peers: peers,
		Cleared: func(ctx context.Context, tx *pg.Tx, id int64, _ string) error {
			return s.deleteKeysOf(ctx, tx, principal.Owner{Type: t, ID: id})
		},
	}
}

// Routes are what the service answers.
func (s *Service) Routes() []rest.Route {
	return slices.Concat(
		rest.Section{Name: "Admins", Doc: "Those who run the installation, and what they may."}.Of(s.admins(), s.adminPermissions()),
		rest.Section{Name: "API keys", Doc: "What callers prove with who they are. A key can do what its owner may."}.Of(s.apiKeys()),
		rest.Section{Name: "Sessions", Doc: "Keys that began with a login, and end by themselves."}.Of(s.sessions()),
		rest.Section{Name: "Forgotten passwords", Doc: "A new password by a link that is mailed."}.Of(s.passwordResets()),
		rest.Section{Name: "Single sign-on", Doc: "Links by which a caller is signed in to a panel."}.Of(s.ssoLinks()),
		rest.Section{
			Name: "OpenID Connect",
			Doc:  "Admins sign in with their company's identity provider.",
		}.Of(
			s.openIDProviders(),
			s.openIDLogins(),
		),
		rest.Section{
			Name: "Two-factor authentication",
			Doc:  "What proves who somebody is besides the password.",
		}.Of(
			s.verifyMethods(),
			s.authenticators(),
			s.verifyCodes(),
			s.recoveryCodes(),
		),
		rest.Section{Name: "Browser", Doc: "What a caller looks like from here."}.Of(s.browserDetails()),
		s.entryRoutes(),
		s.verifyQuestions(),
		[]rest.Route{s.settingsCopy(), s.mailCopies(), s.usesRoute()},
	)
}

// BrowserDetails are what a caller looks like from here.
type BrowserDetails struct {
	IP string `json:"ip"`
}

func (s *Service) browserDetails() []rest.Route {
	return []rest.Route{rest.Read[rest.None, BrowserDetails]{Name: "getBrowserDetails",
		Path: "/browser-details", Guard: guard.Public, Summary: "View the caller's own address",
		Do: func(ctx context.Context, _ rest.None) (BrowserDetails, error) {
			return BrowserDetails{principal.From(ctx).IP.String()}, nil
		},
	}}
}

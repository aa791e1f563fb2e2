// Package service is what a service is, in a process of its own or with others in one: its routes, its jobs, and how it
// follows what others change.
package service

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/catalog"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/wake"
)

// Definition is what a service is, whether it runs in a process of its own or with others in one.
type Definition struct {
	Name string
	// Paths and Topics are those of catalog.Service, which make services writes from them.
	Paths  []string
	Topics map[string][]permission.Permission
	// Migrations has the folder migrations and, for what is applied behind them, schema/functions and schema/views; nil: none of
	// its own.
	Migrations fs.FS
	Parameters map[string]string      // of Postgres, for the sessions that it serves from; nil: as Postgres has them
	Seals      bool                   // whether it needs a Box
	Sealed     []string               // the columns that its Box seals: dhcp_server.http_api_key
	Signs      []string               // what its Box signs
	Signed     func(*seal.Box) Signed // what of that stays; nil: nothing
	Fills      bool                   // whether it fills entries of keycache
	Sends      []string               // the services that it sends messages to
	Receives   []string               // the services whose messages it takes
	New        func(Deps) Parts       // nil: nothing yet
	// Begin does, on a schema that is up to date, what has to be done before the service serves; nil: nothing.
	Begin    func(context.Context, Deps) error
	Commands []Command // of its program, besides those that all have
	// Takes are the types of changes that take something away from keys and accounts, and FindRestored finds what is there again in
	// a schema that has lost such changes, as it was restored from a backup; nil: there are none.
	RevocationTypes []string
	FindRestored    func(context.Context, pg.Querier, []LostChange) ([]RestoredAccess, error)
	// RecordSkip records, in the unit of work that skips them for a consumer without a name, changes of another service; nil:
	// the host does, as it does for the others.
	RecordSkip func(ctx context.Context, d Deps, tx *pg.Tx, skipped events.Span) error
}

// Signed is what a service signs that stays.
type Signed interface {
	// Resign signs with the newest key what is signed with an older one.
	Resign(context.Context, *pg.DB) error
	// Older tells how much is signed with an older key.
	Older(context.Context, *pg.DB) (int64, error)
}

// Command is something that a service does on demand. It is given a DB, a Box and Settings.
type Command struct {
	Name, Summary string
	Run           func(ctx context.Context, d Deps, screen io.Writer) error
}

// Settings are what services are told by who runs them.
type Settings struct {
	APIURL          string        `env:"IRONPLANE_API_URL" doc:"where callers reach the API: https://api.example.com"`
	ClientURL       string        `env:"IRONPLANE_CLIENT_URL" doc:"where clients reach their panel"`
	AdminURL        string        `env:"IRONPLANE_ADMIN_URL" doc:"where admins reach theirs"`
	SMTP            string        `env:"IRONPLANE_SMTP" doc:"the server that takes mails: smtp://mail.example.com:587 (encrypted by STARTTLS), smtps://… or, on the same machine, smtp+plain://…; empty: mails are held. This and the next ones are for the system service"`
	SMTPUser        string        `env:"IRONPLANE_SMTP_USER" doc:"who signs in there, if anybody does"`
	SMTPPassword    secret.String `env:"IRONPLANE_SMTP_PASSWORD" doc:"with which password"`
	MailFrom        string        `env:"IRONPLANE_MAIL_FROM" doc:"whom mails are from: noreply@example.com, or Example Hosting <noreply@example.com>"`
	AllowedNetworks string        `env:"IRONPLANE_ALLOWED_NETWORKS" doc:"networks of one's own where webhooks, site agents, ISOs and identity providers may be, also without encryption: 10.20.0.0/16 192.0.2.7; no others"`
	PasskeyDomain   string        `env:"IRONPLANE_PASSKEY_DOMAIN" doc:"the domain that security keys and passkeys are made for, which stays: example.com; with the next one, for the identity service"`
	PasskeyOrigins  string        `env:"IRONPLANE_PASSKEY_ORIGINS" doc:"the panels that may ask for them: https://admin.example.com https://panel.example.com"`
	License         string        `env:"IRONPLANE_LICENSE" doc:"where the license is: a file, or https://…; empty: there is none, and everything works. This and the next one are for the system service"`
	LicenseSigner   string        `env:"IRONPLANE_LICENSE_SIGNER" doc:"whose licenses count: the public key that license keys prints"`
	Packages        string        `env:"IRONPLANE_PACKAGES" doc:"the folder of what is installed beside the core, a folder each; it is for the system service"`
	Store           string        `env:"IRONPLANE_STORE" doc:"where drivers and ISOs are kept: a folder, or s3://bucket?endpoint=https://s3.example.com&region=eu, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; it is for the pxe service"`
	ACMEDirectory   string        `env:"IRONPLANE_ACME_DIRECTORY" default:"https://acme-v02.api.letsencrypt.org/directory" doc:"the authority that certificates are ordered from; it is for the system service"`
	LogAnchor       string        `env:"IRONPLANE_LOG_ANCHOR" doc:"for verify: what it printed once, to find that the log was rolled back"`

	Tuning Tuning
}

// Tuning is what tests set and operators cannot. The zero value is production's.
type Tuning struct {
	// MinTimeout is how long questions to other services, and transactions that do nothing, may take at least. Tests set it, so that
	// none fails because the machine is busy.
	MinTimeout time.Duration
	// PasswordMemory is what hashing a password takes, in KiB.
	PasswordMemory uint32
	// PollInterval is how often those look by themselves who wait to be woken; 0: every wake.Interval.
	PollInterval time.Duration
}

// SessionParameters returns the parameters of Postgres for the sessions that the service serves from.
func (d Definition) SessionParameters(t Tuning) map[string]string {
	if t.MinTimeout == 0 {
		return d.Parameters
	}
	all := map[string]string{"idle_in_transaction_session_timeout": strconv.FormatInt(t.MinTimeout.Milliseconds(), 10)}
	maps.Copy(all, d.Parameters)
	return all
}

// Deps are what a service is given.
type Deps struct {
	DB      *pg.DB // its migrated schema
	Peers   mesh.Peers
	Redis   *cache.Client
	Wakes   *wake.Bus       // of the process; nil: nobody is woken
	Entries *keycache.Store // nil where the service does not fill any
	Box     *seal.Box       // nil where the service does not seal
	// Outboxes are by the service that messages go to, and Inboxes by the one that they come from.
	Outboxes map[string]*events.Outbox
	Inboxes  map[string]*events.Inbox
	Settings
	Variables map[string]string // variables of the environment that count until a setting does, and what they say
	Log       *slog.Logger
}

// Entry is what processes that do not link the service know of it.
func (d Definition) Entry() catalog.Service {
	return catalog.Service{Name: d.Name, Paths: d.Paths, Topics: d.Topics}
}

// CheckRoutes fails where a route is below no path of the Definition, or the service has changes and no topic for them. The
// error says what is missing.
func (d Definition) CheckRoutes(routes []rest.Route) error {
	for _, o := range rest.Operations(routes) {
		first, _, _ := strings.Cut(strings.TrimPrefix(o.Path, "/"), "/")
		below := func(path string) bool {
			begin, end, shared := strings.Cut(path, "/*")
			return begin == first && (!shared || strings.HasSuffix(o.Path, end))
		}
		if first != "internal" && !slices.ContainsFunc(d.Paths, below) {
			return fmt.Errorf("the service %s has the route %s %s, and the gateway answers 404 there: add %q to Paths of its Definition",
				d.Name, o.Method, o.Path, first)
		}
		if o.Effect.Logs != "" && len(d.Topics) == 0 {
			return fmt.Errorf("the service %s makes changes (%s %s) that no webhook can ask for: add Topics to its Definition",
				d.Name, o.Method, o.Path)
		}
	}
	return nil
}

// Purposes are what the service needs derived keys for.
func (d Definition) Purposes() (all []seal.Purpose) {
	if d.Seals {
		all = append(all, seal.Sealing(d.Name))
	}
	for _, topic := range d.Signs {
		all = append(all, seal.Signing(d.Name, topic))
	}
	if d.Fills {
		all = append(all, keycache.Purpose)
	}
	for _, receiver := range d.Sends {
		all = append(all, seal.Sealing(events.MessageKey(receiver)))
	}
	if len(d.Receives) > 0 {
		all = append(all, seal.Sealing(events.MessageKey(d.Name)))
	}
	return all
}

// NewBox makes the service's box, if it needs one, for who holds the master key.
func (d Definition) NewBox(masterKey secret.String) (*seal.Box, error) {
	if !d.Seals {
		return nil, nil
	}
	key, err := seal.Derive(masterKey, d.Name, d.Purposes()...)
	if err != nil {
		return nil, err
	}
	return key.Box(d.Name)
}

// Parts are what a service consists of.
type Parts struct {
	Routes          []rest.Route
	Tasks           []Task
	Jobs            []Job
	Readers         []string // the services that may read its changes, besides the one that keeps the log
	Consumers       []*events.Consumer
	MessageHandlers map[string]events.MessageHandler // what messages of other services it does something about, by their kinds
	Checks          []health.Check                   // of what it depends on besides its database
	Metrics         []prometheus.Collector           // which get the service's name as a label
}

// Repeat is what a service does besides answering. Run works until its context ends, as it does when maintenance begins; it
// may end before, and is run again.
type Task struct {
	Name string
	Run  func(context.Context) error
}

// Every is a loop that does something now and then.
func Every(interval time.Duration, name string, do func(context.Context) error) Task {
	return Task{name, func(ctx context.Context) error {
		return wake.Repeat(ctx, nil, 0, func(ctx context.Context) (time.Duration, error) { return interval, do(ctx) })
	}}
}

// OnWake is a loop that does something whenever woken has a value, but no more often than every rest, and otherwise now
// and then: see wake.Interval.
func OnWake(woken <-chan struct{}, rest time.Duration, name string, do func(context.Context) error) Task {
	return Task{name, func(ctx context.Context) error {
		return wake.Repeat(ctx, woken, rest, func(ctx context.Context) (time.Duration, error) { return wake.Interval, do(ctx) })
	}}
}

// Package service defines what a service is, whether it runs in its own process or with others: its routes, jobs and
// tasks, and how it follows changes of other services.
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
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/wake"
)

// Definition defines a service.
type Definition struct {
	Name string
	// Paths and Topics are those of catalog.Service. `make services` writes them into the catalog.
	Paths  []string
	Topics map[string][]permission.Permission
	// Migrations has the folder migrations, and in schema/functions and schema/views what is applied after them; nil:
	// none.
	Migrations fs.FS
	Parameters map[string]string      // of Postgres, for its role's sessions; nil: the server's
	Seals      bool                   // it needs a Box
	Sealed     []string               // the columns with sealed values: dhcp_server.http_api_key
	Signs      []string               // the topics that its Box signs
	Signed     func(*seal.Box) Signed // stored signatures; nil: none
	Fills      bool                   // it fills entries of keycache
	Sends      []string               // the services that it sends messages to
	Receives   []string               // the services whose messages it handles
	New        func(Deps) Parts       // nil: no parts
	// Checks returns checks of the settings. The service does not start if one fails that is not optional; nil: none.
	Checks func(Settings) []health.Check
	// Begin runs on an up-to-date schema before the service serves; nil: nothing.
	Begin    func(context.Context, Deps) error
	Commands []Command // of its program, besides those that all programs have
	// RevocationTypes are the types of changes that revoke rights of keys and accounts. After a restore has lost such
	// changes, FindRestored finds the rights that are valid again; nil: there are none.
	RevocationTypes []string
	FindRestored    func(context.Context, pg.Querier, []LostChange) ([]RestoredAccess, error)
	// RecordSkip records, in the same unit of work, that an unnamed consumer skipped changes of another service. nil:
	// the host records it, as for all other consumers.
	RecordSkip func(ctx context.Context, d Deps, tx *pg.Tx, skipped events.Span) error
}

// Signed has the stored signatures of a service.
type Signed interface {
	// Resign replaces signatures of older keys by those of the newest key.
	Resign(context.Context, *pg.DB) error
	// Older returns how many signatures of older keys there are.
	Older(context.Context, *pg.DB) (int64, error)
}

// Command is a command of a service's program. It gets a DB, a Box and Settings.
type Command struct {
	Name, Summary string
	Run           func(ctx context.Context, d Deps, screen io.Writer) error
}

// Settings are what operators configure by environment variables.
type Settings struct {
	APIURL          string        `env:"IRONPLANE_API_URL" for:"system" doc:"The API's public URL, such as https://api.example.com."`
	ClientURL       string        `env:"IRONPLANE_CLIENT_URL" for:"system" doc:"The URL of the clients' panel. Default: the console, /-/console below IRONPLANE_API_URL."`
	AdminURL        string        `env:"IRONPLANE_ADMIN_URL" for:"system" doc:"The URL of the admins' panel. Default: the console, /-/console below IRONPLANE_API_URL."`
	Console         string        `env:"IRONPLANE_CONSOLE" for:"system" default:"on" doc:"Whether the gateway serves the console at /-/console/: on or off. The system service needs it, too: links lead to the console."`
	SMTP            string        `env:"IRONPLANE_SMTP" for:"system" doc:"The mail server: smtp://mail.example.com:587 (encrypted by STARTTLS), smtps://… or, on the same machine, smtp+plain://…. Without it, mails are held."`
	SMTPUser        string        `env:"IRONPLANE_SMTP_USER" for:"system" doc:"The user name at the mail server, if it requires one."`
	SMTPPassword    secret.String `env:"IRONPLANE_SMTP_PASSWORD" for:"system" doc:"The password at the mail server."`
	MailFrom        string        `env:"IRONPLANE_MAIL_FROM" for:"system" doc:"The sender of mails: noreply@example.com, or Example Hosting <noreply@example.com>."`
	AllowedNetworks string        `env:"IRONPLANE_ALLOWED_NETWORKS" for:"identity pxe system" doc:"Private networks that webhooks, site agents, ISOs and identity providers may be in, also without encryption: 10.20.0.0/16 192.0.2.7. All other private addresses are refused."`
	PasskeyDomain   string        `env:"IRONPLANE_PASSKEY_DOMAIN" for:"identity" doc:"The domain of security keys and passkeys, such as example.com. Do not change it later: existing keys would stop working."`
	PasskeyOrigins  string        `env:"IRONPLANE_PASSKEY_ORIGINS" for:"identity" doc:"The panels that may ask for security keys and passkeys: https://admin.example.com https://panel.example.com."`
	License         string        `env:"IRONPLANE_LICENSE" for:"system" doc:"The license: a file, or https://…. Everything works without one."`
	LicenseSigner   string        `env:"IRONPLANE_LICENSE_SIGNER" for:"system" doc:"The public key of the license's issuer, as the command license keys prints it."`
	Packages        string        `env:"IRONPLANE_PACKAGES" for:"system" doc:"The folder with packages installed beside the core, each in a folder of its own."`
	Store           string        `env:"IRONPLANE_STORE" for:"pxe" doc:"The store of drivers and ISOs: a folder, or s3://bucket?endpoint=https://s3.example.com&region=eu, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."`
	ACMEDirectory   string        `env:"IRONPLANE_ACME_DIRECTORY" for:"system" default:"https://acme-v02.api.letsencrypt.org/directory" doc:"The ACME directory that certificates are ordered from."`
	LogAnchor       string        `env:"IRONPLANE_LOG_ANCHOR" for:"system" doc:"For the command verify: its output at an earlier time, to detect that the log was rolled back."`

	Tuning Tuning
}

// Tuning is what tests set and operators cannot. The zero value is that of production.
type Tuning struct {
	// MinTimeout is a lower bound for timeouts of requests to other services, of idle transactions, and for a connection
	// to the database. Tests set it, so that none fails because the machine is busy.
	MinTimeout time.Duration
	// PasswordMemory is the memory for hashing a password, in KiB; 0: account.DefaultMemory.
	PasswordMemory uint32
	// PollInterval is how often tasks poll that wait to be woken; 0: wake.Interval.
	PollInterval time.Duration
}

// PoolOptions returns the options of the service's pool.
func (d Definition) PoolOptions(t Tuning) pool.Options {
	o := pool.Options{AcquireTimeout: t.MinTimeout}
	if t.MinTimeout > 0 {
		o.Parameters = map[string]string{"idle_in_transaction_session_timeout": strconv.FormatInt(t.MinTimeout.Milliseconds(), 10)}
		maps.Copy(o.Parameters, d.Parameters) // roles of tests do not have them
	}
	return o
}

// Deps are what a service needs from its host.
type Deps struct {
	DB      *pg.DB // its migrated schema
	Peers   mesh.Peers
	Redis   *cache.Client
	Wakes   *wake.Bus       // of the process; nil: tasks only poll
	Entries *keycache.Store // nil if the service fills none
	Box     *seal.Box       // nil if the service does not seal
	// Outboxes are by receiver, Inboxes by sender.
	Outboxes map[string]*events.Outbox
	Inboxes  map[string]*events.Inbox
	Settings
	Variables map[string]string // environment variables that initialize settings, with their values
	Log       *slog.Logger
}

// Entry returns what other processes know of the service.
func (d Definition) Entry() catalog.Service {
	return catalog.Service{Name: d.Name, Paths: d.Paths, Topics: d.Topics}
}

// CheckRoutes returns an error if a route is below none of the Definition's paths, or if the service makes changes and
// has no topics. The error says what to add.
func (d Definition) CheckRoutes(routes []rest.Route) error {
	for _, o := range rest.Operations(routes) {
		first, _, _ := strings.Cut(strings.TrimPrefix(o.Path, "/"), "/")
		below := func(path string) bool {
			begin, end, shared := strings.Cut(path, "/*")
			return begin == first && (!shared || strings.HasSuffix(o.Path, end))
		}
		if first != "internal" && !slices.ContainsFunc(d.Paths, below) {
			return fmt.Errorf("the gateway does not forward %[2]s %[3]s to the service %[1]s: add %[4]q to Paths of its Definition",
				d.Name, o.Method, o.Path, first)
		}
		if o.Effect.Logs != "" && len(d.Topics) == 0 {
			return fmt.Errorf("webhooks cannot subscribe to the changes of the service %s (%s %s): add Topics to its Definition",
				d.Name, o.Method, o.Path)
		}
	}
	return nil
}

// Purposes returns the purposes for which the service needs derived keys.
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

// NewBox returns the service's box for a caller that has the master key; nil if the service needs none.
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
	Readers         []string // the services that may read its changes, besides the audit log
	Consumers       []*events.Consumer
	MessageHandlers map[string]events.MessageHandler // handlers of other services' messages, by kind
	Checks          []health.Check                   // of its dependencies, besides the database
	Metrics         []prometheus.Collector           // they get the service's name as a label
}

// Task is work that a service repeats while it runs. Run works until its context ends, which also happens when
// maintenance begins. If Run returns before, the host runs it again.
type Task struct {
	Name string
	Run  func(context.Context) error
}

// Every returns a task that calls do at an interval.
func Every(interval time.Duration, name string, do func(context.Context) error) Task {
	return Task{name, func(ctx context.Context) error {
		return wake.Repeat(ctx, nil, 0, func(ctx context.Context) (time.Duration, error) { return interval, do(ctx) })
	}}
}

// OnWake returns a task that calls do when woken has a value, but at most once in minInterval, and otherwise every
// wake.Interval.
func OnWake(woken <-chan struct{}, rest time.Duration, name string, do func(context.Context) error) Task {
	return Task{name, func(ctx context.Context) error {
		return wake.Repeat(ctx, woken, rest, func(ctx context.Context) (time.Duration, error) { return wake.Interval, do(ctx) })
	}}
}

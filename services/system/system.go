// Package system is the bounded context of the installation itself. There are the log, integrations, settings, mail, webhooks,
// computer parts, todo items, license, packages, theme and the gateways' certificate.
package system

import (
	"context"
	"embed"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/catalog"
	"github.com/ironplane/ironplane/pkg/egress"
	"github.com/ironplane/ironplane/pkg/events"
	processmail "github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/wake"
	"github.com/ironplane/ironplane/services/system/audit"
	"github.com/ironplane/ironplane/services/system/certificate"
	"github.com/ironplane/ironplane/services/system/integration"
	"github.com/ironplane/ironplane/services/system/mail"
	"github.com/ironplane/ironplane/services/system/packages"
	"github.com/ironplane/ironplane/services/system/setting"
	"github.com/ironplane/ironplane/services/system/webhook"
)

// Name is the service's name, and its schema's.
const Name = settings.Keeper

//go:embed migrations/*.sql schema/*/*.sql
var migrations embed.FS

// Definition is the service.
var Definition = service.Definition{
	Name: Name,
	Paths: []string{
		".well-known",
		"email",
		"http",
		"integration",
		"license",
		"log",
		"package",
		"part",
		"setting-group",
		"system",
		"todo",
		"webhook",
	},
	Topics: map[string][]permission.Permission{
		"integration": nil, // who makes a webhook holds system.integrations
		"webhook":     nil,
		"part":        {permission.ServerSettings},
		"email":       {permission.SystemEmails},
		"system":      {permission.SystemSettings},
		"license":     {permission.SystemSettings},
		"http":        {permission.SystemSettings},
		"log":         {permission.SystemLogs},
	},
	Migrations: migrations,
	Seals:      true,
	Signs:      []string{"audit log"},
	Signed:     func(box *seal.Box) service.Signed { return audit.New(box) },
	Fills:      true,
	Sealed: []string{
		"email_message.sealed",
		"webhook.secret",
		"webhook.old_secret",
		"ssl.key",
		"acme_account.key",
	},
	Receives: []string{"clients", "identity"},
	New:      func(d service.Deps) service.Parts { return New(d).parts(d.Wakes) },
	Begin:    begin,
	Takes:    []string{"integration.deleted", "integration.edited"},
	CameBack: service.AccountsBack[integration.Integration]("integration"),
	RecordSkip: func(ctx context.Context, d service.Deps, tx *pg.Tx, skipped events.Span) error {
		tx.Unrecorded("the log has an item of its own for it")
		return audit.New(d.Box).Skip(ctx, tx, skipped)
	},
	Commands: []service.Command{
		{Name: "verify", Summary: "tell whether the log is as it was written; also while it serves", Run: Verify},
	},
}

// Service is the system service.
type Service struct {
	db         *pg.DB
	log        *audit.Log
	peers      mesh.Peers
	mail       *mail.Mailer
	box        *seal.Box
	dispatcher *webhook.Dispatcher

	settings       *setting.Settings
	integrations   *integration.Integrations
	templateLeases *events.Closing
	licensing      licensing
	certificates   *certificate.Renewer
	installed      *packages.Installed
	logger         *slog.Logger
}

// refreshAtStart fails where the service is told what it cannot do, takes over what it is told, and grants the permissions that are
// new in this version.
func begin(ctx context.Context, d service.Deps) error {
	if _, err := mailServer(d.Settings); err != nil {
		return err
	}
	if _, err := egress.Parse(d.AllowedNetworks); err != nil {
		return fmt.Errorf("IRONPLANE_ALLOWED_NETWORKS: %w", err)
	}
	if _, err := certificate.ParsePublic(d.APIURL, d.ACMEDirectory); err != nil {
		return err
	}
	licensing, err := newLicensing(d.Settings)
	if err != nil {
		return err
	}
	if err := licensing.refreshAtStart(ctx, d); err != nil {
		return err
	}
	if err := integration.GrantNewPermissions(ctx, d.DB); err != nil {
		return err
	}
	return setting.InitializeAtStart(ctx, d)
}

// New makes the service on its migrated schema.
func New(d service.Deps) *Service {
	server, _ := mailServer(d.Settings) // refreshAtStart has said what is wrong with it
	allowed, _ := egress.Parse(d.AllowedNetworks)
	licensing, _ := newLicensing(d.Settings)
	public, _ := certificate.ParsePublic(d.APIURL, d.ACMEDirectory)
	return &Service{
		db:           d.DB,
		log:          audit.New(d.Box),
		peers:        d.Peers,
		settings:     &setting.Settings{DB: d.DB, Peers: d.Peers, SendsMail: server != nil},
		integrations: integration.New(d.DB, d.Entries, d.Peers),
		templateLeases: &events.Closing{
			DB:    d.DB,
			Peers: d.Peers,
			Type:  "email/template",
			Noun:  "email template",
			Table: "email_template",
			Users: []string{"pxe"},
		},
		mail:         &mail.Mailer{DB: d.DB, Box: d.Box, Peers: d.Peers, Server: server, ReadSite: readSite, FindTemplate: findTemplate},
		box:          d.Box,
		dispatcher:   webhook.NewDispatcher(d.DB, d.Box, d.Peers, allowed),
		certificates: &certificate.Renewer{DB: d.DB, Box: d.Box, Directory: d.ACMEDirectory, Public: public},
		licensing:    licensing,
		installed:    &packages.Installed{Folder: d.Packages},
		logger:       d.Log,
	}
}

// mailServer is the one that takes mails; nil: there is none.
func mailServer(s service.Settings) (*mail.Server, error) {
	if s.SMTP == "" {
		return nil, nil
	}
	return mail.NewServer(s.SMTP, s.SMTPUser, s.SMTPPassword, s.MailFrom)
}

// Routes are what the service answers.
func (s *Service) Routes() []rest.Route {
	return slices.Concat(
		rest.Section{Name: "Log", Doc: "Who changed what, and who was refused to."}.Routes(s.logRoutes()),
		rest.Section{
			Name: "Integrations",
			Doc:  "Other programs that work with this installation, such as a billing system, and what they may.",
		}.Routes(
			s.integrations.Routes(),
		),
		rest.Section{
			Name: "Settings",
			Doc:  "What operators decide while the installation runs. Every process follows within a second.",
		}.Routes(
			s.settings.Routes(),
		),
		s.integrations.Internal(),
		[]rest.Route{
			events.RefRoute(s.db, "email/template", "email_template", "NULL::jsonb", "pxe"),
		},
		rest.Section{Name: "Jobs", Doc: "What requests left behind, to be done later."}.Routes(s.jobRoutes()),
		rest.Section{Name: "Email templates", Doc: "What mails say."}.Routes(s.emailTemplateRoutes()),
		rest.Section{Name: "Mails", Doc: "What was mailed, and what became of it."}.Routes(s.emailMessageRoutes()),
		rest.Section{
			Name: "Webhooks",
			Doc: "Other programs that are told what happens, each event by a POST that is signed as [Standard " +
				"Webhooks](https://www.standardwebhooks.com) say.",
			Webhook: webhook.WebhookEvent{},
		}.Routes(
			s.webhookRoutes(),
		),
		rest.Section{Name: "Computer parts", Doc: "What servers are built of."}.Routes(s.partRoutes()),
		rest.Section{
			Name: "License",
			Doc:  "What the installation is licensed for. Without a license everything works.",
		}.Routes(
			s.licenseRoutes(),
		),
		rest.Section{Name: "Packages", Doc: "What is installed beside the core, and what panels load for it."}.Routes(s.packageRoutes()),
		rest.Section{Name: "Theme", Doc: "How panels look."}.Routes(s.themeRoutes()),
		rest.Section{Name: "SSL", Doc: "The certificate by which callers reach the API over TLS."}.Routes(s.sslRoutes()),
		rest.Section{Name: "Todo items", Doc: "What there is to do to set the installation up."}.Routes(s.todoRoutes()),
	)
}

// logInterval is how long an item may stay longer than it is to be kept, and how long at most nobody looks at the head.
const logInterval = time.Hour

// minWakeInterval is how often loops look at most for which they are woken.
const minWakeInterval = time.Second

func (s *Service) parts(wakes *wake.Bus) service.Parts {
	parts := service.Parts{
		Routes:  s.Routes(),
		Readers: []string{"clients", "identity", "pxe"},
		Loops: []service.Loop{
			service.Every(logInterval, "sign the log's head", func(ctx context.Context) error { return s.log.SignHead(ctx, s.db) }),
			s.cutLog(wakes),
			service.Every(cleanupInterval, "forget mails", s.deleteOldMails),
			s.dispatcher.Loop(wakes.Listen(Name, webhook.WakeTopic)),
			service.Every(cleanupInterval, "tidy deliveries to webhooks", s.deleteOldDeliveries),
			service.Woken(wakes.Listen(Name, settings.CertificateChanged), minWakeInterval, "order certificates", s.certificates.Renew),
			service.Woken(wakes.Listen(Name, wake.Changes), minWakeInterval, "detach integrations", s.integrations.Resume),
		},
		Jobs:  []service.Job{s.mail.Job(), s.dispatcher.Job(), s.certificates.Job(), s.integrations.Job()},
		Takes: map[string]events.Take{processmail.MessageKind: s.mail.Receive},
		Metrics: append(
			append(s.mail.Metrics(), s.dispatcher.Metrics()...),
			service.Gauge(s.db, "ironplane_log_last_change_timestamp_seconds", "When the last change was made that is logged.",
				"SELECT extract(epoch FROM at)::float8 FROM log ORDER BY id DESC LIMIT 1"),
		),
	}
	for _, source := range catalog.Names() {
		parts.Consumers = append(parts.Consumers, &events.Consumer{Source: source, Batched: true, TakenUp: s.log.RecordRestore,
			Apply: func(ctx context.Context, tx *pg.Tx, changes []events.Event) error {
				if err := s.log.Write(ctx, tx, source, changes); err != nil {
					return err
				}
				if err := integration.Count(ctx, tx, changes); err != nil {
					return err
				}
				return completeTodos(ctx, tx, changes)
			}}, &events.Consumer{Source: source, Name: webhook.ConsumerName, Batched: true,
			Apply: func(ctx context.Context, tx *pg.Tx, changes []events.Event) error {
				return s.dispatcher.Queue(ctx, tx, source, changes)
			}})
	}
	return parts
}

// cutLog cuts the log by its setting, once it is another one and from time to time.
func (s *Service) cutLog(wakes *wake.Bus) service.Loop {
	days, looked := 0, time.Time{}
	return service.Woken(wakes.Listen(Name, settings.Changed), 0, "cut the log", func(ctx context.Context) error {
		values, err := setting.Values(ctx, s.db)
		if err != nil {
			return err
		}
		if now := settings.LogDays.In(values); now == days && time.Since(looked) < logInterval {
			return nil
		} else if days = now; days > 0 {
			if err := s.log.Cut(ctx, s.db, time.Now().AddDate(0, 0, -days)); err != nil {
				return err
			}
		}
		looked = time.Now()
		return nil
	})
}

// Verify reads the whole log and says what it found.
func Verify(ctx context.Context, d service.Deps, screen io.Writer) error {
	var earlier audit.Anchor
	if err := earlier.UnmarshalText([]byte(d.Settings.LogAnchor)); err != nil {
		return fmt.Errorf("IRONPLANE_LOG_ANCHOR: %w", err)
	}
	found, err := audit.New(d.Box).Verify(ctx, d.DB, earlier)
	if err != nil {
		return err
	}
	if found.Last == 0 {
		_, err = fmt.Fprintln(screen, "The log has no items yet.")
		return err
	}
	fmt.Fprintf(screen, "The items %d to %d are as they were written, in their order, and none is missing.\n", found.First, found.Last)
	fmt.Fprintln(screen, "Of each service's changes none is left out or logged twice, up to the last one:")
	for _, source := range slices.Sorted(maps.Keys(found.Changes)) {
		fmt.Fprintf(screen, "  %s:%d\n", source, found.Changes[source])
	}
	if found.Skipped > 0 {
		fmt.Fprintf(screen, "%d changes were given up, each with an item that says so (type=event.skipped).\n", found.Skipped)
	}
	for _, r := range found.Restored {
		switch {
		case r.Kept > 0:
			fmt.Fprintf(
				screen,
				"%s was restored from a backup: its changes %d to %d are in the log, and lost to it but for %d of them (item %d).\n",
				r.Source,
				r.First,
				r.Last,
				r.Kept,
				r.Item,
			)
		case r.First > 0:
			fmt.Fprintf(
				screen,
				"%s was restored from a backup: its changes %d to %d are in the log, and lost to it (item %d).\n",
				r.Source,
				r.First,
				r.Last,
				r.Item,
			)
		default:
			fmt.Fprintf(screen, "%s was restored from a backup, and nothing that is in the log is lost to it (item %d).\n", r.Source, r.Item)
		}
	}
	if earlier.ID > 0 && !found.Compared {
		fmt.Fprintf(screen, "Item %d, with which to compare, has been cut off since.\n", earlier.ID)
	}
	_, err = fmt.Fprintf(
		screen,
		"\nKeep this where nobody can alter it who can alter the log, and set IRONPLANE_LOG_ANCHOR to it next time:\n\n  %s\n\n",
		found.Anchor,
	)
	return err
}

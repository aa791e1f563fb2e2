// Package system is the service for the installation itself: the log, integrations, settings, mails, webhooks, computer
// parts, to-do items, license, packages, theme, and the certificate of the gateways.
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
	"github.com/ironplane/ironplane/services/system/stream"
	"github.com/ironplane/ironplane/services/system/webhook"
)

// Name is the name of the service and of its schema.
const Name = settings.ServiceName

//go:embed migrations/*.sql schema/*/*.sql
var migrations embed.FS

// Definition declares the service.
var Definition = service.Definition{
	Name: Name,
	Paths: []string{
		".well-known",
		"email",
		"event",
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
		"integration": nil, // every owner of a webhook holds system.integrations
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
	Receives:        []string{"clients", "identity"},
	New:             func(d service.Deps) service.Parts { return New(d).parts(d.Wakes) },
	Checks:          checks,
	Begin:           begin,
	RevocationTypes: []string{"integration.deleted", "integration.edited"},
	FindRestored:    service.FindRestoredAccounts[integration.Integration]("integration"),
	RecordSkip: func(ctx context.Context, d service.Deps, tx *pg.Tx, skipped events.Span) error {
		tx.Unrecorded("the log has its own item for the skipped change")
		return audit.New(d.Box).Skip(ctx, tx, skipped)
	},
	Commands: []service.Command{
		{Name: "verify", Summary: "verify that the log was not altered; works while the service runs", Run: Verify},
	},
}

// Service implements the system service.
type Service struct {
	db         *pg.DB
	log        *audit.Log
	peers      mesh.Peers
	mail       *mail.Mailer
	box        *seal.Box
	dispatcher *webhook.Dispatcher

	settings       *setting.Settings
	integrations   *integration.Integrations
	templateLeases *events.Leases
	licensing      licensing
	certificates   *certificate.Renewer
	installed      *packages.Installed
	stream         *stream.Hub
	logger         *slog.Logger
}

// begin stores what operators configured, and grants the permissions that are new in this
// version.
func begin(ctx context.Context, d service.Deps) error {
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
	if err := sanitizeTheme(ctx, d.DB); err != nil {
		return err
	}
	return setting.InitializeAtStart(ctx, d)
}

// New returns the service. Its schema must be migrated.
func New(d service.Deps) *Service {
	server, _ := mailServer(d.Settings) // begin has already reported errors
	allowed, _ := egress.Parse(d.AllowedNetworks)
	licensing, _ := newLicensing(d.Settings)
	public, _ := certificate.ParsePublic(d.APIURL, d.ACMEDirectory)
	return &Service{
		db:           d.DB,
		log:          audit.New(d.Box),
		peers:        d.Peers,
		settings:     &setting.Settings{DB: d.DB, Peers: d.Peers, SendsMail: server != nil},
		integrations: integration.New(d.DB, d.Entries, d.Peers),
		templateLeases: &events.Leases{
			DB:    d.DB,
			Peers: d.Peers,
			Type:  "email/template",
			Noun:  "email template",
			Table: "email_template",
			Users: []string{"pxe"},
		},
		mail: &mail.Mailer{
			DB:           d.DB,
			Box:          d.Box,
			Peers:        d.Peers,
			Server:       server,
			ReadSite:     readSite,
			FindTemplate: findTemplate,
			Log:          d.Log,
		},
		box:          d.Box,
		dispatcher:   webhook.NewDispatcher(d.DB, d.Box, d.Peers, allowed),
		certificates: &certificate.Renewer{DB: d.DB, Box: d.Box, Directory: d.ACMEDirectory, Public: public},
		licensing:    licensing,
		installed:    &packages.Installed{Folder: d.Packages},
		stream:       stream.New(d.DB),
		logger:       d.Log,
	}
}

// mailServer returns the configured SMTP server; nil: none is configured.
func mailServer(s service.Settings) (*mail.Server, error) {
	if s.SMTP == "" {
		return nil, nil
	}
	return mail.NewServer(s.SMTP, s.SMTPUser, s.SMTPPassword, s.MailFrom)
}

// Routes returns the service's routes.
func (s *Service) Routes() []rest.Route {
	return slices.Concat(
		rest.Section{Name: "Log", Doc: "Who changed what, and which requests were refused."}.Routes(s.logRoutes()),
		rest.Section{
			Name: "Integrations",
			Doc:  "Other programs that use the API, such as a billing system, and their permissions.",
		}.Routes(
			s.integrations.Routes(),
		),
		rest.Section{
			Name: "Settings",
			Doc:  "Options that operators can change while the installation runs. Every process follows within a second.",
		}.Routes(
			s.settings.Routes(),
		),
		s.integrations.Internal(),
		[]rest.Route{
			events.RefRoute(s.db, "email/template", "email_template", "NULL::jsonb", "pxe"),
		},
		rest.Section{Name: "Jobs", Doc: "Work that continues after the request that started it."}.Routes(s.jobRoutes()),
		rest.Section{Name: "Email templates", Doc: "The texts of mails."}.Routes(s.emailTemplateRoutes()),
		rest.Section{Name: "Mails", Doc: "The mails that were sent, are being sent, or failed."}.Routes(s.emailMessageRoutes()),
		rest.Section{
			Name: "Webhooks",
			Doc: "Deliver events to other programs. Each event is a POST request, signed as specified by [Standard " +
				"Webhooks](https://www.standardwebhooks.com).",
			Webhook: webhook.WebhookEvent{},
		}.Routes(
			s.webhookRoutes(),
		),
		rest.Section{Name: "Events", Doc: "Changes as they are made."}.Routes(s.eventRoutes()),
		rest.Section{Name: "Computer parts", Doc: "The parts that servers are built from."}.Routes(s.partRoutes()),
		rest.Section{
			Name: "License",
			Doc:  "The installation's license. Without a license, all features are available.",
		}.Routes(s.licenseRoutes()),
		rest.Section{Name: "Packages", Doc: "Extensions that panels load."}.Routes(s.packageRoutes()),
		rest.Section{Name: "Theme", Doc: "The appearance of panels."}.Routes(s.themeRoutes()),
		rest.Section{Name: "SSL", Doc: "The TLS certificate of the API."}.Routes(s.sslRoutes()),
		rest.Section{Name: "Todo items", Doc: "The steps to set up the installation."}.Routes(s.todoRoutes()),
	)
}

// logInterval is how often the log is cut and its head is checked.
const logInterval = time.Hour

// minWakeInterval is the shortest interval between two runs of a task that is woken.
const minWakeInterval = time.Second

// countInterval is the shortest interval between two counts of the servers of integrations.
const countInterval = 5 * time.Second

// parts returns the service's routes, tasks, jobs, consumers and metrics.
func (s *Service) parts(wakes *wake.Bus) service.Parts {
	parts := service.Parts{
		Routes:  s.Routes(),
		Readers: []string{"clients", "identity", "pxe"},
		Tasks: []service.Task{
			service.Every(logInterval, "sign-log-head", func(ctx context.Context) error { return s.log.SignHead(ctx, s.db) }),
			s.cutLog(wakes),
			service.Every(cleanupInterval, "delete-old-mails", s.deleteOldMails),
			s.dispatcher.Loop(wakes.Listen(Name, webhook.WakeTopic)),
			s.pushEvents(wakes.Listen(Name, audit.Written)),
			service.Every(cleanupInterval, "delete-old-deliveries", s.deleteOldDeliveries),
			service.OnWake(wakes.Listen(Name, settings.CertificateChanged), minWakeInterval, "order-certificate", s.certificates.Renew),
			service.OnWake(wakes.Listen(Name, wake.Changes), minWakeInterval, "detach-integrations", s.integrations.Resume),
			service.OnWake(wakes.Listen("clients", wake.Changes), countInterval, "count-servers", s.integrations.CountServers),
		},
		Jobs:            []service.Job{s.mail.Job(), s.mail.NoticeJob(), s.dispatcher.Job(), s.certificates.Job(), s.integrations.Job()},
		MessageHandlers: map[string]events.MessageHandler{processmail.MessageKind: s.mail.Receive},
		Metrics: append(
			append(s.mail.Metrics(), s.dispatcher.Metrics()...),
			service.Gauge(s.db, "ironplane_log_last_change_timestamp_seconds", "When the last logged change was made.",
				"SELECT extract(epoch FROM at)::float8 FROM log ORDER BY id DESC LIMIT 1"),
		),
	}
	for _, source := range catalog.Names() {
		parts.Consumers = append(parts.Consumers, &events.Consumer{Source: source, Batched: true, Reconcile: s.log.RecordRestore,
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

// cutLog returns the task that cuts the log as the setting log.days says: when it changes, and every logInterval.
func (s *Service) cutLog(wakes *wake.Bus) service.Task {
	days, looked := 0, time.Time{}
	return service.OnWake(wakes.Listen(Name, settings.Changed), 0, "cut-log", func(ctx context.Context) error {
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

// Verify implements the command verify. It reads the whole log and prints whether it was altered, and a new anchor.
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
	fmt.Fprintf(screen, "Items %d to %d are complete and unaltered.\n", found.First, found.Last)
	fmt.Fprintln(screen, "Every change of each service is logged exactly once, up to change:")
	for _, source := range slices.Sorted(maps.Keys(found.Changes)) {
		fmt.Fprintf(screen, "  %s:%d\n", source, found.Changes[source])
	}
	if found.Skipped > 0 {
		fmt.Fprintf(screen, "%d changes were skipped. Items with the type event.skipped account for them.\n", found.Skipped)
	}
	for _, r := range found.Restored {
		fmt.Fprintf(screen, "%s was restored from a backup (item %d).", r.Source, r.Item)
		switch {
		case r.Kept > 0:
			fmt.Fprintf(screen, " It lost the logged changes %d to %d, except %d of them.\n", r.First, r.Last, r.Kept)
		case r.First > 0:
			fmt.Fprintf(screen, " It lost the logged changes %d to %d.\n", r.First, r.Last)
		default:
			fmt.Fprintln(screen, " It lost no logged change.")
		}
	}
	if earlier.ID > 0 && !found.Compared {
		fmt.Fprintf(screen, "The anchor's item %d was cut, so the log was not compared with it.\n", earlier.ID)
	}
	_, err = fmt.Fprintf(
		screen,
		"\nStore this anchor where people who can change the log cannot change it. Next time, set IRONPLANE_LOG_ANCHOR to it:\n\n  %s\n\n",
		found.Anchor,
	)
	return err
}

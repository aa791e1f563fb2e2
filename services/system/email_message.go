package system

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/system/mail"
	"github.com/ironplane/ironplane/services/system/setting"
)

func (s *Service) emailMessageRoutes() []rest.Route {
	const one = "/email/message/{message_id}"
	has, orOwn := guard.Has(permission.SystemEmails), guard.HasOrClient(permission.SystemEmails)
	hide := rest.Hide{From: isClient, Members: []string{"error", "attempts"}}
	view := pg.NewView[mail.EmailMessage]("email_message")
	return []rest.Route{
		rest.List[rest.None, mail.EmailMessage]{
			Path:      "/email/message",
			Guard:     orOwn,
			Extension: true,
			Name:      "listEmailMessages",
			Summary:   "List mails",
			Doc:       "A client sees the mails to itself, without error and attempts.",
			View:      "email_message",
			Hide:      hide,
			Where:     func(ctx context.Context, _ rest.None) ([]pg.Condition, error) { return ownMails(ctx), nil },
			Options: rest.ListOptions{
				Sorts:   map[string]string{"created_at": "created_at"},
				Filters: map[string]string{"status": "status", "template": "template", "email": "lower(to_email)"},
			},
		},
		rest.Read[rest.Item, mail.EmailMessage]{
			Path:      one,
			Guard:     orOwn,
			Extension: true,
			Name:      "getEmailMessage",
			Summary:   "View a mail",
			Doc:       "A client sees the mails to itself, without error and attempts.",
			Hide:      hide,
			Do: func(ctx context.Context, req rest.Item) (mail.EmailMessage, error) {
				return view.Get(ctx, s.db, req.ID, ownMails(ctx)...)
			},
		},
		rest.Mutation[rest.Item, mail.EmailMessage]{
			Method:    http.MethodPost,
			Path:      one + "/send",
			Guard:     has,
			Extension: true,
			Name:      "sendEmailMessage",
			Summary:   "Send a mail again, or one that is held or failed",
			Doc: "The mail is held if no SMTP server is configured. A mail with a secret can be sent only once, and not after its " +
				"link or code has expired.",
			Effect: rest.Effect{Logs: rest.LogsItem, Retry: rest.RetrySafe, ViewPath: one},
			Do: func(ctx context.Context, tx *pg.Tx, req rest.Item) (mail.EmailMessage, error) {
				return s.mail.Resend(ctx, tx, req.ID)
			},
		},
	}
}

// isClient reports whether the caller is a client.
func isClient(ctx context.Context) bool { return principal.FromContext(ctx).Client() != 0 }

// ownMails returns the condition for the mails that the caller sees: a client sees those to itself.
func ownMails(ctx context.Context) []pg.Condition {
	if !isClient(ctx) {
		return nil
	}
	return []pg.Condition{{SQL: "account = $1", Args: []any{principal.FromContext(ctx).Principal.Owner.URL()}}}
}

// findTemplate returns the template of this name, with or without .tpl. If there is one of the same type for the language, such as
// welcome.pt-BR or welcome.pt, it returns that.
func findTemplate(ctx context.Context, q pg.Querier, name, language string) (mail.Source, error) {
	t, err := emailTemplateView.Find(ctx, q, "lower(name) IN (lower($1), lower($2))", name, strings.TrimSuffix(name, ".tpl"))
	if err != nil {
		return mail.Source{}, err
	}
	if language != "" {
		base, _, _ := strings.Cut(language, "-")
		const inLanguage = "type = $1 AND lower(name) IN (lower($2), lower($3)) AND (lower(name) = lower($2) OR NOT EXISTS (" +
			"SELECT FROM email_template WHERE type = $1 AND lower(name) = lower($2)))"
		translated, err := emailTemplateView.Find(ctx, q, inLanguage, t.Type, t.Name+"."+language, t.Name+"."+base)
		if err == nil {
			t = translated
		} else if !errors.Is(err, pgx.ErrNoRows) {
			return mail.Source{}, fmt.Errorf("find the email template %s in %s: %w", t.Name, language, err)
		}
	}
	body := emailTemplateBody{Type: t.Type, Subject: t.Subject, Body: t.Body, HTML: t.HTML}
	return body.source(), nil
}

// deleteOldMails deletes mails that are older than the setting email.days.
func (s *Service) deleteOldMails(ctx context.Context) error {
	values, err := setting.Values(ctx, s.db)
	if err != nil {
		return err
	}
	return s.mail.DeleteOld(ctx, settings.EmailDays.In(values))
}

// cleanupInterval is how often old mails, old deliveries and expired secrets are deleted.
const cleanupInterval = time.Minute

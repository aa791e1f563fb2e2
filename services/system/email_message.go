package system

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/system/mail"
	"github.com/ironplane/ironplane/services/system/setting"
)

func (s *Service) emailMessageRoutes() []rest.Route {
	const one = "/email/message/{message_id}"
	has := guard.Has(permission.SystemEmails)
	view := pg.NewView[mail.EmailMessage]("email_message")
	return []rest.Route{
		rest.List[rest.None, mail.EmailMessage]{
			Path:      "/email/message",
			Guard:     has,
			Extension: true,
			Name:      "listEmailMessages",
			Summary:   "List mails",
			View:      "email_message",
			Options: rest.ListOptions{
				Sorts:   map[string]string{"created_at": "created_at"},
				Filters: map[string]string{"status": "status", "template": "template", "email": "lower(to_email)"},
			},
		},
		rest.Read[rest.Item, mail.EmailMessage]{Path: one, Guard: has, Extension: true, Name: "getEmailMessage", Summary: "View a mail",
			Do: func(ctx context.Context, req rest.Item) (mail.EmailMessage, error) {
				return view.Get(ctx, s.db, req.ID)
			}},
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

// findTemplate returns the template of this name, with or without .tpl.
func findTemplate(ctx context.Context, q pg.Querier, name string) (mail.Source, error) {
	t, err := emailTemplateView.Find(ctx, q, "lower(name) IN (lower($1), lower($2))", name, strings.TrimSuffix(name, ".tpl"))
	if err != nil {
		return mail.Source{}, err
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

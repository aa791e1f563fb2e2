package mail

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/service"
)

// EmailMessage is a mail as operators see it. Secrets are hidden.
type EmailMessage struct {
	rest.Versioned
	ID       int64  `json:"id" db:"id"`
	Template string `json:"template" db:"template" doc:"The name of the template."`
	Account  string `json:"account" db:"account" doc:"The path of the account that the mail is for, such as /client/5."`
	To       struct {
		Name  string `json:"name" db:"name"`
		Email string `json:"email" db:"email"`
	} `json:"to" db:"to_" doc:"The recipient."`
	RenderedEmail
	Status    string          `json:"status" db:"status" enum:"held,queued,sent,failed" doc:"held: no SMTP server is configured. queued: the mail is being sent or retried."`
	Error     *string         `json:"error,omitempty" db:"error" doc:"Why the last attempt failed."`
	Attempts  int64           `json:"attempts" db:"attempts"`
	CreatedAt rest.Timestamp  `json:"created_at" db:"created_at"`
	SentAt    *rest.Timestamp `json:"sent_at,omitempty" db:"sent_at" doc:"When the SMTP server accepted the mail."`
	ExpiresAt *rest.Timestamp `json:"expires_at,omitempty" db:"expires_at" doc:"When a link or code in the mail expires. The mail is not sent after that."`
}

var messages = pg.NewView[EmailMessage]("email_message")

// The states of a mail.
const (
	held   = "held"
	queued = "queued"
	sent   = "sent"
	failed = "failed"
)

// Sent is the action in the log when a mail was sent.
const Sent pg.Action = sent

// loggedStatus is what the log says about a mail. It does not contain the mail's text.
type loggedStatus struct {
	Status string  `json:"status"`
	Error  *string `json:"error,omitempty"`
}

// record records a mail's change of status.
func record(ctx context.Context, tx *pg.Tx, action pg.Action, before *EmailMessage) error {
	after, err := messages.Get(ctx, tx, before.ID)
	if err != nil {
		return err
	}
	targets := []pg.Target{{Type: "email/message", Noun: "mail", ID: after.ID, Name: after.Subject, Version: after.Version}}
	if kind, id, ok := strings.Cut(strings.TrimPrefix(after.Account, "/"), "/"); ok {
		if n, err := strconv.ParseInt(id, 10, 64); err == nil {
			targets = append(targets, pg.Target{Type: kind, Noun: kind, ID: n, Name: after.To.Name})
		}
	}
	tx.Record(
		pg.Record{
			Kind:    "email.message",
			Action:  action,
			Targets: targets,
			Before:  loggedStatus{before.Status, before.Error},
			After:   loggedStatus{after.Status, after.Error},
		},
	)
	return nil
}

// Resend queues a mail that was held, failed or sent. Without an SMTP server, the mail is held.
func (m *Mailer) Resend(ctx context.Context, tx *pg.Tx, id int64) (EmailMessage, error) {
	var secretDeleted bool
	if err := tx.QueryRow(ctx, "SELECT secret AND sealed IS NULL FROM email_message WHERE id = $1 FOR UPDATE", id).
		Scan(&secretDeleted); err != nil {
		return EmailMessage{}, err
	}
	before, err := messages.Get(ctx, tx, id)
	if err != nil {
		return before, err
	}
	status := queued
	if m.Server == nil {
		status = held
	}
	switch {
	case before.ExpiresAt != nil && time.Now().After(before.ExpiresAt.Time):
		return before, problem.New(problem.Conflict, "Mail %d has expired and cannot be sent.", id)
	case secretDeleted:
		return before, problem.New(problem.Conflict, "Mail %d cannot be sent again, because its secret was deleted.", id)
	case before.Status == queued, before.Status == status:
		tx.Unrecorded("the mail already has this status")
		return before, nil
	}
	if _, err := tx.Exec(
		ctx,
		"UPDATE email_message SET status = $2, error = NULL, version = version + 1 WHERE id = $1",
		id,
		status,
	); err != nil {
		return before, err
	}
	if status == queued {
		if err := m.enqueue(ctx, tx, jobArgs{Message: id}); err != nil {
			return before, err
		}
	}
	if err := record(ctx, tx, "queued", &before); err != nil {
		return before, err
	}
	return messages.Get(ctx, tx, id)
}

// Metrics returns the mailer's metrics.
func (m *Mailer) Metrics() []prometheus.Collector {
	count := func(name, help, status string) prometheus.Collector {
		return service.Gauge(m.DB, name, help, "SELECT count(*)::float8 FROM email_message WHERE status = '"+status+"'")
	}
	return []prometheus.Collector{
		count("ironplane_mails_held", "Mails that are held because no SMTP server is configured.", held),
		count("ironplane_mails_queued", "Mails that are being sent or wait for a retry.", queued),
		service.Gauge(m.DB, "ironplane_mails_failed", "Mails created in the last three days that failed.",
			"SELECT count(*)::float8 FROM email_message WHERE status = 'failed' AND created_at > now() - interval '3 days'"),
		service.Gauge(m.DB, "ironplane_mails_late_seconds", "Age of the oldest queued mail; 0 if no mail is queued.",
			"SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM email_message WHERE status = 'queued'"),
	}
}

// DeleteOld deletes sent and failed mails that are older than this many days, and expired secrets.
func (m *Mailer) DeleteOld(ctx context.Context, days int) error {
	return m.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the log already has the outcome of these mails")
		if _, err := tx.Exec(ctx, "UPDATE email_message SET sealed = NULL WHERE sealed IS NOT NULL AND expires_at < now()"); err != nil {
			return fmt.Errorf("delete expired secrets of mails: %w", err)
		}
		_, err := tx.Exec(
			ctx,
			"DELETE FROM email_message WHERE created_at < now() - make_interval(days => $1) AND status IN ('sent', 'failed')",
			days,
		)
		if err != nil {
			return fmt.Errorf("delete old mails: %w", err)
		}
		return nil
	})
}

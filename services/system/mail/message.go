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

// EmailMessage is a mail as operators see it: a mark stands in the place of its secrets.
type EmailMessage struct {
	rest.Versioned
	ID       int64  `json:"id" db:"id"`
	Template string `json:"template" db:"template" doc:"by which it was written"`
	Account  string `json:"account" db:"account" doc:"whose it is, as a path: /client/5"`
	To       struct {
		Name  string `json:"name" db:"name"`
		Email string `json:"email" db:"email"`
	} `json:"to" db:"to_"`
	RenderedEmail
	Status    string          `json:"status" db:"status" enum:"held,queued,sent,failed" doc:"held: there is no SMTP server; queued: it is being sent"`
	Error     *string         `json:"error,omitempty" db:"error" doc:"what the last attempt failed with"`
	Attempts  int64           `json:"attempts" db:"attempts"`
	CreatedAt rest.Timestamp  `json:"created_at" db:"created_at"`
	SentAt    *rest.Timestamp `json:"sent_at,omitempty" db:"sent_at" doc:"when the SMTP server took it"`
	ExpiresAt *rest.Timestamp `json:"expires_at,omitempty" db:"expires_at" doc:"it is not sent later, as a link in it is good no longer"`
}

var messages = pg.NewView[EmailMessage]("email_message")

// What becomes of a mail.
const (
	held   = "held"
	queued = "queued"
	sent   = "sent"
	failed = "failed"
)

// Sent is the action of the record that a mail leaves once it was sent.
const Sent pg.Action = sent

// loggedStatus is what the log says of a mail: not what stands in it.
type loggedStatus struct {
	Status string  `json:"status"`
	Error  *string `json:"error,omitempty"`
}

// record leaves what became of a mail to the log.
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

// Resend has a mail sent that is held or has failed, or once more where it was sent. Without a server it is held.
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
		return before, problem.New(problem.Conflict, "Mail %d is not sent any more: what it says is good no longer.", id)
	case secretDeleted:
		return before, problem.New(problem.Conflict, "Mail %d cannot be sent again: its secret is gone.", id)
	case before.Status == queued, before.Status == status:
		tx.Unrecorded("it is as it was")
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

// Metrics are what operators see of it.
func (m *Mailer) Metrics() []prometheus.Collector {
	count := func(name, help, status string) prometheus.Collector {
		return service.Gauge(m.DB, name, help, "SELECT count(*)::float8 FROM email_message WHERE status = '"+status+"'")
	}
	return []prometheus.Collector{
		count("ironplane_mails_held", "Mails that are held as there is no SMTP server.", held),
		count("ironplane_mails_queued", "Mails that are being sent, or wait to be tried again.", queued),
		service.Gauge(m.DB, "ironplane_mails_failed", "Mails of the last three days that could not be sent.",
			"SELECT count(*)::float8 FROM email_message WHERE status = 'failed' AND created_at > now() - interval '3 days'"),
		service.Gauge(m.DB, "ironplane_mails_late_seconds", "How long the oldest mail waits that is being sent; 0: none is.",
			"SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM email_message WHERE status = 'queued'"),
	}
}

// DeleteOld deletes mails that were sent, or failed, days ago, and secrets that are good no longer.
func (m *Mailer) DeleteOld(ctx context.Context, days int) error {
	return m.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what became of them is in the log")
		if _, err := tx.Exec(ctx, "UPDATE email_message SET sealed = NULL WHERE sealed IS NOT NULL AND expires_at < now()"); err != nil {
			return fmt.Errorf("forget secrets of mails: %w", err)
		}
		_, err := tx.Exec(
			ctx,
			"DELETE FROM email_message WHERE created_at < now() - make_interval(days => $1) AND status IN ('sent', 'failed')",
			days,
		)
		if err != nil {
			return fmt.Errorf("forget mails: %w", err)
		}
		return nil
	})
}

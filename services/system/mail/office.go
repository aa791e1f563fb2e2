package mail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	netmail "net/mail"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
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

// Office takes the mails that services want sent, and sends them.
type Office struct {
	DB     *pg.DB
	Box    *seal.Box
	Peers  mesh.Peers
	Server *Server                                                   // nil: there is none, and mails are held
	Site   func(context.Context, pg.Querier) (Site, error)           // what templates can say of the installation
	Source func(context.Context, pg.Querier, string) (Source, error) // the template of a name
}

const (
	// attempts with these pauses take about two days.
	attempts              = 16
	firstPause, lastPause = time.Minute, 6 * time.Hour
	workers               = 8
)

func backoff(attempt int) time.Duration {
	return min(firstPause<<min(attempt-1, 20), lastPause)
}

// task is what a job is given.
type task struct {
	Message int64  `json:"message"`
	CopyTo  string `json:"copy_to,omitempty"` // for whom a copy is; empty: it is the mail itself
}

// Job sends a mail, or a copy of it. It is not unique: a mail that has failed may be sent again while its job ends.
func (o *Office) Job() service.Job {
	return service.Job{Kind: "mail", Timeout: 5 * time.Minute, Attempts: attempts, Backoff: backoff, Workers: workers, Do: jobs.Do(o.send)}
}

func (o *Office) enqueue(ctx context.Context, tx *pg.Tx, t task) error {
	job := o.Job()
	return jobs.Enqueue(ctx, tx, &job, t)
}

func place(id int64) seal.Place { return seal.Place{Table: "email_message", Column: "sealed", ID: id} }

// Sent is the action of the record that a mail leaves once it was sent.
const Sent pg.Action = sent

// Take writes the mail that a service wants sent, and has it sent. What cannot be written is kept as failed. A message that is taken
// again, as after this service was restored, makes a mail of the same Message-ID.
func (o *Office) Take(ctx context.Context, tx *pg.Tx, of events.Message) error {
	var m mail.Message
	if err := json.Unmarshal(of.Content, &m); err != nil {
		return fmt.Errorf("read what is to be sent: %w", err)
	}
	status, reason := queued, ""
	if o.Server == nil {
		status = held
	}
	told, err := toldEnough(ctx, tx, &m)
	if err != nil {
		return err
	}
	shown, whole, err := o.write(ctx, tx, &m, of.Secret)
	switch {
	case err != nil:
		status, reason = failed, err.Error()
	case told:
		status, reason = failed, fmt.Sprintf("the account was told of %d changes within the hour", mostNotices)
	}
	hasSecret := !of.Secret.IsZero()
	var id int64
	err = tx.QueryRow(ctx, `
		INSERT INTO email_message (uuid, template, account, to_name, to_email, subject, body, html, secret, status, error, expires_at)
		VALUES (@uuid, @template, @account, @to_name, @to_email, @subject, @body, @html, @secret, @status, nullif(@error, ''), @expires_at)
		RETURNING id`,
		pgx.StrictNamedArgs{
			"uuid": of.ID, "template": m.Template, "account": m.Account, "to_name": m.To.To.Name, "to_email": m.To.To.Email,
			"subject": shown.Subject, "body": shown.Text, "html": shown.HTML, "secret": hasSecret,
			"status": status, "error": reason, "expires_at": orNull(m.Expires),
		}).Scan(&id)
	if err != nil {
		return fmt.Errorf("keep a mail: %w", err)
	}
	if hasSecret && status != failed {
		text, err := json.Marshal(whole)
		if err != nil {
			return errors.New("encode a mail") // err might show a part
		}
		if _, err := tx.Exec(
			ctx,
			"UPDATE email_message SET sealed = $2 WHERE id = $1",
			id,
			o.Box.Seal(place(id), secret.New(string(text))),
		); err != nil {
			return fmt.Errorf("seal a mail: %w", err)
		}
	}
	if status != queued {
		return nil
	}
	return o.enqueue(ctx, tx, task{Message: id})
}

// notices are the kinds of mails that tell an account what was done to it, of which it gets so many an hour.
var notices = []string{mail.AccountChanged{}.Kind(), mail.ClientLinked{}.Kind()}

const mostNotices = 10

// toldEnough tells whether a mail is one more notice than an account gets.
func toldEnough(ctx context.Context, tx *pg.Tx, m *mail.Message) (enough bool, err error) {
	if !slices.Contains(notices, m.Kind) {
		return false, nil
	}
	err = tx.QueryRow(ctx, "SELECT count(*) >= $3 FROM email_message WHERE account = $1 AND template = ANY ($2) AND created_at > now() - interval '1 hour' AND status <> 'failed'",
		m.Account, notices, mostNotices).
		Scan(&enough)
	if err != nil {
		return false, fmt.Errorf("count what %s was told: %w", m.Account, err)
	}
	return enough, nil
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// write renders a mail as it is shown, and as it is sent.
func (o *Office) write(
	ctx context.Context,
	tx *pg.Tx,
	m *mail.Message,
	confidential secret.String,
) (shown, whole RenderedEmail, err error) {
	if _, err := netmail.ParseAddress(m.To.To.Email); err != nil || strings.ContainsAny(m.To.To.Email, "<> \r\n") {
		return shown, whole, errors.New("the address is none")
	}
	content, err := m.Open(confidential)
	if err != nil {
		return shown, whole, err
	}
	source, err := o.Source(ctx, tx, m.Template)
	if errors.Is(err, pgx.ErrNoRows) {
		return shown, whole, fmt.Errorf("there is no template %s any more", m.Template)
	}
	if err != nil {
		return shown, whole, err
	}
	if source.Kind != m.Kind {
		return shown, whole, fmt.Errorf("the template %s is of the type %s, and this is a mail of the type %s", m.Template, source.Kind, m.Kind)
	}
	var wrong problem.Fields
	template := source.Parse(&wrong)
	if err := wrong.Err(); err != nil {
		return shown, whole, fmt.Errorf("the template %s: %w", m.Template, err)
	}
	site, err := o.Site(ctx, tx)
	if err != nil {
		return shown, whole, err
	}
	if shown, err = template.Render(false, site, m.To, content); err != nil {
		return shown, whole, err
	}
	whole, err = template.Render(true, site, m.To, content)
	return shown, whole, err
}

// kept is a mail as it is sent.
type kept struct {
	EmailMessage
	uuid   string
	sealed []byte
	secret bool
}

func (o *Office) load(ctx context.Context, id int64) (k kept, err error) {
	if k.EmailMessage, err = messages.Get(ctx, o.DB, id); err != nil {
		return k, err
	}
	err = o.DB.QueryRow(ctx, "SELECT uuid::text, sealed, secret FROM email_message WHERE id = $1", id).Scan(&k.uuid, &k.sealed, &k.secret)
	return k, err
}

var errExpired = errors.New("it was not sent in time: what it says is good no longer")

// send is the job.
func (o *Office) send(ctx context.Context, attempt *service.Attempt, t task) error {
	k, err := o.load(ctx, t.Message)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("read mail %d: %w", t.Message, err)
	case t.CopyTo == "" && k.Status != queued, t.CopyTo != "" && k.Status != sent:
		return nil
	case o.Server == nil:
		return o.note(ctx, k, t, held, nil, nil)
	case k.ExpiresAt != nil && time.Now().After(k.ExpiresAt.Time):
		return o.giveUp(ctx, k, t, errExpired)
	}
	var copies []string
	if t.CopyTo == "" && !k.secret && strings.HasPrefix(k.Account, "/client/") {
		if err := o.Peers.Ask(ctx, "identity", mail.CopiesPath, &copies); err != nil {
			return fmt.Errorf("ask who gets copies of mails: %w", err)
		}
	}
	l, err := o.letter(ctx, k, t)
	if err == nil {
		err = o.Server.deliver(ctx, l)
	}
	_, refused := errors.AsType[refusedError](err)
	switch {
	case err == nil:
		return o.note(ctx, k, t, sent, nil, copies)
	case refused, attempt.Last:
		return o.giveUp(ctx, k, t, err)
	case ctx.Err() != nil && t.CopyTo == "":
		return err
	}
	return errors.Join(err, o.note(ctx, k, t, queued, err, nil))
}

// letter is what goes to the server.
func (o *Office) letter(ctx context.Context, k kept, t task) (letter, error) {
	l := letter{
		messageID:     k.uuid,
		at:            k.CreatedAt.Time,
		to:            netmail.Address{Name: k.To.Name, Address: k.To.Email},
		copyTo:        t.CopyTo,
		RenderedEmail: k.RenderedEmail,
	}
	if k.secret {
		whole, err := o.Box.Open(place(k.ID), k.sealed)
		if err != nil {
			return l, fmt.Errorf("open mail %d: %w", k.ID, err)
		}
		if err := json.Unmarshal([]byte(whole.Reveal()), &l.RenderedEmail); err != nil {
			return l, fmt.Errorf("mail %d cannot be read", k.ID)
		}
	}
	site, err := o.Site(ctx, o.DB)
	l.from = site.Site.Name
	return l, err
}

// giveUp ends a job that nothing will come of, once that is noted.
func (o *Office) giveUp(ctx context.Context, k kept, t task, reason error) error {
	if err := o.note(ctx, k, t, failed, reason, nil); err != nil {
		return errors.Join(reason, err)
	}
	return jobs.Never(reason)
}

// note keeps what came of an attempt. What need not be sent any more keeps no secret.
func (o *Office) note(ctx context.Context, k kept, t task, status string, reason error, copies []string) error {
	if t.CopyTo != "" { // what came of the mail itself stands there
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTime)
	defer cancel()
	var said *string
	if reason != nil {
		text := reason.Error()
		said = &text
	}
	return o.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("it is tried again")
		_, err := tx.Exec(ctx, `UPDATE email_message SET status = $2, error = $3, attempts = attempts + 1, version = version + 1,
			sent_at = CASE WHEN $2 = 'sent' THEN now() END, sealed = CASE WHEN $2 IN ('held', 'queued') OR $2 = 'failed' AND expires_at > now() THEN sealed END
			WHERE id = $1`, k.ID, status, said)
		if err != nil {
			return fmt.Errorf("note what became of mail %d: %w", k.ID, err)
		}
		for _, email := range copies {
			if err := o.enqueue(ctx, tx, task{k.ID, email}); err != nil {
				return err
			}
		}
		if status == sent || status == failed {
			return record(ctx, tx, pg.Action(status), &k.EmailMessage)
		}
		return nil
	})
}

// fate is what the log says of a mail: not what stands in it.
type fate struct {
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
			Before:  fate{before.Status, before.Error},
			After:   fate{after.Status, after.Error},
		},
	)
	return nil
}

// SendAgain has a mail sent that is held or has failed, or once more where it was sent. Without a server it is held.
func (o *Office) SendAgain(ctx context.Context, tx *pg.Tx, id int64) (EmailMessage, error) {
	var gone bool
	if err := tx.QueryRow(ctx, "SELECT secret AND sealed IS NULL FROM email_message WHERE id = $1 FOR UPDATE", id).Scan(&gone); err != nil {
		return EmailMessage{}, err
	}
	before, err := messages.Get(ctx, tx, id)
	if err != nil {
		return before, err
	}
	status := queued
	if o.Server == nil {
		status = held
	}
	switch {
	case before.ExpiresAt != nil && time.Now().After(before.ExpiresAt.Time):
		return before, problem.New(problem.Conflict, "Mail %d is not sent any more: what it says is good no longer.", id)
	case gone:
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
		if err := o.enqueue(ctx, tx, task{Message: id}); err != nil {
			return before, err
		}
	}
	if err := record(ctx, tx, "queued", &before); err != nil {
		return before, err
	}
	return messages.Get(ctx, tx, id)
}

// Metrics are what operators see of it.
func (o *Office) Metrics() []prometheus.Collector {
	count := func(name, help, status string) prometheus.Collector {
		return service.Gauge(o.DB, name, help, "SELECT count(*)::float8 FROM email_message WHERE status = '"+status+"'")
	}
	return []prometheus.Collector{
		count("ironplane_mails_held", "Mails that are held as there is no SMTP server.", held),
		count("ironplane_mails_queued", "Mails that are being sent, or wait to be tried again.", queued),
		service.Gauge(o.DB, "ironplane_mails_failed", "Mails of the last three days that could not be sent.",
			"SELECT count(*)::float8 FROM email_message WHERE status = 'failed' AND created_at > now() - interval '3 days'"),
		service.Gauge(o.DB, "ironplane_mails_late_seconds", "How long the oldest mail waits that is being sent; 0: none is.",
			"SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM email_message WHERE status = 'queued'"),
	}
}

// Forget deletes mails that were sent, or failed, days ago, and secrets that are good no longer.
func (o *Office) Forget(ctx context.Context, days int) error {
	return o.DB.InTx(ctx, func(tx *pg.Tx) error {
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

package mail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	netmail "net/mail"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
)

// Mailer sends the mails that services ask for.
type Mailer struct {
	DB       *pg.DB
	Box      *seal.Box
	Peers    mesh.Peers
	Log      *slog.Logger
	Server   *Server                                         // nil: no SMTP server is configured, and mails are held
	ReadSite func(context.Context, pg.Querier) (Site, error) // returns what templates can show of the installation
	// FindTemplate returns the template of this name in a language, or else the one of this name.
	FindTemplate func(ctx context.Context, q pg.Querier, name, language string) (Source, error)
}

const (
	// attempts with these backoffs take about two days.
	attempts               = 16
	minBackoff, maxBackoff = time.Minute, 6 * time.Hour
	workers                = 8
)

func backoff(attempt int) time.Duration {
	return min(minBackoff<<min(attempt-1, 20), maxBackoff)
}

// jobArgs are the arguments of the job.
type jobArgs struct {
	Message int64  `json:"message"`
	CopyTo  string `json:"copy_to,omitempty"` // the recipient of a copy; empty: send the mail itself
}

// Job sends a mail, or a copy of it. It is not unique, because a failed mail may be sent again while its job ends.
func (m *Mailer) Job() service.Job {
	return service.Job{Kind: "mail", Timeout: 5 * time.Minute, Attempts: attempts, Backoff: backoff, Workers: workers, Do: jobs.Do(m.send)}
}

func (m *Mailer) enqueue(ctx context.Context, tx *pg.Tx, t jobArgs) error {
	job := m.Job()
	return jobs.Enqueue(ctx, tx, &job, t)
}

// sealedColumn returns the location to which the sealed secret of a message is bound.
func sealedColumn(id int64) seal.Location {
	return seal.Location{Table: "email_message", Column: "sealed", ID: id}
}

// Receive renders the mail that a service asks for, stores it and enqueues its job. A mail that cannot be rendered is
// stored as failed. A message may be received again, for example after this service was restored. The second mail then
// has the same Message-ID, so that recipients' mail programs recognize it.
func (m *Mailer) Receive(ctx context.Context, tx *pg.Tx, of events.Message) error {
	var message mail.Message
	if err := json.Unmarshal(of.Content, &message); err != nil {
		return fmt.Errorf("decode the message of a mail: %w", err)
	}
	status, reason := m.firstStatus(), ""
	limited, err := exceedsNoticeLimit(ctx, tx, &message)
	if err != nil {
		return err
	}
	shown, revealed, err := m.render(ctx, tx, &message, of.Secret)
	switch {
	case err != nil:
		status, reason = failed, err.Error()
	case limited:
		status, reason = failed, fmt.Sprintf("the account was already notified of %d changes in the last hour", maxNotices)
	}
	hasSecret := !of.Secret.IsZero()
	id, err := m.store(ctx, tx, of.ID, &message, shown, status, reason, hasSecret)
	if err != nil || !hasSecret || status == failed {
		return err
	}
	text, err := json.Marshal(revealed)
	if err != nil {
		return errors.New("encode a mail") // err might contain a part of the secret
	}
	sealed := m.Box.Seal(sealedColumn(id), secret.New(string(text)))
	if _, err := tx.Exec(ctx, "UPDATE email_message SET sealed = $2 WHERE id = $1", id, sealed); err != nil {
		return fmt.Errorf("seal a mail: %w", err)
	}
	return nil
}

// firstStatus returns the status of a new mail.
func (m *Mailer) firstStatus() string {
	if m.Server == nil {
		return held
	}
	return queued
}

// store stores a mail, and enqueues its job if it is to be sent.
func (m *Mailer) store(
	ctx context.Context,
	tx *pg.Tx,
	uuid string,
	message *mail.Message,
	shown RenderedEmail,
	status, reason string,
	hasSecret bool,
) (id int64, err error) {
	err = tx.QueryRow(ctx, `
		INSERT INTO email_message (uuid, template, account, to_name, to_email, subject, body, html, secret, status, error, expires_at)
		VALUES (@uuid, @template, @account, @to_name, @to_email, @subject, @body, @html, @secret, @status, nullif(@error, ''), @expires_at)
		RETURNING id`,
		pgx.StrictNamedArgs{
			"uuid": uuid, "template": message.Template, "account": message.Account, "to_name": message.To.To.Name,
			"to_email": message.To.To.Email, "subject": shown.Subject, "body": shown.Text, "html": shown.HTML, "secret": hasSecret,
			"status": status, "error": reason, "expires_at": nullTime(message.Expires),
		}).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("store a mail: %w", err)
	}
	if status != queued {
		return id, nil
	}
	return id, m.enqueue(ctx, tx, jobArgs{Message: id})
}

// noticeKinds are the kinds of mails that notify an account of changes to it. An account gets at most maxNotices of them
// an hour, so that nobody can flood a mailbox.
var noticeKinds = []string{mail.AccountChanged{}.Kind(), mail.ClientLinked{}.Kind()}

const maxNotices = 10

// exceedsNoticeLimit reports whether a mail is a notice that its account must not get within this hour.
func exceedsNoticeLimit(ctx context.Context, tx *pg.Tx, message *mail.Message) (enough bool, err error) {
	if !slices.Contains(noticeKinds, message.Kind) {
		return false, nil
	}
	err = tx.QueryRow(ctx, "SELECT count(*) >= $3 FROM email_message WHERE account = $1 AND template = ANY ($2) "+
		"AND created_at > now() - interval '1 hour' AND status <> 'failed'",
		message.Account, noticeKinds, maxNotices).
		Scan(&enough)
	if err != nil {
		return false, fmt.Errorf("count the notices to %s: %w", message.Account, err)
	}
	return enough, nil
}

func nullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// render returns a mail as operators see it, with secrets hidden, and as it is sent.
func (m *Mailer) render(
	ctx context.Context,
	tx *pg.Tx,
	message *mail.Message,
	confidential secret.String,
) (shown, revealed RenderedEmail, err error) {
	if _, err := netmail.ParseAddress(message.To.To.Email); err != nil || strings.ContainsAny(message.To.To.Email, "<> \r\n") {
		return shown, revealed, errors.New("the email address is not valid")
	}
	content, err := message.Open(confidential)
	if err != nil {
		return shown, revealed, err
	}
	source, err := m.FindTemplate(ctx, tx, message.Template, message.To.To.Language)
	if errors.Is(err, pgx.ErrNoRows) {
		return shown, revealed, fmt.Errorf("the template %s does not exist", message.Template)
	}
	if err != nil {
		return shown, revealed, err
	}
	if source.Kind != message.Kind {
		return shown, revealed, fmt.Errorf(
			"the template %s has type %s, but the mail needs type %s",
			message.Template,
			source.Kind,
			message.Kind,
		)
	}
	var invalid problem.Fields
	template := source.Parse(&invalid)
	if err := invalid.Err(); err != nil {
		plain, known := plainSources[message.Kind]
		if !known {
			return shown, revealed, fmt.Errorf("the template %s: %w", message.Template, err)
		}
		m.Log.Error("email template refused, plain text sent instead", "template", message.Template, "err", err)
		plain.Kind = message.Kind
		template = plain.Parse(&problem.Fields{})
	}
	site, err := m.ReadSite(ctx, tx)
	if err != nil {
		return shown, revealed, err
	}
	if shown, err = template.Render(false, site, message.To, content); err != nil {
		return shown, revealed, err
	}
	revealed, err = template.Render(true, site, message.To, content)
	return shown, revealed, err
}

// storedMail is a mail with what is needed to send it.
type storedMail struct {
	EmailMessage
	uuid   string
	sealed []byte
	secret bool
}

// load returns a mail with its sealed text. The error is pgx.ErrNoRows if it was deleted.
func (m *Mailer) load(ctx context.Context, id int64) (k storedMail, err error) {
	if k.EmailMessage, err = messages.Get(ctx, m.DB, id); err != nil {
		return k, err
	}
	err = m.DB.QueryRow(ctx, "SELECT uuid::text, sealed, secret FROM email_message WHERE id = $1", id).Scan(&k.uuid, &k.sealed, &k.secret)
	return k, err
}

var errExpired = errors.New("the mail expired before it was sent")

// send is an attempt of the job.
func (m *Mailer) send(ctx context.Context, attempt *service.Attempt, t jobArgs) error {
	k, err := m.load(ctx, t.Message)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("read mail %d: %w", t.Message, err)
	case t.CopyTo == "" && k.Status != queued, t.CopyTo != "" && k.Status != sent:
		return nil
	case m.Server == nil:
		return m.storeOutcome(ctx, k, t, held, nil, nil)
	case k.ExpiresAt != nil && time.Now().After(k.ExpiresAt.Time):
		return m.giveUp(ctx, k, t, errExpired)
	}
	var copies []string
	if t.CopyTo == "" && !k.secret && strings.HasPrefix(k.Account, "/client/") {
		if err := m.Peers.Ask(ctx, "identity", mail.CopiesPath, &copies); err != nil {
			return fmt.Errorf("ask identity for the recipients of copies: %w", err)
		}
	}
	l, err := m.buildMessage(ctx, k, t)
	if err == nil {
		endSpan := tracing.Step(ctx, "send a mail by SMTP")
		err = m.Server.deliver(ctx, l)
		endSpan()
	}
	_, refused := errors.AsType[refusedError](err)
	switch {
	case err == nil:
		return m.storeOutcome(ctx, k, t, sent, nil, copies)
	case refused, attempt.Last:
		return m.giveUp(ctx, k, t, err)
	case ctx.Err() != nil && t.CopyTo == "":
		return err
	}
	return errors.Join(err, m.storeOutcome(ctx, k, t, queued, err, nil))
}

// buildMessage returns what is sent to the SMTP server.
func (m *Mailer) buildMessage(ctx context.Context, k storedMail, t jobArgs) (outgoingMessage, error) {
	l := outgoingMessage{
		messageID:     k.uuid,
		at:            k.CreatedAt.Time,
		to:            netmail.Address{Name: k.To.Name, Address: k.To.Email},
		copyTo:        t.CopyTo,
		RenderedEmail: k.RenderedEmail,
	}
	if k.secret {
		revealed, err := m.Box.Open(sealedColumn(k.ID), k.sealed)
		if err != nil {
			return l, fmt.Errorf("open mail %d: %w", k.ID, err)
		}
		if err := json.Unmarshal([]byte(revealed.Reveal()), &l.RenderedEmail); err != nil {
			return l, fmt.Errorf("decode mail %d", k.ID) // the error might contain a part of the secret
		}
	}
	site, err := m.ReadSite(ctx, m.DB)
	l.from = site.Site.Name
	return l, err
}

// giveUp marks the mail as failed, and ends its job.
func (m *Mailer) giveUp(ctx context.Context, k storedMail, t jobArgs, reason error) error {
	if err := m.storeOutcome(ctx, k, t, failed, reason, nil); err != nil {
		return errors.Join(reason, err)
	}
	return jobs.GiveUp(reason)
}

// storeOutcome stores the outcome of an attempt, and enqueues copies. It deletes the secret of a mail that will not be sent
// again.
func (m *Mailer) storeOutcome(ctx context.Context, k storedMail, t jobArgs, status string, reason error, copies []string) error {
	if t.CopyTo != "" { // the row has the outcome of the mail itself
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	var errorText *string
	if reason != nil {
		text := reason.Error()
		errorText = &text
	}
	return m.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the mail will be retried")
		_, err := tx.Exec(ctx, `UPDATE email_message SET status = $2, error = $3, attempts = attempts + 1, version = version + 1,
			sent_at = CASE WHEN $2 = 'sent' THEN now() END, sealed = CASE WHEN $2 IN ('held', 'queued') OR $2 = 'failed' AND expires_at > now() THEN sealed END
			WHERE id = $1`, k.ID, status, errorText)
		if err != nil {
			return fmt.Errorf("store the outcome of mail %d: %w", k.ID, err)
		}
		for _, email := range copies {
			if err := m.enqueue(ctx, tx, jobArgs{k.ID, email}); err != nil {
				return err
			}
		}
		if status == sent || status == failed {
			return record(ctx, tx, pg.Action(status), &k.EmailMessage)
		}
		return nil
	})
}

package mail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
)

// Mailer takes the mails that services want sent, and sends them.
type Mailer struct {
	DB     *pg.DB
	Box    *seal.Box
	Peers  mesh.Peers
	Server *Server                                                   // nil: there is none, and mails are held
	Site   func(context.Context, pg.Querier) (Site, error)           // what templates can say of the installation
	Source func(context.Context, pg.Querier, string) (Source, error) // the template of a name
}

const (
	// attempts with these pauses take about two days.
	attempts               = 16
	minBackoff, maxBackoff = time.Minute, 6 * time.Hour
	workers                = 8
)

func backoff(attempt int) time.Duration {
	return min(minBackoff<<min(attempt-1, 20), maxBackoff)
}

// task is what a job is given.
type task struct {
	Message int64  `json:"message"`
	CopyTo  string `json:"copy_to,omitempty"` // for whom a copy is; empty: it is the mail itself
}

// Job sends a mail, or a copy of it. It is not unique: a mail that has failed may be sent again while its job ends.
func (m *Mailer) Job() service.Job {
	return service.Job{Kind: "mail", Timeout: 5 * time.Minute, Attempts: attempts, Backoff: backoff, Workers: workers, Do: jobs.Do(m.send)}
}

func (m *Mailer) enqueue(ctx context.Context, tx *pg.Tx, t task) error {
	job := m.Job()
	return jobs.Enqueue(ctx, tx, &job, t)
}

func place(id int64) seal.Place { return seal.Place{Table: "email_message", Column: "sealed", ID: id} }

// Take writes the mail that a service wants sent, and has it sent. What cannot be written is kept as failed. A message that is taken
// again, as after this service was restored, makes a mail of the same Message-ID.
func (m *Mailer) Take(ctx context.Context, tx *pg.Tx, of events.Message) error {
	var message mail.Message
	if err := json.Unmarshal(of.Content, &message); err != nil {
		return fmt.Errorf("read what is to be sent: %w", err)
	}
	status, reason := queued, ""
	if m.Server == nil {
		status = held
	}
	told, err := toldEnough(ctx, tx, &message)
	if err != nil {
		return err
	}
	shown, whole, err := m.write(ctx, tx, &message, of.Secret)
	switch {
	case err != nil:
		status, reason = failed, err.Error()
	case told:
		status, reason = failed, fmt.Sprintf("the account was told of %d changes within the hour", maxNotices)
	}
	hasSecret := !of.Secret.IsZero()
	var id int64
	err = tx.QueryRow(ctx, `
		INSERT INTO email_message (uuid, template, account, to_name, to_email, subject, body, html, secret, status, error, expires_at)
		VALUES (@uuid, @template, @account, @to_name, @to_email, @subject, @body, @html, @secret, @status, nullif(@error, ''), @expires_at)
		RETURNING id`,
		pgx.StrictNamedArgs{
			"uuid": of.ID, "template": message.Template, "account": message.Account, "to_name": message.To.To.Name,
			"to_email": message.To.To.Email, "subject": shown.Subject, "body": shown.Text, "html": shown.HTML, "secret": hasSecret,
			"status": status, "error": reason, "expires_at": orNull(message.Expires),
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
			m.Box.Seal(place(id), secret.New(string(text))),
		); err != nil {
			return fmt.Errorf("seal a mail: %w", err)
		}
	}
	if status != queued {
		return nil
	}
	return m.enqueue(ctx, tx, task{Message: id})
}

// notices are the kinds of mails that tell an account what was done to it, of which it gets so many an hour.
var notices = []string{mail.AccountChanged{}.Kind(), mail.ClientLinked{}.Kind()}

const maxNotices = 10

// toldEnough tells whether a mail is one more notice than an account gets.
func toldEnough(ctx context.Context, tx *pg.Tx, message *mail.Message) (enough bool, err error) {
	if !slices.Contains(notices, message.Kind) {
		return false, nil
	}
	err = tx.QueryRow(ctx, "SELECT count(*) >= $3 FROM email_message WHERE account = $1 AND template = ANY ($2) "+
		"AND created_at > now() - interval '1 hour' AND status <> 'failed'",
		message.Account, notices, maxNotices).
		Scan(&enough)
	if err != nil {
		return false, fmt.Errorf("count what %s was told: %w", message.Account, err)
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
func (m *Mailer) write(
	ctx context.Context,
	tx *pg.Tx,
	message *mail.Message,
	confidential secret.String,
) (shown, whole RenderedEmail, err error) {
	if _, err := netmail.ParseAddress(message.To.To.Email); err != nil || strings.ContainsAny(message.To.To.Email, "<> \r\n") {
		return shown, whole, errors.New("the address is none")
	}
	content, err := message.Open(confidential)
	if err != nil {
		return shown, whole, err
	}
	source, err := m.Source(ctx, tx, message.Template)
	if errors.Is(err, pgx.ErrNoRows) {
		return shown, whole, fmt.Errorf("there is no template %s any more", message.Template)
	}
	if err != nil {
		return shown, whole, err
	}
	if source.Kind != message.Kind {
		return shown, whole, fmt.Errorf(
			"the template %s is of the type %s, and this is a mail of the type %s",
			message.Template,
			source.Kind,
			message.Kind,
		)
	}
	var invalid problem.Fields
	template := source.Parse(&invalid)
	if err := invalid.Err(); err != nil {
		return shown, whole, fmt.Errorf("the template %s: %w", message.Template, err)
	}
	site, err := m.Site(ctx, tx)
	if err != nil {
		return shown, whole, err
	}
	if shown, err = template.Render(false, site, message.To, content); err != nil {
		return shown, whole, err
	}
	whole, err = template.Render(true, site, message.To, content)
	return shown, whole, err
}

// kept is a mail as it is sent.
type kept struct {
	EmailMessage
	uuid   string
	sealed []byte
	secret bool
}

func (m *Mailer) load(ctx context.Context, id int64) (k kept, err error) {
	if k.EmailMessage, err = messages.Get(ctx, m.DB, id); err != nil {
		return k, err
	}
	err = m.DB.QueryRow(ctx, "SELECT uuid::text, sealed, secret FROM email_message WHERE id = $1", id).Scan(&k.uuid, &k.sealed, &k.secret)
	return k, err
}

var errExpired = errors.New("it was not sent in time: what it says is good no longer")

// send is the job.
func (m *Mailer) send(ctx context.Context, attempt *service.Attempt, t task) error {
	k, err := m.load(ctx, t.Message)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("read mail %d: %w", t.Message, err)
	case t.CopyTo == "" && k.Status != queued, t.CopyTo != "" && k.Status != sent:
		return nil
	case m.Server == nil:
		return m.note(ctx, k, t, held, nil, nil)
	case k.ExpiresAt != nil && time.Now().After(k.ExpiresAt.Time):
		return m.giveUp(ctx, k, t, errExpired)
	}
	var copies []string
	if t.CopyTo == "" && !k.secret && strings.HasPrefix(k.Account, "/client/") {
		if err := m.Peers.Ask(ctx, "identity", mail.CopiesPath, &copies); err != nil {
			return fmt.Errorf("ask who gets copies of mails: %w", err)
		}
	}
	l, err := m.letter(ctx, k, t)
	if err == nil {
		err = m.Server.deliver(ctx, l)
	}
	_, refused := errors.AsType[refusedError](err)
	switch {
	case err == nil:
		return m.note(ctx, k, t, sent, nil, copies)
	case refused, attempt.Last:
		return m.giveUp(ctx, k, t, err)
	case ctx.Err() != nil && t.CopyTo == "":
		return err
	}
	return errors.Join(err, m.note(ctx, k, t, queued, err, nil))
}

// letter is what goes to the server.
func (m *Mailer) letter(ctx context.Context, k kept, t task) (letter, error) {
	l := letter{
		messageID:     k.uuid,
		at:            k.CreatedAt.Time,
		to:            netmail.Address{Name: k.To.Name, Address: k.To.Email},
		copyTo:        t.CopyTo,
		RenderedEmail: k.RenderedEmail,
	}
	if k.secret {
		whole, err := m.Box.Open(place(k.ID), k.sealed)
		if err != nil {
			return l, fmt.Errorf("open mail %d: %w", k.ID, err)
		}
		if err := json.Unmarshal([]byte(whole.Reveal()), &l.RenderedEmail); err != nil {
			return l, fmt.Errorf("mail %d cannot be read", k.ID)
		}
	}
	site, err := m.Site(ctx, m.DB)
	l.from = site.Site.Name
	return l, err
}

// giveUp ends a job that nothing will come of, once that is noted.
func (m *Mailer) giveUp(ctx context.Context, k kept, t task, reason error) error {
	if err := m.note(ctx, k, t, failed, reason, nil); err != nil {
		return errors.Join(reason, err)
	}
	return jobs.Never(reason)
}

// note keeps what came of an attempt. What need not be sent any more keeps no secret.
func (m *Mailer) note(ctx context.Context, k kept, t task, status string, reason error, copies []string) error {
	if t.CopyTo != "" { // what came of the mail itself stands there
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	var said *string
	if reason != nil {
		text := reason.Error()
		said = &text
	}
	return m.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("it is tried again")
		_, err := tx.Exec(ctx, `UPDATE email_message SET status = $2, error = $3, attempts = attempts + 1, version = version + 1,
			sent_at = CASE WHEN $2 = 'sent' THEN now() END, sealed = CASE WHEN $2 IN ('held', 'queued') OR $2 = 'failed' AND expires_at > now() THEN sealed END
			WHERE id = $1`, k.ID, status, said)
		if err != nil {
			return fmt.Errorf("note what became of mail %d: %w", k.ID, err)
		}
		for _, email := range copies {
			if err := m.enqueue(ctx, tx, task{k.ID, email}); err != nil {
				return err
			}
		}
		if status == sent || status == failed {
			return record(ctx, tx, pg.Action(status), &k.EmailMessage)
		}
		return nil
	})
}

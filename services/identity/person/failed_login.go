package person

import (
	"context"
	"fmt"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/identity/access"
)

// Failure is a kind of failed login.
type Failure string

// The kinds of failed logins.
const (
	FailedPassword Failure = "password"
	FailedCode     Failure = "code" // an incorrect second factor after the right password
)

// mailAfter is how many failures of a kind an account gets within a day before its owner gets a mail.
var mailAfter = map[Failure]int64{FailedPassword: 10, FailedCode: 1}

// CountFailure counts a failed login of the caller, and enqueues a mail to the account's owner when there are mailAfter of its kind.
// From then on it counts for another day, so that an account gets at most one mail of a kind a day. The row's lock makes concurrent
// counts take turns.
func (d *Directory) CountFailure(ctx context.Context, tx *pg.Tx, owner principal.Owner, kind Failure) error {
	var count int64
	err := tx.QueryRow(ctx, `
		INSERT INTO failed_login AS f (owner_type, owner_id, kind) VALUES ($1, $2, $3)
		ON CONFLICT (owner_type, owner_id, kind) DO UPDATE SET
			count = CASE WHEN f.since <= now() - interval '1 day' THEN 1 ELSE f.count + 1 END,
			since = CASE WHEN f.since <= now() - interval '1 day' OR f.count + 1 = $4::bigint THEN now() ELSE f.since END
		RETURNING count`, owner.Type, owner.ID, kind, mailAfter[kind]).Scan(&count)
	if err != nil {
		return fmt.Errorf("count a failed login: %w", err)
	}
	if count != mailAfter[kind] {
		return nil
	}
	job := d.FailedLoginJob()
	at := time.Now().UTC().Truncate(time.Second)
	return jobs.Enqueue(ctx, tx, &job, failedLogin{owner, kind, count, at, access.Address(ctx).String()})
}

// failedLogin is the argument of the job that mails the owner of an account about failed logins.
type failedLogin struct {
	Owner principal.Owner `json:"owner"`
	Kind  Failure         `json:"kind"`
	Count int64           `json:"count"`
	At    time.Time       `json:"at"`
	IP    string          `json:"ip"`
}

// content returns the mail about the failed logins.
func (f *failedLogin) content() mail.Content {
	if f.Kind == FailedCode {
		return mail.FailedSecondFactor{At: f.At, IP: f.IP}
	}
	return mail.FailedLogins{Count: f.Count, At: f.At, IP: f.IP}
}

// FailedLoginJob returns the job that mails the owner of an account about failed logins. An account without a password gets no mail.
// The job ends with the unit of work that sends the mail, so that a repeated attempt sends no second one.
func (d *Directory) FailedLoginJob() service.Job {
	return service.Job{Kind: "failed-login", Attempts: 10, Do: jobs.Do(d.mailFailedLogin)}
}

// mailFailedLogin is the job that mails an account about failed logins. It sends nothing to an account that cannot sign in.
func (d *Directory) mailFailedLogin(ctx context.Context, attempt *service.Attempt, f failedLogin) error {
	p, err := d.Get(ctx, f.Owner)
	if err != nil || !p.Exists() || p.Disabled || p.Hash == "" || p.Email == "" {
		return err
	}
	return d.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("each failed login is recorded")
		if err := mail.Send(ctx, tx, d.Mails, p.Owner.URL(), p.MailTo(), f.content()); err != nil {
			return err
		}
		return jobs.Finish(ctx, tx, attempt, nil)
	})
}

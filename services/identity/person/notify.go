package person

import (
	"context"
	"fmt"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/identity/access"
)

// maxMails bounds the mails about itself that an account gets within an hour.
const maxMails = 10

// Notify mails an account's owner about changes that affect the account's security.
func (d *Directory) Notify(ctx context.Context, tx *pg.Tx, p Person, changes ...string) error {
	if p.Email == "" {
		return nil
	}
	if isAllowed, err := countMail(ctx, tx, p.Owner); err != nil || !isAllowed {
		return err
	}
	return mail.Send(ctx, tx, d.Mails, p.Owner.URL(), p.MailTo(), describeChanges(ctx, p.Name, changes))
}

// NotifyOwner is Notify for callers that know only the account's id. The clients service sends the mails to clients.
func (d *Directory) NotifyOwner(ctx context.Context, tx *pg.Tx, owner principal.Owner, changes ...string) error {
	if owner.Type == principal.Admin {
		admin, err := ReadAdmin(ctx, tx, "id = $1", owner.ID)
		if err != nil {
			return fmt.Errorf("read admin %d: %w", owner.ID, err)
		}
		return d.Notify(ctx, tx, Person{owner, admin}, changes...)
	}
	if isAllowed, err := countMail(ctx, tx, owner); err != nil || !isAllowed {
		return err
	}
	return d.ToClients.Send(
		ctx,
		tx,
		mail.ChangedKind,
		mail.ClientChanged{Client: owner.ID, Content: describeChanges(ctx, "", changes)},
		secret.String{},
	)
}

// countMail counts a mail to an account. It returns false, and counts nothing, if the account has had too many within the last
// hour.
func countMail(ctx context.Context, tx *pg.Tx, to principal.Owner) (bool, error) {
	if err := tx.Lock(ctx, "mails of "+string(to.Type), to.ID); err != nil { // so that concurrent mails are counted
		return false, err
	}
	mailed, err := tx.Exec(ctx, `
		INSERT INTO account_mail (owner_type, owner_id) SELECT $1, $2
		WHERE (SELECT count(*) FROM account_mail WHERE owner_type = $1 AND owner_id = $2 AND at > now() - interval '1 hour') < $3`, to.Type, to.ID, maxMails)
	if err != nil {
		return false, fmt.Errorf("count an account's mails: %w", err)
	}
	return mailed.RowsAffected() > 0, nil
}

// describeChanges returns the mail's content. name is the caller's name if the request has no key.
func describeChanges(ctx context.Context, name string, changes []string) mail.AccountChanged {
	if p := principal.FromContext(ctx).Principal; p != nil {
		name = p.Name
	}
	return mail.AccountChanged{Changes: changes, By: name, At: time.Now().UTC().Truncate(time.Second), IP: access.Address(ctx).String()}
}

// Notice is a mail about an account's keys that is sent after the unit of work.
type Notice struct {
	Owner   principal.Owner `json:"owner"`
	Changes []string        `json:"changes,omitempty"`
	Key     string          `json:"key,omitempty"` // the name of a key that expires
	Expires time.Time       `json:"expires,omitzero"`
}

// NoticeJob returns the job that mails notices. It is a job because it has to ask the clients service for a client's address.
func (d *Directory) NoticeJob() service.Job {
	return service.Job{Kind: "tell-account", Attempts: 10, Do: jobs.Do(func(ctx context.Context, _ *service.Attempt, notice Notice) error {
		p, err := d.Get(ctx, notice.Owner)
		if err != nil || !p.Exists() || p.Email == "" {
			return err
		}
		return d.DB.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("the change that the mail is about is recorded")
			if len(notice.Changes) > 0 {
				return d.Notify(ctx, tx, p, notice.Changes...)
			}
			return mail.Send(ctx, tx, d.Mails, p.Owner.URL(), p.MailTo(), mail.KeyExpires{Key: notice.Key, Expires: notice.Expires})
		})
	})}
}

// NotifyLater enqueues a notice in the unit of work. Integrations have no mailbox, and get none.
func (d *Directory) NotifyLater(ctx context.Context, tx *pg.Tx, notice Notice) error {
	if notice.Owner.Type == principal.Integration {
		return nil
	}
	job := d.NoticeJob()
	return jobs.Enqueue(ctx, tx, &job, notice)
}

package login

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/session"
)

// storeReset stores a link, and enqueues the job that mails it.
func (s *Resets) storeReset(ctx context.Context, tx *pg.Tx, r *resetLink, ttl time.Duration) error {
	var ownerType *principal.OwnerType
	var ownerID *int64
	if r.person.Exists() {
		ownerType, ownerID = &r.person.Owner.Type, &r.person.Owner.ID
	}
	err := tx.QueryRow(ctx, "INSERT INTO password_reset (owner_type, owner_id, credentials, welcome, ip, expires_at) "+
		"VALUES ($1, $2, $3, $4, $5, now() + $6) RETURNING id, expires_at",
		ownerType, ownerID, r.version, r.welcome, r.ip, ttl).
		Scan(&r.id, &r.expires)
	if err != nil {
		return fmt.Errorf("store a password reset: %w", err)
	}
	job := s.Job()
	return jobs.Enqueue(ctx, tx, &job, resetTask{r.id})
}

// resetTask is the job's argument.
type resetTask struct {
	Reset int64 `json:"reset"`
}

// Job returns the job that mails a link. The job, and not the request, looks whether the account exists: so no caller can tell by
// the time.
func (s *Resets) Job() service.Job {
	return service.Job{
		Kind:     resetKind,
		Attempts: 10,
		Backoff:  func(attempt int) time.Duration { return time.Duration(attempt) * time.Minute },
		Do:       jobs.Do(s.mailReset),
	}
}

// mailReset mails a link. It does nothing if the account does not exist, or if its credentials have changed since.
func (s *Resets) mailReset(ctx context.Context, _ *service.Attempt, task resetTask) error {
	r, err := readReset(ctx, s.DB, task.Reset)
	if err == nil {
		r.person, err = s.People.Get(ctx, r.person.Owner)
	}
	if errors.Is(err, pgx.ErrNoRows) ||
		err == nil && (!r.person.CanReset() || r.person.Email == "" || r.hash != nil || r.version != r.person.Version) {
		return nil
	}
	if err != nil {
		return err
	}
	token := keys.NewToken()
	hash := sha256.Sum256([]byte(token.Reveal()))
	link, err := s.passwordLink(r, token)
	if err != nil {
		return err
	}
	return s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the request for the link is recorded")
		if err := tx.Lock(
			ctx,
			"resets of "+string(r.person.Owner.Type),
			r.person.Owner.ID,
		); err != nil { // so that concurrent mails are counted
			return err
		}
		stored, err := tx.Exec(ctx, `
			UPDATE password_reset SET hash = $2 WHERE id = $1 AND hash IS NULL AND expires_at > now()
				AND (welcome OR (SELECT count(*) FROM password_reset WHERE owner_type = $3 AND owner_id = $4 AND NOT welcome AND hash IS NOT NULL AND expires_at > now()) < $5)`,
			r.id, hash[:], r.person.Owner.Type, r.person.Owner.ID, maxResets)
		if err != nil || stored.RowsAffected() == 0 {
			return err
		}
		var content mail.Content = mail.PasswordReset{Link: link, Expires: r.expires, IP: r.ip.String()}
		if r.welcome {
			content = mail.ClientAccountCreated{Link: link, Expires: r.expires}
		}
		return mail.Send(ctx, tx, s.Mails, r.person.Owner.URL(), r.person.MailTo(), content)
	})
}

// passwordLink returns the address of the page where a password is chosen. It is a page of the panel or, without a panel, of the
// gateway.
func (s *Resets) passwordLink(r resetLink, token secret.String) (secret.String, error) {
	values := s.Settings.Values()
	if panel := session.PanelURL(values, r.person.Owner.Type); panel != "" {
		return secret.New(fmt.Sprintf("%s/auth/password-reset/%d#%s", panel, r.id, url.Values{"token": {token.Reveal()}}.Encode())), nil
	}
	api := strings.TrimRight(settings.APIURL.In(values), "/")
	if api == "" {
		return secret.String{}, errors.New(
			"make a link to reset a password: set IRONPLANE_API_URL or the panel's address",
		)
	}
	return secret.New(fmt.Sprintf("%s/-/password#%s", api, url.Values{"id": {fmt.Sprint(r.id)}, "token": {token.Reveal()}}.Encode())), nil
}

// Welcome mails a new client the link by which it chooses its first password.
func (s *Resets) Welcome(ctx context.Context, tx *pg.Tx, m events.Message) error {
	var welcome credentials.Welcome
	if err := json.Unmarshal(m.Content, &welcome); err != nil {
		return fmt.Errorf("parse a welcome message: %w", err)
	}
	p, err := s.People.Get(ctx, principal.Owner{Type: principal.Client, ID: welcome.Client})
	if err != nil || !p.Exists() {
		return err
	}
	return s.storeReset(ctx, tx, &resetLink{person: p, version: p.Version, welcome: true}, credentials.WelcomeTTL)
}

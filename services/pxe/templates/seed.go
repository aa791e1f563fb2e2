package templates

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
)

// attachTimeout bounds the question for the ids of email templates.
const attachTimeout = 3 * time.Second

// AttachMails gives the seeded profiles that install a system their email templates. It does so once, and leaves alone a profile that
// was edited meanwhile. While the system service cannot be asked, it does nothing.
func (s *Profiles) AttachMails(ctx context.Context) error {
	if s.hasMails.Load() {
		return nil
	}
	var isDone bool
	if err := s.DB.QueryRow(ctx, "SELECT NOT EXISTS (SELECT FROM profile_seed)").Scan(&isDone); err != nil {
		return fmt.Errorf("find seeded profiles without email templates: %w", err)
	}
	if isDone {
		s.hasMails.Store(true)
		return nil
	}
	asking, cancel := s.EmailTemplates.Peers.Limit(ctx, attachTimeout)
	defer cancel()
	var found mail.InstallTemplates
	if s.EmailTemplates.Peers.Ask(asking, s.EmailTemplates.Owner, mail.InstallTemplatesPath, &found) != nil || found.Finished == nil {
		return nil // the service is away, or of an earlier version: the next call asks again
	}
	err := s.DB.InTx(ctx, func(tx *pg.Tx) error { return s.attachMails(ctx, tx, found) })
	if _, isRefused := errors.AsType[*problem.Error](err); isRefused {
		return nil // a template was deleted just now: the next call asks again
	}
	return err
}

// attachMails names the email templates in the seeded profiles. Seeds have no record, and neither has this.
func (s *Profiles) attachMails(ctx context.Context, tx *pg.Tx, found mail.InstallTemplates) error {
	tx.Unrecorded("it completes the seeds")
	for _, id := range []*int64{found.Finished, found.Failed} {
		if id == nil {
			continue
		}
		if err := s.EmailTemplates.Hold(ctx, tx, *id, "/email/template"); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, `WITH seed AS (DELETE FROM profile_seed RETURNING profile_id, version)
		UPDATE profile p SET email_template_id = $1, email_failed_id = $2, version = p.version + 1 FROM seed s
		WHERE p.id = s.profile_id AND p.version = s.version`, found.Finished, found.Failed)
	if err != nil {
		return fmt.Errorf("attach email templates to seeded profiles: %w", err)
	}
	return nil
}

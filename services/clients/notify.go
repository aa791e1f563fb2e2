package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
)

// lockRecipient is a client whom a mail is for, who stays what he is until the unit of work ends.
func lockRecipient(ctx context.Context, tx *pg.Tx, id int64) (to mail.To, err error) {
	err = tx.QueryRow(ctx, "SELECT name, first, last, email FROM client WHERE id = $1 FOR SHARE", id).
		Scan(&to.To.Name, &to.To.First, &to.To.Last, &to.To.Email)
	return to, err
}

// addressRoute answers pxe the email address of a client whose machine is installed: empty where there is none.
func (s *Service) addressRoute() rest.Route {
	return rest.Read[rest.Item, string]{
		Path:  "/internal/email/{client_id}",
		Guard: guard.Peers("pxe"),
		Do: func(ctx context.Context, req rest.Item) (email string, err error) {
			err = s.db.QueryRow(ctx, "SELECT coalesce((SELECT email FROM client WHERE id = $1), '')", req.ID).Scan(&email)
			if err != nil {
				return "", fmt.Errorf("read the email address of client %d: %w", req.ID, err)
			}
			return email, nil
		},
	}
}

func accountPath(id int64) string { return fmt.Sprintf("/client/%d", id) }

// notifyLinked tells an account that a client was linked with it.
func (s *Service) notifyLinked(ctx context.Context, tx *pg.Tx, id, client int64, relation string) error {
	to, err := lockRecipient(ctx, tx, id)
	if err != nil {
		return fmt.Errorf("tell client %d of a link: %w", id, err)
	}
	var by string
	if err := tx.QueryRow(ctx, "SELECT name FROM client WHERE id = $1", client).Scan(&by); err != nil {
		return fmt.Errorf("tell client %d of a link: %w", id, err)
	}
	return mail.Send(ctx, tx, s.systemOutbox, accountPath(id), to, mail.ClientLinked{By: by, Relation: relation})
}

// notifyChanged tells an account what happened to it.
func (s *Service) notifyChanged(ctx context.Context, tx *pg.Tx, id int64, changes ...string) error {
	to, err := lockRecipient(ctx, tx, id)
	if err != nil {
		return fmt.Errorf("tell client %d of a change: %w", id, err)
	}
	return mail.Send(ctx, tx, s.systemOutbox, accountPath(id), to, describeChanges(ctx, changes))
}

// notifyForIdentity tells an account what identity says that happened to it, unless it is gone.
func (s *Service) notifyForIdentity(ctx context.Context, tx *pg.Tx, m events.Message) error {
	var message mail.ClientChanged
	if err := json.Unmarshal(m.Content, &message); err != nil {
		return fmt.Errorf("read what an account is told: %w", err)
	}
	to, err := lockRecipient(ctx, tx, message.Client)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("tell client %d of a change: %w", message.Client, err)
	}
	return mail.Send(ctx, tx, s.systemOutbox, accountPath(message.Client), to, message.Content)
}

// notifyInstalled tells an account how an installation has ended, unless it is gone.
func (s *Service) notifyInstalled(ctx context.Context, tx *pg.Tx, m events.Message) error {
	var message mail.ClientInstalled
	if err := json.Unmarshal(m.Content, &message); err != nil {
		return fmt.Errorf("read how an installation has ended: %w", err)
	}
	to, err := lockRecipient(ctx, tx, message.Client)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("tell client %d of an installation: %w", message.Client, err)
	}
	return mail.SendBy(ctx, tx, s.systemOutbox, message.Template, accountPath(message.Client), to, message.Content)
}

func describeChanges(ctx context.Context, changes []string) mail.AccountChanged {
	call := principal.From(ctx)
	content := mail.AccountChanged{Changes: changes, At: time.Now().UTC().Truncate(time.Second)}
	if call.Principal != nil {
		content.By = call.Principal.Name
	}
	if call.IP.IsValid() {
		content.IP = call.IP.String()
	}
	return content
}

// notifyEdited tells an account that what its security hangs on was changed: at the address that it had, too.
func (s *Service) notifyEdited(ctx context.Context, tx *pg.Tx, id int64, before, b *clientBody) error {
	var changes []string
	if b.newHash != nil {
		changes = append(changes, "The password was changed.")
	}
	if b.Email != before.Email {
		changes = append(changes, fmt.Sprintf("The email address was changed from %s to %s.", before.Email, b.Email))
	}
	if b.Verify != before.Verify {
		changes = append(
			changes,
			fmt.Sprintf("Whether a sign-in takes a second factor was changed to: %s.", map[bool]string{true: "yes", false: "no"}[b.Verify.Require]),
		)
	}
	if len(changes) == 0 {
		return nil
	}
	to := mail.To{}
	to.To.Name, to.To.First, to.To.Last = b.First+" "+b.Last, b.First, b.Last
	addresses := []string{before.Email, b.Email}
	for _, address := range slices.CompactFunc(addresses, strings.EqualFold) {
		to.To.Email = address
		if err := mail.Send(ctx, tx, s.systemOutbox, accountPath(id), to, describeChanges(ctx, changes)); err != nil {
			return err
		}
	}
	return nil
}

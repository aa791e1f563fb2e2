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

// lockRecipient returns a client as the recipient of a mail, and locks the client's row until the unit of work ends.
func lockRecipient(ctx context.Context, tx *pg.Tx, id int64) (to mail.To, err error) {
	err = tx.QueryRow(ctx, recipientSQL+" FOR SHARE", id).
		Scan(&to.To.Name, &to.To.First, &to.To.Last, &to.To.Email, &to.To.Language)
	return to, err
}

// addressRoute returns the route by which pxe reads the email address of a client whose machine is installed. A missing client has
// an empty address.
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

// recipientRoute returns the route by which the system service reads a client as the recipient of a mail. A missing client has no
// address.
func (s *Service) recipientRoute() rest.Route {
	return rest.Read[rest.Item, mail.To]{
		Path:  mail.RecipientPath + "/{client_id}",
		Guard: guard.Peers("system"),
		Do: func(ctx context.Context, req rest.Item) (to mail.To, err error) {
			err = s.db.QueryRow(ctx, recipientSQL, req.ID).Scan(&to.To.Name, &to.To.First, &to.To.Last, &to.To.Email, &to.To.Language)
			if errors.Is(err, pgx.ErrNoRows) {
				return mail.To{}, nil
			}
			if err != nil {
				return to, fmt.Errorf("read client %d: %w", req.ID, err)
			}
			return to, nil
		},
	}
}

const recipientSQL = "SELECT name, first, last, email, coalesce(language, '') FROM client WHERE id = $1"

// accountPath returns the path by which mails name their account.
func accountPath(id int64) string { return fmt.Sprintf("/client/%d", id) }

// notifyLinked mails an account that a client was linked with it.
func (s *Service) notifyLinked(ctx context.Context, tx *pg.Tx, id, client int64, relation string) error {
	to, err := lockRecipient(ctx, tx, id)
	if err != nil {
		return fmt.Errorf("notify client %d of a link: %w", id, err)
	}
	var by string
	if err := tx.QueryRow(ctx, "SELECT name FROM client WHERE id = $1", client).Scan(&by); err != nil {
		return fmt.Errorf("notify client %d of a link: %w", id, err)
	}
	return mail.Send(ctx, tx, s.systemOutbox, accountPath(id), to, mail.ClientLinked{By: by, Relation: relation})
}

// notifyChanged mails an account what was changed.
func (s *Service) notifyChanged(ctx context.Context, tx *pg.Tx, id int64, changes ...string) error {
	to, err := lockRecipient(ctx, tx, id)
	if err != nil {
		return fmt.Errorf("notify client %d of a change: %w", id, err)
	}
	return mail.Send(ctx, tx, s.systemOutbox, accountPath(id), to, describeChanges(ctx, changes))
}

// notifyForIdentity mails an account what identity has changed. A deleted account gets no mail.
func (s *Service) notifyForIdentity(ctx context.Context, tx *pg.Tx, m events.Message) error {
	var message mail.ClientChanged
	if err := json.Unmarshal(m.Content, &message); err != nil {
		return fmt.Errorf("read the mail for an account: %w", err)
	}
	to, err := lockRecipient(ctx, tx, message.Client)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("notify client %d of a change: %w", message.Client, err)
	}
	return mail.Send(ctx, tx, s.systemOutbox, accountPath(message.Client), to, message.Content)
}

// notifyInstalled mails an account how an installation has ended. A deleted account gets no mail.
func (s *Service) notifyInstalled(ctx context.Context, tx *pg.Tx, m events.Message) error {
	var message mail.ClientInstalled
	if err := json.Unmarshal(m.Content, &message); err != nil {
		return fmt.Errorf("read the result of an installation: %w", err)
	}
	to, err := lockRecipient(ctx, tx, message.Client)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("notify client %d of an installation: %w", message.Client, err)
	}
	return mail.SendTemplate(ctx, tx, s.systemOutbox, message.Template, accountPath(message.Client), to, message.Content)
}

// describeChanges returns the content of a mail about changes, with the caller and its address.
func describeChanges(ctx context.Context, changes []string) mail.AccountChanged {
	call := principal.FromContext(ctx)
	content := mail.AccountChanged{Changes: changes, At: time.Now().UTC().Truncate(time.Second)}
	if call.Principal != nil {
		content.By = call.Principal.Name
	}
	if call.IP.IsValid() {
		content.IP = call.IP.String()
	}
	return content
}

// notifyEdited mails an account changes of its password, address or second factor. A mail also goes to the previous address.
func (s *Service) notifyEdited(ctx context.Context, tx *pg.Tx, id int64, before, b *clientBody) error {
	var changes []string
	if b.newHash != nil {
		changes = append(changes, "The password was changed.")
	}
	if b.Email != before.Email {
		changes = append(changes, fmt.Sprintf("The email address was changed from %s to %s.", before.Email, b.Email))
	}
	switch {
	case b.Verify == before.Verify:
	case b.Verify.Require:
		changes = append(changes, "A second factor is now required to sign in.")
	default:
		changes = append(changes, "A second factor is no longer required to sign in.")
	}
	if len(changes) == 0 {
		return nil
	}
	to := mail.To{}
	to.To.Name, to.To.First, to.To.Last = b.First+" "+b.Last, b.First, b.Last
	if b.Language != nil {
		to.To.Language = *b.Language
	}
	addresses := []string{before.Email, b.Email}
	for _, address := range slices.CompactFunc(addresses, strings.EqualFold) {
		to.To.Email = address
		if err := mail.Send(ctx, tx, s.systemOutbox, accountPath(id), to, describeChanges(ctx, changes)); err != nil {
			return err
		}
	}
	return nil
}

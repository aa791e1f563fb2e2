package install

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
)

// notifyClient sends the client the result of the install by the email template of its profile. It does nothing without
// a client or a template.
func (s *Installs) notifyClient(ctx context.Context, tx *pg.Tx, i *ListedInstall) error {
	if i.Client == nil {
		return nil
	}
	message, err := newMessage(ctx, tx, i)
	if err != nil || message.Template == "" {
		return err
	}
	return s.Outbox.Send(ctx, tx, mail.InstalledKind, message, secret.String{})
}

// newMessage returns what a mail to the client of an install says. It has no template if the profile has none.
func newMessage(ctx context.Context, q pg.Querier, i *ListedInstall) (m mail.ClientInstalled, err error) {
	var template *string
	var isWindows *bool
	err = q.QueryRow(ctx, `SELECT (SELECT r.name FROM profile p JOIN ref r ON r.type = 'email/template'
		AND r.id = CASE WHEN $2 THEN coalesce(p.email_failed_id, p.email_template_id) ELSE p.email_template_id END WHERE p.id = $1),
		(SELECT iso_edition IS NOT NULL FROM profile WHERE id = $1)`,
		i.Profile.ID, i.Status == Failed).
		Scan(&template, &isWindows)
	if err != nil {
		return m, fmt.Errorf("find the email template of profile %d: %w", i.Profile.ID, err)
	}
	m.Content = mail.InstallFinished{
		Hostname: i.Host.Hostname, Address: i.Host.primaryAddress(), Addresses: i.Host.addresses(), User: "root",
		Profile: i.Profile.Name, Status: i.Status,
	}
	if isWindows != nil && *isWindows {
		m.Content.User = "Administrator"
	}
	if i.Error != nil {
		m.Content.Error = *i.Error
	}
	if i.Client != nil {
		m.Client = i.Client.ID
	}
	if template != nil {
		m.Template = *template
	}
	return m, nil
}

// Mail returns the route by which the system service reads what a mail about an install says, for previews. A missing install has no
// host name.
func (s *Installs) Mail() rest.Route {
	return rest.Read[rest.Item, mail.ClientInstalled]{
		Path:  mail.InstallPath + "/{install_id}",
		Guard: guard.Peers("system"),
		Do: func(ctx context.Context, req rest.Item) (m mail.ClientInstalled, err error) {
			i, err := listedView.Get(ctx, s.DB, req.ID)
			if errors.Is(err, pgx.ErrNoRows) {
				return m, nil
			}
			if err != nil {
				return m, fmt.Errorf("read install %d: %w", req.ID, err)
			}
			return newMessage(ctx, s.DB, &i)
		},
	}
}

// addresses returns the machine's addresses without prefix lengths, IPv4 first.
func (h *InstallHost) addresses() (all []string) {
	for _, a := range []*InstallAddress{h.IPv4, h.IPv6} {
		if a != nil {
			address, _, _ := strings.Cut(a.Address, "/")
			all = append(all, address)
		}
	}
	return all
}

// primaryAddress returns the machine's IPv4 address, or its IPv6 address if it has no other.
func (h *InstallHost) primaryAddress() string {
	if all := h.addresses(); len(all) > 0 {
		return all[0]
	}
	return ""
}

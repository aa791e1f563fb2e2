package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/settings"
)

// InternalRoutes returns the operations by which gateways look up admins, and by which the system service finds the recipients
// of mails.
func (s *Service) InternalRoutes() []rest.Route {
	return []rest.Route{
		s.mailCopiesRoute(),
		s.adminWritersRoute(),
		rest.Read[rest.Item, keycache.Owner]{
			Path:  "/internal/owner/admin/{admin_id}",
			Guard: guard.Peers(principal.Gateway, settings.ServiceName), // the keeper filters webhooks by their creators' permissions
			Do: func(ctx context.Context, req rest.Item) (keycache.Owner, error) {
				owner := principal.Owner{Type: principal.Admin, ID: req.ID}
				return keycache.Fill(ctx, s.Entries, keycache.OwnerName(owner), func(ctx context.Context) (keycache.Owner, error) {
					return s.readEntry(ctx, req.ID)
				})
			},
		},
	}
}

// readEntry reads what gateways need to know of an admin. It returns the zero Owner if the admin does not exist.
func (s *Service) readEntry(ctx context.Context, id int64) (keycache.Owner, error) {
	var owner keycache.Owner
	var permissions []string
	err := s.DB.QueryRow(ctx, "SELECT NOT disabled, username, permissions FROM admin WHERE id = $1", id).
		Scan(&owner.Active, &owner.Name, &permissions)
	if errors.Is(err, pgx.ErrNoRows) {
		return keycache.Owner{}, nil
	}
	owner.Grants = principal.ParseGrants(permissions)
	return owner, err
}

// EntryName returns the name of the Redis entry for an admin.
func EntryName(id int64) string {
	return keycache.OwnerName(principal.Owner{Type: principal.Admin, ID: id})
}

// mailCopiesRoute tells the system service which admins get blind copies of mails to clients.
func (s *Service) mailCopiesRoute() rest.Route {
	return rest.Read[rest.None, []string]{
		Path:  mail.CopiesPath,
		Guard: guard.Peers("system"),
		Do: func(ctx context.Context, _ rest.None) ([]string, error) {
			rows, err := s.DB.Query(
				ctx,
				"SELECT email FROM admin WHERE receive_copies AND NOT disabled AND email IS NOT NULL ORDER BY id LIMIT $1",
				mail.MaxCopies,
			)
			if err != nil {
				return nil, fmt.Errorf("read the recipients of copies of mails: %w", err)
			}
			return pgx.CollectRows(rows, pgx.RowTo[string])
		},
	}
}

// adminWritersRoute tells the system service which admins are told of a changed template that carries secrets.
func (s *Service) adminWritersRoute() rest.Route {
	return rest.Read[rest.None, []mail.AdminWriter]{
		Path:  mail.AdminWritersPath,
		Guard: guard.Peers("system"),
		Do: func(ctx context.Context, _ rest.None) ([]mail.AdminWriter, error) {
			rows, err := s.DB.Query(
				ctx,
				"SELECT id, username, email FROM admin WHERE permissions @> ARRAY[$1::text] AND NOT disabled AND email IS NOT NULL ORDER BY id",
				AdminsWrite.Names()[0],
			)
			if err != nil {
				return nil, fmt.Errorf("read the admins who can write admins: %w", err)
			}
			return pgx.CollectRows(rows, pgx.RowToStructByPos[mail.AdminWriter])
		},
	}
}

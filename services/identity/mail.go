package identity

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/rest"
)

// mailCopies answers the system service which admins get blind copies of what is mailed to clients.
func (s *Service) mailCopies() rest.Route {
	return rest.Read[rest.None, []string]{
		Path:  mail.CopiesPath,
		Guard: guard.Peers("system"),
		Do: func(ctx context.Context, _ rest.None) ([]string, error) {
			rows, err := s.db.Query(
				ctx,
				"SELECT email FROM admin WHERE receive_copies AND NOT disabled AND email IS NOT NULL ORDER BY id LIMIT $1",
				mail.MostCopies,
			)
			if err != nil {
				return nil, fmt.Errorf("read who gets copies of mails: %w", err)
			}
			return pgx.CollectRows(rows, pgx.RowTo[string])
		},
	}
}

package mfa

import (
	"context"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/rest"
)

// InternalRoutes returns the operations by which other services ask about second factors.
func (s *Service) InternalRoutes() []rest.Route {
	return []rest.Route{
		rest.Read[rest.Item, credentials.Confirmed]{
			Path:  credentials.ConfirmedPath + "/{key_id}",
			Guard: guard.Peers("clients"),
			Do: func(ctx context.Context, req rest.Item) (c credentials.Confirmed, err error) {
				c.Confirmed, err = isConfirmed(ctx, s.DB, req.ID)
				return c, err
			},
		},
		rest.Read[rest.None, credentials.Unverified]{
			Path:  credentials.UnverifiedPath,
			Guard: guard.Peers("system"),
			Do: func(ctx context.Context, _ rest.None) (u credentials.Unverified, err error) {
				err = s.DB.QueryRow(ctx, `
				SELECT count(*) > 0, count(*) FILTER (WHERE email IS NULL AND password_hash IS NOT NULL) > 0 FROM admin a
				WHERE NOT disabled AND NOT EXISTS (SELECT FROM authenticator v WHERE v.admin_id = a.id AND v.verified)`).Scan(&u.Any, &u.WithoutAddress)
				return u, err
			},
		},
	}
}

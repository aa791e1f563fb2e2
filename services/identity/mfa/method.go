package mfa

import (
	"context"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/identity/access"
)

// VerifyMethod is a kind of second factor.
type VerifyMethod struct {
	rest.Versioned
	ID          int64   `json:"id" db:"id"`
	Name        string  `json:"name" db:"name"`
	Description *string `json:"description,omitempty" db:"description"`
}

type verifyMethodBody struct {
	Name        string  `json:"name" db:"name" required:"create" max:"64" example:"authenticator app" doc:"The name that panels show. No other method may have it."`
	Description *string `json:"description" db:"description" max:"1000" lines:"true" example:"A code that your phone shows" doc:"A description for people."`
}

func (s *Service) methodRoutes() []rest.Route {
	return rest.Resource[VerifyMethod, verifyMethodBody]{
		Path:        "/auth/verify/method",
		ID:          "method_id",
		Noun:        "verify method",
		Guard:       guard.ForCredentials(guard.Has(permission.SystemSettings)),
		ReadGuard:   guard.EveryKey,
		Without:     rest.Creating | rest.Deleting,
		Table:       "verify_method",
		EditExample: `{"description": "A code that your phone shows"}`,
		Lock: func(ctx context.Context, tx *pg.Tx, _ rest.Verbs, _ ...*verifyMethodBody) error {
			return access.Allow(ctx, tx)
		},
	}.Routes()
}

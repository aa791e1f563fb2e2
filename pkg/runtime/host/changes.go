package host

import (
	"context"
	"errors"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
)

// changesRoute tells gateways whether the service accepts changes.
func changesRoute(db *pool.Pool, maintenance *maintenance.Switch) rest.Route {
	return rest.Read[struct{}, health.Changes]{
		Path:  health.ChangesPath,
		Guard: guard.Peers(principal.Gateway),
		Do: func(ctx context.Context, _ struct{}) (health.Changes, error) {
			if status := maintenance.Status(); status != nil {
				return health.Changes{Maintenance: status}, nil
			}
			err := db.CheckWritable(ctx)
			if errors.Is(err, pool.ErrReadOnly) || errors.Is(err, pool.ErrDiskFull) {
				return health.Changes{ReadOnly: true}, nil
			}
			return health.Changes{}, err
		},
	}
}

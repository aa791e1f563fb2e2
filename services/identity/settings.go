package identity

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
)

// newSettings follows the settings. It stores a copy for this service, and for gateways that start while the system service is
// unavailable.
func newSettings(d service.Deps) *settings.Follower {
	return &settings.Follower{Peers: d.Peers, Woken: d.Wakes.Listen(settings.ServiceName, settings.Changed),
		LoadLast: func(ctx context.Context) (settings.Values, error) { return readSettingsCopy(ctx, d.DB) },
		OnChange: func(ctx context.Context, values settings.Values) error {
			return d.DB.InTx(ctx, func(tx *pg.Tx) error {
				tx.Unrecorded("the system service records settings")
				_, err := tx.Exec(ctx, "INSERT INTO setting_copy (values) VALUES ($1) ON CONFLICT (one) DO UPDATE SET values = EXCLUDED.values", values)
				return err
			})
		}}
}

// readSettingsCopy returns the stored copy of the settings, or nil if there is none yet.
func readSettingsCopy(ctx context.Context, q pg.Querier) (values settings.Values, err error) {
	err = q.QueryRow(ctx, "SELECT values FROM setting_copy").Scan(&values)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the copy of the settings: %w", err)
	}
	return values, nil
}

// settingsRoute returns the settings for gateways that start while the system service is unavailable.
func settingsRoute(db *pg.DB) rest.Route {
	return rest.Read[rest.None, settings.Values]{Path: settings.Path, Guard: guard.Peers(principal.Gateway),
		Do: func(ctx context.Context, _ rest.None) (settings.Values, error) { return readSettingsCopy(ctx, db) }}
}

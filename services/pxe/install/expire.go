package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/pxe/reference"
)

// expireBatchSize is how many expired installs are read at a time.
const expireBatchSize = 100

// expiredSQL selects the installs with a stage that takes too long. An agent may be unreachable while its machines go
// on, so the time is up only once the agent's reports were read after it.
const expiredSQL = `SELECT id, status, stage_at, why FROM (
		SELECT i.id, i.status, i.stage_at, CASE
			WHEN i.status = 'waiting' AND i.granted AND d.heard_at > i.stage_at + make_interval(mins => $1::integer) THEN format('The machine did not request a boot script within %s minutes.', $1::integer)
			WHEN i.status = 'booting' AND d.heard_at > i.stage_at + make_interval(mins => $2::integer) THEN format('The installer did not report within %s minutes after the machine got its boot script.', $2::integer)
			WHEN i.status <> 'waiting' AND d.heard_at > i.started_at + make_interval(mins => p.time_until_marked_failed) THEN format('The install did not finish within the %s minutes that its profile allows.', p.time_until_marked_failed)
			WHEN i.status = 'installing' AND p.time_until_marked_failed IS NULL AND d.heard_at > i.stage_at + make_interval(mins => $3::integer) THEN format('The install did not finish within %s minutes after the installer''s first report.', $3::integer)
			END AS why
		FROM install i JOIN site_agent d ON d.kind = 'pxe/dhcp' AND d.id = i.dhcp_server_id LEFT JOIN profile p ON p.id = i.profile_id WHERE ` + reference.InstallUnfinished + `) i
	WHERE why IS NOT NULL ORDER BY id LIMIT $4`

// Expire fails the installs with a stage that takes too long.
func (s *Installs) Expire(ctx context.Context) error {
	type expired struct {
		ID     int64
		Status string
		Stage  time.Time
		Reason string
	}
	v := s.Settings()
	rows, err := s.DB.Query(
		ctx,
		expiredSQL,
		settings.InstallWait.In(v),
		settings.InstallBoot.In(v),
		settings.InstallTime.In(v),
		expireBatchSize,
	)
	if err != nil {
		return fmt.Errorf("find expired installs: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[expired])
	if err != nil {
		return fmt.Errorf("find expired installs: %w", err)
	}
	for _, one := range all {
		err := s.DB.InTx(ctx, func(tx *pg.Tx) error {
			var id int64
			err := tx.QueryRow(
				ctx, "SELECT id FROM install WHERE id = $1 AND status = $2 AND stage_at = $3 FOR UPDATE", one.ID, one.Status, one.Stage,
			).
				Scan(&id)
			if errors.Is(err, pgx.ErrNoRows) { // the install has moved on
				tx.Unrecorded("the install has changed meanwhile")
				return nil
			}
			if err != nil {
				return fmt.Errorf("lock install %d: %w", one.ID, err)
			}
			return s.setStatus(ctx, tx, one.ID, Failed, one.Reason)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

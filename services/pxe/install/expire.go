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

// maxExpired is how many are looked for at a time.
const maxExpired = 100

// late finds installs of which a stage takes too long. While an agent cannot be asked, nobody knows what its machines have done
// meanwhile: it has to have been listened to since.
const late = `SELECT id, status, stage_at, why FROM (
		SELECT i.id, i.status, i.stage_at, CASE
			WHEN i.status = 'waiting' AND i.granted AND d.heard_at > i.stage_at + make_interval(mins => $1::integer) THEN format('Its machine has asked for no boot script within %s minutes.', $1::integer)
			WHEN i.status = 'booting' AND d.heard_at > i.stage_at + make_interval(mins => $2::integer) THEN format('Its installer has not reported within %s minutes since the machine was given its boot script.', $2::integer)
			WHEN i.status <> 'waiting' AND d.heard_at > i.started_at + make_interval(mins => p.time_until_marked_failed) THEN format('It was not done within the %s minutes that its profile gives it.', p.time_until_marked_failed)
			WHEN i.status = 'installing' AND p.time_until_marked_failed IS NULL AND d.heard_at > i.stage_at + make_interval(mins => $3::integer) THEN format('It was not done within %s minutes since its installer reported.', $3::integer)
			END AS why
		FROM install i JOIN site_agent d ON d.kind = 'pxe/dhcp' AND d.id = i.dhcp_server_id LEFT JOIN profile p ON p.id = i.profile_id WHERE ` + reference.InstallUnderWay + `) i
	WHERE why IS NOT NULL ORDER BY id LIMIT $4`

// Expire fails those of which a stage takes too long.
func (s *Installs) Expire(ctx context.Context) error {
	type expired struct {
		ID     int64
		Status string
		Stage  time.Time
		Why    string
	}
	v := s.Settings()
	rows, err := s.DB.Query(ctx, late, settings.InstallWait.In(v), settings.InstallBoot.In(v), settings.InstallTime.In(v), maxExpired)
	if err != nil {
		return fmt.Errorf("look for installs that take too long: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[expired])
	if err != nil {
		return fmt.Errorf("look for installs that take too long: %w", err)
	}
	for _, one := range all {
		err := s.DB.InTx(ctx, func(tx *pg.Tx) error {
			var id int64
			err := tx.QueryRow(
				ctx, "SELECT id FROM install WHERE id = $1 AND status = $2 AND stage_at = $3 FOR UPDATE", one.ID, one.Status, one.Stage,
			).
				Scan(&id)
			if errors.Is(err, pgx.ErrNoRows) { // it has gone on
				tx.Unrecorded("it is another one now")
				return nil
			}
			if err != nil {
				return fmt.Errorf("hold install %d: %w", one.ID, err)
			}
			return s.become(ctx, tx, one.ID, Failed, one.Why)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

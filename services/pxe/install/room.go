package install

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/pg"
)

// lockRoom lets those who look for room on a file server go one after the other.
func lockRoom(ctx context.Context, tx *pg.Tx, fileServers ...int64) error {
	return tx.Lock(ctx, "room on a file server", fileServers...)
}

// stillAsks is the condition that the machine of an install that waits was not switched off since it asked: it asks again every few
// seconds, which is reported once a minute.
const stillAsks = "seen_at > now() - interval '5 minutes'"

// grant lets as many installs read from each file server as that takes: those that have begun, then those whose machines wait for
// it, then the others, of which those that were let before stay so. Who loses his room has it until the agent, which was told so, was
// listened to: his machine may have been given its boot script in that moment, and has begun. What has no file server is let.
func grant(ctx context.Context, tx *pg.Tx, fileServers []int64) error {
	_, err := tx.Exec(ctx, `
		WITH ordered AS (
			SELECT i.id, f.id AS file_server, f.install_max_concurrent AS most,
				status <> 'waiting' OR granted OR leaving AND revision > coalesce((SELECT settled FROM site_agent WHERE kind = 'pxe/dhcp' AND id = i.dhcp_server_id), 0) AS has,
				row_number() OVER (PARTITION BY f.id ORDER BY status = 'waiting', CASE WHEN `+stillAsks+` THEN asked_at END NULLS LAST, granted DESC, i.id) AS place
			FROM install i JOIN file_server f ON f.id = i.file_server_id WHERE `+UnderWay+` AND f.id = ANY ($1)),
		fitting AS (SELECT *, place <= most AS fits, most - count(*) FILTER (WHERE has) OVER (PARTITION BY file_server) AS room FROM ordered),
		given AS (SELECT id, fits AND (has OR row_number() OVER (PARTITION BY file_server, fits AND NOT has ORDER BY place) <= room) AS granted FROM fitting)
		UPDATE install i SET granted = g.granted, leaving = NOT g.granted, revision = nextval('install_revision'), stage_at = now() FROM given g
		WHERE i.id = g.id AND i.granted <> g.granted AND i.status = 'waiting'`, fileServers)
	if err != nil {
		return fmt.Errorf("look for room on file servers %v: %w", fileServers, err)
	}
	return nil
}

// GrantAll does so on all file servers, which machines may have left, or of which somebody changed how many they take.
func (s *Installs) GrantAll(ctx context.Context) error {
	return s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("who waits is no change")
		rows, err := tx.Query(ctx, `SELECT f.id FROM file_server f JOIN install i ON i.file_server_id = f.id WHERE `+UnderWay+`
			GROUP BY f.id HAVING bool_or(NOT granted) OR count(*) > f.install_max_concurrent`)
		if err != nil {
			return fmt.Errorf("look for file servers with too many installs: %w", err)
		}
		full, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(full) == 0 {
			return err
		}
		if err := lockRoom(ctx, tx, full...); err != nil {
			return err
		}
		return grant(ctx, tx, full)
	})
}

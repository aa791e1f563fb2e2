package install

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/services/pxe/reference"
)

// lockRoom lets those who look for room on a file server go one after the other.
func lockRoom(ctx context.Context, tx *pg.Tx, fileServers ...int64) error {
	return tx.Lock(ctx, "room on a file server", fileServers...)
}

// stillAsks is the condition that the machine of an install that waits was not switched off since it asked: it asks again every few
// seconds, which is reported once a minute.
const stillAsks = "seen_at > now() - interval '5 minutes'"

// grant lets as many installs read from each file server as that takes: those that have begun, then those whose machines wait for
// it, then the others, of which those that were let before stay so. Who loses his room has it until his agent was told so, and then
// listened to: the machine may have been given its boot script before, and has begun. An agent that was not there since he was let has told
// no machine so. What has no file server is let.
func grant(ctx context.Context, tx *pg.Tx, fileServers []int64) error {
	_, err := tx.Exec(ctx, `
		WITH ordered AS (
			SELECT i.id, f.id AS file_server, f.install_max_concurrent AS most, status <> 'waiting' AS begun, status <> 'waiting' OR granted OR leaving AS has,
				EXISTS (SELECT FROM site_agent a WHERE a.kind = 'pxe/dhcp' AND a.id = i.dhcp_server_id AND a.machines_url <> '' AND a.seen_at > i.stage_at - $2::interval) AS told,
				row_number() OVER (PARTITION BY f.id ORDER BY status = 'waiting', CASE WHEN `+stillAsks+` THEN asked_at END NULLS LAST, granted DESC, i.id) AS place
			FROM install i JOIN file_server f ON f.id = i.file_server_id WHERE `+reference.InstallUnderWay+` AND f.id = ANY ($1)),
		fitting AS (SELECT *, place <= most AS fits, most - count(*) FILTER (WHERE has) OVER (PARTITION BY file_server) AS room FROM ordered),
		given AS (SELECT id, begun, told, begun OR fits AND (has OR row_number() OVER (PARTITION BY file_server, fits AND NOT has ORDER BY place) <= room) AS granted FROM fitting)
		UPDATE install i SET granted = g.granted, leaving = NOT g.granted AND g.told, told_at = NULL, revision = nextval('install_revision'),
			stage_at = CASE WHEN g.begun THEN i.stage_at ELSE now() END FROM given g
		WHERE i.id = g.id AND i.granted <> g.granted AND g.begun = (i.status <> 'waiting')`, fileServers, pushing)
	if err != nil {
		return fmt.Errorf("look for room on file servers %v: %w", fileServers, err)
	}
	return nil
}

// pushing is longer than an agent that was there can be in being told something.
const pushing = 2 * time.Minute

// Heard takes that an agent was listened to: of machines that it was told of before, which have no room any more, it would have said that
// they have begun.
func (s *Installs) Heard(ctx context.Context, tx *pg.Tx, dhcpServer int64, at time.Time) error {
	_, err := tx.Exec(ctx, `UPDATE install SET leaving = false
		WHERE id IN (SELECT id FROM install WHERE dhcp_server_id = $1 AND leaving AND told_at < $2 AND status = 'waiting' ORDER BY id FOR UPDATE)`, dhcpServer, at)
	if err != nil {
		return fmt.Errorf("note which installs of DHCP server %d have left: %w", dhcpServer, err)
	}
	return nil
}

// GrantAll does so on all file servers, which machines may have left, or of which somebody changed how many they take.
func (s *Installs) GrantAll(ctx context.Context) error {
	return s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("who waits is no change")
		rows, err := tx.Query(ctx, `SELECT f.id FROM file_server f JOIN install i ON i.file_server_id = f.id WHERE `+reference.InstallUnderWay+`
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

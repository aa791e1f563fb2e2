package install

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/wake"
	"github.com/ironplane/ironplane/services/pxe/reference"
)

// lockSlots makes transactions that assign the slots of a file server run one after the other. All versions of the
// service share the lock's name.
func lockSlots(ctx context.Context, tx *pg.Tx, fileServers ...int64) error {
	return tx.Lock(ctx, "room on a file server", fileServers...)
}

// isMachineOn is the SQL condition that the machine of a waiting install is switched on. Such a machine asks every few
// seconds, and its agent reports that once a minute.
const isMachineOn = "seen_at > now() - interval '5 minutes'"

// slotTTL is how long after the grant of a slot an agent may learn of it. If the agent was not seen since this long
// before the grant, no machine was told of the slot.
const slotTTL = 2 * time.Minute

// grant assigns each file server's free slots: first to installs that have begun, then to those whose machines are
// asking, then to the others, and last to those that are held. Among the others, installs that have a slot keep it. A slot
// is revoked by raising the install's revision.
//
// The machine may have received its boot script just before the revocation. So a revoked slot is reused only after the
// agent has acknowledged the revocation and then sent its reports. An install without a file server needs no slot.
func grant(ctx context.Context, tx *pg.Tx, fileServers []int64) error {
	done, err := tx.Exec(ctx, `
		WITH ordered AS (
			SELECT i.id, f.id AS file_server, f.install_max_concurrent AS slots, status <> 'waiting' AS begun,
				status <> 'waiting' OR granted OR leaving AS has,
				EXISTS (SELECT FROM site_agent a WHERE a.kind = 'pxe/dhcp' AND a.id = i.dhcp_server_id AND a.machines_url <> ''
					AND a.seen_at > i.stage_at - $2::interval) AS may_know,
				row_number() OVER (PARTITION BY f.id
					ORDER BY status = 'waiting', held, CASE WHEN `+isMachineOn+` THEN asked_at END NULLS LAST, granted DESC, i.id) AS rank
			FROM install i JOIN file_server f ON f.id = i.file_server_id WHERE `+reference.InstallUnfinished+` AND f.id = ANY ($1)),
		fitting AS (
			SELECT *, rank <= slots AS fits, slots - count(*) FILTER (WHERE has) OVER (PARTITION BY file_server) AS free FROM ordered),
		assigned AS (
			SELECT id, begun, may_know,
				begun OR fits AND (has OR row_number() OVER (PARTITION BY file_server, fits AND NOT has ORDER BY rank) <= free) AS granted
			FROM fitting)
		UPDATE install i SET granted = g.granted, leaving = NOT g.granted AND g.may_know, told_at = NULL, revision = nextval('install_revision'),
			stage_at = CASE WHEN g.begun THEN i.stage_at ELSE now() END FROM assigned g
		WHERE i.id = g.id AND i.granted <> g.granted AND g.begun = (i.status <> 'waiting')`, fileServers, slotTTL)
	if err != nil {
		return fmt.Errorf("assign the slots of file servers %v: %w", fileServers, err)
	}
	if done.RowsAffected() > 0 {
		tx.Wake(wake.Changes) // so that agents learn of it
	}
	return nil
}

// FreeRevokedSlots frees the revoked slots of a DHCP server whose agent acknowledged the revocation before the time at.
// The caller has applied all reports that the agent had at that time. So an install that is still waiting has not begun.
func (s *Installs) FreeRevokedSlots(ctx context.Context, tx *pg.Tx, dhcpServer int64, at time.Time) error {
	done, err := tx.Exec(ctx, `UPDATE install SET leaving = false WHERE id IN (
			SELECT id FROM install WHERE dhcp_server_id = $1 AND leaving AND told_at < $2 AND status = 'waiting' ORDER BY id FOR UPDATE)`,
		dhcpServer, at)
	if err != nil {
		return fmt.Errorf("free the revoked slots of DHCP server %d: %w", dhcpServer, err)
	}
	if done.RowsAffected() > 0 {
		tx.Wake(wake.Changes) // so that the slots are assigned again
	}
	return nil
}

// GrantAll assigns the slots of all file servers with an install that has no slot, or with more installs than slots.
func (s *Installs) GrantAll(ctx context.Context) error {
	return s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the assignment of slots is internal")
		rows, err := tx.Query(ctx, `SELECT f.id FROM file_server f JOIN install i ON i.file_server_id = f.id WHERE `+reference.InstallUnfinished+`
			GROUP BY f.id HAVING bool_or(NOT granted) OR count(*) > f.install_max_concurrent`)
		if err != nil {
			return fmt.Errorf("find file servers with waiting installs: %w", err)
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := lockSlots(ctx, tx, ids...); err != nil {
			return err
		}
		return grant(ctx, tx, ids)
	})
}

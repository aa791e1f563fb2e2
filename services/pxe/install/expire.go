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
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// expireBatchSize is how many expired installs are read at a time.
const expireBatchSize = 100

// expiredSQL selects the installs with a stage that takes too long. An agent may be unreachable while its machines go
// on, so the time is up only once the agent's reports were read after it.
const expiredSQL = `SELECT i.id, i.status, i.stage_at, i.why, coalesce(q.what, ''), coalesce(q.got, ''), q.at FROM (
		SELECT i.id, i.status, i.stage_at, CASE
			WHEN i.status = 'waiting' AND i.granted AND NOT i.held AND d.heard_at > i.stage_at + make_interval(mins => w.minutes) THEN format('The machine did not request a boot script within %s minutes.', w.minutes)
			WHEN i.status = 'booting' AND d.heard_at > i.stage_at + make_interval(mins => $2::integer) THEN format('The installer did not report within %s minutes after the machine got its boot script.', $2::integer)
			WHEN i.status <> 'waiting' AND d.heard_at > i.started_at + make_interval(mins => p.time_until_marked_failed) THEN format('The install did not finish within the %s minutes that its profile allows.', p.time_until_marked_failed)
			WHEN i.status = 'installing' AND p.time_until_marked_failed IS NULL AND d.heard_at > i.stage_at + make_interval(mins => $3::integer) THEN format('The install did not finish within %s minutes after the installer''s first report.', $3::integer)
			END AS why
		FROM install i JOIN site_agent d ON d.kind = 'pxe/dhcp' AND d.id = i.dhcp_server_id LEFT JOIN profile p ON p.id = i.profile_id
		CROSS JOIN LATERAL (SELECT CASE WHEN i.by_client THEN least($1::integer, $5::integer) ELSE $1::integer END AS minutes) w WHERE ` + reference.InstallUnfinished + `) i
	LEFT JOIN LATERAL (SELECT what, got, at FROM install_request WHERE install_id = i.id ORDER BY n DESC LIMIT 1) q ON true
	WHERE i.why IS NOT NULL ORDER BY i.id LIMIT $4`

// expired is an install with a stage that takes too long.
type expired struct {
	ID       int64
	Status   string
	Stage    time.Time
	Reason   string
	Event    string // the last one of the machine, or empty
	Response string // what the agent answered to it
	At       *time.Time
}

// eventTexts say what the machine did, by the events of reports.
var eventTexts = map[string]string{
	siteagent.EventLeased:    "got an address",
	siteagent.EventWaiting:   "was told to wait",
	siteagent.EventBooted:    "got its boot script",
	siteagent.EventRead:      "read a file",
	siteagent.EventProgress:  "reported progress",
	siteagent.EventStatement: "sent a signed report",
	siteagent.EventLocal:     "was told to boot its disk",
	siteagent.EventRefused:   "was refused",
}

// adviceTexts say what to look at, by the status of an install that takes too long.
var adviceTexts = map[string]string{
	Waiting:    "Look whether it is set to boot over the network, and at its screen.",
	Booting:    "Look at its screen, whether the installer starts and finds its files.",
	Installing: "Look at its screen, and at the installer's log on it.",
}

// describe returns the reason, with what the machine did last and what to look at.
func (e *expired) describe() string {
	if e.At == nil {
		return e.Reason + " The agent has not heard of the machine at all. " +
			"Look whether its MAC addresses are right, and whether it is set to boot over the network."
	}
	last, known := eventTexts[e.Event]
	if !known {
		last = "sent a request"
	}
	if e.Event == siteagent.EventRead || e.Event == siteagent.EventRefused {
		last += " (" + e.Response + ")"
	}
	return fmt.Sprintf("%s The machine last %s, at %s. %s", e.Reason, last, e.At.UTC().Format("2006-01-02 15:04 UTC"), adviceTexts[e.Status])
}

// Expire fails the installs with a stage that takes too long.
func (s *Installs) Expire(ctx context.Context) error {
	v := s.Settings()
	rows, err := s.DB.Query(
		ctx,
		expiredSQL,
		settings.InstallWait.In(v),
		settings.InstallBoot.In(v),
		settings.InstallTime.In(v),
		expireBatchSize,
		int(reinstallWait.Minutes()),
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
			return s.setStatus(ctx, tx, one.ID, Failed, one.describe())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

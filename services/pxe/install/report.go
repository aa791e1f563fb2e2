package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/wake"
	"github.com/ironplane/ironplane/services/pxe/signedreport"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

const (
	// maxRequests is how many requests of an install are kept.
	maxRequests = 100
	// maxDiscovered is how many discovered machines are kept, and maxFacts how many facts of each.
	maxDiscovered, maxFacts = 10_000, 50

	// maxTextLength and maxErrorLength are in characters.
	maxTextLength, maxErrorLength = 255, 2000
)

// ApplyReports applies an agent's reports of machines in their order. The same unit of work stores how far the agent's
// feed was read, so each report is applied once.
func (s *Installs) ApplyReports(ctx context.Context, tx *pg.Tx, dhcpServer int64, entries []siteagent.Entry) error {
	for _, e := range entries {
		if e.Machine == nil {
			continue
		}
		r := sanitizeReport(*e.Machine)
		var err error
		if r.ID == 0 {
			err = storeDiscovery(ctx, tx, dhcpServer, e.At, r)
		} else {
			err = s.applyReport(ctx, tx, dhcpServer, e.At, r)
		}
		if err != nil {
			return fmt.Errorf("apply entry %d of the agent of DHCP server %d: %w", e.Number, dhcpServer, err)
		}
	}
	return nil
}

// applyReport applies one report. A report of an earlier attempt, or of an install that has ended, is only added to the
// requests.
func (s *Installs) applyReport(ctx context.Context, tx *pg.Tx, dhcpServer int64, at time.Time, r siteagent.Report) error {
	var status string
	var first, number int64
	err := tx.QueryRow(ctx, `UPDATE install SET requests = requests + 1, seen_at = greatest(seen_at, least($3, now())),
			asked_at = CASE WHEN $4 AND status = 'waiting' THEN CASE WHEN `+isMachineOn+` THEN coalesce(asked_at, now()) ELSE now() END ELSE asked_at END
		WHERE id = $1 AND dhcp_server_id = $2 RETURNING status, first_revision, requests`,
		r.ID, dhcpServer, at, r.Event == siteagent.EventWaiting).Scan(&status, &first, &number)
	if errors.Is(err, pgx.ErrNoRows) { // deleted, or an install of another agent
		return nil
	}
	if err != nil {
		return fmt.Errorf("find install %d: %w", r.ID, err)
	}
	if _, err := tx.Exec(
		ctx,
		"INSERT INTO install_request (install_id, n, at, what, got, mac, address) VALUES ($1, $2, $3, $4, $5, $6, $7)",
		r.ID,
		number,
		at,
		r.Event,
		r.Response,
		r.MAC,
		r.Address,
	); err != nil {
		return fmt.Errorf("insert a request: %w", err)
	}
	if _, err := tx.Exec(ctx, "DELETE FROM install_request WHERE install_id = $1 AND n <= $2", r.ID, number-maxRequests); err != nil {
		return fmt.Errorf("delete old requests: %w", err)
	}
	if isFinished(status) || r.Revision < first {
		return nil
	}
	if r.Event == siteagent.EventStatement {
		return signedreport.Store(ctx, tx, r)
	}
	if r.Event == siteagent.EventWaiting {
		tx.Wake(wake.Changes) // a machine that asks comes before one that does not: the slots are assigned again
	}
	switch {
	case r.Event == siteagent.EventBooted && status != Booting:
		err = s.setStatus(ctx, tx, r.ID, Booting, "")
	case r.Event == siteagent.EventProgress:
		if status != Installing {
			err = s.setStatus(ctx, tx, r.ID, Installing, "")
		}
		if err == nil {
			_, err = tx.Exec(
				ctx,
				"UPDATE install SET step = coalesce(nullif($2, ''), step), progress = CASE WHEN $3::bigint > 0 THEN least($3, 100) ELSE progress END "+
					"WHERE id = $1",
				r.ID,
				r.Step,
				int32(r.Progress),
			)
		}
	case r.Event == siteagent.EventDone:
		err = s.setStatus(ctx, tx, r.ID, Installed, "")
	case r.Event == siteagent.EventFailed:
		reason := r.Error
		if reason == "" {
			reason = "The installer reported a failure without a reason."
		}
		err = s.setStatus(ctx, tx, r.ID, Failed, reason)
	}
	return err
}

// storeDiscovery stores a machine that has no install. If there are too many, those that were not seen for the longest
// time are deleted.
func storeDiscovery(ctx context.Context, tx *pg.Tx, dhcpServer int64, at time.Time, r siteagent.Report) error {
	if r.MAC == "" {
		return nil
	}
	facts := r.Facts
	if facts == nil {
		facts = map[string]string{}
	}
	stored, err := tx.Exec(ctx, `INSERT INTO discovery AS d (name, address, facts, dhcp_server_id, first_seen_at, seen_at)
		SELECT $1::text, $2::text, $3::jsonb, $4::bigint, least($5::timestamptz, now()), least($5::timestamptz, now()) WHERE NOT EXISTS (SELECT FROM install_mac WHERE mac = $1)
		ON CONFLICT (name) DO UPDATE SET address = EXCLUDED.address, facts = CASE WHEN EXCLUDED.facts = '{}' THEN d.facts ELSE EXCLUDED.facts END,
			dhcp_server_id = EXCLUDED.dhcp_server_id, seen_at = greatest(d.seen_at, EXCLUDED.seen_at)`, r.MAC, r.Address, facts, dhcpServer, at)
	if err == nil && stored.RowsAffected() > 0 {
		_, err = tx.Exec(
			ctx,
			"DELETE FROM discovery WHERE id IN (SELECT id FROM discovery ORDER BY seen_at DESC, id DESC OFFSET $1)",
			maxDiscovered,
		)
	}
	if err != nil {
		return fmt.Errorf("store a discovered machine: %w", err)
	}
	return nil
}

// sanitizeReport limits the texts of a report, because agents are not trusted.
func sanitizeReport(r siteagent.Report) siteagent.Report {
	for _, text := range []*string{&r.MAC, &r.Address, &r.Event, &r.Response, &r.Step} {
		*text = siteagent.Sanitize(*text, maxTextLength)
	}
	r.Error = siteagent.Sanitize(r.Error, maxErrorLength)
	facts := map[string]string{}
	for name, value := range r.Facts {
		if len(facts) < maxFacts {
			facts[siteagent.Sanitize(name, maxTextLength)] = siteagent.Sanitize(value, maxTextLength)
		}
	}
	r.Facts = facts
	return r
}

package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/wake"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

const (
	// maxRequests is how many of an install are kept.
	maxRequests = 100
	// maxDiscovered is how many machines are kept that nobody named, and maxFacts how many facts of each.
	maxDiscovered, maxFacts = 10_000, 50

	maxText, maxError = 255, 2000
)

// Hear takes what an agent has to say of machines, in the order in which it happened, in the unit of work that notes how far the
// agent was listened to: so each is taken once.
func (s *Installs) Hear(ctx context.Context, tx *pg.Tx, dhcpServer int64, entries []siteagent.Entry) error {
	for _, e := range entries {
		if e.Machine == nil {
			continue
		}
		r := clean(*e.Machine)
		var err error
		if r.ID == 0 {
			err = discover(ctx, tx, dhcpServer, e.At, r)
		} else {
			err = s.hear(ctx, tx, dhcpServer, e.At, r)
		}
		if err != nil {
			return fmt.Errorf("take entry %d of the agent of DHCP server %d: %w", e.Number, dhcpServer, err)
		}
	}
	return nil
}

// hear takes one report. One of an earlier attempt, or of an install that has ended, is shown and changes nothing.
func (s *Installs) hear(ctx context.Context, tx *pg.Tx, dhcpServer int64, at time.Time, r siteagent.Report) error {
	var status string
	var first, number int64
	err := tx.QueryRow(ctx, `UPDATE install SET requests = requests + 1, seen_at = greatest(seen_at, least($3, now())),
			asked_at = CASE WHEN $4 AND status = 'waiting' THEN CASE WHEN `+isAsking+` THEN coalesce(asked_at, now()) ELSE now() END ELSE asked_at END
		WHERE id = $1 AND dhcp_server_id = $2 RETURNING status, first_revision, requests`,
		r.ID, dhcpServer, at, r.Event == siteagent.EventWaiting).Scan(&status, &first, &number)
	if errors.Is(err, pgx.ErrNoRows) { // it was deleted, or is none of this agent's
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
		return fmt.Errorf("note a request: %w", err)
	}
	if _, err := tx.Exec(ctx, "DELETE FROM install_request WHERE install_id = $1 AND n <= $2", r.ID, number-maxRequests); err != nil {
		return fmt.Errorf("forget a request: %w", err)
	}
	if ended(status) || r.Revision < first {
		return nil
	}
	if r.Event == siteagent.EventWaiting {
		tx.Wake(wake.Changes) // a machine that asks comes before one that does not: the slots are assigned again
	}
	switch {
	case r.Event == siteagent.EventBooted && status != Booting:
		err = s.become(ctx, tx, r.ID, Booting, "")
	case r.Event == siteagent.EventProgress:
		if status != Installing {
			err = s.become(ctx, tx, r.ID, Installing, "")
		}
		if err == nil {
			_, err = tx.Exec(
				ctx,
				"UPDATE install SET step = coalesce(nullif($2, ''), step), progress = CASE WHEN $3 > 0 THEN least($3, 100) ELSE progress END "+
					"WHERE id = $1",
				r.ID,
				r.Step,
				int32(r.Progress),
			)
		}
	case r.Event == siteagent.EventDone:
		err = s.become(ctx, tx, r.ID, Installed, "")
	case r.Event == siteagent.EventFailed:
		why := r.Error
		if why == "" {
			why = "Its installer said that it failed."
		}
		err = s.become(ctx, tx, r.ID, Failed, why)
	}
	return err
}

// discover notes a machine that nobody named, instead of the one that was not seen for the longest time where there are too many.
func discover(ctx context.Context, tx *pg.Tx, dhcpServer int64, at time.Time, r siteagent.Report) error {
	if r.MAC == "" {
		return nil
	}
	facts := r.Facts
	if facts == nil {
		facts = map[string]string{}
	}
	noted, err := tx.Exec(ctx, `INSERT INTO discovery AS d (name, address, facts, dhcp_server_id, first_seen_at, seen_at)
		SELECT $1::text, $2::text, $3::jsonb, $4::bigint, least($5::timestamptz, now()), least($5::timestamptz, now()) WHERE NOT EXISTS (SELECT FROM install_mac WHERE mac = $1)
		ON CONFLICT (name) DO UPDATE SET address = EXCLUDED.address, facts = CASE WHEN EXCLUDED.facts = '{}' THEN d.facts ELSE EXCLUDED.facts END,
			dhcp_server_id = EXCLUDED.dhcp_server_id, seen_at = greatest(d.seen_at, EXCLUDED.seen_at)`, r.MAC, r.Address, facts, dhcpServer, at)
	if err == nil && noted.RowsAffected() > 0 {
		_, err = tx.Exec(
			ctx,
			"DELETE FROM discovery WHERE id IN (SELECT id FROM discovery ORDER BY seen_at DESC, id DESC OFFSET $1)",
			maxDiscovered,
		)
	}
	if err != nil {
		return fmt.Errorf("note a machine: %w", err)
	}
	return nil
}

// clean is a report as it can be kept and shown, whatever an agent sends.
func clean(r siteagent.Report) siteagent.Report {
	r.MAC, r.Address, r.Event, r.Response = text(
		r.MAC,
		maxText,
	), text(
		r.Address,
		maxText,
	), text(
		r.Event,
		maxText,
	), text(
		r.Response,
		maxText,
	)
	r.Step, r.Error = text(r.Step, maxText), text(r.Error, maxError)
	facts := map[string]string{}
	for name, value := range r.Facts {
		if len(facts) < maxFacts {
			facts[text(name, maxText)] = text(value, maxText)
		}
	}
	r.Facts = facts
	return r
}

func text(said string, longest int) string {
	said = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(said, "?"))
	if characters := []rune(said); len(characters) > longest {
		said = string(characters[:longest])
	}
	return said
}

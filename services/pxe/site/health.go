package site

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// AgentHealth is how an agent is, as it said itself.
type AgentHealth struct {
	Status     string          `json:"status" enum:"unknown,ok,degraded,failing" doc:"degraded: less than a twentieth of its disk is free; failing: it cannot be asked; unknown: it was not asked yet"`
	Error      *string         `json:"error,omitempty" doc:"why it cannot be asked"`
	Version    *string         `json:"version,omitempty"`
	FreeBytes  *int64          `json:"free_bytes,omitempty" doc:"of the disk that it keeps files on"`
	TotalBytes *int64          `json:"total_bytes,omitempty"`
	StartedAt  *rest.Timestamp `json:"started_at,omitempty"`
	SeenAt     *rest.Timestamp `json:"seen_at,omitempty" doc:"when it answered last"`
	Reports    []string        `json:"reports" doc:"the last ten things that it had to say, the newest first, each behind its moment"`
}

const (
	// Pause is how often each agent is asked, and lookTime how long it may take.
	Pause    = 10 * time.Second
	lookTime = 5 * time.Second
	// atOnce is how many are asked at a time, which is how many are taken from the others that ask.
	atOnce      = 100
	mostReports = 10
)

// Health is how the agent of a server is.
func Health(ctx context.Context, q pg.Querier, kind Kind, id int64) (*AgentHealth, error) {
	h := AgentHealth{Status: "unknown", Reports: []string{}}
	err := q.QueryRow(ctx, "SELECT status, error, version, free_bytes, total_bytes, started_at, seen_at, reports FROM site_agent JOIN site_agent_health USING (kind, id) WHERE kind = $1 AND id = $2", kind, id).
		Scan(&h.Status, &h.Error, &h.Version, &h.FreeBytes, &h.TotalBytes, &h.StartedAt, &h.SeenAt, &h.Reports)
	if err != nil && !gone(err) {
		return nil, fmt.Errorf("read how the agent of %s %d is: %w", kind, id, err)
	}
	return &h, nil
}

// Look asks those agents that were not asked for a while how they are, and what they have to say.
func (a *Agents) Look(ctx context.Context) error {
	for {
		due, err := a.due(ctx)
		if err != nil || len(due) == 0 {
			return err
		}
		outcomes := make([]error, len(due))
		var asking sync.WaitGroup
		for i, one := range due {
			asking.Go(func() { outcomes[i] = a.look(ctx, one) })
		}
		asking.Wait()
		if err := errors.Join(outcomes...); err != nil {
			return err
		}
	}
}

// looked is an agent that is asked, behind the entry that it said last.
type looked struct {
	Kind    Kind
	ID      int64
	History string
	Number  int64
}

// due are some that are to be asked. Nobody else asks them until they are due again.
func (a *Agents) due(ctx context.Context) (due []looked, err error) {
	err = a.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("how agents are is no change")
		_, err := tx.Exec(ctx, `INSERT INTO site_agent (kind, id)
			SELECT kind, id FROM (SELECT $1::text AS kind, id FROM dhcp_server UNION ALL SELECT $2, id FROM file_server) s
			WHERE NOT EXISTS (SELECT FROM site_agent a WHERE a.kind = s.kind AND a.id = s.id) ON CONFLICT DO NOTHING`, DHCPServer, FileServer)
		if err != nil {
			return fmt.Errorf("note agents: %w", err)
		}
		rows, err := tx.Query(ctx, `UPDATE site_agent a SET asked_at = now()
			FROM (SELECT kind, id FROM site_agent WHERE asked_at <= now() - $1::interval ORDER BY asked_at LIMIT $2 FOR UPDATE SKIP LOCKED) d
			WHERE a.kind = d.kind AND a.id = d.id RETURNING a.kind, a.id, a.history, a.number`, Pause, atOnce)
		if err != nil {
			return fmt.Errorf("find agents to ask: %w", err)
		}
		due, err = pgx.CollectRows(rows, pgx.RowToStructByPos[looked])
		return err
	})
	return due, err
}

// look asks one, and notes what it says. What it has to say is noted once, also where two ask it.
func (a *Agents) look(ctx context.Context, one looked) error {
	found, err := a.ask(ctx, one)
	if gone(err) {
		return a.note(ctx, "DELETE FROM site_agent WHERE kind = $1 AND id = $2", one.Kind, one.ID)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return a.note(ctx, "UPDATE site_agent SET error = $3 WHERE kind = $1 AND id = $2", one.Kind, one.ID, Reason(err))
	}
	reports, last := make([]string, 0, len(found.Entries)), one.Number
	if found.History != one.History {
		last = 0
	}
	for _, e := range found.Entries {
		reports, last = append([]string{e.At.UTC().Format(time.RFC3339) + " " + e.Text}, reports...), e.Number
	}
	is := found.Health
	return a.note(ctx, `UPDATE site_agent SET error = NULL, seen_at = now(), version = $3, free_bytes = $4, total_bytes = $5, started_at = $6, history = $7, number = $8,
		reports = ($9::text[] || reports)[1:$10] WHERE kind = $1 AND id = $2 AND history = $11 AND number = $12`,
		one.Kind, one.ID, is.Version, is.FreeBytes, is.TotalBytes, is.StartedAt, found.History, last, reports, mostReports, one.History, one.Number)
}

// ask asks for what there is behind the last entry: all of it, where the agent begins anew.
func (a *Agents) ask(ctx context.Context, one looked) (found siteagent.Feed, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	of, err := a.Agent(ctx, one.Kind, one.ID)
	if err != nil {
		return found, err
	}
	defer of.Close()
	if found, err = of.Feed(ctx, one.Number); err == nil && found.History != one.History && one.Number > 0 {
		found, err = of.Feed(ctx, 0)
	}
	return found, err
}

func (a *Agents) note(ctx context.Context, sql string, args ...any) error {
	return a.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("how agents are is no change")
		if _, err := tx.Exec(ctx, sql, args...); err != nil {
			return fmt.Errorf("note how an agent is: %w", err)
		}
		return nil
	})
}

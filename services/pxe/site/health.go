package site

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/wake"
	"github.com/ironplane/ironplane/services/pxe/reference"
)

// AgentHealth is the health of an agent.
type AgentHealth struct {
	Status     string          `json:"status" enum:"unknown,ok,degraded,failing" doc:"ok; degraded: less than 5 % of the disk is free; failing: the agent cannot be reached, its disk is full, or it says that it cannot work; unknown: the agent has not answered yet."`
	Error      *string         `json:"error,omitempty" doc:"Why the agent is failing."`
	Version    *string         `json:"version,omitempty" doc:"The version of the agent."`
	FreeBytes  *int64          `json:"free_bytes,omitempty" doc:"The free bytes on the disk with the agent's files."`
	TotalBytes *int64          `json:"total_bytes,omitempty" doc:"The size in bytes of the disk with the agent's files."`
	StartedAt  *rest.Timestamp `json:"started_at,omitempty" doc:"When the agent started."`
	SeenAt     *rest.Timestamp `json:"seen_at,omitempty" doc:"When the agent last answered."`
	Reports    []string        `json:"reports" doc:"The agent's last ten reports, the newest first, each with its time."`
}

const (
	// PollInterval is how often each agent is polled, and busyPollInterval how often one is that has machines to install
	// or unsent changes.
	PollInterval, busyPollInterval = 10 * time.Second, time.Second
	// silentPollInterval is how often an agent is polled that was unreachable for longer than silentAfter.
	silentPollInterval, silentAfter = 30 * time.Second, 2 * time.Minute
	// minPollInterval is the shortest time between two searches for agents to poll.
	minPollInterval = 500 * time.Millisecond
	// feedTimeout bounds the read of an agent's feed, and pushTimeout a push of its machines.
	feedTimeout, pushTimeout = 5 * time.Second, time.Minute
	// maxConcurrentPolls is how many agents are polled at a time.
	maxConcurrentPolls = 100
	// maxReports is how many reports of an agent are kept.
	maxReports = 10
	// maxProblems is how many problems of an agent are stored.
	maxProblems = 10
	// maxTextLength is how many characters of one of an agent's texts are stored.
	maxTextLength = 1000
)

// LoadHealth reads the health of a server's agent. The status is "unknown" if the agent was never polled.
func LoadHealth(ctx context.Context, q pg.Querier, kind Kind, id int64) (*AgentHealth, error) {
	h := AgentHealth{Status: "unknown", Reports: []string{}}
	err := q.QueryRow(ctx, "SELECT status, failure, version, free_bytes, total_bytes, started_at, seen_at, reports "+
		"FROM site_agent JOIN site_agent_health USING (kind, id) WHERE kind = $1 AND id = $2", kind, id).
		Scan(&h.Status, &h.Error, &h.Version, &h.FreeBytes, &h.TotalBytes, &h.StartedAt, &h.SeenAt, &h.Reports)
	if err != nil && !isNotFound(err) {
		return nil, fmt.Errorf("read the health of the agent of %s %d: %w", kind, id, err)
	}
	return &h, nil
}

// Poll polls the agents for their health and their feeds until ctx ends. It returns an error only if the database fails.
func (a *Agents) Poll(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var polls sync.WaitGroup
	defer polls.Wait()
	var busy sync.Map // the agents that are being polled
	slots := make(chan struct{}, maxConcurrentPolls)
	err := wake.Repeat(ctx, a.Woken, minPollInterval, func(ctx context.Context) (time.Duration, error) {
		due, next, err := a.claimDue(ctx, maxConcurrentPolls-len(slots))
		if err != nil {
			return 0, err
		}
		for _, target := range due {
			key := pollTarget{Kind: target.Kind, ID: target.ID}
			if _, isBusy := busy.LoadOrStore(key, true); isBusy {
				continue
			}
			slots <- struct{}{}
			polls.Go(func() {
				defer func() { busy.Delete(key); <-slots }()
				if err := a.pollAgent(ctx, target); err != nil {
					stop(err)
				}
			})
		}
		return next, nil
	})
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// pollTarget is an agent to poll, with the last entry that was read of its feed.
type pollTarget struct {
	Kind      Kind
	ID        int64
	History   string
	Number    int64
	AskedAt   time.Time
	LastError string     // why the last poll failed; empty: it succeeded
	EntryAt   *time.Time // when the agent wrote the last entry that was read, by its clock; nil: unknown
	SkipUntil *time.Time // entries up to this time were applied before the agent's folder was restored; nil: none
}

// pollIntervalSQL is an SQL expression for the time from asked_at until the next poll.
const pollIntervalSQL = `CASE WHEN error IS NOT NULL AND coalesce(seen_at < now() - @silent_after::interval, true) THEN @silent::interval
	WHEN kind = 'pxe/dhcp' AND (
		EXISTS (SELECT FROM install WHERE dhcp_server_id = s.id AND ` + reference.InstallUnfinished + `) OR
		EXISTS (SELECT FROM install WHERE dhcp_server_id = s.id AND revision > s.pushed)) THEN @busy::interval
	ELSE @interval::interval END`

// claimDue returns up to limit agents that are due, and the time until the next one is. No other process polls them
// until they are due again.
func (a *Agents) claimDue(ctx context.Context, limit int) (due []pollTarget, next time.Duration, err error) {
	err = a.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the health of agents is internal")
		_, err := tx.Exec(ctx, `INSERT INTO site_agent (kind, id)
			SELECT kind, id FROM (SELECT $1::text AS kind, id FROM dhcp_server UNION ALL SELECT $2, id FROM file_server) s
			WHERE NOT EXISTS (SELECT FROM site_agent a WHERE a.kind = s.kind AND a.id = s.id) ON CONFLICT DO NOTHING`, DHCPServer, FileServer)
		if err != nil {
			return fmt.Errorf("insert agents: %w", err)
		}
		args := pgx.NamedArgs{
			"limit":        limit,
			"interval":     PollInterval,
			"busy":         busyPollInterval,
			"silent":       silentPollInterval,
			"silent_after": silentAfter,
		}
		rows, err := tx.Query(ctx, `UPDATE site_agent a SET asked_at = now()
			FROM (SELECT kind, id FROM site_agent s WHERE asked_at <= now() - `+pollIntervalSQL+` ORDER BY asked_at LIMIT @limit FOR UPDATE SKIP LOCKED) d
			WHERE a.kind = d.kind AND a.id = d.id RETURNING a.kind, a.id, a.history, a.number, a.asked_at, coalesce(a.error, ''),
				a.entry_at, a.skip_until`, args)
		if err != nil {
			return fmt.Errorf("find agents to poll: %w", err)
		}
		if due, err = pgx.CollectRows(rows, pgx.RowToStructByPos[pollTarget]); err != nil {
			return fmt.Errorf("find agents to poll: %w", err)
		}
		var seconds *float64
		if err := tx.QueryRow(ctx, `SELECT extract(epoch FROM min(asked_at + `+pollIntervalSQL+`) - now())::float8 FROM site_agent s`, args).
			Scan(&seconds); err != nil {
			return fmt.Errorf("find when the next agent is due: %w", err)
		}
		next = wake.Interval
		if seconds != nil {
			next = max(min(next, time.Duration(*seconds*float64(time.Second))), minPollInterval)
		}
		return nil
	})
	return due, next, err
}

// pollAgent polls one agent, stores its health and its feed, and pushes its machines. Each entry is applied once, also
// if two processes poll the agent.
func (a *Agents) pollAgent(ctx context.Context, target pollTarget) error {
	agent, err := a.Open(ctx, target.Kind, target.ID)
	if isNotFound(err) {
		return a.update(ctx, "DELETE FROM site_agent WHERE kind = $1 AND id = $2", target.Kind, target.ID)
	}
	if err == nil {
		defer agent.Close()
		err = a.exchange(ctx, agent, target)
	} else {
		err = Unreachable{err}
	}
	failure, failed := errors.AsType[Unreachable](err)
	switch {
	case ctx.Err() != nil:
		return nil
	case failed && DescribeError(failure.Err) == target.LastError:
		return nil // the reason is already stored
	case failed:
		return a.update(ctx, "UPDATE site_agent SET error = $3 WHERE kind = $1 AND id = $2", target.Kind, target.ID, DescribeError(failure.Err))
	}
	return err
}

// exchange reads an agent's feed, and then pushes its machines if they changed or were not compared for a PollInterval.
func (a *Agents) exchange(ctx context.Context, agent *Agent, target pollTarget) error {
	serves, err := a.readFeed(ctx, agent, target)
	if err != nil || !serves || target.Kind != DHCPServer {
		return err
	}
	var last int64
	var due bool
	err = a.DB.QueryRow(ctx, `SELECT last, last > pushed OR pushed_at <= now() - $3::interval FROM site_agent s,
			LATERAL (SELECT coalesce(max(revision), 0) AS last FROM install WHERE dhcp_server_id = s.id) i WHERE kind = $1 AND id = $2`, target.Kind, target.ID, PollInterval).Scan(&last, &due)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read whether an agent needs a push: %w", err)
	}
	if !due {
		return nil
	}
	pushCtx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	if err := a.PushMachines(pushCtx, agent.Client, target.ID); err != nil {
		return err
	}
	return a.update(
		ctx,
		"UPDATE site_agent SET pushed = greatest(pushed, $3), pushed_at = now() WHERE kind = $1 AND id = $2",
		target.Kind,
		target.ID,
		last,
	)
}

// Unreachable is the error of a call to an agent.
type Unreachable struct{ Err error }

func (a Unreachable) Error() string { return a.Err.Error() }

// Unwrap returns the cause.
func (a Unreachable) Unwrap() error { return a.Err }

// update executes a statement in a unit of work of its own.
func (a *Agents) update(ctx context.Context, sql string, args ...any) error {
	return a.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the health of agents is internal")
		if _, err := tx.Exec(ctx, sql, args...); err != nil {
			return fmt.Errorf("store the health of an agent: %w", err)
		}
		return nil
	})
}

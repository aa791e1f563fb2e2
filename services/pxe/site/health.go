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
	"github.com/ironplane/ironplane/services/pxe/siteagent"
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
	LastError string // why the last poll failed; empty: it succeeded
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
			WHERE a.kind = d.kind AND a.id = d.id RETURNING a.kind, a.id, a.history, a.number, a.asked_at, coalesce(a.error, '')`, args)
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

// readFeed applies an agent's feed up to its end. serves reports whether the agent serves machines.
func (a *Agents) readFeed(ctx context.Context, agent *Agent, target pollTarget) (serves bool, err error) {
	for {
		feed, err := fetchFeed(ctx, agent, target)
		if err != nil {
			return false, Unreachable{err}
		}
		next, current, err := a.storeFeed(ctx, target, feed)
		if err != nil || !current || next.Number >= feed.Last || next.Number == target.Number {
			return current && feed.Health.MachinesURL != "", err
		}
		target = next
	}
}

// storeFeed stores a page of an agent's feed and its health. current is false if another process has read the feed
// further; then nothing is stored.
func (a *Agents) storeFeed(ctx context.Context, target pollTarget, feed siteagent.Feed) (next pollTarget, current bool, err error) {
	next = pollTarget{target.Kind, target.ID, feed.History, target.Number, target.AskedAt, target.LastError}
	if feed.History != target.History {
		next.Number = 0
	}
	reports := []string{}
	for _, e := range feed.Entries {
		next.Number = e.Number
		if e.Machine == nil {
			reports = append([]string{e.At.UTC().Format(time.RFC3339) + " " + e.Text}, reports...)
		}
	}
	health := feed.Health
	err = a.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the health of agents is internal")
		var before *string
		err := tx.QueryRow(ctx, "SELECT CASE WHEN seen_at IS NOT NULL THEN machines_url || ' ' || machines_ipv6_url END FROM site_agent "+
			"WHERE kind = $1 AND id = $2 AND history = $3 AND number = $4 FOR UPDATE", target.Kind, target.ID, target.History, target.Number).
			Scan(&before)
		if current = err == nil; isNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock an agent: %w", err)
		}
		_, err = tx.Exec(
			ctx,
			`
			UPDATE site_agent SET error = NULL, seen_at = now(), version = @version,
				free_bytes = @free_bytes, total_bytes = @total_bytes, started_at = @started_at,
				history = @history, number = @number::bigint, reports = (@reports::text[] || reports)[1:@max_reports],
				machines_url = @machines_url, machines_ipv6_url = @machines_ipv6_url, dhcp = @dhcp, problems = @problems,
				heard_at = CASE WHEN @number::bigint >= @last::bigint THEN now() ELSE heard_at END
			WHERE kind = @kind AND id = @id`,
			pgx.StrictNamedArgs{
				"kind": target.Kind, "id": target.ID, "version": health.Version,
				"free_bytes": health.FreeBytes, "total_bytes": health.TotalBytes, "started_at": health.StartedAt,
				"history": next.History, "number": next.Number, "last": feed.Last,
				"reports": reports, "max_reports": maxReports,
				"machines_url": health.MachinesURL, "machines_ipv6_url": health.MachinesIPv6URL, "dhcp": health.DHCP,
				"problems": health.Problems,
			},
		)
		if err != nil {
			return fmt.Errorf("store the health of an agent: %w", err)
		}
		if before == nil || *before != health.MachinesURL+" "+health.MachinesIPv6URL {
			if err := touchInstalls(ctx, tx, target); err != nil {
				return err
			}
		}
		if target.Kind != DHCPServer {
			return nil
		}
		if err := a.ApplyReports(ctx, tx, target.ID, feed.Entries); err != nil || next.Number < feed.Last {
			return err
		}
		return a.FreeRevokedSlots(ctx, tx, target.ID, target.AskedAt)
	})
	return next, current, err
}

// touchInstalls raises the revision of the unfinished installs of an agent whose address changed. Their files contain
// the address, so they must be rendered and pushed again.
func touchInstalls(ctx context.Context, tx *pg.Tx, target pollTarget) error {
	column := map[Kind]string{DHCPServer: "dhcp_server_id", FileServer: "file_server_id"}[target.Kind]
	_, err := tx.Exec(ctx, `UPDATE install SET revision = nextval('install_revision')
		WHERE id IN (SELECT id FROM install WHERE `+column+` = $1 AND `+reference.InstallUnfinished+` ORDER BY id FOR UPDATE)`, target.ID)
	if err != nil {
		return fmt.Errorf("raise the revision of installs: %w", err)
	}
	return nil
}

// fetchFeed reads an agent's feed after the last entry that was read, or all of it if the agent has a new history.
func fetchFeed(ctx context.Context, agent *Agent, target pollTarget) (feed siteagent.Feed, err error) {
	ctx, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	if feed, err = agent.GetFeed(ctx, target.Number); err == nil && feed.History != target.History && target.Number > 0 {
		feed, err = agent.GetFeed(ctx, 0)
	}
	return sanitize(feed), err
}

// sanitize limits the texts of a feed about the agent itself, because agents are not trusted.
func sanitize(feed siteagent.Feed) siteagent.Feed {
	feed.History = siteagent.Sanitize(feed.History, maxTextLength)
	h := &feed.Health
	for _, text := range []*string{&h.Version, &h.MachinesURL, &h.MachinesIPv6URL} {
		*text = siteagent.Sanitize(*text, maxTextLength)
	}
	if h.DHCP != nil {
		h.DHCP.Mode = siteagent.DHCPMode(siteagent.Sanitize(string(h.DHCP.Mode), maxTextLength))
	}
	problems := make([]string, min(len(h.Problems), maxProblems))
	for i := range problems {
		problems[i] = siteagent.Sanitize(h.Problems[i], maxTextLength)
	}
	h.Problems = problems
	for i := range feed.Entries {
		feed.Entries[i].Text = siteagent.Sanitize(feed.Entries[i].Text, maxTextLength)
	}
	return feed
}

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

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
	// Pause is how often each agent is asked, and busyPause how often one is that has machines to install, or has to be told of some.
	Pause, busyPause = 10 * time.Second, time.Second
	// silentPause is how often one is asked that could not be for longer than silentTime.
	silentPause, silentTime = 30 * time.Second, 2 * time.Minute
	// lookRest is how often agents are looked for at most that are to be asked.
	lookRest = 500 * time.Millisecond
	// lookTime is how long an agent may take to answer, and pushTime to be told what its machines are to do.
	lookTime, pushTime = 5 * time.Second, time.Minute
	// atOnce is how many are asked at a time.
	atOnce      = 100
	mostReports = 10
)

// Health is how the agent of a server is.
func Health(ctx context.Context, q pg.Querier, kind Kind, id int64) (*AgentHealth, error) {
	h := AgentHealth{Status: "unknown", Reports: []string{}}
	err := q.QueryRow(ctx, "SELECT status, error, version, free_bytes, total_bytes, started_at, seen_at, reports "+
		"FROM site_agent JOIN site_agent_health USING (kind, id) WHERE kind = $1 AND id = $2", kind, id).
		Scan(&h.Status, &h.Error, &h.Version, &h.FreeBytes, &h.TotalBytes, &h.StartedAt, &h.SeenAt, &h.Reports)
	if err != nil && !gone(err) {
		return nil, fmt.Errorf("read how the agent of %s %d is: %w", kind, id, err)
	}
	return &h, nil
}

// Look asks agents again and again how they are, and what they have to say, until ctx ends.
func (a *Agents) Look(ctx context.Context) error {
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	var asking sync.WaitGroup
	defer asking.Wait()
	var busy sync.Map // of those that are being asked
	free := make(chan struct{}, atOnce)
	err := wake.Loop(ctx, a.Woken, lookRest, func(ctx context.Context) (time.Duration, error) {
		due, next, err := a.due(ctx, atOnce-len(free))
		if err != nil {
			return 0, err
		}
		for _, one := range due {
			key := looked{Kind: one.Kind, ID: one.ID}
			if _, still := busy.LoadOrStore(key, true); still {
				continue
			}
			free <- struct{}{}
			asking.Go(func() {
				defer func() { busy.Delete(key); <-free }()
				if err := a.look(ctx, one); err != nil {
					give(err)
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

// looked is an agent that is asked at a moment, behind the entry that it said last.
type looked struct {
	Kind    Kind
	ID      int64
	History string
	Number  int64
	At      time.Time
	Error   string // why it could not be asked before; empty: it could
}

// pauseOf is SQL for how long an agent is left alone behind asked_at.
const pauseOf = `CASE WHEN error IS NOT NULL AND coalesce(seen_at < now() - @silent_time::interval, true) THEN @silent::interval
	WHEN kind = 'pxe/dhcp' AND (
		EXISTS (SELECT FROM install WHERE dhcp_server_id = s.id AND ` + reference.InstallUnderWay + `) OR
		EXISTS (SELECT FROM install WHERE dhcp_server_id = s.id AND revision > s.pushed)) THEN @busy::interval
	ELSE @pause::interval END`

// due are some that are to be asked, and how long after that none is. Nobody else asks them until they are due again.
func (a *Agents) due(ctx context.Context, most int) (due []looked, next time.Duration, err error) {
	err = a.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("how agents are is no change")
		_, err := tx.Exec(ctx, `INSERT INTO site_agent (kind, id)
			SELECT kind, id FROM (SELECT $1::text AS kind, id FROM dhcp_server UNION ALL SELECT $2, id FROM file_server) s
			WHERE NOT EXISTS (SELECT FROM site_agent a WHERE a.kind = s.kind AND a.id = s.id) ON CONFLICT DO NOTHING`, DHCPServer, FileServer)
		if err != nil {
			return fmt.Errorf("note agents: %w", err)
		}
		args := pgx.NamedArgs{"most": most, "pause": Pause, "busy": busyPause, "silent": silentPause, "silent_time": silentTime}
		rows, err := tx.Query(ctx, `UPDATE site_agent a SET asked_at = now()
			FROM (SELECT kind, id FROM site_agent s WHERE asked_at <= now() - `+pauseOf+` ORDER BY asked_at LIMIT @most FOR UPDATE SKIP LOCKED) d
			WHERE a.kind = d.kind AND a.id = d.id RETURNING a.kind, a.id, a.history, a.number, a.asked_at, coalesce(a.error, '')`, args)
		if err != nil {
			return fmt.Errorf("find agents to ask: %w", err)
		}
		if due, err = pgx.CollectRows(rows, pgx.RowToStructByPos[looked]); err != nil {
			return fmt.Errorf("find agents to ask: %w", err)
		}
		var seconds *float64
		if err := tx.QueryRow(ctx, `SELECT extract(epoch FROM min(asked_at + `+pauseOf+`) - now())::float8 FROM site_agent s`, args).
			Scan(&seconds); err != nil {
			return fmt.Errorf("look when an agent is to be asked: %w", err)
		}
		next = wake.Interval
		if seconds != nil {
			next = max(min(next, time.Duration(*seconds*float64(time.Second))), lookRest)
		}
		return nil
	})
	return due, next, err
}

// look asks one, notes what it says, and tells it what its machines are to do. What it has to say is taken once, also where two ask it.
func (a *Agents) look(ctx context.Context, one looked) error {
	agent, err := a.Agent(ctx, one.Kind, one.ID)
	if gone(err) {
		return a.note(ctx, "DELETE FROM site_agent WHERE kind = $1 AND id = $2", one.Kind, one.ID)
	}
	if err == nil {
		defer agent.Close()
		err = a.speak(ctx, agent, one)
	} else {
		err = Away{err}
	}
	why, failed := errors.AsType[Away](err)
	switch {
	case ctx.Err() != nil:
		return nil
	case failed && Reason(why.Err) == one.Error:
		return nil // it is known
	case failed:
		return a.note(ctx, "UPDATE site_agent SET error = $3 WHERE kind = $1 AND id = $2", one.Kind, one.ID, Reason(why.Err))
	}
	return err
}

// speak takes what an agent has to say, and tells it what its machines are to do.
func (a *Agents) speak(ctx context.Context, agent *Agent, one looked) error {
	serves, err := a.listen(ctx, agent, one)
	if err != nil || !serves || one.Kind != DHCPServer {
		return err
	}
	var last int64
	var due bool
	err = a.DB.QueryRow(ctx, `SELECT last, last > pushed OR pushed_at <= now() - $3::interval FROM site_agent s,
			LATERAL (SELECT coalesce(max(revision), 0) AS last FROM install WHERE dhcp_server_id = s.id) i WHERE kind = $1 AND id = $2`, one.Kind, one.ID, Pause).Scan(&last, &due)
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read whether an agent has to be told something: %w", err)
	}
	if !due {
		return nil
	}
	pushing, cancel := context.WithTimeout(ctx, pushTime)
	defer cancel()
	if err := a.Push(pushing, agent.Client, one.ID); err != nil {
		return err
	}
	return a.note(
		ctx,
		"UPDATE site_agent SET pushed = greatest(pushed, $3), pushed_at = now() WHERE kind = $1 AND id = $2",
		one.Kind,
		one.ID,
		last,
	)
}

// Away is why an agent cannot be asked, or told something.
type Away struct{ Err error }

func (a Away) Error() string { return a.Err.Error() }

// Unwrap is what it could not be asked for.
func (a Away) Unwrap() error { return a.Err }

// listen takes all that an agent has to say, and tells whether it serves machines.
func (a *Agents) listen(ctx context.Context, agent *Agent, one looked) (serves bool, err error) {
	for {
		found, err := ask(ctx, agent, one)
		if err != nil {
			return false, Away{err}
		}
		next, mine, err := a.hear(ctx, one, found)
		if err != nil || !mine || next.Number >= found.Last || next.Number == one.Number {
			return mine && found.Health.MachinesURL != "", err
		}
		one = next
	}
}

// hear notes what an agent said, unless somebody else has done so meanwhile.
func (a *Agents) hear(ctx context.Context, one looked, found siteagent.Feed) (next looked, mine bool, err error) {
	next = looked{one.Kind, one.ID, found.History, one.Number, one.At, one.Error}
	if found.History != one.History {
		next.Number = 0
	}
	reports := []string{}
	for _, e := range found.Entries {
		next.Number = e.Number
		if e.Machine == nil {
			reports = append([]string{e.At.UTC().Format(time.RFC3339) + " " + e.Text}, reports...)
		}
	}
	is := found.Health
	err = a.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("how agents are is no change")
		var before *string
		err := tx.QueryRow(ctx, "SELECT CASE WHEN seen_at IS NOT NULL THEN machines_url || ' ' || machines_ipv6_url END FROM site_agent "+
			"WHERE kind = $1 AND id = $2 AND history = $3 AND number = $4 FOR UPDATE", one.Kind, one.ID, one.History, one.Number).
			Scan(&before)
		if mine = err == nil; gone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("hold an agent: %w", err)
		}
		_, err = tx.Exec(
			ctx,
			`
			UPDATE site_agent SET error = NULL, seen_at = now(), version = @version,
				free_bytes = @free_bytes, total_bytes = @total_bytes, started_at = @started_at,
				history = @history, number = @number::bigint, reports = (@reports::text[] || reports)[1:@max_reports],
				machines_url = @machines_url, machines_ipv6_url = @machines_ipv6_url,
				heard_at = CASE WHEN @number::bigint >= @last::bigint THEN now() ELSE heard_at END
			WHERE kind = @kind AND id = @id`,
			pgx.StrictNamedArgs{
				"kind": one.Kind, "id": one.ID, "version": is.Version,
				"free_bytes": is.FreeBytes, "total_bytes": is.TotalBytes, "started_at": is.StartedAt,
				"history": next.History, "number": next.Number, "last": found.Last,
				"reports": reports, "max_reports": mostReports,
				"machines_url": is.MachinesURL, "machines_ipv6_url": is.MachinesIPv6URL,
			},
		)
		if err != nil {
			return fmt.Errorf("note how an agent is: %w", err)
		}
		if before == nil || *before != is.MachinesURL+" "+is.MachinesIPv6URL {
			if err := moved(ctx, tx, one); err != nil {
				return err
			}
		}
		if one.Kind != DHCPServer {
			return nil
		}
		if err := a.Hear(ctx, tx, one.ID, found.Entries); err != nil || next.Number < found.Last {
			return err
		}
		return a.Heard(ctx, tx, one.ID, one.At)
	})
	return next, mine, err
}

// moved has agents be told anew of machines that are being installed, of which the files have an agent's address.
func moved(ctx context.Context, tx *pg.Tx, one looked) error {
	column := map[Kind]string{DHCPServer: "dhcp_server_id", FileServer: "file_server_id"}[one.Kind]
	_, err := tx.Exec(ctx, `UPDATE install SET revision = nextval('install_revision')
		WHERE id IN (SELECT id FROM install WHERE `+column+` = $1 AND `+reference.InstallUnderWay+` ORDER BY id FOR UPDATE)`, one.ID)
	if err != nil {
		return fmt.Errorf("note where an agent is: %w", err)
	}
	return nil
}

// ask asks for what there is behind the last entry: all of it, where the agent begins anew.
func ask(ctx context.Context, of *Agent, one looked) (found siteagent.Feed, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if found, err = of.GetFeed(ctx, one.Number); err == nil && found.History != one.History && one.Number > 0 {
		found, err = of.GetFeed(ctx, 0)
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

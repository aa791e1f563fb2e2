// Package filesync makes file servers hold what their parents hold, and those without one what the store has. Each is a durable job:
// once it is done, those below it have their turn. See docs/do/site-agent.md.
package filesync

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/pxe/site"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/storage"
)

const kind = "file-sync"

const (
	workers  = 32
	attempts = 30 // which takes about two hours
	// syncTime is how long an attempt may take. It is given up before, where nothing arrives.
	syncTime = siteagent.MaxGrantTTL
	// slotPause is how long one waits that has to wait for others of its parent.
	slotPause               = time.Second
	firstPause, longestWait = time.Second, 5 * time.Minute
	// lookPause is how often an agent is asked how far it is: at first, and in the end.
	lookPause, longestLookPause = 100 * time.Millisecond, 2 * time.Second
	// awayTime is how long an agent may not answer that is asked how far it is.
	awayTime = 20 * time.Second
	dbTime   = 10 * time.Second
)

// Syncs are those of an installation.
type Syncs struct {
	DB     *pg.DB
	Agents *site.Agents
	Store  *storage.Store
	Most   func() int // children of a parent at a time
}

type task struct {
	Server int64 `json:"server"`
}

// Job fills one file server. There is at most one of them for each.
func (s *Syncs) Job() service.Job {
	return service.Job{Kind: kind, Timeout: syncTime, Attempts: attempts, Workers: workers, Unique: true, Do: jobs.Do(s.do),
		Backoff: func(attempt int) time.Duration { return min(firstPause<<min(attempt-1, 20), longestWait) }}
}

// busy tells whether somebody is at it, or will be, to fill the server of a row of file_sync.
const busy = "EXISTS (SELECT FROM river_job j WHERE j.queue = '" + kind + "' AND j.finalized_at IS NULL " +
	"AND j.args = jsonb_build_object('server', s.server_id))"

// wish is what becomes of a row of file_sync by a wish.
const wish = ` ON CONFLICT (server_id) DO UPDATE SET asked_at = now(), again = s.status = 'running',
			status = CASE WHEN s.status IN ('running', 'retrying') AND ` + busy + ` THEN s.status ELSE 'waiting' END `

// below are a file server and those below it, of which is_top tells those that are filled first.
const below = `WITH RECURSIVE tree AS (
		SELECT id, parent_id, 0 AS depth FROM file_server WHERE id = $1
		UNION ALL SELECT f.id, f.parent_id, t.depth + 1 FROM file_server f JOIN tree t ON f.parent_id = t.id),
	filled AS (SELECT t.id, (SELECT parent_id IS NULL FROM tree WHERE depth = 0) = (depth = 0) AND depth < 2 AS is_top, depth
		FROM tree t WHERE depth > 0 OR parent_id IS NULL) `

// Ask has those below a file server hold what it holds, and where it has no parent that one what the store has. One that is being
// filled is looked at once more after that. It answers how many are filled.
func (s *Syncs) Ask(ctx context.Context, tx *pg.Tx, id int64) (filled int, err error) {
	rows, err := tx.Query(
		ctx,
		below+"INSERT INTO file_sync AS s (server_id, status, asked_at) SELECT id, 'waiting', now() FROM filled ORDER BY id"+wish+
			"RETURNING server_id, (SELECT is_top FROM filled WHERE filled.id = server_id)",
		id,
	)
	if err != nil {
		return 0, fmt.Errorf("note what is to be filled: %w", err)
	}
	type wished struct {
		ID  int64
		Top bool
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[wished])
	if err != nil {
		return 0, fmt.Errorf("note what is to be filled: %w", err)
	}
	for _, one := range all {
		if one.Top {
			if err := s.enqueue(ctx, tx, one.ID); err != nil {
				return 0, err
			}
		}
	}
	return len(all), nil
}

// enqueue has one filled, now, also where it waits to be tried again.
func (s *Syncs) enqueue(ctx context.Context, tx *pg.Tx, id int64) error {
	job := s.Job()
	if err := jobs.Enqueue(ctx, tx, &job, task{id}); err != nil {
		return err
	}
	_, err := tx.Exec(
		ctx,
		"UPDATE river_job SET state = 'available', scheduled_at = now() "+
			"WHERE queue = $1 AND state IN ('retryable', 'scheduled') AND args = jsonb_build_object('server', $2::bigint)",
		kind,
		id,
	)
	if err != nil {
		return fmt.Errorf("have file server %d filled now: %w", id, err)
	}
	return nil
}

// do fills one, once there is room for it, and lets those below it have their turn.
func (s *Syncs) do(ctx context.Context, attempt *service.Attempt, t task) error {
	parent, begun, err := s.begin(ctx, attempt, t.Server)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if !begun {
		return jobs.Later(slotPause)
	}
	if parent == nil {
		err = s.fill(ctx, t.Server)
	} else {
		err = s.pull(ctx, t.Server, *parent)
	}
	return s.end(ctx, attempt, t.Server, err)
}

// begin takes the place of a child of its parent, if one is free. One that was killed still has its own.
func (s *Syncs) begin(ctx context.Context, attempt *service.Attempt, id int64) (parent *int64, begun bool, err error) {
	err = s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what is filled was recorded when it was asked for")
		if err := tx.QueryRow(ctx, "SELECT parent_id FROM file_server WHERE id = $1", id).Scan(&parent); err != nil {
			return fmt.Errorf("read file server %d: %w", id, err)
		}
		if parent != nil {
			if err := tx.Lock(ctx, "children of a file server", *parent); err != nil {
				return err
			}
			var running int
			err := tx.QueryRow(
				ctx, "SELECT count(*) FROM file_sync s WHERE from_id = $1 AND status = 'running' AND server_id <> $2 AND "+busy, *parent, id,
			).
				Scan(&running)
			if err != nil {
				return fmt.Errorf("count the children that are being filled: %w", err)
			}
			if running >= s.Most() {
				return nil
			}
		}
		begun = true
		_, err := tx.Exec(
			ctx,
			`INSERT INTO file_sync AS s (server_id, status, from_id, attempt, asked_at, started_at) VALUES ($1, 'running', $2, $3, now(), now())
			ON CONFLICT (server_id) DO UPDATE SET status = 'running', from_id = $2, attempt = $3, again = false, finished_at = NULL,
				started_at = CASE WHEN s.status IN ('running', 'retrying') THEN coalesce(s.started_at, now()) ELSE now() END`,
			id,
			parent,
			attempt.Number,
		)
		if err != nil {
			return fmt.Errorf("note that file server %d is being filled: %w", id, err)
		}
		return nil
	})
	return parent, begun, err
}

// end notes what came of it. Where the process ends, another one goes on.
func (s *Syncs) end(ctx context.Context, attempt *service.Attempt, id int64, failed error) error {
	ended := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dbTime)
	defer cancel()
	again := false
	err := s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what is filled was recorded when it was asked for")
		switch {
		case ended:
			var told bool
			if err := tx.QueryRow(ctx, "SELECT metadata ? 'cancel_attempted_at' FROM river_job WHERE id = $1", attempt.Job).
				Scan(&told); err != nil ||
				!told {
				return err
			}
			return errors.Join(s.giveUp(ctx, tx, id, cancelled), jobs.Finish(ctx, tx, attempt, errors.New(cancelled)))
		case failed != nil && attempt.Last:
			return errors.Join(s.giveUp(ctx, tx, id, failed.Error()), jobs.Finish(ctx, tx, attempt, failed))
		case failed != nil:
			_, err := tx.Exec(ctx, "UPDATE file_sync SET status = 'retrying', error = $2 WHERE server_id = $1", id, failed.Error())
			return err
		}
		err := tx.QueryRow(ctx, `UPDATE file_sync SET status = CASE WHEN again THEN 'waiting' ELSE 'done' END, error = NULL, finished_at = now() WHERE server_id = $1 RETURNING again`, id).
			Scan(&again)
		if errors.Is(err, pgx.ErrNoRows) { // it was deleted
			return nil
		}
		if err != nil || again {
			return err
		}
		return errors.Join(jobs.Finish(ctx, tx, attempt, nil), s.askChildren(ctx, tx, id))
	})
	switch {
	case err != nil:
		return errors.Join(failed, fmt.Errorf("note what came of filling file server %d: %w", id, err))
	case again:
		return jobs.Later(0)
	}
	return failed
}

// askChildren has the children of one filled that holds what it is to hold.
func (s *Syncs) askChildren(ctx context.Context, tx *pg.Tx, id int64) error {
	rows, err := tx.Query(
		ctx,
		"INSERT INTO file_sync AS s (server_id, status, asked_at) SELECT id, 'waiting', now() FROM file_server WHERE parent_id = $1 ORDER BY id"+
			wish+"RETURNING server_id",
		id,
	)
	if err != nil {
		return err
	}
	children, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	for _, child := range children {
		if err := s.enqueue(ctx, tx, child); err != nil {
			return err
		}
	}
	return nil
}

// giveUp notes why one is not filled, and that those below it that waited for it are not, either.
func (s *Syncs) giveUp(ctx context.Context, tx *pg.Tx, id int64, why string) error {
	_, err := tx.Exec(ctx, `WITH RECURSIVE tree AS (
			SELECT id, name, 0 AS depth FROM file_server WHERE id = $1
			UNION ALL SELECT f.id, f.name, t.depth + 1 FROM file_server f JOIN tree t ON f.parent_id = t.id)
		UPDATE file_sync s SET status = 'failed', finished_at = now(),
			error = CASE WHEN t.depth = 0 THEN $2 ELSE 'it waited for file server ' || $1 || ' (' || (SELECT name FROM tree WHERE depth = 0) || '), which failed' END
		FROM tree t WHERE s.server_id = t.id AND (t.depth = 0 OR s.status = 'waiting')`, id, why)
	return err
}

// pull has a child get what its parent has, by a token for this attempt.
func (s *Syncs) pull(ctx context.Context, id, parentID int64) error {
	child, err := s.Agents.Agent(ctx, site.FileServer, id)
	if err != nil {
		return err
	}
	defer child.Close()
	parent, err := s.Agents.Agent(ctx, site.FileServer, parentID)
	if err != nil {
		return err
	}
	defer parent.Close()
	token := rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(token))
	if err := parent.Grant(ctx, siteagent.Grant{SHA256: hex.EncodeToString(sum[:]), Seconds: int64(syncTime / time.Second)}); err != nil {
		return fmt.Errorf("ask the agent of its parent (%s): %w", parent.Name, reason(err))
	}
	order := siteagent.PullOrder{
		ID:     rand.Text(),
		Parent: siteagent.Target{URL: parent.URL, Fingerprint: parent.Fingerprint, Token: token, SFTP: parent.SFTP},
	}
	if err := child.OrderPull(ctx, order); err != nil {
		return fmt.Errorf("ask its agent: %w", reason(err))
	}
	return s.follow(ctx, id, child, order.ID)
}

// reason is an error as operators are told.
func reason(err error) error { return errors.New(site.Reason(err)) }

// follow waits until an order is done, and shows how far it is.
func (s *Syncs) follow(ctx context.Context, id int64, child *site.Agent, order string) error {
	var shown siteagent.Progress
	answered := time.Now()
	for pause := lookPause; ; pause = min(2*pause, longestLookPause) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		is, err := child.GetPull(ctx, order)
		switch {
		case siteagent.IsRefusal(err, http.StatusNotFound):
			return errors.New("its agent was started anew in the middle")
		case err != nil && ctx.Err() == nil && time.Since(answered) < awayTime:
			continue
		case err != nil:
			return fmt.Errorf("ask its agent how far it is: %w", reason(err))
		}
		answered = time.Now()
		if is.Progress != shown {
			shown = is.Progress
			if err := s.show(ctx, id, shown); err != nil {
				return err
			}
		}
		switch is.State {
		case siteagent.PullDone:
			return nil
		case siteagent.PullFailed:
			return errors.New(is.Error)
		}
	}
}

func (s *Syncs) show(ctx context.Context, id int64, p siteagent.Progress) error {
	return s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("how far it is is no change")
		_, err := tx.Exec(
			ctx,
			"UPDATE file_sync SET files = $2, files_total = $3, bytes = $4, bytes_total = $5 WHERE server_id = $1",
			id,
			p.Files,
			p.FilesTotal,
			p.Bytes,
			p.BytesTotal,
		)
		if err != nil {
			return fmt.Errorf("note how far file server %d is: %w", id, err)
		}
		return nil
	})
}

// Package filesync copies files to file servers. A file server with a parent gets the files of its parent; one without
// gets those of the store. Each sync of one file server is a durable job. Once it is done, the syncs of its children
// follow. See docs/do/site-agent.md.
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

// kind is the kind of the job, and its queue.
const kind = "file-sync"

const (
	workers  = 32
	attempts = 30 // in about two hours
	// syncTimeout bounds an attempt. An attempt that receives nothing fails earlier.
	syncTimeout = siteagent.MaxGrantTTL
	// slotRetryInterval is how often a sync that waits for a slot of its parent tries again.
	slotRetryInterval      = time.Second
	minBackoff, maxBackoff = time.Second, 5 * time.Minute
	// minPollInterval and maxPollInterval are how often an agent is asked for its progress, at first and in the end.
	minPollInterval, maxPollInterval = 100 * time.Millisecond, 2 * time.Second
	// agentTimeout is how long an agent may be unreachable while it is asked for its progress.
	agentTimeout = 20 * time.Second
	dbTimeout    = 10 * time.Second
)

// Syncs serves the syncs of file servers.
type Syncs struct {
	DB          *pg.DB
	Agents      *site.Agents
	Store       *storage.Store
	MaxChildren func() int // how many children of one parent are filled at a time
}

// syncArgs are the arguments of a sync job.
type syncArgs struct {
	Server int64 `json:"server"`
}

// Job returns the job that fills one file server. There is at most one unfinished job per file server.
func (s *Syncs) Job() service.Job {
	return service.Job{Kind: kind, Timeout: syncTimeout, Attempts: attempts, Workers: workers, Unique: true, Do: jobs.Do(s.run),
		Backoff: func(attempt int) time.Duration { return min(minBackoff<<min(attempt-1, 20), maxBackoff) }}
}

// hasJobSQL is the SQL condition that the server of a row s of file_sync has an unfinished job.
const hasJobSQL = "EXISTS (SELECT FROM river_job j WHERE j.queue = '" + kind + "' AND j.finalized_at IS NULL " +
	"AND j.args = jsonb_build_object('server', s.server_id))"

// requestSQL updates a row of file_sync for a new request. A sync that is running is repeated once it is done.
const requestSQL = ` ON CONFLICT (server_id) DO UPDATE SET asked_at = now(), again = s.status = 'running',
			status = CASE WHEN s.status IN ('running', 'retrying') AND ` + hasJobSQL + ` THEN s.status ELSE 'waiting' END `

// filledSQL selects the file servers that a sync of file server $1 fills: its descendants, and itself if it has no
// parent. is_top marks those that are filled first.
const filledSQL = `WITH RECURSIVE tree AS (
		SELECT id, parent_id, 0 AS depth FROM file_server WHERE id = $1
		UNION ALL SELECT f.id, f.parent_id, t.depth + 1 FROM file_server f JOIN tree t ON f.parent_id = t.id),
	filled AS (SELECT t.id, (SELECT parent_id IS NULL FROM tree WHERE depth = 0) = (depth = 0) AND depth < 2 AS is_top, depth
		FROM tree t WHERE depth > 0 OR parent_id IS NULL) `

// Request starts to fill the descendants of a file server, and the server itself if it has no parent. A sync that is
// running is repeated once it is done. Request returns how many file servers are filled.
func (s *Syncs) Request(ctx context.Context, tx *pg.Tx, id int64) (filled int, err error) {
	rows, err := tx.Query(
		ctx,
		filledSQL+"INSERT INTO file_sync AS s (server_id, status, asked_at) SELECT id, 'waiting', now() FROM filled ORDER BY id"+requestSQL+
			"RETURNING server_id, (SELECT is_top FROM filled WHERE filled.id = server_id)",
		id,
	)
	if err != nil {
		return 0, fmt.Errorf("request syncs: %w", err)
	}
	type requested struct {
		ID  int64
		Top bool
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[requested])
	if err != nil {
		return 0, fmt.Errorf("request syncs: %w", err)
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

// enqueue starts the job of one file server now, even if it waits for its next attempt.
func (s *Syncs) enqueue(ctx context.Context, tx *pg.Tx, id int64) error {
	job := s.Job()
	if err := jobs.Enqueue(ctx, tx, &job, syncArgs{id}); err != nil {
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
		return fmt.Errorf("start the job of file server %d: %w", id, err)
	}
	return nil
}

// run fills one file server once its parent has a free slot, and then starts the syncs of its children.
func (s *Syncs) run(ctx context.Context, attempt *service.Attempt, t syncArgs) error {
	parent, claimed, err := s.claimSlot(ctx, attempt, t.Server)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if !claimed {
		return jobs.Snooze(slotRetryInterval)
	}
	if parent == nil {
		err = s.fillFromStore(ctx, t.Server)
	} else {
		err = s.pullFromParent(ctx, t.Server, *parent)
	}
	return s.finish(ctx, attempt, t.Server, err)
}

// claimSlot marks a sync as running, unless the parent already fills as many children as allowed. A sync whose process
// was killed still has its slot.
func (s *Syncs) claimSlot(ctx context.Context, attempt *service.Attempt, id int64) (parent *int64, claimed bool, err error) {
	err = s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the request was recorded")
		if err := tx.QueryRow(ctx, "SELECT parent_id FROM file_server WHERE id = $1", id).Scan(&parent); err != nil {
			return fmt.Errorf("read file server %d: %w", id, err)
		}
		if parent != nil {
			if err := tx.Lock(ctx, "children of a file server", *parent); err != nil {
				return err
			}
			var running int
			err := tx.QueryRow(
				ctx, "SELECT count(*) FROM file_sync s WHERE from_id = $1 AND status = 'running' AND server_id <> $2 AND "+hasJobSQL, *parent, id,
			).
				Scan(&running)
			if err != nil {
				return fmt.Errorf("count running syncs: %w", err)
			}
			if running >= s.MaxChildren() {
				return nil
			}
		}
		claimed = true
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
			return fmt.Errorf("start the sync of file server %d: %w", id, err)
		}
		return nil
	})
	return parent, claimed, err
}

// finish stores the result of an attempt. If the process is being stopped it stores nothing, so that another process
// continues.
func (s *Syncs) finish(ctx context.Context, attempt *service.Attempt, id int64, failed error) error {
	interrupted := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dbTimeout)
	defer cancel()
	isRepeated := false
	err := s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the request was recorded")
		switch {
		case interrupted:
			var cancelRequested bool
			if err := tx.QueryRow(ctx, "SELECT metadata ? 'cancel_attempted_at' FROM river_job WHERE id = $1", attempt.Job).
				Scan(&cancelRequested); err != nil ||
				!cancelRequested {
				return err
			}
			return errors.Join(s.giveUp(ctx, tx, id, cancelledReason), jobs.Finish(ctx, tx, attempt, errors.New(cancelledReason)))
		case failed != nil && attempt.Last:
			return errors.Join(s.giveUp(ctx, tx, id, failed.Error()), jobs.Finish(ctx, tx, attempt, failed))
		case failed != nil:
			_, err := tx.Exec(ctx, "UPDATE file_sync SET status = 'retrying', error = $2 WHERE server_id = $1", id, failed.Error())
			return err
		}
		err := tx.QueryRow(ctx, `UPDATE file_sync SET status = CASE WHEN again THEN 'waiting' ELSE 'done' END, error = NULL, finished_at = now() WHERE server_id = $1 RETURNING again`, id).
			Scan(&isRepeated)
		if errors.Is(err, pgx.ErrNoRows) { // the file server was deleted
			return nil
		}
		if err != nil || isRepeated {
			return err
		}
		return errors.Join(jobs.Finish(ctx, tx, attempt, nil), s.requestChildren(ctx, tx, id))
	})
	switch {
	case err != nil:
		return errors.Join(failed, fmt.Errorf("store the result of the sync of file server %d: %w", id, err))
	case isRepeated:
		return jobs.Snooze(0)
	}
	return failed
}

// requestChildren starts the syncs of the children of a file server that is now complete.
func (s *Syncs) requestChildren(ctx context.Context, tx *pg.Tx, id int64) error {
	rows, err := tx.Query(
		ctx,
		"INSERT INTO file_sync AS s (server_id, status, asked_at) SELECT id, 'waiting', now() FROM file_server WHERE parent_id = $1 ORDER BY id"+
			requestSQL+"RETURNING server_id",
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

// giveUp marks a sync as failed, and those of its descendants that waited for it.
func (s *Syncs) giveUp(ctx context.Context, tx *pg.Tx, id int64, reason string) error {
	_, err := tx.Exec(ctx, `WITH RECURSIVE tree AS (
			SELECT id, name, 0 AS depth FROM file_server WHERE id = $1
			UNION ALL SELECT f.id, f.name, t.depth + 1 FROM file_server f JOIN tree t ON f.parent_id = t.id)
		UPDATE file_sync s SET status = 'failed', finished_at = now(),
			error = CASE WHEN t.depth = 0 THEN $2 ELSE 'file server ' || $1 || ' (' || (SELECT name FROM tree WHERE depth = 0) || ') failed, and this one gets its files from it' END
		FROM tree t WHERE s.server_id = t.id AND (t.depth = 0 OR s.status = 'waiting')`, id, reason)
	return err
}

// pullFromParent makes a child fetch the files of its parent. A token that is valid for this attempt lets the child read
// from the parent.
func (s *Syncs) pullFromParent(ctx context.Context, id, parentID int64) error {
	child, err := s.Agents.Open(ctx, site.FileServer, id)
	if err != nil {
		return err
	}
	defer child.Close()
	parent, err := s.Agents.Open(ctx, site.FileServer, parentID)
	if err != nil {
		return err
	}
	defer parent.Close()
	token := rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(token))
	if err := parent.Grant(ctx, siteagent.Grant{SHA256: hex.EncodeToString(sum[:]), Seconds: int64(syncTimeout / time.Second)}); err != nil {
		return fmt.Errorf("authorize the transfer at the parent (%s): %w", parent.Name, describeError(err))
	}
	order := siteagent.PullOrder{
		ID:     rand.Text(),
		Parent: siteagent.Target{URL: parent.URL, Fingerprint: parent.Fingerprint, Token: token, SFTP: parent.SFTP},
	}
	if err := child.OrderPull(ctx, order); err != nil {
		return fmt.Errorf("start the transfer at the agent: %w", describeError(err))
	}
	return s.waitForPull(ctx, id, child, order.ID)
}

// describeError returns an error with the text for operators.
func describeError(err error) error { return errors.New(site.DescribeError(err)) }

// waitForPull waits until a child has fetched all files, and stores its progress.
func (s *Syncs) waitForPull(ctx context.Context, id int64, child *site.Agent, order string) error {
	var shown siteagent.Progress
	answered := time.Now()
	for interval := minPollInterval; ; interval = min(2*interval, maxPollInterval) {
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return ctx.Err()
		}
		is, err := child.GetPull(ctx, order)
		switch {
		case siteagent.IsRefusal(err, http.StatusNotFound):
			return errors.New("the agent restarted during the transfer")
		case err != nil && ctx.Err() == nil && time.Since(answered) < agentTimeout:
			continue
		case err != nil:
			return fmt.Errorf("read the agent's progress: %w", describeError(err))
		}
		answered = time.Now()
		if is.Progress != shown {
			shown = is.Progress
			if err := s.storeProgress(ctx, id, shown); err != nil {
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

// storeProgress stores how much of a file server is filled.
func (s *Syncs) storeProgress(ctx context.Context, id int64, p siteagent.Progress) error {
	return s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("progress is internal")
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
			return fmt.Errorf("store the progress of file server %d: %w", id, err)
		}
		return nil
	})
}

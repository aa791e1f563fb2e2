package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

// Job is a job as the API shows it.
type Job struct {
	ID          string          `json:"id" example:"system:17" doc:"The service and the job's number in it."`
	Service     string          `json:"service" example:"system" doc:"The service that runs the job."`
	Kind        string          `json:"kind" example:"webhook-delivery" doc:"What the job does."`
	State       string          `json:"state" enum:"waiting,running,retrying,done,failed,cancelled" doc:"retrying: an attempt failed, and another one follows. failed: the job was given up."`
	Cancelling  bool            `json:"cancelling" doc:"Whether the running job was told to stop."`
	Attempt     int             `json:"attempt" doc:"The number of attempts so far."`
	MaxAttempts int             `json:"max_attempts" doc:"The job is given up after this many failed attempts."`
	Error       string          `json:"error,omitempty" doc:"The error of the last failed attempt."`
	User        *User           `json:"user,omitempty" doc:"The account on whose behalf the job runs; absent for jobs of the installation itself."`
	CreatedAt   rest.Timestamp  `json:"created_at"`
	ScheduledAt rest.Timestamp  `json:"scheduled_at" doc:"The earliest time of the next attempt."`
	AttemptedAt *rest.Timestamp `json:"attempted_at,omitempty" doc:"When the last attempt began."`
	FinishedAt  *rest.Timestamp `json:"finished_at,omitempty" doc:"When the job was done, given up or cancelled."`
}

// User is the account on whose behalf a job runs.
type User struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
	URL  string `json:"url"`
}

// ViewedJob is a job with its arguments and progress.
type ViewedJob struct {
	Job
	Args     json.RawMessage `json:"args" doc:"The job's arguments."`
	Progress json.RawMessage `json:"progress,omitempty" doc:"The progress that the job last reported."`
}

// ListedJob is a job and its position in a list.
type ListedJob struct {
	Job
	Position Position `json:"place"`
}

// Position orders the jobs of all services by time of creation.
type Position struct {
	CreatedAt int64  `json:"made"` // in microseconds since 1970
	Service   string `json:"service"`
	ID        int64  `json:"id"`
}

// Compare orders older jobs first.
func (p Position) Compare(other Position) int {
	return cmp.Or(cmp.Compare(p.CreatedAt, other.CreatedAt), cmp.Compare(p.Service, other.Service), cmp.Compare(p.ID, other.ID))
}

// ListQuery selects jobs, the newest first.
type ListQuery struct {
	Kind          string `query:"kind"`
	State         string `query:"state"`
	CreatedBefore int64  `query:"made"`  // jobs created before this time, in microseconds since 1970,
	BelowID       int64  `query:"below"` // or at this time, with a smaller id
	Limit         int64  `query:"most"`
}

// After returns the query for the jobs of a service behind a position.
func (a ListQuery) After(at Position, service string) ListQuery {
	switch {
	case service < at.Service:
		a.BelowID = math.MaxInt64
	case service == at.Service:
		a.BelowID = at.ID
	}
	return a
}

// Reply is a service's response about one job.
type Reply struct {
	Job      *ViewedJob `json:"job,omitempty"` // nil: the job does not exist
	Position Position   `json:"place"`
	Refusal  string     `json:"refused,omitempty"` // why the change is not possible
}

// changeRequest names a job to change, and the caller on whose behalf.
type changeRequest struct {
	ID     int64  `path:"*"`
	Caller string `query:"caller" max:"4000"`
}

const jobPath = "/internal/job"

// List asks a service for jobs.
func List(ctx context.Context, peers mesh.Peers, service string, asked ListQuery) (found []ListedJob, err error) {
	query := url.Values{
		"kind":  {asked.Kind},
		"state": {asked.State},
		"made":  {strconv.FormatInt(asked.CreatedBefore, 10)},
		"below": {strconv.FormatInt(asked.BelowID, 10)},
		"most":  {strconv.FormatInt(asked.Limit, 10)},
	}
	return found, peers.Ask(ctx, service, jobPath+"?"+query.Encode(), &found)
}

// Get asks a service for a job.
func Get(ctx context.Context, peers mesh.Peers, service string, id int64) (r Reply, err error) {
	return r, peers.Ask(ctx, service, fmt.Sprintf("%s/%d", jobPath, id), &r)
}

// Retry makes a service run a job again that failed, was cancelled or waits for its next attempt.
func Retry(ctx context.Context, peers mesh.Peers, service string, id int64) (Reply, error) {
	return requestChange(ctx, peers, service, id, "retry")
}

// Cancel makes a service give a job up.
func Cancel(ctx context.Context, peers mesh.Peers, service string, id int64) (Reply, error) {
	return requestChange(ctx, peers, service, id, "cancel")
}

// requestChange asks a job's service to retry or cancel it, with the caller for the record.
func requestChange(ctx context.Context, peers mesh.Peers, service string, id int64, action string) (r Reply, err error) {
	caller, err := json.Marshal(callerOf(ctx))
	if err != nil {
		return r, fmt.Errorf("%s job %d: %w", action, id, err)
	}
	return r, peers.Ask(ctx, service, fmt.Sprintf("%s/%d/%s?%s", jobPath, id, action, url.Values{"caller": {string(caller)}}.Encode()), &r)
}

// Routes serve the service that shows all services' jobs. Repeating a change does no harm.
func Routes(service string, db *pg.DB, reader string) []rest.Route {
	at, only := queue{service, db}, guard.Peers(reader)
	return []rest.Route{
		rest.Read[ListQuery, []ListedJob]{Path: jobPath, Guard: only, Do: at.list},
		rest.Read[rest.Item, Reply]{Path: jobPath + "/{id}", Guard: only, Do: func(ctx context.Context, req rest.Item) (Reply, error) {
			return at.get(ctx, db, req.ID, "")
		}},
		rest.Read[changeRequest, Reply]{Path: jobPath + "/{id}/retry", Guard: only, Do: at.changeJob("retried", retry)},
		rest.Read[changeRequest, Reply]{Path: jobPath + "/{id}/cancel", Guard: only, Do: at.changeJob("cancelled", cancel)},
	}
}

// queue has the jobs of a service.
type queue struct {
	service string
	db      *pg.DB
}

const (
	// stateOf is SQL for the state, by the state in River.
	stateOf = "(CASE state WHEN 'running' THEN 'running' WHEN 'retryable' THEN 'retrying' WHEN 'completed' THEN 'done' WHEN 'discarded' " +
		"THEN 'failed' WHEN 'cancelled' THEN 'cancelled' ELSE 'waiting' END)"
	columns = "id, kind, " + stateOf + ", state = 'running' AND metadata ? 'cancel_attempted_at', attempt, max_attempts, " +
		"coalesce(errors[cardinality(errors)] ->> 'error', ''), metadata, created_at, scheduled_at, attempted_at, finalized_at, args"
)

func (q queue) scan(row pgx.Row) (j ViewedJob, at Position, err error) {
	at.Service = q.service
	var kept []byte
	if err := row.Scan(
		&at.ID,
		&j.Kind,
		&j.State,
		&j.Cancelling,
		&j.Attempt,
		&j.MaxAttempts,
		&j.Error,
		&kept,
		&j.CreatedAt,
		&j.ScheduledAt,
		&j.AttemptedAt,
		&j.FinishedAt,
		&j.Args,
	); err != nil {
		return j, at, err
	}
	var m metadata
	if err := json.Unmarshal(kept, &m); err != nil {
		return j, at, fmt.Errorf("read the caller of job %d: %w", at.ID, err)
	}
	at.CreatedAt = j.CreatedAt.UnixMicro()
	j.ID, j.Service, j.Progress = fmt.Sprintf("%s:%d", q.service, at.ID), q.service, m.Progress
	if p := m.Caller.Principal; p != nil {
		j.User = &User{p.Owner.ID, p.Name, p.Owner.URL()}
	}
	return j, at, nil
}

func (q queue) list(ctx context.Context, asked ListQuery) ([]ListedJob, error) {
	rows, err := q.db.Query(
		ctx,
		"SELECT "+columns+" FROM river_job WHERE ($1 = '' OR kind = $1) AND ($2 = '' OR "+stateOf+" = $2) AND (created_at < $3 OR created_at "+
			"= $3 AND id < $4) ORDER BY created_at DESC, id DESC LIMIT $5",
		asked.Kind,
		asked.State,
		time.UnixMicro(asked.CreatedBefore),
		asked.BelowID,
		asked.Limit,
	)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (ListedJob, error) {
		j, at, err := q.scan(row)
		return ListedJob{j.Job, at}, err
	})
}

func (q queue) get(ctx context.Context, from pg.Querier, id int64, lock string) (Reply, error) {
	j, at, err := q.scan(from.QueryRow(ctx, "SELECT "+columns+" FROM river_job WHERE id = $1 "+lock, id))
	if errors.Is(err, pgx.ErrNoRows) {
		return Reply{}, nil
	}
	if err != nil {
		return Reply{}, fmt.Errorf("read job %d: %w", id, err)
	}
	return Reply{Job: &j, Position: at}, nil
}

// changeJob returns a function that changes a job, and records the change as one of the caller that the request names.
func (q queue) changeJob(
	action pg.Action,
	change func(state string) (sql, refused string),
) func(context.Context, changeRequest) (Reply, error) {
	return func(ctx context.Context, req changeRequest) (answer Reply, err error) {
		var by caller
		if err := json.Unmarshal([]byte(req.Caller), &by); err != nil {
			return Reply{}, fmt.Errorf("read the caller: %w", err)
		}
		ctx = principal.NewContext(
			ctx,
			&principal.Call{Peer: principal.FromContext(ctx).Peer, Principal: by.Principal, IP: by.IP, RequestID: by.RequestID},
		)
		err = q.db.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("the job is already in this state")
			if answer, err = q.get(ctx, tx, req.ID, "FOR UPDATE"); err != nil || answer.Job == nil {
				return err
			}
			before, sql := answer.Job, ""
			if sql, answer.Refusal = change(before.State); sql == "" {
				return nil
			}
			if _, err := tx.Exec(ctx, "UPDATE river_job SET "+sql+" WHERE id = $1", req.ID); err != nil {
				return fmt.Errorf("change job %d: %w", req.ID, err)
			}
			tx.Wake(cancelled)
			tx.Wake(enqueued(before.Kind))
			if answer, err = q.get(ctx, tx, req.ID, ""); err != nil {
				return err
			}
			tx.Record(
				pg.Record{
					Kind:    "system.job",
					Action:  action,
					Targets: []pg.Target{{Type: "system/job", Noun: "job", ID: req.ID, Name: before.ID}},
					Before:  before,
					After:   answer.Job,
				},
			)
			return nil
		})
		if duplicate, ok := errors.AsType[*pgconn.PgError](err); ok && duplicate.ConstraintName == "river_job_unique_idx" {
			answer.Refusal, err = "has the same arguments as another job, which has not ended", nil
		}
		return answer, err
	}
}

// retry and cancel return SQL that changes a job as River does. Without SQL there is nothing to do, or the job's state
// refuses the change.
func retry(state string) (sql, refused string) {
	switch state {
	case "waiting":
		return "", ""
	case "running", "done":
		return "", "is " + state
	}
	return "state = 'available', scheduled_at = least(scheduled_at, now()), finalized_at = NULL, max_attempts = CASE WHEN attempt = " +
		"max_attempts THEN max_attempts + 1 ELSE max_attempts END, metadata = metadata - 'cancel_attempted_at'", ""
}

// cancel returns the assignments that cancel a job in a state, or why that is impossible. Both are empty if it is cancelled already.
func cancel(state string) (sql, refused string) {
	const noted = "metadata = jsonb_set(metadata, '{cancel_attempted_at}', to_jsonb(now()))"
	switch state {
	case "cancelled":
		return "", ""
	case "done", "failed":
		return "", "has ended"
	case "running": // the process that runs it is woken
		return noted, ""
	}
	return noted + ", state = 'cancelled', finalized_at = now()", ""
}

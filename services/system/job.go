package system

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/catalog"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

// jobQuery are the filters of the list of jobs. The list is merged from all services, so it has its own paging.
type jobQuery struct {
	Service serviceName `query:"service" doc:"Only jobs of this service. Other services are not asked."`
	Kind    string      `query:"kind" doc:"Only jobs of this kind."`
	State   string      `query:"state" enum:"waiting,running,retrying,done,failed,cancelled" doc:"Only jobs in this state."`
	Before  string      `query:"before" doc:"Only jobs after this one in the list: the id of the last job of the previous page."`
	PerPage int64       `query:"per_page" min:"1" max:"1000" doc:"The maximum number of jobs. Default: 100."`
}

// serviceName is the name of a service.
type serviceName string

// Enum returns all names for the API document.
func (serviceName) Enum() []string { return catalog.Names() }

// jobPath names a job by its service and its id there, such as network:17.
type jobPath struct {
	ID string `path:"job_id"`
}

// service returns the job's service and its id there. ok is false if the job's id is not valid.
func (o jobPath) service() (name string, id int64, ok bool) {
	name, number, _ := strings.Cut(o.ID, ":")
	id, err := strconv.ParseInt(number, 10, 64)
	return name, id, err == nil && id > 0 && strconv.FormatInt(id, 10) == number && slices.Contains(catalog.Names(), name)
}

// jobToChange is the request to change a job, and the job as its service returned it.
type jobToChange struct {
	jobPath
	changed *jobs.ViewedJob
}

const jobItemPath = "/system/job/{job_id}"

func (s *Service) jobRoutes() []rest.Route {
	has := guard.Has(permission.SystemSettings)
	type changeFunc func(context.Context, mesh.Peers, string, int64) (jobs.Reply, error)
	change := func(way, name, summary, doc string, retry rest.Retry, apply changeFunc) rest.Route {
		return rest.Mutation[jobToChange, *jobs.ViewedJob]{
			Method:    http.MethodPost,
			Path:      jobItemPath + "/" + way,
			Guard:     has,
			Name:      name,
			Summary:   summary,
			Doc:       doc,
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsItem, Retry: retry, ViewPath: jobItemPath},
			Prepare: func(_ context.Context, req *jobToChange) error {
				req.changed = &jobs.ViewedJob{}
				return nil
			},
			Do: func(_ context.Context, tx *pg.Tx, req jobToChange) (*jobs.ViewedJob, error) {
				tx.Unrecorded("the job's service records the change")
				if req.changed.ID != "" {
					return req.changed, nil
				}
				return nil, pg.RestartAfter(func(ctx context.Context) error { return s.changeJob(ctx, req, apply) })
			},
		}
	}
	return []rest.Route{
		rest.Read[jobQuery, []jobs.Job]{
			Path:      "/system/job",
			Guard:     has,
			Name:      "listJobs",
			Summary:   "List jobs",
			Extension: true,
			Doc:       "The jobs of all services, newest first. Jobs that are done or cancelled are kept for a day, failed jobs for a week.",
			Do:        s.listJobs,
		},
		rest.Read[jobPath, *jobs.ViewedJob]{Path: jobItemPath, Guard: has, Name: "getJob", Summary: "View a job", Extension: true, Do: s.getJob},
		change(
			"cancel",
			"cancelJob",
			"Cancel a job",
			"A running job is asked to stop. It may finish before it stops.",
			rest.RetrySafe,
			jobs.Cancel,
		),
		change(
			"retry",
			"retryJob",
			"Retry a job",
			"A job that failed or was cancelled starts again. A job that waits for its next attempt is retried now.",
			rest.RetryRepeats,
			jobs.Retry,
		),
	}
}

// askTimeout limits requests to services about their jobs.
const askTimeout = 5 * time.Second

// explainJobError returns the error for callers if a service cannot be reached.
func explainJobError(name string, err error) error {
	if !errors.Is(err, mesh.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return problem.New(
		problem.Unavailable, "The service %s cannot be reached for its jobs. To list the jobs of another service, use ?service=.", name,
	).
		Because(err)
}

func (s *Service) getJob(ctx context.Context, req jobPath) (*jobs.ViewedJob, error) {
	ctx, cancel := s.peers.Limit(ctx, askTimeout)
	defer cancel()
	found, err := s.findJob(ctx, req)
	return found.Job, err
}

// findJob asks the job's service for it.
func (s *Service) findJob(ctx context.Context, req jobPath) (jobs.Reply, error) {
	name, id, ok := req.service()
	if !ok {
		return jobs.Reply{}, jobNotFound(req)
	}
	found, err := jobs.Get(ctx, s.peers, name, id)
	if err == nil && found.Job == nil {
		err = jobNotFound(req)
	}
	return found, explainJobError(name, err)
}

func jobNotFound(req jobPath) error {
	return problem.New(problem.NotFound, "There is no job %s.", req.ID)
}

// changeJob asks the job's service to change it. The error is a Conflict if the service refuses.
func (s *Service) changeJob(
	ctx context.Context,
	req jobToChange,
	apply func(context.Context, mesh.Peers, string, int64) (jobs.Reply, error),
) error {
	name, id, ok := req.service()
	if !ok {
		return jobNotFound(req.jobPath)
	}
	ctx, cancel := s.peers.Limit(ctx, askTimeout)
	defer cancel()
	switch found, err := apply(ctx, s.peers, name, id); {
	case err != nil:
		return explainJobError(name, err)
	case found.Job == nil:
		return jobNotFound(req.jobPath)
	case found.Refusal != "":
		return problem.New(problem.Conflict, "Job %s %s.", req.ID, found.Refusal)
	default:
		*req.changed = *found.Job
		return nil
	}
}

// listJobs asks each service for its newest jobs, and returns the newest of all.
func (s *Service) listJobs(ctx context.Context, req jobQuery) ([]jobs.Job, error) {
	ctx, cancel := s.peers.Limit(ctx, askTimeout)
	defer cancel()
	start := jobs.Position{CreatedAt: time.Now().Add(time.Hour).UnixMicro()} // clocks differ
	if req.Before != "" {
		last, err := s.findJob(ctx, jobPath{req.Before})
		if problem.Is(err, problem.NotFound) {
			return nil, problem.New(
				problem.BadRequest,
				"The query is invalid: there is no job %s, which before names. It may have been deleted.",
				req.Before,
			)
		}
		if err != nil {
			return nil, err
		}
		start = last.Position
	}
	query := jobs.ListQuery{Kind: req.Kind, State: req.State, CreatedBefore: start.CreatedAt, Limit: cmp.Or(req.PerPage, 100)}
	sources := catalog.Names()
	found, failed := make([][]jobs.ListedJob, len(sources)), make([]error, len(sources))
	var calls sync.WaitGroup
	for i, name := range sources {
		if req.Service != "" && name != string(req.Service) {
			continue
		}
		calls.Go(func() {
			found[i], failed[i] = jobs.List(ctx, s.peers, name, query.After(start, name))
			failed[i] = explainJobError(name, failed[i])
		})
	}
	calls.Wait()
	if err := cmp.Or(failed...); err != nil {
		return nil, err
	}
	all := slices.Concat(found...)
	slices.SortFunc(all, func(a, b jobs.ListedJob) int { return b.Position.Compare(a.Position) })
	newest := []jobs.Job{}
	for _, job := range all[:min(len(all), int(query.Limit))] {
		newest = append(newest, job.Job)
	}
	return newest, nil
}

package system_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
)

// workers are the system service and neighbours that only have jobs.
type workers struct {
	*testkit.RunningService

	all map[string]*testkit.RunningService
}

func runWorkers(t *testing.T) *workers {
	t.Helper()
	redis := testkit.Redis(t)
	w := &workers{all: map[string]*testkit.RunningService{}}
	neighbours := map[string]http.Handler{}
	for _, name := range []string{"clients", "identity", "network", "pxe"} {
		w.all[name] = testkit.Run(t, service.Definition{Name: name}, testkit.ServiceOptions{Redis: redis})
		neighbours[name] = w.all[name].Handler()
	}
	w.RunningService = testkit.Run(t, system.Definition, testkit.ServiceOptions{Redis: redis, Neighbours: neighbours})
	w.all[system.Name] = w.RunningService
	return w
}

// addJob enqueues a job of a kind without a worker, and changes its row.
func (w *workers) addJob(t *testing.T, serviceName string, job service.Job, alter string) (id string) {
	t.Helper()
	var n int64
	err := w.all[serviceName].DB.InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		if err := jobs.Enqueue(t.Context(), tx, &job, map[string]string{"for": serviceName}); err != nil {
			return err
		}
		if err := tx.QueryRow(t.Context(), "SELECT currval(pg_get_serial_sequence('river_job', 'id'))").Scan(&n); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "UPDATE river_job SET "+alter+" WHERE id = $1", n)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s:%d", serviceName, n)
}

const (
	jobFailed  = `state = 'discarded', finalized_at = now(), attempt = 3, max_attempts = 3, errors = ARRAY[jsonb_build_object('at', now(), 'attempt', 3, 'error', 'the file server refuses', 'trace', '')]`
	jobRunning = `state = 'running', attempt = 1, attempted_at = now(), attempted_by = ARRAY['somebody']`
)

// Operators can view, retry and cancel the jobs of all services.
func TestJobs(t *testing.T) {
	t.Parallel()
	c := runWorkers(t)
	job := c.addJob(t, "network", service.Job{Kind: "unknown"}, jobFailed)
	at := "/system/job/" + job
	c.Do("POST", at+"/cancel", nil).WantDetail(http.StatusConflict, "Job "+job+" has ended.")
	view := testkit.Decode[jobs.ViewedJob](c.Do("GET", at, nil).Want(200))
	if view.State != "failed" || view.Error != "the file server refuses" || view.Attempt != 3 || view.FinishedAt == nil ||
		string(view.Args) != `{"for": "network"}` && string(view.Args) != `{"for":"network"}` {
		t.Errorf("got %+v, want it failed at attempt 3 with the error and arguments", view)
	}
	retried := testkit.Decode[jobs.ViewedJob](c.Do("POST", at+"/retry", nil, "X-Request-Id", "again").Want(200))
	if retried.State != "waiting" || retried.MaxAttempts != 4 || retried.FinishedAt != nil {
		t.Errorf("got %+v, want it waiting with 4 attempts at most", retried)
	}
	if twice := testkit.Decode[jobs.ViewedJob](c.Do("POST", at+"/retry", nil).Want(200)); twice.MaxAttempts != 4 {
		t.Errorf("got %+v after a second retry, want 4 attempts at most", twice)
	}
	c.Do("POST", at+"/cancel", nil).Want(200)
	type item struct {
		Desc    string
		User    struct{ URL string }
		IP      string
		Targets []struct{ URL string }
	}
	got := testkit.Await(t, "the log has the retry", func() []item {
		return testkit.Decode[[]item](c.Do("GET", "/log?type=system.job.retried", nil).Want(200))
	}, func(items []item) bool { return len(items) == 1 })
	if want := "Job " + job + " was retried."; got[0].Desc != want || got[0].User.URL != "/admin/1" || got[0].Targets[0].URL != at {
		t.Errorf("got the log items %+v, want %q about %s by /admin/1", got, want, at)
	}

	done := c.addJob(t, "pxe", service.Job{Kind: "unknown"}, "state = 'completed', finalized_at = now()")
	for _, way := range []string{"retry", "cancel"} {
		c.Do("POST", "/system/job/"+done+"/"+way, nil).Want(http.StatusConflict)
	}
	busy := c.addJob(t, system.Name, service.Job{Kind: "busy"}, jobRunning)
	c.Do("POST", "/system/job/"+busy+"/retry", nil).WantDetail(http.StatusConflict, "Job "+busy+" is running.")
	if stopping := testkit.Decode[jobs.ViewedJob](
		c.Do("POST", "/system/job/"+busy+"/cancel", nil).Want(200),
	); stopping.State != "running" ||
		!stopping.Cancelling {
		t.Errorf("got %+v, want it running and cancelling", stopping)
	}
	unique := service.Job{Kind: "unique", Unique: true}
	failed := c.addJob(t, "pxe", unique, jobFailed)
	c.addJob(t, "pxe", unique, "attempt = 0")
	c.Do("POST", "/system/job/"+failed+"/retry", nil).
		WantDetail(http.StatusConflict, "Job "+failed+" has the same arguments as another job, which has not ended.")
	for _, missing := range []string{"network:999", "nobody:1", "17", "network:01", "network:", "network:-1"} {
		c.Do("GET", "/system/job/"+missing, nil).Want(404)
		c.Do("POST", "/system/job/"+missing+"/retry", nil).Want(404)
	}
}

// A list has the newest jobs of all services first. The next page starts after the last job of the previous one.
func TestListOfJobs(t *testing.T) {
	t.Parallel()
	c := runWorkers(t)
	var left [7]string
	for i := range left {
		serviceName := []string{"network", "pxe", system.Name}[i%3]
		left[i] = c.addJob(t, serviceName, service.Job{Kind: []string{"even", "odd"}[i%2]}, fmt.Sprintf("created_at = '2026-01-0%d'", i/4+1))
	}
	want := []string{left[5], left[4], left[6], left[2], left[1], left[3], left[0]}
	ids := func(query string) (ids []string) {
		t.Helper()
		for _, job := range testkit.Decode[[]jobs.Job](c.Do("GET", "/system/job"+query, nil).Want(200)) {
			ids = append(ids, job.ID)
		}
		return ids
	}
	all := ids("")
	if !slices.Equal(all, want) {
		t.Errorf("got %v, want %v", all, want)
	}
	var paged []string
	for before := ""; ; before = paged[len(paged)-1] {
		page := ids("?per_page=2&before=" + before)
		if len(page) == 0 {
			break
		}
		paged = append(paged, page...)
	}
	if !slices.Equal(paged, all) {
		t.Errorf("got %v by pages, want %v", paged, all)
	}
	if odd := ids("?kind=odd"); len(odd) != 3 {
		t.Errorf("got %v of kind odd, want 3", odd)
	}
	if serviceName := ids("?service=pxe&state=waiting"); len(serviceName) != 2 {
		t.Errorf("got %v waiting of pxe, want 2", serviceName)
	}
	if none := ids("?state=failed"); len(none) != 0 {
		t.Errorf("got %v failed, want none", none)
	}
	c.Do("GET", "/system/job?before=network:999", nil).Want(400)
	c.Do("GET", "/system/job?service=nobody", nil).Want(400)
	c.Do("GET", "/system/job?per_page=1001", nil).Want(400)
}

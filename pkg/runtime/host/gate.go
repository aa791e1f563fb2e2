package host

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/problem"

	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
)

// gate refuses changes during maintenance. Once the schema was restored from a backup below the running service, it refuses
// all requests until the process restarts: the service's state belongs to another history.
type gate struct {
	http.Handler
	log         *slog.Logger
	maintenance *maintenance.Switch
	writes      map[string]bool // the paths of GET requests that write
	restored    atomic.Bool
}

// writePaths returns the paths of GET routes that write.
func writePaths(routes []rest.Route) map[string]bool {
	paths := map[string]bool{}
	for _, o := range rest.Operations(routes) {
		if o.Writes {
			paths[o.Path] = true
		}
	}
	return paths
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := g.refuse(r); err != nil {
		first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		w.Header().Set(problem.RouteHeader, "/"+first) // as the gateway sets it if no route matches
		problem.Write(w, r, g.log, err)
		return
	}
	g.Handler.ServeHTTP(w, r)
}

// refuse returns the error for a request that the service must not handle: its schema was restored, or it is under maintenance.
func (g *gate) refuse(r *http.Request) error {
	if err := g.checkHistory(r.Context()); err != nil {
		return problem.New(problem.Unavailable, "The service was restored from a backup and is not reconciled yet. Try again later.").Because(err)
	}
	if (r.Method == http.MethodGet || r.Method == http.MethodHead) && !g.writes[r.URL.Path] {
		return nil
	}
	return g.maintenance.Refuse()
}

// noteRestored closes the gate if err is events.ErrRestored, and returns err.
func (g *gate) noteRestored(err error) error {
	if errors.Is(err, events.ErrRestored) {
		g.restored.Store(true)
	}
	return err
}

// checkHistory fails once the gate is closed.
func (g *gate) checkHistory(context.Context) error {
	if g.restored.Load() {
		return events.ErrRestored
	}
	return nil
}

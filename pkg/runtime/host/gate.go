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

// gate lets no change through during maintenance, and no request once the schema was restored from a backup below the
// running service, for good: what the service knows is of another history.
type gate struct {
	http.Handler
	log         *slog.Logger
	maintenance maintenance.File
	writes      map[string]bool // the paths of reads that leave something
	restored    atomic.Bool
}

// writePaths are the paths of the routes that write, though they are reads.
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
		w.Header().Set(problem.RouteHeader, "/"+first) // as the gateway says where no route is found
		problem.Write(w, r, g.log, err)
		return
	}
	g.Handler.ServeHTTP(w, r)
}

func (g *gate) refuse(r *http.Request) error {
	if err := g.checkHistory(r.Context()); err != nil {
		return problem.New(problem.Unavailable, "The service was restored from a backup and is not taken up yet.").Because(err)
	}
	if (r.Method == http.MethodGet || r.Method == http.MethodHead) && !g.writes[r.URL.Path] {
		return nil
	}
	return g.maintenance.Refuse()
}

// noteRestored closes the gate where an error says so.
func (g *gate) noteRestored(err error) error {
	if errors.Is(err, events.ErrRestored) {
		g.restored.Store(true)
	}
	return err
}

func (g *gate) checkHistory(context.Context) error {
	if g.restored.Load() {
		return events.ErrRestored
	}
	return nil
}

package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"
	"github.com/swaggest/swgui"
	swagger "github.com/swaggest/swgui/v5emb"

	"github.com/ironplane/ironplane/pkg/rest"
)

// Below /-/ the gateway serves its own things, where no documented path can be.
const (
	healthPath = "/-/health"
	docsPath   = "/-/docs"
)

// ownRoute is the route of one of the gateway's own paths.
func ownRoute(path string) string {
	switch {
	case path == healthPath, path == rest.DocumentPath:
		return path
	case strings.HasPrefix(path, docsPath):
		return docsPath
	default:
		return "/-"
	}
}

func (g *Gateway) ownRoutes() http.Handler {
	router := mux.NewRouter().SkipClean(true)
	router.HandleFunc(healthPath, g.health).Methods(http.MethodGet, http.MethodHead)
	router.HandleFunc(rest.DocumentPath, g.document).Methods(http.MethodGet, http.MethodHead)
	docs := swagger.NewHandlerWithConfig(swgui.Config{
		Title: "Ironplane", SwaggerJSON: rest.DocumentPath, BasePath: docsPath, InternalBasePath: docsPath, HideCurl: false,
	})
	router.PathPrefix(docsPath).Handler(docs).Methods(http.MethodGet, http.MethodHead)
	router.NotFoundHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest.WriteError(w, r, g.log, rest.NoSuchPath())
	})
	router.MethodNotAllowedHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest.WriteError(w, r, g.log, rest.NotAllowed(r.Method, http.MethodGet, http.MethodHead))
	})
	return router
}

func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"status":"ok"}` + "\n"))
}

// document merges what the services say of themselves.
func (g *Gateway) document(w http.ResponseWriter, r *http.Request) {
	merged := rest.NewDocument()
	for _, service := range slices.Sorted(maps.Keys(g.upstreams)) {
		var own rest.OpenAPI
		err := g.peers.Ask(r.Context(), service, rest.DocumentPath, &own)
		if err == nil {
			err = merged.Merge(&own)
		}
		if err != nil {
			rest.WriteError(w, r, g.log, fmt.Errorf("merge the API documents: %w", err))
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(merged) // a caller who is gone needs no answer
}

package gateway

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/mux"
	swagger "github.com/swaggest/swgui/v5/static"
	"github.com/vearutop/statigz"

	"github.com/ironplane/ironplane/gateway/console"
	"github.com/ironplane/ironplane/gateway/cookie"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/openapi"
	"github.com/ironplane/ironplane/pkg/settings"
)

// The gateway's own paths are below /-/, which no service can have.
const (
	healthPath = "/-/health"
	docsPath   = "/-/docs"
)

// ownRoute returns the route, for logs and metrics, of one of the gateway's own paths.
func ownRoute(path string) string {
	switch {
	case path == healthPath, path == openapi.Path, path == passwordPath, path == adoptPath, path == cookie.SessionPath:
		return path
	case strings.HasPrefix(path, docsPath):
		return docsPath
	case path == console.Path, strings.HasPrefix(path, console.Path+"/"):
		return console.Path
	default:
		return "/-"
	}
}

func (g *Gateway) ownRoutes() http.Handler {
	router := mux.NewRouter().SkipClean(true)
	router.HandleFunc(healthPath, g.health).Methods(http.MethodGet, http.MethodHead)
	router.HandleFunc(openapi.Path, g.document).Methods(http.MethodGet, http.MethodHead)
	router.HandleFunc(passwordPath, g.password).Methods(http.MethodGet, http.MethodHead)
	router.HandleFunc(adoptPath, g.adopt).Methods(http.MethodGet, http.MethodHead)
	router.HandleFunc(rootPath, g.root)
	router.HandleFunc(console.Path, g.serveConsole).Methods(http.MethodGet, http.MethodHead)
	router.PathPrefix(console.Path+"/").HandlerFunc(g.serveConsole).Methods(http.MethodGet, http.MethodHead)
	router.HandleFunc(docsPath, g.docs).Methods(http.MethodGet, http.MethodHead)
	router.HandleFunc(docsPath+"/", g.docs).Methods(http.MethodGet, http.MethodHead)
	assets := statigz.FileServer(swagger.FS)
	isAsset := func(r *http.Request, _ *mux.RouteMatch) bool {
		file, below := strings.CutPrefix(r.URL.Path, docsPath+"/")
		return below && assets.Found(&http.Request{URL: &url.URL{Path: file}, Header: r.Header})
	}
	router.MatcherFunc(isAsset).Handler(withRevalidation(http.StripPrefix(docsPath+"/", assets))).Methods(http.MethodGet, http.MethodHead)
	router.NotFoundHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, r, g.log, problem.NoSuchPath())
	})
	router.MethodNotAllowedHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, r, g.log, problem.NotAllowed(r.Method, http.MethodGet, http.MethodHead))
	})
	return router
}

// docsPage shows the API document in a browser. It is formatted without html/template: that package makes the program half as
// large again, because the linker then keeps all methods of all types.
const docsPage = `<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <title>%s</title>
  <link rel="stylesheet" href="` + docsPath + `/swagger-ui.css">
  <link rel="icon" href="` + docsPath + `/favicon-32x32.png">
</head>
<body>
  <div id="docs"></div>
  <script src="` + docsPath + `/swagger-ui-bundle.js"></script>
  <script>` + docsScript + `</script>
</body>
</html>
`

const docsScript = `SwaggerUIBundle({url: "` + openapi.Path + `", dom_id: "#docs", deepLinking: true, validatorUrl: null, defaultModelsExpandDepth: -1})`

// docsPolicy allows this page's own script and files of this origin, and no page may frame it. Swagger UI sets styles and has
// images in its style sheet.
var docsPolicy = "default-src 'none'; script-src 'self' '" + hashSource(docsScript) + "'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// withRevalidation lets caches keep a response, but ask each time whether it changed.
func withRevalidation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}

func (g *Gateway) docs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Security-Policy", docsPolicy)
	w.Header().Set("X-Frame-Options", "DENY")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = fmt.Fprintf(w, docsPage, html.EscapeString(settings.SiteName.In(g.settings.Values())))
}

// healthBody is the answer of /-/health.
type healthBody struct {
	Status string `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Since, By and Services describe maintenance. Services is empty if all services are in it.
	Since    time.Time `json:"since,omitzero"`
	By       string    `json:"by,omitempty"`
	Services []string  `json:"services,omitempty"`
}

// health says that the gateway responds, and whether changes are refused and why.
func (g *Gateway) health(w http.ResponseWriter, r *http.Request) {
	body := healthBody{Status: "ok"}
	status := g.config.Maintenance.Status()
	if status == nil {
		refusing := g.findRefusing(r.Context())
		status = refusing.maintenance
		if !refusing.allMaintained {
			body.Services = refusing.inMaintenance
		}
		if len(refusing.readOnly) > 0 {
			body.Status = "read-only"
			body.Detail = "These services accept no changes: " + strings.Join(refusing.readOnly, ", ") + ". Reads are answered."
		}
	}
	if status != nil {
		body.Status, body.Detail, body.Since, body.By = "maintenance", status.Reason, status.Since.Truncate(time.Second), status.By
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

// document merges the API documents of all services. With a key, it has the operations that the key may use. With ?version=3.0 it is
// in that version of OpenAPI.
func (g *Gateway) document(w http.ResponseWriter, r *http.Request) {
	version := r.URL.Query().Get("version")
	if version != "" && version != "3.0" && version != "3.1" {
		problem.Write(w, r, g.log, problem.New(problem.BadRequest, "The version of OpenAPI must be 3.0 or 3.1."))
		return
	}
	merged := &openapi.Document{}
	for _, service := range slices.Sorted(maps.Keys(g.upstreams)) {
		var own openapi.Document
		err := g.peers.Ask(r.Context(), service, openapi.Path, &own)
		if err == nil {
			err = merged.Merge(&own)
		}
		if err != nil {
			problem.Write(w, r, g.log, fmt.Errorf("merge the API documents: %w", err))
			return
		}
	}
	w.Header().Set("Cache-Control", "no-cache")
	if caller := principal.FromContext(r.Context()).Principal; caller != nil {
		w.Header().Set("Cache-Control", "no-store")
		keepUsable(merged, caller)
	}
	answer := any(merged)
	if version == "3.0" {
		older, err := merged.Older()
		if err != nil {
			problem.Write(w, r, g.log, fmt.Errorf("convert the API document: %w", err))
			return
		}
		answer = older
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Vary", "Accept-Encoding")
	out := io.Writer(w)
	if console.AcceptsGzip(r.Header.Get("Accept-Encoding")) { // the document is large, and each visitor of the console loads it
		w.Header().Set("Content-Encoding", "gzip")
		compressed := gzip.NewWriter(w)
		defer func() { _ = compressed.Close() }()
		out = compressed
	}
	_ = json.NewEncoder(out).Encode(answer) // an error means that the caller left
}

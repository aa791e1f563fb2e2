package gateway

import (
	"fmt"
	"net/http"

	"github.com/ironplane/ironplane/gateway/console"
	"github.com/ironplane/ironplane/pkg/problem"
)

// rootPath leads people to the console. The API has nothing there.
const rootPath = "/"

// Switch is on, unless its text is off.
type Switch string

// UnmarshalText accepts on and off.
func (s *Switch) UnmarshalText(text []byte) error {
	*s = Switch(text)
	if *s != "" && *s != "on" && *s != "off" {
		return fmt.Errorf("%q is neither on nor off", text)
	}
	return nil
}

func (s Switch) isOn() bool { return s != "off" }

// serveConsole serves the console's pages and files.
func (g *Gateway) serveConsole(w http.ResponseWriter, r *http.Request) {
	if !g.config.Console.isOn() {
		problem.Write(w, r, g.log, problem.NoSuchPath())
		return
	}
	handler, err := console.Built()
	if err != nil {
		problem.Write(w, r, g.log, err)
		return
	}
	handler.ServeHTTP(w, r)
}

// root redirects browsers to the console. Programs get a 404, as at any path that the API does not have.
func (g *Gateway) root(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	isRead := r.Method == http.MethodGet || r.Method == http.MethodHead
	if isRead && g.config.Console.isOn() && problem.Prefers(r.Header.Get("Accept"), problem.MediaHTML) {
		http.Redirect(w, r, console.Path+"/", http.StatusFound)
		return
	}
	problem.Write(w, r, g.log, problem.NoSuchPath())
}

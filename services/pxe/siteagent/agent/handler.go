package agent

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

const (
	// ioTimeout is how long a response or a sent file may stay without progress.
	ioTimeout   = 30 * time.Second
	maxBodySize = 64 << 10
	// maxBundleBodySize is the largest body of a request for a bundle, in bytes.
	maxBundleBodySize = siteagent.MaxBundledFiles * 8 << 10
	// maxMachineSize is the largest body of a machine with its files, in bytes.
	maxMachineSize = 8 * machine.MaxFileSize
	// keepAliveInterval is how often a slow manifest sends a sign of life.
	keepAliveInterval = 10 * time.Second
)

// Handler serves the control plane and other agents. The API key may do everything, and a granted token may read files.
func (a *Agent) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, handle := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/health":            a.getHealth,
		"GET /v1/feed":              a.getFeed,
		"POST /v1/missing":          a.postMissing,
		"POST /v1/grant":            a.postGrant,
		"POST /v1/pull":             a.postPull,
		"GET /v1/pull/{id}":         a.getPull,
		"GET /v1/content/{sha256}":  a.getContent,
		"PUT /v1/file/{path...}":    a.putFile,
		"DELETE /v1/file/{path...}": a.deleteFile,
		"GET /v1/machine":           a.getMachines,
		"PUT /v1/machine/{id}":      a.putMachine,
		"DELETE /v1/machine/{id}":   a.deleteMachine,
	} {
		mux.HandleFunc(pattern, a.handle(func(w http.ResponseWriter, r *http.Request) error {
			if !hasAPIKey(r) {
				return problem.New(problem.Forbidden, "A token may only read files. This request needs the agent's API key.")
			}
			return handle(w, r)
		}))
	}
	mux.HandleFunc("GET /v1/manifest", a.handle(a.getManifest))
	mux.HandleFunc("GET /v1/file/{path...}", a.handle(a.getFile))
	mux.HandleFunc("POST /v1/files", a.handle(a.postFiles))
	mux.HandleFunc("/", a.handle(func(http.ResponseWriter, *http.Request) error { return problem.NoSuchPath() }))
	limited := a.limitRequests(a.limits.requests, mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, key, _ := strings.Cut(r.Header.Get("Authorization"), "Bearer ")
		isKey := a.isAPIKey(key)
		if !isKey && !a.hasGrant(key) {
			refusal := problem.New(problem.Unauthenticated, "The request needs the agent's API key, or a token that has not expired.")
			closeUnread(w, r)
			problem.Write(w, r, a.log, refusal)
			return
		}
		limited.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), apiKeyContext{}, isKey)))
	})
}

// MachineHandler serves booting and installing machines, which have no key. It gives each machine its own scripts, and any file to
// everyone.
func (a *Agent) MachineHandler() http.Handler {
	mux := http.NewServeMux()
	for _, method := range []string{"GET", "POST"} {
		mux.Handle(method+" /i/", a.machines.Handler())
	}
	mux.HandleFunc("GET /{path...}", a.handle(func(w http.ResponseWriter, r *http.Request) error {
		file, info, err := a.tree.Open(r.PathValue("path"))
		if err != nil {
			return fileError(err)
		}
		defer file.Close()
		http.ServeContent(w, r, info.Name(), info.ModTime(), file)
		return nil
	}))
	return a.limitRequests(a.limits.machineRequests, mux)
}

// apiKeyContext is the context key that says whether the caller has the API key.
type apiKeyContext struct{}

// hasAPIKey reports whether the caller has the API key.
func hasAPIKey(r *http.Request) bool {
	ok, _ := r.Context().Value(apiKeyContext{}).(bool)
	return ok
}

// handle turns a returned error into a problem response.
func (a *Agent) handle(do func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := do(w, r); err != nil {
			problem.Write(w, r, a.log, err)
		}
	}
}

// writeJSON responds with a body in JSON.
func writeJSON(w http.ResponseWriter, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // the caller may be gone
	return nil
}

// readJSON decodes a body of at most limit bytes.
func readJSON(w http.ResponseWriter, r *http.Request, limit int64, into any) error {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit)).Decode(into); err != nil {
		return problem.New(problem.BadRequest, "The body cannot be decoded: %s.", err)
	}
	return nil
}

// fileError returns the problem for an error of the tree.
func fileError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return problem.New(problem.NotFound, "There is no such file.")
	case errors.Is(err, tree.ErrOffset), errors.Is(err, tree.ErrBusy), errors.Is(err, tree.ErrPathConflict):
		return problem.New(problem.Conflict, "The request conflicts with the agent's files: %s.", err)
	case errors.Is(err, tree.ErrContent):
		return problem.New(problem.Invalid, "The file cannot be stored: %s.", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return problem.New(http.StatusInsufficientStorage, "The agent's disk is full.")
	}
	return err
}

func (a *Agent) getHealth(w http.ResponseWriter, _ *http.Request) error {
	health, err := a.health()
	if err != nil {
		return err
	}
	return writeJSON(w, health)
}

// getFeed responds with the feed's entries above the parameter after, and the agent's health.
func (a *Agent) getFeed(w http.ResponseWriter, r *http.Request) (err error) {
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		return problem.New(problem.BadRequest, "The parameter after must be the number of an entry, or 0.")
	}
	found, err := a.feed.ReadAfter(after)
	if err != nil {
		return err
	}
	if found.Health, err = a.health(); err != nil {
		return err
	}
	return writeJSON(w, found)
}

// postMissing responds with the requested files that the agent lacks.
func (a *Agent) postMissing(w http.ResponseWriter, r *http.Request) error {
	var request siteagent.MissingRequest
	if err := readJSON(w, r, maxBundleBodySize, &request); err != nil {
		return err
	}
	if len(request.Paths) > siteagent.MaxMissingPaths {
		return problem.New(problem.Invalid, "A request may name at most %d files.", siteagent.MaxMissingPaths)
	}
	missing := siteagent.Missing{Paths: []string{}}
	for _, path := range request.Paths {
		exists, err := a.tree.Exists(path)
		if err != nil {
			return err
		}
		if !exists {
			missing.Paths = append(missing.Paths, path)
		}
	}
	return writeJSON(w, missing)
}

// postGrant adds or renews a grant.
func (a *Agent) postGrant(w http.ResponseWriter, r *http.Request) error {
	var g siteagent.Grant
	if err := readJSON(w, r, maxBodySize, &g); err != nil {
		return err
	}
	sum, err := hex.DecodeString(g.SHA256)
	ttl := time.Duration(g.Seconds) * time.Second
	if err != nil || siteagent.CheckSHA256(g.SHA256) != nil || g.Seconds < 1 || g.Seconds > int64(siteagent.MaxGrantTTL/time.Second) {
		return problem.New(
			problem.Invalid,
			"A grant needs the token's sha256, and seconds from 1 to %d.",
			int64(siteagent.MaxGrantTTL/time.Second),
		)
	}
	if !a.addGrant([32]byte(sum), time.Now().Add(ttl)) {
		return problem.New(problem.TooManyRequests, "The agent has %d grants, which is the maximum. Try again when one has expired.", maxGrants)
	}
	return writeJSON(w, struct{}{})
}

// postPull starts a pull.
func (a *Agent) postPull(w http.ResponseWriter, r *http.Request) error {
	var o siteagent.PullOrder
	if err := readJSON(w, r, maxBodySize, &o); err != nil {
		return err
	}
	if o.ID == "" || len(o.ID) > 100 || !strings.HasPrefix(o.Parent.URL, "https://") && !strings.HasPrefix(o.Parent.URL, "http://") {
		return problem.New(problem.Invalid, "The order needs an id of at most 100 characters, and the URL of a parent.")
	}
	if o.Parent.SFTP != nil {
		if err := o.Parent.SFTP.Check(); err != nil {
			return problem.New(problem.Invalid, "The member parent.sftp is invalid: %s.", err)
		}
	}
	a.pulls.add(o)
	return writeJSON(w, struct{}{})
}

// getPull responds with the state of a pull.
func (a *Agent) getPull(w http.ResponseWriter, r *http.Request) error {
	p := a.pulls.find(r.PathValue("id"))
	if p == nil {
		return problem.New(problem.NotFound, "There is no such pull. The agent may have restarted since. Send the order again.")
	}
	return writeJSON(w, p.status())
}

func (a *Agent) getMachines(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, a.machines.Revisions())
}

// putMachine creates or replaces a machine.
func (a *Agent) putMachine(w http.ResponseWriter, r *http.Request) error {
	var m siteagent.Machine
	if err := readJSON(w, r, maxMachineSize, &m); err != nil {
		return err
	}
	if strconv.FormatInt(m.ID, 10) != r.PathValue("id") {
		return problem.Member("/id", "invalid", "must be the id in the path")
	}
	if err := a.machines.Put(m); err != nil {
		return err
	}
	return writeJSON(w, siteagent.MachineRevision{ID: m.ID, Revision: m.Revision})
}

// deleteMachine deletes a machine. It succeeds if the machine is missing.
func (a *Agent) deleteMachine(w http.ResponseWriter, r *http.Request) error {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return problem.NoSuchPath()
	}
	if err := a.machines.Delete(id); err != nil {
		return err
	}
	return writeJSON(w, struct{}{})
}

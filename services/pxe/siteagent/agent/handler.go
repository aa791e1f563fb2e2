package agent

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
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
	// progress is how long a caller may take to send the next piece, or to take it.
	progress = 30 * time.Second
	mostBody = 64 << 10
	// mostTogether is how long a list of files can be that are asked for together.
	mostTogether = siteagent.MostTogether * 8 << 10
	// mostMachine is how much there can be of one, with its files.
	mostMachine = 8 * machine.LargestFile
	// keepAlive is how often who waits for the list of files hears that it is still being made.
	keepAlive = 10 * time.Second
)

// Handler answers who has the API key, and, where it is about reading files, who has a token.
func (a *Agent) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, answer := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/health":            a.getHealth,
		"GET /v1/feed":              a.getFeed,
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
		mux.HandleFunc(pattern, a.answer(func(w http.ResponseWriter, r *http.Request) error {
			if !whole(r) {
				return problem.New(problem.Forbidden, "A token reads files, and nothing else.")
			}
			return answer(w, r)
		}))
	}
	mux.HandleFunc("GET /v1/manifest", a.answer(a.getManifest))
	mux.HandleFunc("GET /v1/file/{path...}", a.answer(a.getFile))
	mux.HandleFunc("POST /v1/files", a.answer(a.postFiles))
	mux.HandleFunc("/", a.answer(func(http.ResponseWriter, *http.Request) error { return problem.NoSuchPath() }))
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, key, _ := strings.Cut(r.Header.Get("Authorization"), "Bearer ")
		full := a.right(key)
		if !full && !a.granted(key) {
			problem.Write(w, r, a.log, problem.New(problem.Unauthenticated, "This needs the agent's API key."))
			return
		}
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), wholeKey{}, full)))
	})
	return a.bounded(mostAtOnce, guarded)
}

// Open answers who has no key: machines that boot and install. Each is given what is its own, and whoever asks for it a file.
func (a *Agent) Open() http.Handler {
	mux := http.NewServeMux()
	for _, method := range []string{"GET", "POST"} {
		mux.Handle(method+" /i/", a.machines.Handler())
	}
	mux.HandleFunc("GET /{path...}", a.answer(func(w http.ResponseWriter, r *http.Request) error {
		file, is, err := a.tree.Open(r.PathValue("path"))
		if err != nil {
			return refusal(err)
		}
		defer file.Close()
		http.ServeContent(w, r, is.Name(), is.ModTime(), file)
		return nil
	}))
	return a.bounded(mostMachines, mux)
}

type wholeKey struct{}

// whole tells whether a caller has the API key.
func whole(r *http.Request) bool {
	is, _ := r.Context().Value(wholeKey{}).(bool)
	return is
}

// bounded answers so many at a time, each as long as it goes on.
func (a *Agent) bounded(most int, next http.Handler) http.Handler {
	places := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connection := http.NewResponseController(w)
		_ = connection.SetWriteDeadline(time.Now().Add(progress)) // where there is a connection
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			problem.Write(w, r, a.log, problem.New(problem.Unavailable, "Too many requests are under way."))
			return
		}
		r.Body = &progressing{r.Body, connection}
		next.ServeHTTP(&answering{w, connection}, r)
	})
}

// progressing gives up on a caller who sends nothing for a while.
type progressing struct {
	io.ReadCloser
	connection *http.ResponseController
}

func (b *progressing) Read(p []byte) (int, error) {
	_ = b.connection.SetReadDeadline(time.Now().Add(progress)) // where there is a connection
	return b.ReadCloser.Read(p)
}

// answering gives up on a caller who takes nothing for a while.
type answering struct {
	http.ResponseWriter
	connection *http.ResponseController
}

func (a *answering) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answering) Write(p []byte) (int, error) {
	_ = a.connection.SetWriteDeadline(time.Now().Add(progress)) // where there is a connection
	return a.ResponseWriter.Write(p)
}

// ReadFrom writes piece by piece, each by sendfile where that is possible.
func (a *answering) ReadFrom(from io.Reader) (all int64, err error) {
	const piece = 1 << 20
	for {
		_ = a.connection.SetWriteDeadline(time.Now().Add(progress)) // where there is a connection
		n, err := io.CopyN(a.ResponseWriter, from, piece)
		all += n
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

func (a *Agent) answer(do func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := do(w, r); err != nil {
			problem.Write(w, r, a.log, err)
		}
	}
}

func write(w http.ResponseWriter, answer any) error {
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // who asked may be gone
	return nil
}

func read(w http.ResponseWriter, r *http.Request, most int64, into any) error {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, most)).Decode(into); err != nil {
		return problem.New(problem.BadRequest, "The body cannot be read: %s.", err)
	}
	return nil
}

// refusal is what a caller is told of what went wrong with a file.
func refusal(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return problem.New(problem.NotFound, "There is no such file.")
	case errors.Is(err, tree.ErrOffset), errors.Is(err, tree.ErrBusy), errors.Is(err, tree.ErrInTheWay):
		return problem.New(problem.Conflict, "This cannot be done now: %s.", err)
	case errors.Is(err, tree.ErrContent):
		return problem.New(problem.Invalid, "The file is refused: %s.", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return problem.New(http.StatusInsufficientStorage, "The agent's disk is full.")
	}
	return err
}

func (a *Agent) getHealth(w http.ResponseWriter, _ *http.Request) error {
	is, err := a.health()
	if err != nil {
		return err
	}
	return write(w, is)
}

func (a *Agent) getFeed(w http.ResponseWriter, r *http.Request) (err error) {
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		return problem.New(problem.BadRequest, "after must be the number of an entry, or 0.")
	}
	found, err := a.feed.After(after)
	if err != nil {
		return err
	}
	if found.Health, err = a.health(); err != nil {
		return err
	}
	return write(w, found)
}

func (a *Agent) postGrant(w http.ResponseWriter, r *http.Request) error {
	var g siteagent.Grant
	if err := read(w, r, mostBody, &g); err != nil {
		return err
	}
	sum, err := hex.DecodeString(g.SHA256)
	holds := time.Duration(g.Seconds) * time.Second
	if err != nil || siteagent.CheckSum(g.SHA256) != nil || g.Seconds < 1 || g.Seconds > int64(siteagent.LongestGrant/time.Second) {
		return problem.New(
			problem.Invalid,
			"A token needs its sha256, and seconds, of which there are at most %d.",
			int64(siteagent.LongestGrant/time.Second),
		)
	}
	if err := a.grant([32]byte(sum), time.Now().Add(holds)); err != nil {
		return problem.New(problem.TooManyRequests, "The token is not taken: %s.", err)
	}
	return write(w, struct{}{})
}

func (a *Agent) postPull(w http.ResponseWriter, r *http.Request) error {
	var o siteagent.Order
	if err := read(w, r, mostBody, &o); err != nil {
		return err
	}
	if o.ID == "" || len(o.ID) > 100 || !strings.HasPrefix(o.Parent.URL, "https://") && !strings.HasPrefix(o.Parent.URL, "http://") {
		return problem.New(problem.Invalid, "An order needs an id, and where its parent is.")
	}
	if o.Parent.SFTP != nil {
		if err := o.Parent.SFTP.Check(); err != nil {
			return problem.New(problem.Invalid, "The order cannot be followed: %s.", err)
		}
	}
	a.pulls.order(o)
	return write(w, struct{}{})
}

func (a *Agent) getPull(w http.ResponseWriter, r *http.Request) error {
	p := a.pulls.find(r.PathValue("id"))
	if p == nil {
		return problem.New(problem.NotFound, "There is no such order: the agent may have been started anew since.")
	}
	return write(w, p.is())
}

func (a *Agent) getMachines(w http.ResponseWriter, _ *http.Request) error {
	return write(w, a.machines.Held())
}

func (a *Agent) putMachine(w http.ResponseWriter, r *http.Request) error {
	var m siteagent.Machine
	if err := read(w, r, mostMachine, &m); err != nil {
		return err
	}
	if strconv.FormatInt(m.ID, 10) != r.PathValue("id") {
		return problem.Member("/id", "invalid", "must be the number in the path")
	}
	if err := a.machines.Put(m); err != nil {
		return err
	}
	return write(w, siteagent.Held{ID: m.ID, Revision: m.Revision})
}

func (a *Agent) deleteMachine(w http.ResponseWriter, r *http.Request) error {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return problem.NoSuchPath()
	}
	if err := a.machines.Delete(id); err != nil {
		return err
	}
	return write(w, struct{}{})
}

package rest

import (
	"cmp"
	"context"
	"net/http"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest/route"
)

// Raw is an operation that reads and writes bodies itself, such as an upload or a download with ranges. Req has its parameters,
// and no Body.
type Raw[Req any] struct {
	Method        string
	Path          string
	Guard         guard.Guard
	Name          string
	Summary       string
	Doc           string
	Extension     bool
	Effect        Effect   // for an operation that changes something
	Accepts       []string // media types of request bodies; none: the operation has no body
	MaxBody       int64    // in bytes
	Returns       []string // media types of responses
	Status        int      // of a successful response; default: 200
	ErrorStatuses []int    // statuses of further errors
	Ranges        bool     // it serves ranges, as http.ServeContent does
	// Do serves the request. An error before the first written byte becomes an error response. A later one aborts the
	// connection.
	Do func(context.Context, *RawCall, Req) error
}

// RawCall is a request to a Raw, and the writer of its response.
type RawCall struct {
	Request *http.Request // the body is limited in size, and each read has a timeout
	Writer  http.ResponseWriter
	db      *pg.DB
}

// InTx runs a change in one transaction together with its records: see pg.DB.InTx.
func (c *RawCall) InTx(ctx context.Context, change func(*pg.Tx) error) error {
	return c.db.InTx(ctx, change)
}

func (r Raw[Req]) route() *route.Route {
	defer route.PrefixPanic(r.Method + " " + r.Path)
	o := route.New[Req, struct{}](Operation{
		Method:    r.Method,
		Path:      r.Path,
		Guard:     r.Guard,
		Name:      r.Name,
		Summary:   r.Summary,
		Doc:       r.Doc,
		Extension: r.Extension,
	})
	if r.Effect != (Effect{}) {
		o.SetEffect(r.Effect)
	}
	bodies := route.Raw{
		Accepts:       r.Accepts,
		Returns:       r.Returns,
		MaxBody:       r.MaxBody,
		Ranges:        r.Ranges,
		Status:        cmp.Or(r.Status, http.StatusOK),
		ErrorStatuses: r.ErrorStatuses,
	}
	o.Handle(bodies, func(ctx context.Context, db *pg.DB, w http.ResponseWriter, sent *http.Request, request any) error {
		return r.Do(ctx, &RawCall{sent, w, db}, request.(Req))
	})
	return o
}

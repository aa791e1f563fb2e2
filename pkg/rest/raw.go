package rest

import (
	"cmp"
	"context"
	"net/http"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest/route"
)

// Raw is an operation that reads and writes bodies itself: an upload, a download with ranges, the exchange of a link. Req
// has its parameters, and no Body.
type Raw[Req any] struct {
	Method        string
	Path          string
	Guard         guard.Guard
	Name          string
	Summary       string
	Doc           string
	Extension     bool
	Effect        Effect   // of one that changes something
	Accepts       []string // the media types of the bodies that it reads; none: it reads no body
	MaxBody       int64    // in bytes
	Returns       []string // the media types of its answers
	Status        int      // of its answers; 0: 200
	ErrorStatuses []int    // with which it refuses besides
	Ranges        bool     // it answers a part of what it gives, too, as http.ServeContent does
	// Do answers the request. What it fails with before it has written anything is answered as any error is; after that
	// it costs the caller the connection.
	Do func(context.Context, *RawCall, Req) error
}

// RawCall is a request as a Raw gets it, and the way to answer it.
type RawCall struct {
	Request *http.Request // its body is bounded in size, and by how long the caller may take to send the next piece
	Writer  http.ResponseWriter
	db      *pg.DB
}

// InTx changes something, as one unit of work with its records: see pg.DB.InTx.
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

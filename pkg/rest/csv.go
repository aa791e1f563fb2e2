package rest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/go-kit/kit/endpoint"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/rest/route"
)

// CSV says which rows a resource accepts.
type CSV struct {
	Guard   guard.Guard // in addition to the resource's own; nil: none
	Without []string    // members that rows cannot set; paths with dots
	// Names finds the items that rows refer to by name, by the member that refers to them: billing.integration.
	Names map[string]pg.FindNames
}

// createRoute creates one item from a JSON body, or creates and edits many from a CSV body.
type createRoute[V, B any] struct {
	Mutation[newItem[B], V]
	collection *Collection[V, B]
}

type importParameters struct {
	Parent  int64 `path:"parent"`
	Partial bool  `query:"partial"`
}

// importRequest is a CSV body. It outlives the attempts of the unit of work.
type importRequest[B any] struct {
	importParameters
	sheet *body.Sheet[B]

	isCareful bool                   // each row has a savepoint, so that the others can be tried after an error
	refused   map[int]problem.Fields // by row: the errors that other services have returned
}

func (c createRoute[V, B]) route() *route.Route {
	o := c.Mutation.route()
	in := route.New[importParameters, Import](o.Operation)
	in.Request.AcceptDryRun()
	options := c.collection.csvOptions()
	o.CSV = &route.Alternative{
		Decode: func(r *http.Request) (any, error) {
			if err := c.collection.checkImport(r); err != nil {
				return nil, err
			}
			decoded, err := in.Decode(r)
			if err != nil {
				return nil, err
			}
			text, err := route.ReadSheet(r)
			if err != nil {
				return nil, err
			}
			with := options
			with.Known = o.Request.Known // which is set once all routes are known
			sheet, err := body.ParseSheet[B](r.Context(), text, with)
			if err == nil && len(sheet.Rows) == 0 {
				err = problem.New(problem.BadRequest, "The body has no rows. The first line only names the columns.")
			}
			return &importRequest[B]{importParameters: decoded.(importParameters), sheet: sheet, refused: map[int]problem.Fields{}}, err
		},
		Endpoint: func(db *pg.DB) endpoint.Endpoint {
			change := route.Change(db, nil, func(ctx context.Context, tx *pg.Tx, request any) (any, error) {
				return c.collection.importRows(ctx, tx, request.(*importRequest[B]))
			})
			return func(ctx context.Context, request any) (any, error) {
				if err := c.collection.findNames(ctx, db, request.(*importRequest[B]).sheet); err != nil {
					return nil, err
				}
				return change(ctx, request)
			}
		},
	}
	return o
}

// csvOptions returns the options of the resource's sheets. It panics if CSV names a member that rows do not have.
func (r *Collection[V, B]) csvOptions() body.SheetOptions {
	options := body.SheetOptions{Shown: r.cells.Names()}
	if r.CSV != nil {
		options.Without, options.Named = r.CSV.Without, slices.Sorted(maps.Keys(r.CSV.Names))
	}
	for _, member := range slices.Concat(options.Without, options.Named) {
		if !body.HasColumn[B](member) {
			panic(fmt.Sprintf("CSV names %s, which rows do not have", member))
		}
	}
	return options
}

// checkImport refuses callers who may not send rows, and headers that are about one item.
func (r *Collection[V, B]) checkImport(sent *http.Request) error {
	if sent.Header.Get("If-Match") != "" {
		return problem.New(problem.BadRequest, "If-Match is about one item, and rows of CSV are about many.")
	}
	if r.CSV == nil || r.CSV.Guard == nil {
		return nil
	}
	return r.CSV.Guard.Check(principal.FromContext(sent.Context()), permission.Write, 0)
}

// findNames finds the ids of the items that the rows name.
func (r *Collection[V, B]) findNames(ctx context.Context, q pg.Querier, sheet *body.Sheet[B]) error {
	found := map[string]map[string][]int64{}
	for member, names := range sheet.Names() {
		var err error
		if found[member], err = r.CSV.Names[member](ctx, q, names); err != nil {
			return err
		}
	}
	sheet.SetNames(found)
	return nil
}

// rowErrors returns the errors of a row's own cells or item. Other errors end the import.
func rowErrors(err error) (errs []problem.Field, ok bool) {
	explained, ok := errors.AsType[*problem.Error](pgerror.Explain(err))
	if !ok {
		return nil, false
	}
	switch explained.Kind {
	case problem.Invalid:
		return explained.Fields, true
	case problem.NotFound:
		return []problem.Field{{Code: "not_found", Message: "refers to an item that does not exist"}}, true
	case problem.Conflict:
		return []problem.Field{{Code: "conflict", Message: explained.Detail}}, true
	default:
		return nil, false
	}
}

// atLine adds the line to the text of an error that ends the import, such as a missing permission.
func atLine(err error, line int) error {
	explained, ok := errors.AsType[*problem.Error](pgerror.Explain(err))
	if !ok || explained.Kind != problem.Forbidden {
		return err
	}
	return problem.New(explained.Kind, "Line %d: %s", line, explained.Detail).Because(err)
}

package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/go-kit/kit/endpoint"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/rest/route"
	"github.com/ironplane/ironplane/pkg/schema"
	"github.com/ironplane/ironplane/pkg/secret"
)

// createRoute creates one item from a JSON body, or many from a CSV body: all of them or none.
type createRoute[V, B any] struct {
	Mutation[newItem[B], V]
	collection *Collection[V, B]
}

type sentRows[B any] struct {
	in    inCollection
	rows  []*B
	lines []int
}

func (c createRoute[V, B]) route() *route.Route {
	o := c.Mutation.route()
	in := route.New[inCollection, Bulk](o.Operation)
	o.CSV = &route.Alternative{
		Decode: func(r *http.Request) (any, error) {
			decoded, err := in.Decode(r)
			if err != nil {
				return nil, err
			}
			text, err := route.ReadBody(r)
			if err != nil {
				return nil, err
			}
			rows, lines, err := body.ParseCSV[B](r.Context(), text, o.Request.Known)
			return sentRows[B]{decoded.(inCollection), rows, lines}, err
		},
		Endpoint: func(db *pg.DB) endpoint.Endpoint {
			return route.Change(db, nil, func(ctx context.Context, tx *pg.Tx, request any) (any, error) {
				return c.collection.createMany(ctx, tx, request.(sentRows[B]))
			})
		},
	}
	return o
}

func (r *Collection[V, B]) createMany(ctx context.Context, tx *pg.Tx, sent sentRows[B]) (created Bulk, err error) {
	if len(sent.rows) == 0 {
		return created, problem.New(problem.BadRequest, "The body has no rows. The first line only names the columns.")
	}
	if err := r.checkParent(ctx, tx, sent.in.Parent, permission.Write); err != nil {
		return created, err
	}
	for _, row := range sent.rows {
		r.setParent(row, sent.in.Parent)
		if r.Allow != nil {
			if err := r.Allow(ctx, tx, nil, row); err != nil {
				return created, err
			}
		}
	}
	if err := r.Lock(ctx, tx, sent.rows...); err != nil {
		return created, err
	}
	ids, ok := r.insertTogether(ctx, tx, sent.rows)
	if !ok {
		if ids, err = r.insertEach(ctx, tx, sent); err != nil {
			return created, err
		}
	}
	items, err := r.view.GetMany(ctx, tx, ids)
	if err != nil {
		return created, err
	}
	for i := range items {
		r.record(tx, pg.Created, &items[i], nil, secret.Marked(items[i], body.NewSecrets(sent.rows[i])...))
	}
	return Bulk{Count: len(ids), First: ids[0], Last: ids[len(ids)-1]}, nil
}

// insertEach inserts each row by itself. The error of a row names its line.
func (r *Collection[V, B]) insertEach(ctx context.Context, tx *pg.Tx, sent sentRows[B]) ([]int64, error) {
	ids := make([]int64, len(sent.rows))
	for i, row := range sent.rows {
		var err error
		if ids[i], err = r.insert(ctx, tx, row); err != nil {
			if f := problem.From(pgerror.Explain(err)); f.Kind == problem.Invalid {
				for n := range f.Fields { // items of this body are rolled back, so the error names their lines
					if existing := f.Fields[n].Existing; existing != nil && slices.Contains(ids[:i], existing.ID) {
						other := slices.Index(ids[:i], existing.ID)
						f.Fields[n].Message = fmt.Sprintf("is in conflict with line %d", sent.lines[other])
					} else if other := findDuplicate(err, sent.rows[:i], row); other >= 0 {
						f.Fields[n].Message += fmt.Sprintf(" by line %d", sent.lines[other])
					}
				}
				return nil, body.ErrorsAtLine(f, sent.lines[i], nil).Err()
			}
			return nil, err
		}
	}
	return ids, nil
}

// findDuplicate returns the index of the earlier row whose key Postgres reports as taken, or -1. The report reads "Key
// (name)=(x) already exists."
func findDuplicate[B any](err error, rows []*B, body *B) int {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || refused.Code != "23505" {
		return -1
	}
	names, _, _ := strings.Cut(strings.TrimPrefix(refused.Detail, "Key ("), ")=")
	columns := strings.Split(names, ", ")
	key := func(row *B) (values []any) {
		for _, m := range schema.Describe(reflect.TypeFor[B]()).Leaves() {
			if value, err := reflect.ValueOf(row).Elem().FieldByIndexErr(m.Index); err == nil && slices.Contains(columns, m.Column) {
				values = append(values, value.Interface())
			}
		}
		return values
	}
	return slices.IndexFunc(rows, func(row *B) bool { return key(row) != nil && reflect.DeepEqual(key(row), key(body)) })
}

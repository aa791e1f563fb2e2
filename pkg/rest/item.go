package rest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/rest/noun"
	"github.com/ironplane/ironplane/pkg/rest/route"
	"github.com/ironplane/ironplane/pkg/schema"
	"github.com/ironplane/ironplane/pkg/secret"
)

func (r *Collection[V, B]) prepare(ctx context.Context, verb Verbs, body *Body[B]) error {
	if r.Prepare == nil {
		return nil
	}
	return r.Prepare(ctx, verb, body.Sent())
}

func (r *Collection[V, B]) allowNew(ctx context.Context, tx *pg.Tx, req newItem[B]) error {
	if r.Allow == nil {
		return nil
	}
	row, _ := req.Body.New() // create reports invalid members, unless a stored response is repeated
	r.setParent(row, req.Parent)
	return r.Allow(ctx, tx, nil, row)
}

// setParent sets the parent's id in a body.
func (r *Collection[V, B]) setParent(body *B, parent int64) {
	if r.parent != nil {
		reflect.ValueOf(body).Elem().FieldByIndex(r.parent.Index).SetInt(parent)
	}
}

// checkParent returns an error if the caller has no such access below the parent.
func (r *Collection[V, B]) checkParent(ctx context.Context, q pg.Querier, parent int64, a permission.Access) error {
	if r.parent == nil {
		return nil
	}
	return r.Parent(ctx, q, parent, a)
}

// visibleTo returns the conditions for the items below a parent that the caller may see.
func (r *Collection[V, B]) visibleTo(ctx context.Context, parent int64) (where []pg.Condition) {
	if r.parent != nil {
		where = append(where, pg.Condition{SQL: r.parent.Column + " = $1", Args: []any{parent}})
	}
	if r.Scope != nil {
		where = append(where, r.Scope(ctx)...)
	}
	return where
}

// readableTo does the same for a list with parameters, or for viewing the item with an id.
func (r *Collection[V, B]) readableTo(ctx context.Context, db *pg.DB, parent int64, asked url.Values, id int64) ([]pg.Condition, error) {
	if r.ReadScope != nil {
		return r.ReadScope(ctx, asked, id)
	}
	return r.visibleTo(ctx, parent), r.checkParent(ctx, db, parent, permission.Read)
}

func (r *Collection[V, B]) listConditions(ctx context.Context, db *pg.DB, req listRequest[inCollection]) ([]pg.Condition, error) {
	return r.readableTo(ctx, db, req.own.Parent, req.query.asked, 0)
}

func (r *Collection[V, B]) viewOne(ctx context.Context, db *pg.DB, req viewItem) (V, error) {
	where, err := r.readableTo(ctx, db, req.Parent, nil, req.ID)
	if err != nil {
		return *new(V), err
	}
	return r.view.Get(ctx, db, req.ID, where...)
}

// viewIncluding returns an item with the parts that the request includes.
func (r *Collection[V, B]) viewIncluding(ctx context.Context, db *pg.DB, req viewItemAndMore) (V, error) {
	item, err := r.viewOne(ctx, db, viewItem{req.Parent, req.ID})
	if err != nil {
		return item, err
	}
	for name := range strings.FieldsFuncSeq(req.Include, func(r rune) bool { return r == ',' }) {
		include := r.Includes[name]
		if include == nil {
			var invalid problem.Fields
			invalid.Add("?include", "unknown", "can be %s", strings.Join(slices.Sorted(maps.Keys(r.Includes)), ", "))
			return item, route.InvalidQuery(invalid)
		}
		if err := include(ctx, db, &item); err != nil {
			return item, err
		}
	}
	return item, nil
}

func (r *Collection[V, B]) create(ctx context.Context, tx *pg.Tx, req newItem[B]) (V, error) {
	if err := r.checkParent(ctx, tx, req.Parent, permission.Write); err != nil {
		return *new(V), err
	}
	row, err := req.Body.New()
	if err != nil {
		return *new(V), err
	}
	r.setParent(row, req.Parent)
	if err := r.Lock(ctx, tx, Creating, row); err != nil {
		return *new(V), err
	}
	id, err := r.insert(ctx, tx, row)
	if found, ok := errors.AsType[*earlyResponse[V]](err); ok {
		return maskFor(ctx, r.hidden, *found.item), nil
	}
	if err != nil {
		return *new(V), req.Body.MapError(err)
	}
	after, err := r.readAfter(ctx, tx, IDs{id})
	if err != nil {
		return *new(V), err
	}
	r.record(tx, pg.Created, &after[0], nil, secret.Marked(after[0], body.NewSecrets(row)...))
	after[0] = maskFor(ctx, r.hidden, after[0])
	if r.Reveal != nil {
		r.Reveal(&after[0], row)
	}
	return after[0], nil
}

// earlyResponse is the error of a Check that ends a create with an existing item.
type earlyResponse[V any] struct{ item *V }

func (i *earlyResponse[V]) Error() string { return "the item exists" }

// RespondWith ends a create with an existing item as the response. It is for a Check, which records what it did to the item, if
// anything.
func RespondWith[V any](item *V) error { return &earlyResponse[V]{item} }

func (r *Collection[V, B]) insert(ctx context.Context, tx *pg.Tx, body *B) (int64, error) {
	if err := r.Check(ctx, tx, 0, nil, body); err != nil {
		return 0, err
	}
	insert := r.table.Insert
	if r.Insert != nil {
		insert = r.Insert
	}
	id, err := insert(ctx, tx, body)
	if err != nil {
		return 0, fmt.Errorf("create %s: %w", r.Noun, err)
	}
	return id, nil
}

func (r *Collection[V, B]) record(tx *pg.Tx, action pg.Action, item *V, before, after any) {
	record := pg.Record{Kind: r.kind, Action: action, Targets: []pg.Target{r.target(item)}, Before: before, After: after}
	if r.Related != nil {
		record.Targets = append(record.Targets, r.Related(item)...)
	}
	tx.Record(record)
}

func (r *Collection[V, B]) target(item *V) pg.Target {
	v := reflect.ValueOf(item).Elem()
	t := pg.Target{Type: r.Path[1:], Noun: r.Noun, ID: idOf(item), Name: v.FieldByName("Name").String(), Version: versionOf(item)}
	if r.parent != nil {
		parent := v.FieldByIndex(schema.Describe(v.Type()).ByColumn(r.parent.Column).Index).Int()
		t.Type = route.PathParameter.ReplaceAllString(t.Type, fmt.Sprint(parent))
	}
	return t
}

func idOf[V any](item *V) int64 { return reflect.ValueOf(item).Elem().FieldByName("ID").Int() }
func versionOf[V any](item *V) int64 {
	return reflect.ValueOf(item).Elem().FieldByName("Version").Int()
}

func (r *Collection[V, B]) inUseError(id int64, err error) error {
	if user, ok := pgerror.ReferencingTable(err); ok {
		return problem.New(problem.Conflict, "%s %d is in use by a row of %s.", noun.Capital(r.Noun), id, strings.ReplaceAll(user, "_", " ")).
			Because(err)
	}
	return fmt.Errorf("delete %s %d: %w", r.Noun, id, err)
}

package rest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Resource is the five operations on a collection whose items of type V are read from a SQL view and written, as
// values of type B, to a table. V has members ID and Name, and embeds Versioned.
//
// A resource that needs more at one step has a function for that step.
type Resource[V, B any] struct {
	DB    *pg.DB
	Path  string // of the collection: /port-speed
	ID    string // the name of the path parameter: port_speed_id
	Noun  string // as it starts a sentence: Port speed
	Guard principal.Guard
	// OwnGuard guards viewing and editing one item, where that is wider than Guard; nil: it is not.
	OwnGuard principal.Guard
	// ReadGuard guards listing and viewing, where that is wider than Guard; nil: it is not.
	ReadGuard principal.Guard
	// Additions are the methods that the documented API does not have.
	Additions []string
	Table     string
	View      string      // the table where it does not say
	Box       *secret.Box // of a table with sealed columns
	By        By

	// Includes are what a view can show besides, as include= names it.
	Includes map[string]func(context.Context, pg.Querier, *V) error

	// Prepare does what takes long, before the unit of work begins. It is given what was sent, of which nothing is
	// checked yet, and may leave what it worked out in members of B that have no tag.
	Prepare func(context.Context, *B) error

	// Lock takes, before anything else, the locks that a change takes. rows are those that are to be inserted; there
	// are none where an item is edited or deleted.
	Lock func(ctx context.Context, tx *pg.Tx, rows ...*B) error

	Insert func(context.Context, *pg.Tx, *B) (id int64, err error)
	Update func(ctx context.Context, tx *pg.Tx, id int64, body *B) error
	Delete func(ctx context.Context, tx *pg.Tx, item *V) error
}

// Item is the request of an operation on one item.
type Item struct {
	ID int64 `path:"*"`
}

// NewItem is the request of an operation that makes an item.
type NewItem[B any] struct{ Body Body[B] }

// EditItem is the request of an operation that edits an item.
type EditItem[B any] struct {
	ID    int64 `path:"*"`
	Match IfMatch
	Body  Body[B]
}

// DeleteItem is the request of an operation that deletes an item.
type DeleteItem struct {
	ID    int64 `path:"*"`
	Match IfMatch
}

// Routes are the five operations.
func (r Resource[V, B]) Routes() []Route {
	if r.View == "" {
		r.View = r.Table
	}
	if r.OwnGuard == nil {
		r.OwnGuard = r.Guard
	}
	readGuard, viewGuard := r.Guard, r.OwnGuard
	if r.ReadGuard != nil {
		readGuard, viewGuard = r.ReadGuard, r.ReadGuard
	}
	added := func(method string) bool { return slices.Contains(r.Additions, method) }
	view, table := pg.NewView[V](r.View), pg.NewTable[B](r.Table, r.View, r.Box)
	if r.Lock == nil {
		r.Lock = func(context.Context, *pg.Tx, ...*B) error { return nil }
	}
	if r.Insert == nil {
		r.Insert = table.Insert
	}
	if r.Update == nil {
		r.Update = table.Update
	}
	if r.Delete == nil {
		r.Delete = func(ctx context.Context, tx *pg.Tx, item *V) error { return table.Delete(ctx, tx, r.target(item).ID) }
	}
	item := r.Path + "/{" + r.ID + "}"
	noun := r.Noun
	if noun[1] >= 'a' { // no abbreviation
		noun = strings.ToLower(noun[:1]) + noun[1:]
	}
	create := Mutation[NewItem[B], V]{Method: http.MethodPost, Path: r.Path, Guard: r.Guard, Summary: "Create a " + noun, Extension: added(http.MethodPost),
		Prepare: func(ctx context.Context, req *NewItem[B]) error { return r.prepare(ctx, &req.Body) },
		Do: func(ctx context.Context, tx *pg.Tx, req NewItem[B]) (V, error) {
			body, err := req.Body.New()
			if err != nil {
				return *new(V), err
			}
			if err := r.Lock(ctx, tx, body); err != nil {
				return *new(V), err
			}
			id, err := r.Insert(ctx, tx, body)
			if err != nil {
				return *new(V), fmt.Errorf("create %s: %w", noun, err)
			}
			_, secrets := req.Body.Secrets(body, nil)
			after, err := r.after(ctx, tx, view, id)
			r.record(tx, "created", &after, nil, secret.Marked(after, secrets...))
			return after, err
		}}
	routes := []Route{
		List[None, V]{Path: r.Path, Guard: readGuard, Summary: "List " + noun + "s", DB: r.DB, View: view, By: r.By},
		create,
		Read[Item, V]{Path: item, Guard: viewGuard, Summary: "View a " + noun,
			Do: func(ctx context.Context, req Item) (V, error) { return view.Get(ctx, r.DB, req.ID) }},
		Mutation[EditItem[B], V]{Method: http.MethodPatch, Path: item, Guard: r.OwnGuard, Summary: "Edit a " + noun, Extension: added(http.MethodPatch),
			Prepare: func(ctx context.Context, req *EditItem[B]) error { return r.prepare(ctx, &req.Body) },
			Do: func(ctx context.Context, tx *pg.Tx, req EditItem[B]) (V, error) {
				if err := r.hold(ctx, tx, table, req.ID, req.Match); err != nil {
					return *new(V), err
				}
				before, err := view.Get(ctx, tx, req.ID)
				if err != nil {
					return before, err
				}
				current, err := table.Load(ctx, tx, req.ID)
				if err != nil {
					return before, err
				}
				body, err := req.Body.Over(current)
				if err != nil {
					return before, err
				}
				if err := r.Update(ctx, tx, req.ID, body); err != nil {
					return before, fmt.Errorf("edit %s %d: %w", noun, req.ID, err)
				}
				was, is := req.Body.Secrets(body, current)
				after, err := r.after(ctx, tx, view, req.ID)
				r.record(tx, "edited", &after, secret.Marked(before, was...), secret.Marked(after, is...))
				return after, err
			}},
		Mutation[DeleteItem, Message]{Method: http.MethodDelete, Path: item, Guard: r.Guard, Summary: "Delete a " + noun, Extension: added(http.MethodDelete),
			Do: func(ctx context.Context, tx *pg.Tx, req DeleteItem) (Message, error) {
				if err := r.hold(ctx, tx, table, req.ID, req.Match); err != nil {
					return Message{}, err
				}
				before, err := view.Get(ctx, tx, req.ID)
				if err != nil {
					return Message{}, err
				}
				if err := r.Delete(ctx, tx, &before); err != nil {
					return Message{}, r.inUse(req.ID, err)
				}
				r.record(tx, "deleted", &before, before, nil)
				return Deleted(r.Noun, req.ID), nil
			}},
	}
	if r.Includes != nil {
		routes[2] = Read[itemAndMore, V]{Path: item, Guard: viewGuard, Summary: "View a " + noun,
			Do: func(ctx context.Context, req itemAndMore) (V, error) { return r.viewWith(ctx, view, req) }}
	}
	if r.Prepare == nil { // which may take long for each row
		routes[1] = createRoute[V, B]{create, r, view}
	}
	return routes
}

// itemAndMore is the request of an operation on one item that can show more.
type itemAndMore struct {
	ID      int64  `path:"*"`
	Include string `query:"include" doc:"what is shown besides, with commas between"`
}

// viewWith views an item and what it is asked to include.
func (r Resource[V, B]) viewWith(ctx context.Context, view *pg.View[V], req itemAndMore) (V, error) {
	item, err := view.Get(ctx, r.DB, req.ID)
	if err != nil || req.Include == "" {
		return item, err
	}
	for name := range strings.SplitSeq(req.Include, ",") {
		include := r.Includes[name]
		if include == nil {
			var wrong problem.Fields
			wrong.Add("?include", "unknown", "can be %s", strings.Join(slices.Sorted(maps.Keys(r.Includes)), ", "))
			return item, wrongQuery(wrong)
		}
		if err := include(ctx, r.DB, &item); err != nil {
			return item, err
		}
	}
	return item, nil
}

// hold keeps other writers off an item that the caller has seen as it is.
func (r Resource[V, B]) hold(ctx context.Context, tx *pg.Tx, table *pg.Table[B], id int64, match IfMatch) error {
	if err := r.Lock(ctx, tx); err != nil {
		return err
	}
	version, err := table.Hold(ctx, tx, id)
	if err != nil {
		return err
	}
	return match.Check(version)
}

func (r Resource[V, B]) prepare(ctx context.Context, body *Body[B]) error {
	if r.Prepare == nil {
		return nil
	}
	return r.Prepare(ctx, &body.value)
}

// Deleted is the answer to a delete.
func Deleted(noun string, id int64) Message {
	return Message{fmt.Sprintf("%s %d deleted.", noun, id)}
}

// after reads what came of a change.
func (r Resource[V, B]) after(ctx context.Context, tx *pg.Tx, view *pg.View[V], id int64) (V, error) {
	after, err := view.Get(ctx, tx, id)
	if err != nil {
		return after, fmt.Errorf("read %s %d after it was changed: %w", r.kind(), id, err)
	}
	return after, nil
}

func (r Resource[V, B]) record(tx *pg.Tx, what string, item *V, before, after any) {
	tx.Record(pg.Change{Type: r.kind() + "." + what, Targets: []pg.Target{r.target(item)}, Before: before, After: after})
}

func (r Resource[V, B]) kind() string { return strings.ReplaceAll(r.Path[1:], "/", ".") }

func (r Resource[V, B]) target(item *V) pg.Target {
	v := reflect.ValueOf(item).Elem()
	return pg.Target{Type: r.Path[1:], ID: v.FieldByName("ID").Int(), Name: v.FieldByName("Name").String(), Version: v.FieldByName("Version").Int()}
}

func (r Resource[V, B]) inUse(id int64, err error) error {
	if user, ok := pg.StillUsed(err); ok {
		return problem.New(problem.Conflict, "%s %d is in use by a row of %s.", r.Noun, id, strings.ReplaceAll(user, "_", " ")).Because(err)
	}
	return fmt.Errorf("delete %s %d: %w", r.Noun, id, err)
}

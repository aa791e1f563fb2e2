package rest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/rest/noun"
	"github.com/ironplane/ironplane/pkg/rest/route"
	"github.com/ironplane/ironplane/pkg/schema"
	"github.com/ironplane/ironplane/pkg/seal"
)

// Resource is the five operations on a collection whose items of type V are read from a SQL view and written, as
// values of type B, to a table. V has members ID and Name, and embeds Versioned.
//
// A resource that needs more at one step has a function for that step.
type Resource[V, B any] struct {
	DB    *pg.DB
	Path  string // of the collection: /port-speed; below each item of another one, /field/{field_id}/value
	ID    string // the name of the path parameter: port_speed_id
	Noun  string // what an item is called in the middle of a sentence: port speed
	Guard guard.Guard
	// OwnGuard guards viewing and editing one item, where that is wider than Guard; nil: it is not.
	OwnGuard guard.Guard
	// ReadGuard guards listing and viewing, where that is wider than Guard; nil: it is not.
	ReadGuard guard.Guard
	Without   Verbs // which the API does not have
	Additions Verbs // which the documented API does not have
	Table     string
	View      string    // the table where it does not say
	Box       *seal.Box // of a table with sealed columns
	By        By
	Again     Again  // what becomes of a create that is sent a second time
	Example   string // of a create; where it is empty, it is made of the examples of B's members
	Edited    string // an example of an edit, which changes what the example of a create makes

	// Scope is which items the caller may know of: there are no others for him, whatever he does. nil: all of them.
	Scope func(context.Context) []pg.Condition
	// Unseen is the error of a change of items of which some are not in the scope; nil: pgx.ErrNoRows.
	Unseen func(ctx context.Context, q pg.Querier, ids []int64) error
	// Parent is for a collection below each item of another one. It fails where the caller may not do this below the
	// parent of this id: with pgx.ErrNoRows where he may not know of it. B has a member for the parent's id, with the
	// tags path and db.
	Parent func(ctx context.Context, q pg.Querier, id int64, a permission.Access) error

	// Through are links to items, of which an edit is one of the item: Item finds it, and Show is the link afterwards.
	Through []struct {
		Path, Noun, Edited string
		Link               any // of the type that Show answers
		Item               func(ctx context.Context, q pg.Querier, parent, link int64) (id int64, err error)
		Show               func(ctx context.Context, q pg.Querier, parent, link int64) (any, error)
	}

	// Includes are what a view can show besides, as include= names it.
	Includes map[string]func(context.Context, pg.Querier, *V) error

	// Read reads the body of a create or an edit that may be multipart/form-data, or longer than others, and answers it as JSON.
	// What is too large for that it has put elsewhere. nil: bodies are as those of others.
	Read func(*http.Request) ([]byte, error)
	// Prepare does what takes long, or counts a request whatever comes of it, before the unit of work of a create or an
	// edit begins. It is given what was sent, of which nothing is checked yet, and may leave what it worked out in members
	// of B that have no tag.
	Prepare func(context.Context, Verbs, *B) error
	// Allow says whether this caller may create this: see Mutation. What is sent may be wrong in other ways.
	Allow func(context.Context, *pg.Tx, *B) error
	// Lock takes, before anything else, the locks that a change takes. rows are those that are to be inserted. Where
	// items are edited or deleted, it is called without any, and before they are written over once more with what they
	// are to be.
	Lock func(ctx context.Context, tx *pg.Tx, rows ...*B) error
	// There answers a create of something that is there already, with what the caller is shown of it; nil: it is not there.
	There func(context.Context, *pg.Tx, *B) (*V, error)
	// Check finds what is wrong with a body that takes the database to know. before is nil, and id 0, of a new item.
	Check func(ctx context.Context, tx *pg.Tx, id int64, before, body *B) error

	Insert func(context.Context, *pg.Tx, *B) (id int64, err error)
	Update func(ctx context.Context, tx *pg.Tx, id int64, body *B) error
	Delete func(ctx context.Context, tx *pg.Tx, item *V) error
	// Close makes sure, before items are deleted that the caller may delete, that no other service refers to them.
	Close func(ctx context.Context, tx *pg.Tx, items []V) error
	// Detach has items deleted once what refers to them has let go of them, as a DELETE with detach=true asks for, and records
	// that. nil: there is no such parameter.
	Detach func(ctx context.Context, tx *pg.Tx, items []V) error

	// Reveal puts into the answer to a create or an edit what is shown this once.
	Reveal func(item *V, body *B)
	// About is what else a change of an item is about.
	About func(item *V) []pg.Target
}

// Verbs are some of a resource's operations.
type Verbs uint8

// The verbs.
const (
	Listing Verbs = 1 << iota
	Creating
	Viewing
	Editing
	Deleting
)

// Item is the request of an operation on one item.
type Item struct {
	ID int64 `path:"*"`
}

// EditItem is the request of an operation that edits an item.
type EditItem[B any] struct {
	ID    int64 `path:"*"`
	Match IfMatch
	Body  Body[B]
}

type (
	inCollection struct {
		Parent int64 `path:"parent"`
	}
	newItem[B any] struct {
		Parent int64 `path:"parent"`
		Body   Body[B]
	}
	viewItem struct {
		Parent int64 `path:"parent"`
		ID     int64 `path:"*"`
	}
	viewItemAndMore struct {
		Parent  int64  `path:"parent"`
		ID      int64  `path:"*"`
		Include string `query:"include" doc:"what is shown besides; several also with commas between"`
	}
	editItems[B any] struct {
		Parent int64   `path:"parent"`
		IDs    itemIDs `path:"*"`
		Match  IfMatch
		Body   Body[B]
	}
	editThrough[B any] struct {
		Parent int64 `path:"parent"`
		ID     int64 `path:"*"`
		Match  IfMatch
		Body   Body[B]
	}
	deleteItems struct {
		Parent int64   `path:"parent"`
		IDs    itemIDs `path:"*"`
		Match  IfMatch
	}
	detachItems struct {
		Parent int64   `path:"parent"`
		IDs    itemIDs `path:"*"`
		Match  IfMatch
		Detach bool `query:"detach" ext:"true" doc:"true: what belongs to it is no reason to refuse. It is taken from it first, which may take a while, and then it is deleted."`
	}
)

// resource is a Resource that is put together.
type resource[V, B any] struct {
	Resource[V, B]
	view   *pg.View[V]
	table  *table.Table[B]
	parent *schema.Member // of B, that holds the parent's id; nil: the collection has no parent
	kind   string
}

// Routes are the operations.
func (r Resource[V, B]) Routes() []Route {
	all := r.assemble()
	item := r.Path + "/{" + r.ID + "}"
	guard := func(wider ...guard.Guard) guard.Guard {
		for _, g := range wider {
			if g != nil {
				return g
			}
		}
		return r.Guard
	}
	added := func(o Verbs) bool { return r.Additions&o != 0 }
	effect := func(again Again, shows string) Effect { return Effect{Logs: LogsItem, Again: again, Shows: shows} }
	one, scoped := noun.WithArticle(r.Noun), r.Scope != nil
	create := Mutation[newItem[B], V]{
		Method:    http.MethodPost,
		Path:      r.Path,
		Guard:     r.Guard,
		Name:      "create" + noun.Camel(r.Noun),
		Summary:   "Create " + one,
		Extension: added(Creating),
		Effect: effect(
			r.Again,
			item,
		),
		Example: r.Example,
		Prepare: func(ctx context.Context, req *newItem[B]) error { return all.prepare(ctx, Creating, &req.Body) },
		Allow:   all.allow,
		Do:      all.create,
		scoped:  scoped,
		read:    r.Read,
	}
	view := Route(
		Read[viewItem, V]{
			Path:      item,
			Guard:     guard(r.ReadGuard, r.OwnGuard),
			Name:      "get" + noun.Camel(r.Noun),
			Summary:   "View " + one,
			Extension: added(Viewing),
			Do:        all.viewOne,
			scoped:    scoped,
		},
	)
	if r.Includes != nil {
		view = Read[viewItemAndMore, V]{
			Path:      item,
			Guard:     guard(r.ReadGuard, r.OwnGuard),
			Name:      "get" + noun.Camel(r.Noun),
			Summary:   "View " + one,
			Extension: added(Viewing),
			Do:        all.viewWith,
			scoped:    scoped,
			includes:  slices.Sorted(maps.Keys(r.Includes)),
		}
	}
	routes := map[Verbs]Route{
		Listing: List[inCollection, V]{
			Path:      r.Path,
			Guard:     guard(r.ReadGuard),
			Name:      "list" + noun.Camel(noun.Plural(r.Noun)),
			Summary:   "List " + noun.Plural(r.Noun),
			Extension: added(Listing),
			DB:        r.DB,
			View:      all.View,
			By:        r.By,
			Where:     all.listed,
			scoped:    scoped,
		},
		Creating: create,
		Viewing:  view,
		Editing: itemsRoute[editItems[B], V]{
			Mutation[editItems[B], any]{
				Method:    http.MethodPatch,
				Path:      item,
				Guard:     guard(r.OwnGuard),
				Name:      "update" + noun.Camel(r.Noun),
				Summary:   "Edit " + one,
				Extension: added(Editing),
				Effect:    effect(AgainSame, item),
				Example:   r.Edited,
				Prepare:   func(ctx context.Context, req *editItems[B]) error { return all.prepare(ctx, Editing, &req.Body) },
				Do:        all.edit,
				scoped:    scoped,
				read:      r.Read,
			},
		},
		Deleting: itemsRoute[deleteItems, Message]{
			Mutation[deleteItems, any]{
				Method:    http.MethodDelete,
				Path:      item,
				Guard:     r.Guard,
				Name:      "delete" + noun.Camel(r.Noun),
				Summary:   "Delete " + one,
				Extension: added(Deleting),
				Effect:    effect(AgainRefused, ""),
				Do:        all.remove,
				scoped:    scoped,
			},
		},
	}
	if r.Detach != nil {
		routes[Deleting] = itemsRoute[detachItems, Message]{
			Mutation[detachItems, any]{
				Method:    http.MethodDelete,
				Path:      item,
				Guard:     r.Guard,
				Name:      "delete" + noun.Camel(r.Noun),
				Summary:   "Delete " + one,
				Extension: added(Deleting),
				Effect:    effect(AgainRefused, ""),
				Do:        all.removeOrDetach,
				scoped:    scoped,
			},
		}
	}
	if r.Prepare == nil && r.Reveal == nil && r.Read == nil { // which may take long for each row, and for which there is no place
		routes[Creating] = createRoute[V, B]{create, all}
	}
	var own []Route
	for _, o := range slices.Sorted(maps.Keys(routes)) {
		if r.Without&o == 0 {
			own = append(own, routes[o])
		}
	}
	for _, l := range r.Through {
		own = append(
			own,
			throughRoute{
				reflect.TypeOf(l.Link),
				Mutation[editThrough[B], any]{
					Method:  http.MethodPatch,
					Path:    l.Path,
					Guard:   guard(r.OwnGuard),
					Name:    "update" + noun.Camel(l.Noun),
					Summary: "Edit the " + r.Noun + " at the end of " + noun.WithArticle(l.Noun),
					Effect:  effect(AgainSame, l.Path),
					Example: l.Edited,
					Prepare: func(ctx context.Context, req *editThrough[B]) error { return all.prepare(ctx, Editing, &req.Body) },
					Do: func(ctx context.Context, tx *pg.Tx, req editThrough[B]) (any, error) {
						id, err := l.Item(ctx, tx, req.Parent, req.ID)
						if err == nil {
							_, err = all.edit(ctx, tx, editItems[B]{IDs: itemIDs{id}, Match: req.Match, Body: req.Body})
						}
						if err != nil {
							return nil, err
						}
						return l.Show(ctx, tx, req.Parent, req.ID)
					},
				},
			},
		)
	}
	return own
}

type throughRoute struct {
	link reflect.Type
	Route
}

func (t throughRoute) route() *route.Route {
	o := t.Route.route()
	o.ResponseType = t.link
	return o
}

// assemble fills in what the resource leaves to the table, and panics where its parts do not fit together.
func (r Resource[V, B]) assemble() *resource[V, B] {
	if r.View == "" {
		r.View = r.Table
	}
	all := &resource[V, B]{view: pg.NewView[V](r.View), table: table.New[B](r.Table, r.View, r.Box),
		kind: strings.ReplaceAll(strings.Trim(route.PathParameter.ReplaceAllString(r.Path, ""), "/"), "/", ".")}
	all.kind = strings.ReplaceAll(all.kind, "..", ".")
	for _, name := range []string{"ID", "Name", "Version"} {
		if _, ok := reflect.TypeFor[V]().FieldByName(name); !ok {
			panic(fmt.Sprintf("rest: %s has no member %s, which %s needs", reflect.TypeFor[V](), name, r.Path))
		}
	}
	if parameters := route.PathParameter.FindAllStringSubmatch(r.Path, -1); len(parameters) > 0 {
		name := parameters[len(parameters)-1][1]
		for _, m := range schema.Of(reflect.TypeFor[B]()).Values() {
			if m.Path == name && m.Column != "" {
				all.parent = m
			}
		}
		if all.parent == nil || r.Parent == nil {
			panic(fmt.Sprintf("rest: %s has no Parent, or %s no member for it", r.Path, reflect.TypeFor[B]()))
		}
	}
	if r.Lock == nil {
		r.Lock = func(context.Context, *pg.Tx, ...*B) error { return nil }
	}
	if r.Check == nil {
		r.Check = func(context.Context, *pg.Tx, int64, *B, *B) error { return nil }
	}
	if r.Insert == nil {
		r.Insert = all.table.Insert
	}
	if r.Update == nil {
		r.Update = all.table.Update
	}
	if r.Delete == nil {
		r.Delete = func(ctx context.Context, tx *pg.Tx, item *V) error { return all.table.Delete(ctx, tx, idOf(item)) }
	}
	if r.Unseen == nil {
		r.Unseen = func(context.Context, pg.Querier, []int64) error { return pgx.ErrNoRows }
	}
	if r.Reveal == nil {
		r.Reveal = func(*V, *B) {}
	}
	all.Resource = r
	return all
}

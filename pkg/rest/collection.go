package rest

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/rest/noun"
	"github.com/ironplane/ironplane/pkg/rest/route"
	"github.com/ironplane/ironplane/pkg/schema"
)

// Collection is a Resource that has been checked and assembled.
type Collection[V, B any] struct {
	Resource[V, B]
	view   *pg.View[V]
	table  *table.Table[B]
	parent *schema.Member // the member of B with the parent's id; nil if the collection has no parent
	hidden *hidden
	cells  *route.Table // of the list of all members
	kind   string
}

// Routes returns the operations of the resource. It panics if the declaration has a mistake.
func (r Resource[V, B]) Routes() []Route { return r.Collection().Routes() }

// Routes returns the operations.
func (r *Collection[V, B]) Routes() []Route {
	declare := map[Verbs]func() Route{
		Listing:  r.declareList,
		Creating: r.declareCreate,
		Viewing:  r.declareView,
		Editing:  r.declareEdit,
		Deleting: r.declareDelete,
	}
	var all []Route
	for _, verb := range slices.Sorted(maps.Keys(declare)) {
		if r.has(verb) {
			all = append(all, declare[verb]())
		}
	}
	all[0] = checkedRoute{all[0], r.statements()}
	return all
}

// has reports whether the API has an operation.
func (r *Collection[V, B]) has(verb Verbs) bool { return r.Without&verb == 0 }

// isExtension reports whether an operation is an addition to the documented API.
func (r *Collection[V, B]) isExtension(verb Verbs) bool { return r.Extensions&verb != 0 }

// guard returns the first of the guards that is set, or else the resource's.
func (r *Collection[V, B]) guard(wider ...guard.Guard) guard.Guard {
	for _, g := range wider {
		if g != nil {
			return g
		}
	}
	return r.Guard
}

// itemPath returns the path of one item.
func (r *Collection[V, B]) itemPath() string { return r.Path + "/{" + r.ID + "}" }

func (r *Collection[V, B]) declareList() Route {
	return List[inCollection, V]{
		Path:      r.Path,
		Guard:     r.guard(r.ReadGuard),
		Name:      "list" + noun.Camel(noun.Plural(r.Noun)),
		Summary:   "List " + noun.Plural(r.Noun),
		Extension: r.isExtension(Listing),
		View:      r.View,
		Options:   r.List,
		Hide:      r.Hide,
		where:     r.listConditions,
		scoped:    r.Scope != nil,
	}
}

func (r *Collection[V, B]) declareCreate() Route {
	create := Mutation[newItem[B], V]{
		Method:    http.MethodPost,
		Path:      r.Path,
		Guard:     r.guard(r.CreateGuard),
		Name:      "create" + noun.Camel(r.Noun),
		Summary:   "Create " + noun.WithArticle(r.Noun),
		Extension: r.isExtension(Creating),
		Effect:    Effect{Logs: LogsItem, Retry: r.Retry, ViewPath: r.itemPath()},
		Example:   r.Example,
		Prepare:   func(ctx context.Context, req *newItem[B]) error { return r.prepare(ctx, Creating, &req.Body) },
		Allow:     r.allowNew,
		Do:        r.create,
		scoped:    r.Scope != nil,
		readBody:  r.ReadBody,
	}
	if r.CSV == nil && (r.Prepare != nil || r.Reveal != nil || r.ReadBody != nil) { // rows have no place for these, or take too long
		return create
	}
	return createRoute[V, B]{create, r}
}

func (r *Collection[V, B]) declareView() Route {
	if r.Includes == nil {
		return Read[viewItem, V]{
			Path:      r.itemPath(),
			Guard:     r.guard(r.ReadGuard, r.OwnGuard),
			Name:      "get" + noun.Camel(r.Noun),
			Summary:   "View " + noun.WithArticle(r.Noun),
			Extension: r.isExtension(Viewing),
			Hide:      r.Hide,
			do:        r.viewOne,
			scoped:    r.Scope != nil,
		}
	}
	return Read[viewItemAndMore, V]{
		Path:      r.itemPath(),
		Guard:     r.guard(r.ReadGuard, r.OwnGuard),
		Name:      "get" + noun.Camel(r.Noun),
		Summary:   "View " + noun.WithArticle(r.Noun),
		Extension: r.isExtension(Viewing),
		Hide:      r.Hide,
		do:        r.viewIncluding,
		scoped:    r.Scope != nil,
		includes:  slices.Sorted(maps.Keys(r.Includes)),
	}
}

func (r *Collection[V, B]) declareEdit() Route {
	return editRoute[V, B]{Mutation[editItems[B], any]{
		Method:    http.MethodPatch,
		Path:      r.itemPath(),
		Guard:     r.guard(r.OwnGuard),
		Name:      "update" + noun.Camel(r.Noun),
		Summary:   "Edit " + noun.WithArticle(r.Noun),
		Extension: r.isExtension(Editing),
		Effect:    Effect{Logs: LogsItem, Retry: RetrySafe, ViewPath: r.itemPath()},
		Example:   r.EditExample,
		Prepare:   func(ctx context.Context, req *editItems[B]) error { return r.prepare(ctx, Editing, &req.Body) },
		Do:        r.edit,
		scoped:    r.Scope != nil,
		readBody:  r.ReadBody,
	}}
}

func (r *Collection[V, B]) declareDelete() Route {
	return Mutation[deleteItems, Message]{
		Method:    http.MethodDelete,
		Path:      r.itemPath(),
		Guard:     r.guard(r.DeleteGuard),
		Name:      "delete" + noun.Camel(r.Noun),
		Summary:   "Delete " + noun.WithArticle(r.Noun),
		Extension: r.isExtension(Deleting),
		Effect:    Effect{Logs: LogsItem, Retry: RetryRefused},
		Do:        r.remove,
		scoped:    r.Scope != nil,
	}
}

// Edit edits an item of a collection without a parent. It fails if match names other versions of the item.
func (r *Collection[V, B]) Edit(ctx context.Context, tx *pg.Tx, id int64, match IfMatch, body Body[B]) error {
	_, err := r.edit(ctx, tx, editItems[B]{IDs: IDs{id}, Match: match, Body: body})
	return err
}

// Hold locks items of a collection without a parent, and returns them in ascending order of their ids.
func (r *Collection[V, B]) Hold(ctx context.Context, tx *pg.Tx, ids IDs, match IfMatch) ([]V, error) {
	return r.hold(ctx, tx, 0, ids, match)
}

// Remove deletes items of a collection without a parent.
func (r *Collection[V, B]) Remove(ctx context.Context, tx *pg.Tx, ids IDs, match IfMatch) (Message, error) {
	return r.remove(ctx, tx, deleteItems{IDs: ids, Match: match})
}

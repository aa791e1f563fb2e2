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
	"github.com/ironplane/ironplane/pkg/schema"
)

// Collection is a Resource that is put together.
type Collection[V, B any] struct {
	Resource[V, B]
	view   *pg.View[V]
	table  *table.Table[B]
	parent *schema.Member // of B, that holds the parent's id; nil: the collection has no parent
	hidden *hidden
	kind   string
}

// Routes are the resource's operations. It panics where its parts do not fit together.
func (r Resource[V, B]) Routes() []Route { return r.Collection().Routes() }

// Routes are the operations.
func (r *Collection[V, B]) Routes() []Route {
	made := map[Verbs]func() Route{
		Listing:  r.listing,
		Creating: r.creating,
		Viewing:  r.viewing,
		Editing:  r.editing,
		Deleting: r.deleting,
	}
	var all []Route
	for _, verb := range slices.Sorted(maps.Keys(made)) {
		if r.has(verb) {
			all = append(all, made[verb]())
		}
	}
	all[0] = needing{all[0], r.statements()}
	return all
}

// has tells whether the API has an operation.
func (r *Collection[V, B]) has(verb Verbs) bool { return r.Without&verb == 0 }

// added tells whether an operation is none of the documented API.
func (r *Collection[V, B]) added(verb Verbs) bool { return r.Additions&verb != 0 }

// guard is the first of these that there is, or else the resource's.
func (r *Collection[V, B]) guard(wider ...guard.Guard) guard.Guard {
	for _, g := range wider {
		if g != nil {
			return g
		}
	}
	return r.Guard
}

// item is the path of one item.
func (r *Collection[V, B]) item() string { return r.Path + "/{" + r.ID + "}" }

func (r *Collection[V, B]) listing() Route {
	return List[inCollection, V]{
		Path:      r.Path,
		Guard:     r.guard(r.ReadGuard),
		Name:      "list" + noun.Camel(noun.Plural(r.Noun)),
		Summary:   "List " + noun.Plural(r.Noun),
		Extension: r.added(Listing),
		View:      r.View,
		By:        r.By,
		Hide:      r.Hide,
		where:     r.listed,
		scoped:    r.Scope != nil,
	}
}

func (r *Collection[V, B]) creating() Route {
	create := Mutation[newItem[B], V]{
		Method:    http.MethodPost,
		Path:      r.Path,
		Guard:     r.Guard,
		Name:      "create" + noun.Camel(r.Noun),
		Summary:   "Create " + noun.WithArticle(r.Noun),
		Extension: r.added(Creating),
		Effect:    Effect{Logs: LogsItem, Again: r.Again, Shows: r.item()},
		Example:   r.Example,
		Prepare:   func(ctx context.Context, req *newItem[B]) error { return r.prepare(ctx, Creating, &req.Body) },
		Allow:     r.allowNew,
		Do:        r.create,
		scoped:    r.Scope != nil,
		read:      r.Read,
	}
	if r.Prepare != nil || r.Reveal != nil || r.Read != nil { // which may take long for each row, and for which there is no place
		return create
	}
	return createRoute[V, B]{create, r}
}

func (r *Collection[V, B]) viewing() Route {
	if r.Includes == nil {
		return Read[viewItem, V]{
			Path:      r.item(),
			Guard:     r.guard(r.ReadGuard, r.OwnGuard),
			Name:      "get" + noun.Camel(r.Noun),
			Summary:   "View " + noun.WithArticle(r.Noun),
			Extension: r.added(Viewing),
			Hide:      r.Hide,
			do:        r.viewOne,
			scoped:    r.Scope != nil,
		}
	}
	return Read[viewItemAndMore, V]{
		Path:      r.item(),
		Guard:     r.guard(r.ReadGuard, r.OwnGuard),
		Name:      "get" + noun.Camel(r.Noun),
		Summary:   "View " + noun.WithArticle(r.Noun),
		Extension: r.added(Viewing),
		Hide:      r.Hide,
		do:        r.viewWith,
		scoped:    r.Scope != nil,
		includes:  slices.Sorted(maps.Keys(r.Includes)),
	}
}

func (r *Collection[V, B]) editing() Route {
	return editRoute[V, B]{Mutation[editItems[B], any]{
		Method:    http.MethodPatch,
		Path:      r.item(),
		Guard:     r.guard(r.OwnGuard),
		Name:      "update" + noun.Camel(r.Noun),
		Summary:   "Edit " + noun.WithArticle(r.Noun),
		Extension: r.added(Editing),
		Effect:    Effect{Logs: LogsItem, Again: AgainSame, Shows: r.item()},
		Example:   r.Edited,
		Prepare:   func(ctx context.Context, req *editItems[B]) error { return r.prepare(ctx, Editing, &req.Body) },
		Do:        r.edit,
		scoped:    r.Scope != nil,
		read:      r.Read,
	}}
}

func (r *Collection[V, B]) deleting() Route {
	return Mutation[deleteItems, Message]{
		Method:    http.MethodDelete,
		Path:      r.item(),
		Guard:     r.Guard,
		Name:      "delete" + noun.Camel(r.Noun),
		Summary:   "Delete " + noun.WithArticle(r.Noun),
		Extension: r.added(Deleting),
		Effect:    Effect{Logs: LogsItem, Again: AgainRefused},
		Do:        r.remove,
		scoped:    r.Scope != nil,
	}
}

// Edit edits an item of a collection that has no parent, of which the caller has seen the version that match names.
func (r *Collection[V, B]) Edit(ctx context.Context, tx *pg.Tx, id int64, match IfMatch, body Body[B]) error {
	_, err := r.edit(ctx, tx, editItems[B]{IDs: IDs{id}, Match: match, Body: body})
	return err
}

// Hold reads items of a collection that has no parent, and keeps other writers off them. They come in ascending order.
func (r *Collection[V, B]) Hold(ctx context.Context, tx *pg.Tx, ids IDs, match IfMatch) ([]V, error) {
	return r.hold(ctx, tx, 0, ids, match)
}

// Remove deletes items of a collection that has no parent.
func (r *Collection[V, B]) Remove(ctx context.Context, tx *pg.Tx, ids IDs, match IfMatch) (Message, error) {
	return r.remove(ctx, tx, deleteItems{IDs: ids, Match: match})
}

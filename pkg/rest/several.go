package rest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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

// IDs are the items that the last element of a path names: one, or several with commas between. All of them are changed, or
// none.
type IDs []int64

// UnmarshalText parses the element of the path.
func (ids *IDs) UnmarshalText(text []byte) error {
	for part := range strings.SplitSeq(string(text), ",") {
		id, ok := route.ParseID(part)
		switch {
		case !ok:
			return route.NoSuchItem()
		case slices.Contains(*ids, id):
			return problem.New(problem.BadRequest, "The path names %d twice.", id)
		case len(*ids) == route.MaxItems:
			return problem.New(problem.BadRequest, "The path names more than %d items.", route.MaxItems)
		}
		*ids = append(*ids, id)
	}
	return nil
}

// sorted returns the ids in ascending order. All callers lock items in this order, which prevents deadlocks.
func (ids IDs) sorted() IDs { return slices.Sorted(slices.Values(ids)) }

// action returns the action that required members are checked for. Edits of several items have no required members.
func (ids IDs) action() schema.Action {
	if len(ids) > 1 {
		return 0
	}
	return schema.Edit
}

func (ids IDs) checkMatch(match IfMatch) error {
	if len(ids) > 1 && match.IsSet() {
		return problem.New(problem.BadRequest, "If-Match is about one item, and the path names %d.", len(ids))
	}
	return nil
}

// Label returns the noun with the ids: IP groups 1, 2
func (ids IDs) Label(one string) string {
	if len(ids) > 1 {
		one = noun.Plural(one)
	}
	return one + " " + strings.ReplaceAll(strings.Trim(fmt.Sprint([]int64(ids)), "[]"), " ", ", ")
}

// each calls do for one item after the other, and collects the errors about members. With several ids, pointers begin with the
// id. Other errors end the loop. So does an error of Postgres, which accepts no more statements in the transaction.
func (ids IDs) each(do func(i int) error) error {
	var invalid problem.Fields
	for i, id := range ids {
		err := do(i)
		explained := pgerror.Explain(err)
		if len(ids) == 1 || explained != nil && !problem.Is(explained, problem.Invalid) {
			return err
		}
		if err == nil {
			continue
		}
		for _, f := range problem.From(explained).Fields {
			f.Pointer = fmt.Sprintf("/%d%s", id, f.Pointer)
			body.AddOnce(&invalid, f)
		}
		if _, refused := errors.AsType[*pgconn.PgError](err); refused {
			break
		}
	}
	return invalid.Err()
}

// inRequestOrder returns the response: the item, or several in the order of the request. items are in ascending order of their
// ids.
func inRequestOrder[V any](asked IDs, items []V) any {
	if len(asked) == 1 {
		return items[0]
	}
	ascending := asked.sorted()
	all := make([]V, len(asked))
	for i, id := range asked {
		at, _ := slices.BinarySearch(ascending, id)
		all[i] = items[at]
	}
	return all
}

// editRoute edits items. The API document shows the response for one item.
type editRoute[V, B any] struct{ Mutation[editItems[B], any] }

func (e editRoute[V, B]) route() *route.Route {
	o := e.Mutation.route()
	o.ResponseType = reflect.TypeFor[V]()
	return o
}

// editedItem is an item during an edit. after is nil if nothing changes.
type editedItem[B any] struct {
	Body[B]
	before, after *B
}

func (r *Collection[V, B]) edit(ctx context.Context, tx *pg.Tx, req editItems[B]) (any, error) {
	before, err := r.hold(ctx, tx, req.Parent, req.IDs, req.Match)
	if err != nil {
		return nil, err
	}
	ids := req.IDs.sorted()
	items := make([]editedItem[B], len(ids))
	var changed []*B
	err = ids.each(func(i int) (err error) {
		item := &items[i]
		item.Body = req.Body
		if item.before, err = r.table.Load(ctx, tx, ids[i]); err != nil {
			return err
		}
		if item.after, err = item.MergeFor(ids.action(), item.before, maskFor(ctx, r.hidden, before[i])); err != nil {
			return err
		}
		r.setParent(item.after, req.Parent)
		if item.IsChanged(item.after, item.before) {
			changed = append(changed, item.after)
		} else {
			item.after = nil
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(changed) == 0 {
		tx.Unrecorded("nothing changed")
		return inRequestOrder(req.IDs, r.maskItems(ctx, before)), nil
	}
	if err := r.Lock(ctx, tx, Editing, changed...); err != nil {
		return nil, err
	}
	update := r.table.Update
	if r.Update != nil {
		update = r.Update
	}
	err = ids.each(func(i int) error {
		item := &items[i]
		if item.after == nil {
			return nil
		}
		if err := r.Check(ctx, tx, ids[i], item.before, item.after); err != nil {
			return item.MapError(err)
		}
		if err := update(ctx, tx, ids[i], item.after); err != nil {
			return item.MapError(fmt.Errorf("edit %s %d: %w", r.Noun, ids[i], err))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r.recordEdits(ctx, tx, req.IDs, items, before)
}

// recordEdits records the changes, and returns the response: the items as the caller may see them.
func (r *Collection[V, B]) recordEdits(ctx context.Context, tx *pg.Tx, asked IDs, items []editedItem[B], before []V) (any, error) {
	after, err := r.readAfter(ctx, tx, asked.sorted())
	if err != nil {
		return nil, err
	}
	for i, item := range items {
		if item.after != nil {
			was, is := item.ChangedSecrets(item.after, item.before)
			r.record(tx, pg.Edited, &after[i], secret.Marked(before[i], was...), secret.Marked(after[i], is...))
		}
	}
	after = r.maskItems(ctx, after)
	for i, item := range items {
		if item.after != nil && r.Reveal != nil {
			r.Reveal(&after[i], item.after)
		}
	}
	return inRequestOrder(asked, after), nil
}

func (r *Collection[V, B]) remove(ctx context.Context, tx *pg.Tx, req deleteItems) (done Message, err error) {
	before, err := r.hold(ctx, tx, req.Parent, req.IDs, req.Match)
	if err != nil {
		return done, err
	}
	if r.BeforeDelete != nil {
		if err := r.BeforeDelete(ctx, tx, before); err != nil {
			return done, err
		}
	}
	for i := range before {
		if err := r.deleteItem(ctx, tx, &before[i]); err != nil {
			return done, r.inUseError(idOf(&before[i]), err)
		}
		r.record(tx, pg.Deleted, &before[i], before[i], nil)
	}
	return Message{Message: noun.Capital(req.IDs.Label(r.Noun)) + " deleted."}, nil
}

func (r *Collection[V, B]) deleteItem(ctx context.Context, tx *pg.Tx, item *V) error {
	if r.Delete != nil {
		return r.Delete(ctx, tx, item)
	}
	return r.table.Delete(ctx, tx, idOf(item))
}

// maskItems returns the items without the members that are hidden from the caller.
func (r *Collection[V, B]) maskItems(ctx context.Context, items []V) []V {
	if !r.hidden.appliesTo(ctx) {
		return items
	}
	masked := make([]V, len(items))
	for i := range items {
		masked[i] = maskFor(ctx, r.hidden, items[i])
	}
	return masked
}

// hold locks the items that the caller may see, and returns them in ascending order of their ids. It fails if one is missing, or
// if match names other versions.
func (r *Collection[V, B]) hold(ctx context.Context, tx *pg.Tx, parent int64, named IDs, match IfMatch) ([]V, error) {
	if err := named.checkMatch(match); err != nil {
		return nil, err
	}
	if err := r.checkParent(ctx, tx, parent, permission.Write); err != nil {
		return nil, err
	}
	if r.Allow != nil {
		if err := r.Allow(ctx, tx, named, nil); err != nil {
			return nil, err
		}
	}
	if err := r.Lock(ctx, tx, Editing|Deleting); err != nil {
		return nil, err
	}
	ids := named.sorted()
	if err := r.table.Lock(ctx, tx, ids...); err != nil {
		return nil, err
	}
	items, err := r.view.GetMany(ctx, tx, ids, r.visibleTo(ctx, parent)...)
	if err != nil {
		return nil, err
	}
	if len(items) < len(ids) {
		return nil, pgx.ErrNoRows
	}
	return items, match.Check(versionOf(&items[0]))
}

// readAfter returns the items after a change, even if the caller may no longer see them.
func (r *Collection[V, B]) readAfter(ctx context.Context, tx *pg.Tx, ids IDs) ([]V, error) {
	after, err := r.view.GetMany(ctx, tx, ids)
	if err == nil && len(after) < len(ids) {
		err = pgx.ErrNoRows
	}
	if err != nil {
		return nil, fmt.Errorf("read %s after the change: %w", ids.Label(r.Noun), err)
	}
	return after, nil
}

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

// itemIDs are the items that the last element of a path names: one, or several with commas between, of which all are
// changed or none.
type itemIDs []int64

// UnmarshalText reads the element of the path.
func (ids *itemIDs) UnmarshalText(text []byte) error {
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

// ascending is the order in which all callers lock and change items, so that nobody waits for who waits for him.
func (ids itemIDs) ascending() itemIDs { return slices.Sorted(slices.Values(ids)) }

// occasion is what a body that edits these items is sent for: each of several has all that is required.
func (ids itemIDs) occasion() schema.Occasion {
	if len(ids) > 1 {
		return 0
	}
	return schema.Edit
}

func (ids itemIDs) checkMatch(match IfMatch) error {
	if len(ids) > 1 && match.Given() {
		return problem.New(problem.BadRequest, "If-Match is about one item, and the path names %d.", len(ids))
	}
	return nil
}

// named is the items behind their noun: IP groups 1, 2
func (ids itemIDs) named(one string) string {
	if len(ids) > 1 {
		one = noun.Plural(one)
	}
	return one + " " + strings.ReplaceAll(strings.Trim(fmt.Sprint([]int64(ids)), "[]"), " ", ", ")
}

// each does something to one item after the other, and collects what is wrong with the body: of which item, where there
// are several. What else is wrong ends it, and what the database refuses, which then takes no more statements.
func (ids itemIDs) each(do func(i int) error) error {
	var wrong problem.Fields
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
			body.Note(&wrong, f)
		}
		if _, refused := errors.AsType[*pgconn.PgError](err); refused {
			break
		}
	}
	return wrong.Err()
}

// shown is the answer: an item, or several in the order that they were asked for, given in ascending order.
func shown[V any](asked itemIDs, items []V) any {
	if len(asked) == 1 {
		return items[0]
	}
	ascending := asked.ascending()
	all := make([]V, len(asked))
	for i, id := range asked {
		at, _ := slices.BinarySearch(ascending, id)
		all[i] = items[at]
	}
	return all
}

// itemsRoute changes items. Its answer has the type Shown where it is about one.
type itemsRoute[Req, Shown any] struct{ Mutation[Req, any] }

func (i itemsRoute[Req, Shown]) route() *route.Route {
	o := i.Mutation.route()
	o.Several, o.ResponseType = true, reflect.TypeFor[Shown]()
	return o
}

// edited is an item that is edited.
type edited[B any] struct {
	Body[B]
	was, is *B
}

func (r *resource[V, B]) edit(ctx context.Context, tx *pg.Tx, req editItems[B]) (any, error) {
	before, err := r.hold(ctx, tx, req.Parent, req.IDs, req.Match)
	if err != nil {
		return nil, err
	}
	ids := req.IDs.ascending()
	items := make([]edited[B], len(ids))
	var changed []*B
	err = ids.each(func(i int) (err error) {
		item := &items[i]
		item.Body = req.Body
		if item.was, err = r.table.Load(ctx, tx, ids[i]); err != nil {
			return err
		}
		if item.is, err = item.OverOn(ids.occasion(), item.was, before[i]); err != nil {
			return err
		}
		r.place(item.is, req.Parent)
		if item.Changes(item.is, item.was) {
			changed = append(changed, item.is)
		} else {
			item.is = nil
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(changed) == 0 {
		tx.Unrecorded("all is as it was")
		return shown(req.IDs, before), nil
	}
	if err := r.Lock(ctx, tx, changed...); err != nil {
		return nil, err
	}
	err = ids.each(func(i int) error {
		item := &items[i]
		if item.is == nil {
			return nil
		}
		if err := r.Check(ctx, tx, ids[i], item.was, item.is); err != nil {
			return item.Blame(err)
		}
		if err := r.Update(ctx, tx, ids[i], item.is); err != nil {
			return item.Blame(fmt.Errorf("edit %s %d: %w", r.Noun, ids[i], err))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	after, err := r.after(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	for i, item := range items {
		if item.is != nil {
			was, is := item.Secrets(item.is, item.was)
			r.record(tx, pg.Edited, &after[i], secret.Marked(before[i], was...), secret.Marked(after[i], is...))
			r.Reveal(&after[i], item.is)
		}
	}
	return shown(req.IDs, after), nil
}

func (r *resource[V, B]) remove(ctx context.Context, tx *pg.Tx, req deleteItems) (any, error) {
	before, err := r.hold(ctx, tx, req.Parent, req.IDs, req.Match)
	if err != nil {
		return nil, err
	}
	if r.Close != nil {
		if err := r.Close(ctx, tx, before); err != nil {
			return nil, err
		}
	}
	for i := range before {
		if err := r.Delete(ctx, tx, &before[i]); err != nil {
			return nil, r.inUse(idOf(&before[i]), err)
		}
		r.record(tx, pg.Deleted, &before[i], before[i], nil)
	}
	return Message{Message: noun.Capital(req.IDs.named(r.Noun)) + " deleted."}, nil
}

func (r *resource[V, B]) removeOrDetach(ctx context.Context, tx *pg.Tx, req detachItems) (any, error) {
	if !req.Detach {
		return r.remove(ctx, tx, deleteItems{req.Parent, req.IDs, req.Match})
	}
	items, err := r.hold(ctx, tx, req.Parent, req.IDs, req.Match)
	if err == nil {
		err = r.Detach(ctx, tx, items)
	}
	return Message{Message: noun.Capital(req.IDs.named(r.Noun)) + " will be deleted once nothing belongs to it."}, err
}

// hold reads items that are there for the caller, who has seen a single one as it is, and keeps other writers off them.
// They come in ascending order.
func (r *resource[V, B]) hold(ctx context.Context, tx *pg.Tx, parent int64, named itemIDs, match IfMatch) ([]V, error) {
	if err := named.checkMatch(match); err != nil {
		return nil, err
	}
	if err := r.below(ctx, tx, parent, permission.Write); err != nil {
		return nil, err
	}
	if err := r.Lock(ctx, tx); err != nil {
		return nil, err
	}
	ids := named.ascending()
	if err := r.table.Hold(ctx, tx, ids...); err != nil {
		return nil, err
	}
	items, err := r.view.Some(ctx, tx, ids, r.visible(ctx, parent)...)
	if err != nil {
		return nil, err
	}
	if len(items) < len(ids) {
		return nil, r.Unseen(ctx, tx, ids)
	}
	return items, match.Check(versionOf(&items[0]))
}

// after reads what came of a change. It is there, whether or not the caller may still know of it.
func (r *resource[V, B]) after(ctx context.Context, tx *pg.Tx, ids itemIDs) ([]V, error) {
	after, err := r.view.Some(ctx, tx, ids)
	if err == nil && len(after) < len(ids) {
		err = pgx.ErrNoRows
	}
	if err != nil {
		return nil, fmt.Errorf("read %s after the change: %w", ids.named(r.Noun), err)
	}
	return after, nil
}

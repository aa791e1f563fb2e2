package rest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/pgerror"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/shape"
)

// maxItems is how many items a path can name.
const maxItems = 100

// itemIDs are the items that the last element of a path names: one, or several with commas between, of which all are
// changed or none.
type itemIDs []int64

func parseItemIDs(text string) (ids itemIDs, err error) {
	for part := range strings.SplitSeq(text, ",") {
		id, ok := parseID(part)
		switch {
		case !ok:
			return nil, errNoItem()
		case slices.Contains(ids, id):
			return nil, problem.New(problem.BadRequest, "The path names %d twice.", id)
		case len(ids) == maxItems:
			return nil, problem.New(problem.BadRequest, "The path names more than %d items.", maxItems)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// ascending is the order in which all callers lock and change items, so that nobody waits for who waits for him.
func (ids itemIDs) ascending() itemIDs { return slices.Sorted(slices.Values(ids)) }

// occasion is what a body that edits these items is sent for: each of several has all that is required.
func (ids itemIDs) occasion() shape.Occasion {
	if len(ids) > 1 {
		return 0
	}
	return shape.Edit
}

func (ids itemIDs) checkMatch(match IfMatch) error {
	if len(ids) > 1 && len(match.header) > 0 {
		return problem.New(problem.BadRequest, "If-Match is about one item, and the path names %d.", len(ids))
	}
	return nil
}

// named is the items behind their noun: IP groups 1, 2
func (ids itemIDs) named(noun string) string {
	if len(ids) > 1 {
		noun = plural(noun)
	}
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.FormatInt(id, 10)
	}
	return noun + " " + strings.Join(texts, ", ")
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
			note(&wrong, f)
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

func (i itemsRoute[Req, Shown]) operation() *operation {
	o := i.Mutation.operation()
	o.Several, o.responseType = true, reflect.TypeFor[Shown]()
	return o
}

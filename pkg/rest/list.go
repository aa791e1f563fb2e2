package rest

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-kit/kit/endpoint"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/postgres/listing"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/route"
)

// List is an operation that answers an array: the rows of a view. Without paging parameters it is complete, and
// streamed: it takes no more memory for being long.
type List[Req, V any] struct {
	Path      string
	Guard     guard.Guard
	Name      string
	Summary   string
	Doc       string
	Extension bool
	DB        *pg.DB
	View      string // a SQL view, or a table, of which each row is a V
	By        By
	// Where says which rows are meant, and which of them this caller may know of; nil: all.
	Where func(context.Context, Req) ([]pg.Condition, error)

	scoped bool
	view   *listing.View[V]
}

// By says how a list may be searched, sorted and filtered.
type By struct {
	// Search says where the rows are of which the query speaks, q among its parameters; nil: in the view, without a q.
	Search func(ctx context.Context, asked url.Values) []pg.Source
	// Sorts are values of sort, and the columns that they sort by, which are never NULL and have, with the id behind
	// them, an index.
	Sorts map[string]string
	// Default is the sort, with - before it from the last to the first, where none is asked for; where it is empty, id.
	Default string
	// Filters are parameters, and the columns that they compare: name, or lower(name) to do so without case. One that
	// is an array has the value among its own.
	Filters map[string]string
	// Me is a filter of which the value me is the caller's own id.
	Me string
	// Narrow says what else a caller means by the parameters that are given; nil: nothing.
	Narrow func(ctx context.Context, asked url.Values) ([]pg.Condition, error)
}

const (
	defaultPerPage = 100
	// maxCounted is how far the outcome of a search is counted.
	maxCounted = 10_000
)

// SearchIn finds q in columns, without case. Each holds the searched members in lower case, each behind a line feed, and
// has a trigram index. Fewer than three letters have no trigram, so those are found where a member begins with them.
func SearchIn(columns ...string) func(context.Context, url.Values) []pg.Source {
	return func(_ context.Context, asked url.Values) (found []pg.Source) {
		q := asked.Get("q")
		if q == "" {
			return nil
		}
		pattern := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`, "\n", " ").Replace(strings.ToLower(q)) + "%"
		if utf8.RuneCountInString(q) < 3 {
			pattern = "\n" + pattern
		}
		for _, column := range columns {
			found = append(found, pg.Source{Where: []pg.Condition{{SQL: column + " LIKE $1", Args: []any{"%" + pattern}}}})
		}
		return found
	}
}

type listRequest[Req any] struct {
	own   Req
	query *listQuery
}

// listQuery is what a caller wants of a list.
type listQuery struct {
	path    string
	asked   url.Values
	from    []pg.Source
	where   []pg.Condition
	search  bool
	sort    string
	desc    bool
	perPage int // 0: all
	page    int // 0: not by number
	cursor  *cursor
	count   bool
	csv     bool
}

func (l List[Req, V]) route() *route.Route {
	o := route.New[Req, V](
		Operation{
			Method:    http.MethodGet,
			Path:      l.Path,
			Guard:     l.Guard,
			Name:      l.Name,
			Summary:   l.Summary,
			Doc:       l.Doc,
			Extension: l.Extension,
			Scoped:    l.scoped,
		},
	)
	l.view = listing.New[V](l.View)
	for _, column := range slices.AppendSeq(slices.Collect(maps.Values(l.By.Filters)), maps.Values(l.By.Sorts)) {
		if l.view.TypeOf(unfolded(column)) == nil {
			panic(fmt.Sprintf("rest: %s has no column %s", l.Path, column))
		}
	}
	o.List = l.By.listing(o.ResponseType)
	csv := route.NewTable(reflect.TypeFor[V]())
	o.Request.Names = l.By.known(o.Request.Names)
	o.Decode = func(r *http.Request) (any, error) {
		var req listRequest[Req]
		own := reflect.ValueOf(&req.own).Elem()
		if err := o.Request.FillPath(own, r); err != nil {
			return nil, err
		}
		asked, wrong, err := o.Request.FillQuery(own, r)
		if err != nil {
			return nil, err
		}
		req.query = readListQuery(r.Context(), asked, l.By, l.view.TypeOf, &wrong)
		if len(wrong) > 0 {
			return nil, route.WrongQuery(wrong)
		}
		req.query.path, req.query.csv = r.URL.EscapedPath(), problem.Prefers(r.Header.Get("Accept"), problem.MediaCSV)
		return req, nil
	}
	o.Endpoint = func(*pg.DB) endpoint.Endpoint {
		return func(ctx context.Context, request any) (any, error) {
			req := request.(listRequest[Req])
			if l.Where != nil {
				own, err := l.Where(ctx, req.own)
				if err != nil {
					return nil, err
				}
				req.query.where = append(req.query.where, own...)
			}
			if l.By.Narrow != nil {
				own, err := l.By.Narrow(ctx, req.query.asked)
				if err != nil {
					return nil, err
				}
				req.query.where = append(req.query.where, own...)
			}
			answer := &route.Items{Header: http.Header{}}
			if req.query.csv {
				answer.CSV = csv
			}
			var err error
			if answer.Rows, err = l.rows(ctx, req.query, answer.Header); err != nil {
				return nil, err
			}
			return answer, nil
		}
	}
	return o
}

// rows are the items that were asked for. The headers say how many there are and where the other pages are.
func (l List[Req, V]) rows(ctx context.Context, q *listQuery, header http.Header) (iter.Seq2[any, error], error) {
	which := listing.Query{From: q.from, Where: q.where, Sort: q.sort, Desc: q.desc}
	if q.count {
		if err := l.count(ctx, q, which, header); err != nil {
			return nil, err
		}
	}
	if q.perPage == 0 {
		return anySeq(l.view.List(ctx, l.DB, which)), nil
	}
	which.Limit = q.perPage + 1 // one more tells whether there is a next page
	if q.page > 0 {
		which.Skip = (q.page - 1) * q.perPage
	}
	backward := false
	if q.cursor != nil {
		backward = q.cursor.Backward
		which.After = &listing.Position{Value: q.cursor.value, ID: q.cursor.ID}
		which.Desc = q.desc != backward
	}
	var page []V
	for item, err := range l.view.List(ctx, l.DB, which) {
		if err != nil {
			return nil, err
		}
		page = append(page, item)
	}
	more := len(page) > q.perPage
	if more {
		page = page[:q.perPage]
	}
	if backward {
		slices.Reverse(page)
	}
	if links := l.links(q, page, more, backward); links != "" {
		header.Set("Link", links)
	}
	return func(yield func(any, error) bool) {
		for i := range page {
			if !yield(page[i], nil) {
				return
			}
		}
	}, nil
}

func (l List[Req, V]) count(ctx context.Context, q *listQuery, which listing.Query, header http.Header) error {
	limit := 0
	if q.search {
		limit = maxCounted + 1
	}
	n, err := l.view.Count(ctx, l.DB, which, limit)
	if err != nil {
		return err
	}
	text := strconv.FormatInt(n, 10)
	if limit > 0 && n == int64(limit) {
		text = strconv.Itoa(maxCounted) + "+"
	}
	header.Set("X-Total-Count", text)
	return nil
}

// links are the pages around this one (RFC 8288).
func (l List[Req, V]) links(q *listQuery, page []V, more, backward bool) string {
	var links []string
	add := func(rel, name, value string) {
		query := maps.Clone(q.asked)
		query.Del("page")
		query.Del("cursor")
		if name != "" {
			query.Set(name, value)
		}
		links = append(links, fmt.Sprintf(`<%s?%s>; rel="%s"`, q.path, query.Encode(), rel))
	}
	if q.page > 0 {
		add("first", "page", "1")
		if more && (q.page+1)*q.perPage <= route.MaxDeep {
			add("next", "page", strconv.Itoa(q.page+1))
		} else if more {
			add("next", "cursor", newCursor(q, l.view.Position(&page[len(page)-1], q.sort), false).String())
		}
		if q.page > 1 {
			add("prev", "page", strconv.Itoa(q.page-1))
		}
		return strings.Join(links, ", ")
	}
	add("first", "", "")
	if len(page) > 0 {
		if more || backward {
			add("next", "cursor", newCursor(q, l.view.Position(&page[len(page)-1], q.sort), false).String())
		}
		if more && backward || q.cursor != nil && !backward {
			add("prev", "cursor", newCursor(q, l.view.Position(&page[0], q.sort), true).String())
		}
	}
	return strings.Join(links, ", ")
}

func anySeq[V any](found iter.Seq2[V, error]) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for item, err := range found {
			if !yield(&item, err) {
				return
			}
		}
	}
}

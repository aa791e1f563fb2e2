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
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/listing"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/route"
	"github.com/ironplane/ironplane/pkg/schema"
)

// List is an operation that returns the rows of a view as an array. Without paging parameters the list is complete, and streamed
// in constant memory.
type List[Req, V any] struct {
	Path      string
	Guard     guard.Guard
	Name      string
	Summary   string
	Doc       string
	Extension bool
	View      string // a SQL view or a table whose rows are of type V
	Options   ListOptions
	Hide      Hide
	// Mask removes from a row what its caller must not see, where Hide is too coarse. nil: nothing.
	Mask func(context.Context, Req, *V)
	// Where returns conditions for the rows that the caller may see. nil: all rows.
	Where func(context.Context, Req) ([]pg.Condition, error)

	scoped bool
	where  func(context.Context, *pg.DB, listRequest[Req]) ([]pg.Condition, error) // used instead of Where
	view   *listing.View[V]
}

// ListOptions says how a list can be searched, sorted and filtered.
type ListOptions struct {
	// Search returns the sources of the rows that match the parameters, such as q. nil: the list has no parameter q.
	Search func(ctx context.Context, asked url.Values) []pg.Source
	// Sorts has the columns to sort by, by the value of the parameter sort. A column is never NULL, and has an index together
	// with the id.
	Sorts map[string]string
	// Default is the sort if the caller asks for none; - before it reverses the order. Default: id.
	Default string
	// Filters has the columns to compare, by parameter: name, or lower(name) to ignore case. An array column matches if it
	// contains the value.
	Filters map[string]string
	// MeFilter is a filter that accepts the value me for the caller's own id.
	MeFilter string
	// Narrow returns further conditions that follow from the parameters. nil: none.
	Narrow func(ctx context.Context, asked url.Values) ([]pg.Condition, error)
}

const (
	defaultPerPage = 100
	// maxCounted is the number up to which a search is counted.
	maxCounted = 10_000
)

// SearchIn searches columns for q, ignoring case. Each column holds the searched members in lower case, each after a line feed,
// and has a trigram index. A q of fewer than three letters has no trigram, so it matches the beginning of a member.
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
	view  *listView[Req]
}

// listView is a list as a group of callers sees it.
type listView[Req any] struct {
	options ListOptions
	request *route.Request
	csv     *route.Table
	hidden  *hidden // the members that this caller does not see; nil: none
}

func (l List[Req, V]) viewFor(request *route.Request, h *hidden) *listView[Req] {
	s := &listView[Req]{options: l.Options, hidden: h}
	if h != nil {
		s.options.Filters, s.options.Sorts = h.visibleColumns(l.Options.Filters), h.visibleColumns(l.Options.Sorts)
	}
	s.csv = route.NewTable(reflect.TypeFor[V](), func(m *schema.Member) bool { return h == nil || !h.pointers[m.Pointer] })
	named := *request
	named.Names = s.options.parameterNames(request.Names)
	s.request = &named
	return s
}

// parse reads the path and the query.
func (s *listView[Req]) parse(r *http.Request, typeOf func(string) reflect.Type) (any, error) {
	req := listRequest[Req]{view: s}
	own := reflect.ValueOf(&req.own).Elem()
	if err := s.request.FillPath(own, r); err != nil {
		return nil, err
	}
	asked, invalid, err := s.request.FillQuery(own, r)
	if err != nil {
		return nil, err
	}
	req.query = readListQuery(r.Context(), asked, s.options, typeOf, &invalid)
	if len(invalid) > 0 {
		return nil, route.InvalidQuery(invalid)
	}
	req.query.path, req.query.csv = r.URL.EscapedPath(), problem.Prefers(r.Header.Get("Accept"), problem.MediaCSV)
	return req, nil
}

// listQuery is a request for a list.
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
	defer route.PrefixPanic("GET " + l.Path)
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
	l.checkColumns()
	o.NeedsDB, o.Statements = true, l.statements()
	o.List = l.Options.describe(o.ResponseType)
	hidden := newHidden(o.ResponseType, l.Hide)
	whole, masked := l.viewFor(o.Request, nil), l.viewFor(o.Request, hidden)
	o.Request = whole.request
	o.Decode = func(r *http.Request) (any, error) {
		as := whole
		if hidden.appliesTo(r.Context()) {
			as = masked
		}
		return as.parse(r, l.view.TypeOf)
	}
	o.Endpoint = func(db *pg.DB) endpoint.Endpoint {
		return func(ctx context.Context, request any) (any, error) {
			req := request.(listRequest[Req])
			where, err := l.conditions(ctx, db, req)
			if err != nil {
				return nil, err
			}
			req.query.where = append(req.query.where, where...)
			answer := &route.Items{Header: http.Header{}}
			if req.query.csv {
				answer.CSV = req.view.csv
			}
			rows, err := l.rows(ctx, db, req.query, answer.Header)
			answer.Rows = l.maskRows(ctx, rows, req)
			return answer, err
		}
	}
	return o
}

// checkColumns panics if a sort or a filter names an unknown column.
func (l List[Req, V]) checkColumns() {
	for field, columns := range map[string]map[string]string{"List.Filters": l.Options.Filters, "List.Sorts": l.Options.Sorts} {
		for _, name := range slices.Sorted(maps.Keys(columns)) {
			if column := filterColumn(columns[name]); l.view.TypeOf(column) == nil {
				panic(fmt.Sprintf("%s[%q] is %s, which is no column of %s", field, name, column, reflect.TypeFor[V]()))
			}
		}
	}
	if name := strings.TrimPrefix(l.Options.Default, "-"); name != "" && name != "id" && l.Options.Sorts[name] == "" {
		panic(fmt.Sprintf("List.Default is %s, which is not in List.Sorts", name))
	}
}

// statements returns the statements that read and search the view.
func (l List[Req, V]) statements() []route.Statement {
	owner := "GET " + l.Path
	all := []route.Statement{{Owner: owner, Field: "View", SQL: l.view.SQL(nil)}}
	if l.Options.Search != nil {
		anyone := principal.NewContext(context.Background(), &principal.Call{Principal: &principal.Principal{}})
		sources := l.Options.Search(anyone, url.Values{"q": {"anything"}})
		all = append(all, route.Statement{Owner: owner, Field: "List.Search", SQL: l.view.SQL(sources)})
	}
	return all
}

// conditions returns the conditions for the rows that the caller may see.
func (l List[Req, V]) conditions(ctx context.Context, db *pg.DB, req listRequest[Req]) (where []pg.Condition, err error) {
	switch {
	case l.where != nil:
		where, err = l.where(ctx, db, req)
	case l.Where != nil:
		where, err = l.Where(ctx, req.own)
	}
	if err != nil || l.Options.Narrow == nil {
		return where, err
	}
	own, err := l.Options.Narrow(ctx, req.query.asked)
	return append(where, own...), err
}

// rows returns the requested items, and sets the headers with their number and the links to other pages.
func (l List[Req, V]) rows(ctx context.Context, db *pg.DB, q *listQuery, header http.Header) (iter.Seq2[V, error], error) {
	selection := listing.Query{From: q.from, Where: q.where, Sort: q.sort, Desc: q.desc}
	if q.count {
		if err := l.count(ctx, db, q, selection, header); err != nil {
			return nil, err
		}
	}
	if q.perPage == 0 {
		return l.view.List(ctx, db, selection), nil
	}
	selection.Limit = q.perPage + 1 // one more shows whether there is a next page
	selection.Skip = max(0, q.page-1) * q.perPage
	backward := q.cursor != nil && q.cursor.Backward
	if q.cursor != nil {
		selection.After = &listing.Position{Value: q.cursor.value, ID: q.cursor.ID}
		selection.Desc = q.desc != backward
	}
	var page []V
	for item, err := range l.view.List(ctx, db, selection) {
		if err != nil {
			return nil, err
		}
		page = append(page, item)
	}
	more := len(page) > q.perPage
	page = page[:min(len(page), q.perPage)]
	if backward {
		slices.Reverse(page)
	}
	if links := l.links(q, page, more, backward); links != "" {
		header.Set("Link", links)
	}
	return func(yield func(V, error) bool) {
		for i := range page {
			if !yield(page[i], nil) {
				return
			}
		}
	}, nil
}

func (l List[Req, V]) count(ctx context.Context, db *pg.DB, q *listQuery, selection listing.Query, header http.Header) error {
	limit := 0
	if q.search {
		limit = maxCounted + 1
	}
	n, err := l.view.Count(ctx, db, selection, limit)
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

// links returns the Link header (RFC 8288) with the pages around this one.
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
		if more && (q.page+1)*q.perPage <= route.MaxOffset {
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

// maskRows removes from the rows what the caller must not see.
func (l List[Req, V]) maskRows(ctx context.Context, found iter.Seq2[V, error], req listRequest[Req]) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for item, err := range found {
			if l.Mask != nil {
				l.Mask(ctx, req.own, &item)
			}
			if req.view.hidden != nil {
				req.view.hidden.mask(reflect.ValueOf(&item).Elem())
			}
			if !yield(&item, err) {
				return
			}
		}
	}
}

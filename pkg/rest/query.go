package rest

import (
	"context"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/rest/route"
	"github.com/ironplane/ironplane/pkg/schema"
)

// readListQuery reads the parameters that all lists share.
func readListQuery(
	ctx context.Context,
	asked url.Values,
	options ListOptions,
	typeOf func(string) reflect.Type,
	invalid *problem.Fields,
) *listQuery {
	q := &listQuery{asked: asked}
	q.sort, q.desc = options.Sorts[strings.TrimPrefix(options.Default, "-")], strings.HasPrefix(options.Default, "-")
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		value := asked.Get(name)
		column, filter := options.Filters[name]
		if value == "" {
			if filter && accountFilters.MatchString(name) {
				q.where = append(q.where, pg.Condition{SQL: "false"})
			}
			continue
		}
		switch {
		case name == "q" && options.Search != nil:
			if len(value) > body.MaxString || !body.IsText(value) {
				invalid.Add("?q", "invalid", "must be a text of at most %d bytes", body.MaxString)
			}
			q.search = true
		case name == "sort":
			column, known := options.Sorts[strings.TrimPrefix(value, "-")]
			if q.sort, q.desc = column, strings.HasPrefix(value, "-"); !known && strings.TrimPrefix(value, "-") != "id" {
				invalid.Add("?sort", "unknown", "must be one of %s, optionally with - before it", strings.Join(options.sorts(), ", "))
			}
		case name == "per_page":
			q.perPage = readCount(name, value, route.MaxPerPage, invalid)
		case name == "page":
			q.page = readCount(name, value, route.MaxOffset, invalid)
		case name == "count":
			if code, message := body.ReadValue(reflect.ValueOf(&q.count).Elem(), value, &schema.Member{}); code != "" {
				invalid.Add("?count", code, "%s", message)
			}
		case filter && name == options.MeFilter && value == "me": // Narrow adds the condition
		case filter:
			condition, code, message := equals(column, value, typeOf(filterColumn(column)))
			if code != "" {
				invalid.Add("?"+name, code, "%s", message)
			} else if is, boolean := condition.Args[0].(bool); boolean {
				asked.Set(name, strconv.FormatBool(is)) // the one spelling that Search knows
			}
			q.where = append(q.where, condition)
		}
	}
	if asked.Get("cursor") != "" {
		q.cursor = parseCursor(asked, q.sort, typeOf, invalid)
	}
	if q.perPage == 0 && (q.page > 0 || q.cursor != nil) {
		q.perPage = defaultPerPage
	}
	if q.page > 0 && q.cursor != nil {
		invalid.Add("?page", "conflict", "cannot be combined with a cursor")
	}
	if q.page*q.perPage > route.MaxOffset {
		invalid.Add("?page", "out_of_range", "must lie within the first %d items; to go further, follow the Link header", route.MaxOffset)
	}
	if options.Search != nil && len(*invalid) == 0 {
		q.from = options.Search(ctx, asked)
	}
	return q
}

// accountFilters are filters by an account or its billing id. An empty value matches nothing: a caller that takes the first item
// must not get another account's.
var accountFilters = regexp.MustCompile(`^(billing_id|integration_id|email|username|(owner|client|user)(_.*)?)$`)

// sorts returns the values of the parameter sort.
func (options ListOptions) sorts() []string {
	return append([]string{"id"}, slices.Sorted(maps.Keys(options.Sorts))...)
}

// describe returns the options for the API document of a list of items.
func (options ListOptions) describe(item reflect.Type) *route.Listing {
	l := &route.Listing{Search: options.Search != nil, Sorts: options.sorts(), Default: options.Default, Filters: map[string]*schema.Member{}}
	for name, column := range options.Filters {
		l.Filters[name] = schema.Describe(item).ByColumn(filterColumn(column))
	}
	return l
}

// parameterNames returns the names of all parameters of a list. own are those that its request declares.
func (options ListOptions) parameterNames(own []string) []string {
	known := append([]string{"count", "cursor", "page", "per_page", "sort"}, own...)
	if options.Search != nil {
		known = append(known, "q")
	}
	known = slices.AppendSeq(known, maps.Keys(options.Filters))
	slices.Sort(known)
	return slices.Compact(known)
}

func readCount(name, value string, limit int, invalid *problem.Fields) int {
	n, code, _ := body.Integer(value)
	if code != "" || n < 1 || n > int64(limit) {
		invalid.Add("?"+name, "out_of_range", "must be from 1 to %d", limit)
		return 1
	}
	return int(n)
}

// filterColumn returns the column of a filter, without lower().
func filterColumn(filter string) string {
	return strings.TrimSuffix(strings.TrimPrefix(filter, "lower("), ")")
}

// equals returns the condition that a filter's column equals or contains the value. t is the type of the column.
func equals(filter, text string, t reflect.Type) (condition pg.Condition, code, message string) {
	has := t.Kind() == reflect.Slice
	switch {
	case has:
		t = reflect.TypeFor[int64]()
	case t.Kind() == reflect.Pointer:
		t = t.Elem()
	}
	value := reflect.New(t).Elem()
	code, message = body.ReadValue(value, text, &schema.Member{})
	condition = pg.Condition{SQL: filter + " = $1", Args: []any{value.Interface()}}
	if has {
		condition = pg.Condition{SQL: filter + " @> $1", Args: []any{[]int64{value.Int()}}}
	} else if filter != filterColumn(filter) {
		condition.SQL = filter + " = lower($1)"
	}
	return condition, code, message
}

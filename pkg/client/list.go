package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"strings"
)

// defaultPerPage is how many items an iteration asks for at a time.
const defaultPerPage = 100

// Page is one page of a list.
type Page[T any] struct {
	Items []T
	Total string     // with Count: how many items there are; searches are counted up to 10000+
	Next  url.Values // the query of the next page, or nil
}

// Collect returns all items of an iteration, or its error.
func Collect[T any](items iter.Seq2[T, error]) (all []T, err error) {
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		all = append(all, item)
	}
	return all, nil
}

// iterate returns the items of a list. It asks for the next page when the caller has used one up, and ends after an error.
func iterate[T any](ctx context.Context, c *Client, r *Request) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		request := *r // an iteration can be started twice
		request.Query = maps.Clone(r.Query)
		if request.Query == nil {
			request.Query = url.Values{}
		}
		if !request.Query.Has("per_page") {
			request.Query.Set("per_page", fmt.Sprint(defaultPerPage))
		}
		for request.Query != nil {
			page, err := fetchPage[T](ctx, c, &request)
			if err != nil {
				yield(*new(T), err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			request.Query = page.Next
		}
	}
}

// Items returns the items of any list that has pages, also of one that this package has no method for. The request's query selects
// them, and its per_page says how many to ask for at a time.
func (c *Client) Items(ctx context.Context, r *Request) iter.Seq2[json.RawMessage, error] {
	return iterate[json.RawMessage](ctx, c, r)
}

func fetchPage[T any](ctx context.Context, c *Client, r *Request) (*Page[T], error) {
	items, err := fetch[answered[[]T]](ctx, c, r, nil)
	if err != nil {
		return nil, err
	}
	return &Page[T]{Items: items.value, Total: items.header.Get("X-Total-Count"), Next: nextPage(items.header)}, nil
}

// nextPage returns the query of the Link header's next page. The rest of its URL may be one that only others reach.
func nextPage(header http.Header) url.Values {
	for link := range strings.SplitSeq(header.Get("Link"), ",") {
		target, relation, _ := strings.Cut(link, ";")
		if u, err := url.Parse(strings.Trim(target, " <>")); err == nil && strings.TrimSpace(relation) == `rel="next"` {
			return u.Query()
		}
	}
	return nil
}

// openCSV returns a complete list as CSV, which the caller closes.
func openCSV(ctx context.Context, c *Client, r *Request) (io.ReadCloser, error) {
	r.Header.Set("Accept", "text/csv")
	response, err := c.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// encodeQuery returns the parameters of a struct whose members have query tags. Members with a zero value are left out, unless
// they are required.
func encodeQuery(query any) url.Values {
	values := url.Values{}
	if query == nil {
		return values
	}
	of := reflect.ValueOf(query)
	for i := range of.NumField() {
		name, required := strings.CutSuffix(of.Type().Field(i).Tag.Get("query"), ",required")
		member := of.Field(i)
		switch value := member.Interface().(type) {
		case interface{ sent() (any, bool) }:
			if v, ok := value.sent(); ok {
				values.Set(name, fmt.Sprint(v))
			}
		case []string:
			if len(value) > 0 {
				values.Set(name, strings.Join(value, ","))
			}
		default:
			if required || !member.IsZero() {
				values.Set(name, fmt.Sprint(value))
			}
		}
	}
	return values
}

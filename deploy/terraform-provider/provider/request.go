package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/client/operations"
)

// answered is an item as the API answers with it.
type answered struct {
	item map[string]any
	etag string // its version
}

// request returns the request of an operation. values has those of the path's parameters.
func (k *Kind) request(o *operations.Operation, values any, body any) (*client.Request, error) {
	r := &client.Request{
		Operation:  o.ID,
		Route:      o.Route,
		Method:     o.Method,
		Path:       o.Route,
		Header:     http.Header{},
		Query:      url.Values{},
		Repeatable: o.Retry != "once" || o.Method == http.MethodDelete, // a repeated deletion finds nothing, which is no failure here
	}
	for _, p := range k.path {
		if strings.Contains(r.Path, "{"+p.api+"}") {
			value := member(values, p.name)
			if value == nil {
				return nil, fmt.Errorf("%s is not known", p.name)
			}
			r.Path = strings.Replace(r.Path, "{"+p.api+"}", url.PathEscape(fmt.Sprint(value)), 1)
		}
	}
	if body == nil {
		return r, nil
	}
	var err error
	r.Body, err = json.Marshal(body)
	r.Header.Set("Content-Type", "application/json")
	return r, err
}

// send sends a request, and sends it again as long as that is safe, until the context ends.
func (a *api) send(ctx context.Context, r *client.Request) (*answered, error) {
	response, err := a.client.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	value, err := decodeJSON(json.NewDecoder(response.Body))
	if err != nil {
		return nil, fmt.Errorf("%s: read the response: %w", r.Operation, err)
	}
	if list, ok := value.([]any); ok && len(list) == 1 { // the permissions of an integration are a list of one
		value = list[0]
	}
	item, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: the response is not an item", r.Operation)
	}
	return &answered{item, response.Header.Get("ETag")}, nil
}

func decodeJSON(d *json.Decoder) (value any, err error) {
	d.UseNumber()
	err = d.Decode(&value)
	return value, err
}

// find returns the ids of the items that match filters, at most two.
func (a *api) find(ctx context.Context, r *client.Request) (ids []any, err error) {
	for text, err := range a.client.Items(ctx, r) {
		if err != nil {
			return nil, err
		}
		value, err := decodeJSON(json.NewDecoder(bytes.NewReader(text)))
		if err != nil {
			return nil, err
		}
		if ids = append(ids, (&Attribute{Kind: "integer", answer: "id"}).read(value)); len(ids) == 2 {
			break
		}
	}
	return ids, nil
}

// report adds an error of the API to the diagnostics, at the attributes that it names.
func (k *Kind) report(diagnostics *diag.Diagnostics, action string, err error) {
	report(diagnostics, k.label(), action, err, k.attributeOf)
}

// label returns the kind as people write it: port speed.
func (k *Kind) label() string { return strings.ReplaceAll(k.Name, "_", " ") }

func report(d *diag.Diagnostics, noun, action string, err error, attributeOf func(pointer string) (path.Path, bool)) {
	summary := fmt.Sprintf("Cannot %s %s", action, noun)
	refusal, ok := errors.AsType[*client.Error](err)
	switch {
	case !ok:
		d.AddError(summary, err.Error())
	case errors.Is(err, client.ErrStale):
		d.AddError(summary, "It was changed since the plan was made. Plan again to see the change. "+err.Error())
	case len(refusal.Fields) == 0:
		d.AddError(summary, err.Error())
	}
	if !ok {
		return
	}
	for _, f := range refusal.Fields {
		if at, ok := attributeOf(f.Pointer); ok {
			d.AddAttributeError(at, summary, f.Pointer+" "+f.Message)
		} else {
			d.AddError(summary, f.Pointer+" "+f.Message)
		}
	}
}

// attributeOf returns the attribute of a JSON pointer into a body.
func (k *Kind) attributeOf(pointer string) (at path.Path, found bool) {
	name := strings.ReplaceAll(strings.TrimPrefix(pointer, "/"), "/", ".")
	leaves(k.Attributes, "", func(attribute string, a *Attribute) {
		if a.api != "" && (a.api == name || strings.HasPrefix(name, a.api+".")) {
			at, found = pathOf(attribute), true
		}
	})
	return at, found
}

// pathOf returns the path of an attribute by its name with dots.
func pathOf(name string) path.Path {
	first, rest, _ := strings.Cut(name, ".")
	at := path.Root(first)
	for part := range strings.SplitSeq(rest, ".") {
		if part != "" {
			at = at.AtName(part)
		}
	}
	return at
}

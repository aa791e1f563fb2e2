package command

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/client/operations"
)

// request returns the request of a command.
func (c *call) request(command *cobra.Command, args []string) (*client.Request, error) {
	r := &client.Request{
		Operation: c.ID, Route: c.Route, Method: c.Method, Path: c.Route, Header: http.Header{}, Query: url.Values{},
		Repeatable: c.Retry != "once",
	}
	ids, rest := args, []string(nil)
	if c.Several == 0 {
		ids, rest = args[:len(c.Path)], args[len(c.Path):]
	}
	if err := c.fillPath(command.Context(), r, ids); err != nil {
		return nil, err
	}
	for i, text := range rest {
		if err := c.setMember(c.positional[i], text); err != nil {
			return nil, err
		}
	}
	for _, v := range c.query {
		text, ok, err := v.queryText(command, c.program)
		if err != nil {
			return nil, err
		}
		if ok || v.Required {
			r.Query.Set(v.Name, text)
		}
	}
	if c.dryRun {
		r.Query.Set("dry_run", "true")
	}
	if c.ifMatch != "" {
		r.Header.Set("If-Match", c.ifMatch)
	}
	if c.Retry == "keyed" {
		if c.idempotencyKey == "" {
			c.idempotencyKey = rand.Text()
		}
		r.Header.Set("Idempotency-Key", c.idempotencyKey)
	}
	return r, c.setBody(command, r)
}

func (c *call) setMember(name, text string) error {
	for _, v := range c.members {
		if v.Name == name {
			return usage(v.Set(text))
		}
	}
	return nil
}

// fillPath puts ids into the route. The last parameter takes all that are left.
func (c *call) fillPath(ctx context.Context, r *client.Request, args []string) error {
	for i, parameter := range c.Path {
		texts := args[i : i+1]
		if i == len(c.Path)-1 {
			texts = args[i:]
		}
		ids := make([]string, len(texts))
		for j, text := range texts {
			ids[j] = strings.ReplaceAll(url.PathEscape(text), "%2F", "/")
			if parameter.Kind == "integer" {
				id, err := c.program.resolve(ctx, parameter.Of, text)
				if err != nil {
					return err
				}
				ids[j] = fmt.Sprint(id)
			}
		}
		r.Path = strings.Replace(r.Path, "{"+parameter.Name+"}", strings.Join(ids, ","), 1)
	}
	return nil
}

// queryText returns the value of a parameter of the query.
func (v *value) queryText(command *cobra.Command, p *Program) (string, bool, error) {
	got, ok, err := v.get(command, p)
	if !ok || err != nil {
		return "", ok, err
	}
	switch got := got.(type) {
	case []any:
		parts := make([]string, len(got))
		for i, part := range got {
			parts[i] = fmt.Sprint(part)
		}
		return strings.Join(parts, ","), true, nil
	case map[string]string:
		return got["iso_8601"], true, nil
	default:
		return fmt.Sprint(got), true, nil
	}
}

// setBody sets the body from --csv, --input, --json and the members' flags.
func (c *call) setBody(command *cobra.Command, r *client.Request) (err error) {
	switch {
	case c.csv != "":
		r.Header.Set("Content-Type", "text/csv")
		if c.partial {
			r.Query.Set("partial", "true")
		}
		r.Body, err = c.program.readFile(c.csv)
		return err
	case c.partial, c.dryRun && c.Method == http.MethodPost:
		return usage(fmt.Errorf("--partial and --dry-run need --csv"))
	case c.RawBody != "":
		for _, header := range c.headers {
			name, text, ok := strings.Cut(header, ":")
			if !ok {
				return usage(fmt.Errorf("--header must have the form name: value"))
			}
			r.Header.Set(name, strings.TrimSpace(text))
		}
		r.Header.Set("Content-Type", c.contentType)
		if c.input != "" {
			r.Body, err = c.program.readFile(c.input)
		}
		return err
	case c.Body == "":
		return nil
	}
	body := map[string]any{}
	if c.json != "" {
		text, err := c.program.readText(c.json)
		if err != nil {
			return err
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&body); err != nil {
			return usage(fmt.Errorf("--json: the body is not a JSON object: %w", err))
		}
	}
	for _, v := range c.members {
		got, ok, err := v.get(command, c.program)
		if err != nil {
			return err
		}
		if ok {
			operations.Put(body, v.Name, got)
		}
	}
	for _, name := range c.clear {
		if !c.hasMember(name) {
			return usage(fmt.Errorf("--clear: the body has no member %q", name))
		}
		operations.Put(body, name, nil)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Body, err = json.Marshal(body)
	return err
}

// hasMember reports whether a body has a member, which may be the parent of others.
func (c *call) hasMember(name string) bool {
	return slices.ContainsFunc(c.members, func(v *value) bool { return v.Name == name || strings.HasPrefix(v.Name, name+".") })
}

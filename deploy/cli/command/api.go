package command

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/client/operations"
)

// newAPI returns the command that sends any request.
func newAPI(p *Program) *cobra.Command {
	var body string
	var headers, fields []string
	var paginate, include bool
	command := &cobra.Command{
		Use:     "api [METHOD] PATH",
		Short:   "Send any request, and print the answer as JSON",
		Long:    "Send any request, and print the answer as JSON. The method is GET, or POST if there is a body.",
		GroupID: groupOwn,
		Example: `  ironplane api /entity?group_id=1 --paginate --jq '.[].full_ip'
  ironplane api PATCH /entity/1 --field nickname="rack 12" --field vlan=null
  ironplane api POST /entity --json @entity.json`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usage(fmt.Errorf("got %d arguments, want %s", len(args), command.UseLine()))
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&body, "json", "", "the body as `JSON`, or @FILE, or @- for standard input")
	flags.StringArrayVar(&fields, "field", nil, "a member of the body as `name=value`, with dots in the name of a nested one. "+
		"The value is JSON, or else a text. Can be repeated")
	flags.StringArrayVar(&headers, "header", nil, "send this `name: value` as well. Can be repeated")
	flags.BoolVar(&paginate, "paginate", false, "ask for all pages of a list, and print one array")
	flags.BoolVar(&include, "include", false, "print the status and the headers of the answer first")
	command.RunE = func(command *cobra.Command, args []string) error {
		r, err := p.anyRequest(args, body, fields, headers)
		if err != nil {
			return err
		}
		api, err := p.connect()
		if err != nil {
			return err
		}
		print := p.print
		if !command.Flags().Changed("output") {
			print.Format = "json"
		}
		if paginate {
			if r.Method != http.MethodGet || include {
				return usage(fmt.Errorf("--paginate is for GET, and without --include"))
			}
			var items []json.RawMessage
			for item, err := range api.Items(command.Context(), r) {
				if err != nil {
					return err
				}
				items = append(items, item)
			}
			return print.Items(p.Out, items)
		}
		return p.sendAny(command, api, r, include)
	}
	return command
}

// anyRequest returns the request that arguments describe.
func (p *Program) anyRequest(args []string, body string, fields, headers []string) (*client.Request, error) {
	method, target := http.MethodGet, args[len(args)-1]
	if body != "" || len(fields) > 0 {
		method = http.MethodPost
	}
	if len(args) == 2 {
		method = strings.ToUpper(args[0])
	}
	path, query, _ := strings.Cut(target, "?")
	values, err := url.ParseQuery(query)
	if err != nil || !strings.HasPrefix(path, "/") {
		return nil, usage(fmt.Errorf("%q is not a path of the API, such as /entity?group_id=1", target))
	}
	r := &client.Request{Method: method, Path: path, Query: values, Header: http.Header{}, Repeatable: method == http.MethodGet}
	if method == http.MethodPost {
		r.Header.Set("Idempotency-Key", rand.Text())
	}
	for _, header := range headers {
		name, text, ok := strings.Cut(header, ":")
		if !ok {
			return nil, usage(fmt.Errorf("--header must have the form name: value"))
		}
		r.Header.Set(name, strings.TrimSpace(text))
	}
	if body == "" && len(fields) == 0 {
		return r, nil
	}
	if r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	text, err := p.readText(body)
	if err != nil {
		return nil, err
	}
	r.Body = []byte(text)
	if len(fields) > 0 {
		r.Body, err = withFields(text, fields)
	}
	return r, err
}

// withFields returns a JSON object with more members.
func withFields(text string, fields []string) ([]byte, error) {
	body := map[string]any{}
	if text != "" {
		if err := json.Unmarshal([]byte(text), &body); err != nil {
			return nil, usage(fmt.Errorf("--json: the body is not a JSON object: %w", err))
		}
	}
	for _, field := range fields {
		name, text, ok := strings.Cut(field, "=")
		if !ok || name == "" {
			return nil, usage(fmt.Errorf("--field must have the form name=value"))
		}
		var value any = text
		if json.Valid([]byte(text)) {
			value = json.RawMessage(text)
		}
		operations.Put(body, name, value)
	}
	return json.Marshal(body)
}

// sendAny sends a request and prints the answer, whatever it is.
func (p *Program) sendAny(command *cobra.Command, api *client.Client, r *client.Request, include bool) error {
	response, err := api.Do(command.Context(), r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if include {
		fmt.Fprintf(p.Out, "%s %s\n", response.Proto, response.Status)
		for _, name := range slices.Sorted(maps.Keys(response.Header)) {
			fmt.Fprintf(p.Out, "%s: %s\n", name, strings.Join(response.Header[name], ", "))
		}
		fmt.Fprintln(p.Out)
	}
	c := &call{program: p}
	print := p.print
	if !command.Flags().Changed("output") {
		print.Format = "json"
	}
	return c.printResponse(response, print)
}

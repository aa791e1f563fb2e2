package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
)

// source is the data source of a kind.
type source struct {
	kind *Kind
	api  *api
}

func (s *source) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + s.kind.Name
}

func (s *source) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = s.kind.sourceSchema()
}

func (s *source) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	s.api, _ = req.ProviderData.(*api)
}

// Read views the item with the configured id, or the one that matches the filters.
func (s *source) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	k, d := s.kind, &resp.Diagnostics
	if !isConfigured(s.api, d) {
		return
	}
	config, _ := tree(req.Config.Raw, d).(map[string]any)
	if d.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.api.timeout)
	defer cancel()
	if k.HasList() {
		if err := s.choose(ctx, config); err != nil {
			k.report(d, "find", err)
			return
		}
	}
	r, err := k.request(k.get, config, nil)
	if err != nil {
		k.report(d, "read", err)
		return
	}
	answer, err := s.api.send(ctx, r)
	if err != nil {
		k.report(d, "read", err)
		return
	}
	values := decode(k.shown(), nil, answer.item)
	for _, p := range k.path {
		values[p.name] = config[p.name]
	}
	values["filter"] = config["filter"]
	if next := untree(resp.State.Raw.Type(), values, d); !d.HasError() {
		resp.State.Raw = next
	}
}

// choose sets the id of the item that matches the filters.
func (s *source) choose(ctx context.Context, config map[string]any) error {
	own := s.kind.path[len(s.kind.path)-1].name
	filters, hasFilters := config["filter"].(map[string]any)
	if hasFilters == (config[own] != nil) {
		return fmt.Errorf("set either %s or filter", own)
	}
	if !hasFilters {
		return nil
	}
	r, err := s.kind.request(s.kind.list, config, nil)
	if err != nil {
		return err
	}
	var described []string
	for _, p := range s.kind.filters() {
		if value := filters[p.Name]; value != nil {
			r.Query.Set(p.Name, fmt.Sprint(value))
			described = append(described, fmt.Sprintf("%s %v", p.Name, value))
		}
	}
	ids, err := s.api.find(ctx, r)
	if err != nil {
		return err
	}
	if len(ids) != 1 {
		return fmt.Errorf("got %s, want exactly one with %s", [...]string{"none", "", "several"}[len(ids)], strings.Join(described, " and "))
	}
	config[own] = ids[0]
	return nil
}

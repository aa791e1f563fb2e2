package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	data "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/ironplane/ironplane/pkg/client/operations"
)

// resourceSchema returns the schema of a kind's resource.
func (k *Kind) resourceSchema() schema.Schema {
	s := schema.Schema{MarkdownDescription: k.Description(), Attributes: resourceAttributes(k.Attributes)}
	if k.installs {
		s.Attributes["triggers"] = schema.MapAttribute{
			Optional:    true,
			ElementType: types.StringType,
			MarkdownDescription: "Any texts. A change of them installs the machine again, which erases its disks. " +
				"Changes of other members wait for that.",
		}
		s.Attributes["force"] = schema.ListAttribute{
			Optional:            true,
			ElementType:         types.StringType,
			MarkdownDescription: "The codes of reasons against the install to pass over, such as `no_dhcp`.",
		}
		s.Attributes["wait"] = schema.BoolAttribute{
			Optional:            true,
			MarkdownDescription: "Whether the creation waits until the machine is installed. The default is true.",
		}
		s.Attributes["timeouts"] = schema.SingleNestedAttribute{
			Optional:            true,
			MarkdownDescription: "How long operations may take.",
			Attributes: map[string]schema.Attribute{"create": schema.StringAttribute{
				Optional:            true,
				Validators:          []validator.String{duration{}},
				MarkdownDescription: "How long the creation waits for the machine, such as `90m`. The default is `1h`.",
			}},
		}
	}
	return s
}

// Description returns what the kind is and how an item is imported, in Markdown.
func (k *Kind) Description() string {
	text := fmt.Sprintf("Manages the API's %s.", k.label())
	if k.create != nil {
		text = strings.Replace(k.create.Summary, "Create ", "Manages ", 1) + "."
	}
	if k.doc != "" {
		text += " " + k.doc
	}
	return fmt.Sprintf("%s\n\nThe id of an import is `%s`.", text, strings.Join(k.pathNames(), "/"))
}

// pathNames returns the names of the attributes that an item's path has.
func (k *Kind) pathNames() (names []string) {
	for _, p := range k.path {
		names = append(names, p.name)
	}
	return names
}

func resourceAttributes(attributes []*Attribute) map[string]schema.Attribute {
	all := map[string]schema.Attribute{}
	for _, a := range attributes {
		all[a.Name] = a.resource()
	}
	return all
}

func (a *Attribute) resource() schema.Attribute {
	required, optional, computed, doc := a.Required, a.Optional, a.Computed, a.Doc
	switch {
	case a.Kind == "object":
		inner := resourceAttributes(a.Attributes)
		return schema.SingleNestedAttribute{
			Required: required, Optional: optional, Computed: computed, MarkdownDescription: doc, Attributes: inner,
		}
	case a.List:
		of := a.elementType()
		return schema.ListAttribute{Required: required, Optional: optional, Computed: computed, MarkdownDescription: doc, ElementType: of}
	case a.Kind == "map":
		of := a.elementType()
		return schema.MapAttribute{Required: required, Optional: optional, Computed: computed, MarkdownDescription: doc, ElementType: of}
	case a.isNumber():
		return schema.Int64Attribute{Required: required, Optional: optional, Computed: computed, MarkdownDescription: doc}
	case a.Kind == "boolean":
		return schema.BoolAttribute{Required: required, Optional: optional, Computed: computed, MarkdownDescription: doc}
	default:
		s := schema.StringAttribute{Required: required, Optional: optional, Computed: computed, Sensitive: a.Sensitive, MarkdownDescription: doc}
		if len(a.Enum) > 0 && a.api != "" {
			s.Validators = []validator.String{oneOf(a.Enum)}
		}
		return s
	}
}

func (a *Attribute) elementType() attr.Type {
	if a.isNumber() {
		return types.Int64Type
	}
	return types.StringType
}

func (a *Attribute) isNumber() bool { return a.Kind == "integer" || a.Kind == "ref" }

// sourceSchema returns the schema of a kind's data source: the item by its id, or by filters.
func (k *Kind) sourceSchema() data.Schema {
	s := data.Schema{
		MarkdownDescription: strings.Replace(k.get.Summary, "View ", "Reads ", 1) + ".",
		Attributes:          map[string]data.Attribute{},
	}
	for _, a := range k.shown() {
		s.Attributes[a.Name] = a.source()
	}
	for i, p := range k.path {
		isOptional := i == len(k.path)-1 && k.HasList()
		s.Attributes[p.name] = parameter(k.get.Path[i], !isOptional, isOptional)
	}
	if k.HasList() {
		filters := map[string]data.Attribute{}
		for _, p := range k.filters() {
			filters[p.Name] = parameter(p, p.Required, false)
		}
		s.Attributes["filter"] = data.SingleNestedAttribute{
			Optional:            true,
			MarkdownDescription: "Finds the item, instead of its id. Exactly one item must match.",
			Attributes:          filters,
		}
	}
	return s
}

// filters returns the parameters of the list that select items.
func (k *Kind) filters() (all []operations.Parameter) {
	for _, p := range k.list.Query {
		if p.Name != "sort" && !p.List {
			all = append(all, p)
		}
	}
	return all
}

// shown returns the attributes that the API answers with.
func (k *Kind) shown() []*Attribute { return shownOf(k.Attributes) }

func shownOf(attributes []*Attribute) (all []*Attribute) {
	for _, a := range attributes {
		switch {
		case a.Kind == "object":
			if inner := shownOf(a.Attributes); len(inner) > 0 {
				of := *a
				of.Attributes = inner
				all = append(all, &of)
			}
		case a.answer != "" && !a.shownOnce:
			all = append(all, a)
		}
	}
	return all
}

// parameter returns the attribute of a parameter of a path or of a query.
func parameter(p operations.Parameter, required, computed bool) data.Attribute {
	optional := !required
	switch p.Kind {
	case "integer", "ref":
		return data.Int64Attribute{Required: required, Optional: optional, Computed: computed, MarkdownDescription: p.Doc}
	case "boolean":
		return data.BoolAttribute{Required: required, Optional: optional, Computed: computed, MarkdownDescription: p.Doc}
	default:
		return data.StringAttribute{Required: required, Optional: optional, Computed: computed, MarkdownDescription: p.Doc}
	}
}

func (a *Attribute) source() data.Attribute {
	switch {
	case a.Kind == "object":
		inner := map[string]data.Attribute{}
		for _, one := range a.Attributes {
			inner[one.Name] = one.source()
		}
		return data.SingleNestedAttribute{Computed: true, MarkdownDescription: a.Doc, Attributes: inner}
	case a.List:
		return data.ListAttribute{Computed: true, MarkdownDescription: a.Doc, ElementType: a.elementType()}
	case a.Kind == "map":
		return data.MapAttribute{Computed: true, MarkdownDescription: a.Doc, ElementType: a.elementType()}
	case a.isNumber():
		return data.Int64Attribute{Computed: true, MarkdownDescription: a.Doc}
	case a.Kind == "boolean":
		return data.BoolAttribute{Computed: true, MarkdownDescription: a.Doc}
	default:
		return data.StringAttribute{Computed: true, MarkdownDescription: a.Doc}
	}
}

// oneOf accepts the choices of a member.
type oneOf []string

func (o oneOf) Description(context.Context) string { return "one of " + strings.Join(o, ", ") }

func (o oneOf) MarkdownDescription(ctx context.Context) string { return o.Description(ctx) }

func (o oneOf) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if value := req.ConfigValue; !value.IsNull() && !value.IsUnknown() && !slices.Contains(o, value.ValueString()) {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid value", fmt.Sprintf("%q must be %s.", value.ValueString(), o.Description(ctx)))
	}
}

// duration accepts what parseTimeout reads.
type duration struct{}

func (duration) Description(context.Context) string { return "a duration such as 90s, 5m or 2h" }

func (d duration) MarkdownDescription(ctx context.Context) string { return d.Description(ctx) }

func (duration) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if _, err := parseTimeout(req.ConfigValue.ValueString()); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid timeout", err.Error())
	}
}

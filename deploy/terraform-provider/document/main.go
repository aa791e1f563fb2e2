// Document prints what the docs say of the provider: its schema, as `terraform providers schema -json` does, so that its pages can be
// made without Terraform, or a line for each operation that the provider calls.
//
//	go run ./deploy/terraform-provider/document schema >schema.json
//	go run ./deploy/terraform-provider/document operations
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/ironplane/ironplane/deploy/terraform-provider/provider"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "document:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, to io.Writer) error {
	switch {
	case slices.Equal(args, []string{"schema"}):
		return writeSchema(ctx, to)
	case slices.Equal(args, []string{"operations"}):
		all := provider.Operations()
		for _, id := range slices.Sorted(maps.Keys(all)) {
			if _, err := fmt.Fprintln(to, id, strings.Join(all[id], " ")); err != nil {
				return err
			}
		}
		return nil
	default:
		return errors.New("usage: document schema, or document operations")
	}
}

// The format, as Terraform has it in its package jsonprovider.
type (
	document struct {
		Version   string              `json:"format_version"`
		Providers map[string]provided `json:"provider_schemas"`
	}
	provided struct {
		Provider    schema            `json:"provider"`
		Resources   map[string]schema `json:"resource_schemas"`
		DataSources map[string]schema `json:"data_source_schemas"`
	}
	schema struct {
		Version int64 `json:"version"`
		Block   block `json:"block"`
	}
	block struct {
		Attributes      map[string]attribute `json:"attributes"`
		Description     string               `json:"description,omitempty"`
		DescriptionKind string               `json:"description_kind,omitempty"`
	}
	attribute struct {
		Type            any     `json:"type,omitempty"`
		NestedType      *nested `json:"nested_type,omitempty"`
		Description     string  `json:"description,omitempty"`
		DescriptionKind string  `json:"description_kind,omitempty"`
		Required        bool    `json:"required,omitempty"`
		Optional        bool    `json:"optional,omitempty"`
		Computed        bool    `json:"computed,omitempty"`
		Sensitive       bool    `json:"sensitive,omitempty"`
	}
	nested struct {
		Attributes map[string]attribute `json:"attributes"`
		Mode       string               `json:"nesting_mode"`
	}
)

func writeSchema(ctx context.Context, to io.Writer) error {
	server, err := providerserver.NewProtocol6WithError(provider.New())()
	if err != nil {
		return err
	}
	all, err := server.GetProviderSchema(ctx, &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		return fmt.Errorf("get the schema: %w", err)
	}
	of := provided{Provider: newSchema(all.Provider), Resources: map[string]schema{}, DataSources: map[string]schema{}}
	for name, s := range all.ResourceSchemas {
		of.Resources[name] = newSchema(s)
	}
	for name, s := range all.DataSourceSchemas {
		of.DataSources[name] = newSchema(s)
	}
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "\t")
	return encoder.Encode(document{Version: "1.0", Providers: map[string]provided{"ironplane": of}})
}

func newSchema(s *tfprotov6.Schema) schema {
	return schema{s.Version, block{newAttributes(s.Block.Attributes), s.Block.Description, kindOf(s.Block.DescriptionKind)}}
}

func newAttributes(all []*tfprotov6.SchemaAttribute) map[string]attribute {
	attributes := map[string]attribute{}
	for _, a := range all {
		of := attribute{
			Description: a.Description, DescriptionKind: kindOf(a.DescriptionKind),
			Required: a.Required, Optional: a.Optional, Computed: a.Computed, Sensitive: a.Sensitive,
		}
		if a.NestedType != nil {
			of.NestedType = &nested{newAttributes(a.NestedType.Attributes), "single"} // the provider has no others
		} else {
			of.Type = a.Type
		}
		attributes[a.Name] = of
	}
	return attributes
}

func kindOf(kind tfprotov6.StringKind) string {
	if kind == tfprotov6.StringKindMarkdown {
		return "markdown"
	}
	return "plain"
}

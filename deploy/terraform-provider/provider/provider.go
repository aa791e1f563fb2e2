// Package provider is the Terraform provider of Ironplane. Its resources and data sources follow from the table of all operations
// (package operations); only what the table does not say is in table.go.
package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/ironplane/ironplane/pkg/client"
)

// Address names the provider in Terraform's configuration.
const Address = "registry.terraform.io/ironplane/ironplane"

// defaultTimeout is how long an operation is tried, unless the configuration says otherwise.
const defaultTimeout = 5 * time.Minute

// maxRetries is more than any timeout leaves time for, so that an operation is tried until its timeout.
const maxRetries = 1 << 20

type ironplane struct{}

// New returns the provider.
func New() provider.Provider { return ironplane{} }

func (ironplane) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "ironplane"
}

func (ironplane) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Ironplane is a control plane for bare-metal hosting.",
		Attributes: map[string]schema.Attribute{
			"url": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "The API's URL, such as `https://api.example.com`. The default is the environment variable `IRONPLANE_URL`.",
			},
			"key": schema.StringAttribute{
				Optional:            true,
				Sensitive:           true,
				MarkdownDescription: "The API key. The default is the environment variable `IRONPLANE_KEY`.",
			},
			"timeout": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "How long a request is tried again while the API cannot be reached or is busy, such as `30s`. " +
					"The default is `5m`.",
			},
		},
	}
}

// api is what resources and data sources get from the provider's configuration.
type api struct {
	client  *client.Client
	timeout time.Duration
}

func (ironplane) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var config struct {
		URL     types.String `tfsdk:"url"`
		Key     types.String `tfsdk:"key"`
		Timeout types.String `tfsdk:"timeout"`
	}
	if resp.Diagnostics.Append(req.Config.Get(ctx, &config)...); resp.Diagnostics.HasError() {
		return
	}
	if config.URL.IsUnknown() || config.Key.IsUnknown() {
		return // a resource of the same run makes them; resources say so if they are needed earlier
	}
	a := &api{timeout: defaultTimeout}
	if text := config.Timeout.ValueString(); text != "" {
		var err error
		if a.timeout, err = parseTimeout(text); err != nil {
			resp.Diagnostics.AddAttributeError(path.Root("timeout"), "Invalid timeout", err.Error())
			return
		}
	}
	url := cmp.Or(config.URL.ValueString(), os.Getenv("IRONPLANE_URL"))
	key := cmp.Or(config.Key.ValueString(), os.Getenv("IRONPLANE_KEY"))
	if url == "" || key == "" {
		resp.Diagnostics.AddError("The provider is not configured", "Set url and key, or the variables IRONPLANE_URL and IRONPLANE_KEY.")
		return
	}
	options := []client.Option{client.WithKey(key), client.WithUserAgent("ironplane-terraform")}
	var err error
	if a.client, err = client.New(url, append(options, client.WithRetries(maxRetries))...); err != nil {
		resp.Diagnostics.AddAttributeError(path.Root("url"), "Invalid url", err.Error())
		return
	}
	if err := checkKey(ctx, url, options); err != nil {
		resp.Diagnostics.AddError("The API does not accept the configuration", err.Error())
		return
	}
	resp.ResourceData, resp.DataSourceData = a, a
}

// checkKey tries the URL and the key with few retries, so that a mistake is found at once and not at a timeout.
func checkKey(ctx context.Context, url string, options []client.Option) error {
	quick, err := client.New(url, options...)
	if err != nil {
		return err
	}
	_, err = quick.APIKeys.GetCurrent(ctx)
	if refusal, ok := errors.AsType[*client.Error](err); ok && refusal.Status != http.StatusUnauthorized {
		return nil // a key that may not be viewed may do other things
	}
	return err
}

// parseTimeout parses a duration such as 90s or 2h.
func parseTimeout(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a duration such as 90s, 5m or 2h", text)
	}
	return d, nil
}

func (ironplane) Resources(context.Context) []func() resource.Resource {
	all := []func() resource.Resource{func() resource.Resource { return &allocation{} }}
	for _, k := range Kinds() {
		if k.IsResource() {
			all = append(all, func() resource.Resource { return &item{kind: k} })
		}
	}
	return all
}

func (ironplane) DataSources(context.Context) (all []func() datasource.DataSource) {
	for _, k := range Kinds() {
		if k.get != nil {
			all = append(all, func() datasource.DataSource { return &source{kind: k} })
		}
	}
	return all
}

// Terraform-provider-ironplane is the provider of Ironplane for Terraform and OpenTofu. They start it; see docs/do/terraform.md.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/ironplane/ironplane/deploy/terraform-provider/provider"
)

func main() {
	if err := providerserver.Serve(context.Background(), provider.New, providerserver.ServeOpts{Address: provider.Address}); err != nil {
		fmt.Fprintln(os.Stderr, "terraform-provider-ironplane:", err)
		os.Exit(1)
	}
}

package rows

import (
	"context"
	"fmt"
	"strings"

	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe"
)

// fillPXE writes a DHCP server for each site.
func fillPXE(ctx context.Context, l *loader) error {
	box, err := pxe.Definition.NewBox(l.MasterKey)
	if err != nil {
		return err
	}
	maxID, err := l.maxID(ctx, "dhcp_server")
	if err != nil {
		return err
	}
	err = l.copy(
		ctx,
		"dhcp_server",
		[]string{"id", "name", "http_host", "http_port", "http_use_https", "http_api_key"},
		l.groups(),
		func(i int) []any {
			city, n := nameSite(i)
			id := maxID + int64(i) + 1
			key := box.Seal(seal.Location{Table: "dhcp_server", Column: "http_api_key", ID: id}, secret.New(fmt.Sprintf("dhcp-key-%d", id)))
			return []any{id, fmt.Sprintf("%s %d", city, n), fmt.Sprintf("dhcp%d.%s.example.net", n, strings.ToLower(city)), int32(8443), true, key}
		},
	)
	if err != nil {
		return err
	}
	return l.setSequence(ctx, "dhcp_server")
}

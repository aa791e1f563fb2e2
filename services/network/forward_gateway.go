package network

import (
	"context"
	"strconv"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/remote"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
)

// ForwardGateway is a machine that forwards ports or addresses to servers of some groups.
type ForwardGateway struct {
	rest.Versioned
	ID        int64      `json:"id" db:"id"`
	Name      string     `json:"name" db:"name"`
	Hostname  string     `json:"hostname" db:"hostname"`
	PortLimit string     `json:"port_limit" db:"port_limit" doc:"how many ports it forwards (100), or which (20000-29999)"`
	Groups    []rest.Ref `json:"groups" db:"groups"`
	GroupIDs  []int64    `json:"-" db:"group_ids"`
}

type forwardGatewayBody struct {
	Name      string         `json:"name" db:"name" required:"create" example:"fra1-nat1"`
	Hostname  string         `json:"hostname" db:"hostname" required:"create" example:"nat1.fra1.example.net" doc:"a name or an address"`
	APIKey    *secret.String `json:"api_key" db:"api_key" alias:"apikey" required:"create" example:"what the gateway asks of its callers" doc:"kept sealed and never shown; on edit, empty: unchanged"`
	PortLimit string         `json:"port_limit" db:"port_limit" alias:"port limit" required:"create" pattern:"^[1-9][0-9]{0,4}(-[1-9][0-9]{0,4})?$" example:"20000-29999" doc:"how many ports it forwards (100), or which (20000-29999)"`
	Groups    []rest.RefID   `json:"groups" db:"group_ids"`
}

// Resolve checks what the tags cannot say.
func (b *forwardGatewayBody) Resolve(invalid *problem.Fields) {
	if b.Hostname != "" && !remote.IsHost(b.Hostname) {
		invalid.Add("/hostname", "invalid", "must be a name or an address, without a scheme and a port")
	}
	if b.APIKey != nil && !remote.IsHeaderValue(b.APIKey.Reveal()) {
		invalid.Add("/api_key", "invalid", "can have printable ASCII characters alone")
	}
	if b.PortLimit != "" && !isPortLimit(b.PortLimit) {
		invalid.Add("/port_limit", "invalid", "must be a number of ports such as 100 or a range of them such as 20000-29999")
	}
}

// isPortLimit tells whether a text of a port limit's form is one.
func isPortLimit(text string) bool {
	from, to, isRange := strings.Cut(text, "-")
	first, _ := strconv.Atoi(from) // of at most five digits
	last, _ := strconv.Atoi(to)
	return isRange && first <= last && last <= 65535 || !isRange && first <= 65535
}

func (s *Service) forwardGateways() []rest.Route {
	return rest.Resource[ForwardGateway, forwardGatewayBody]{
		Path: "/forward/gateway", ID: "gateway_id", Noun: "forwarding gateway",
		Guard: guard.Has(permission.NetworkForward), Table: "forward_gateway", View: "forward_gateway_view", Box: s.box,
		Retry: rest.RetryRefused, EditExample: `{"name": "fra1-nat2", "port_limit": "30000-39999"}`,
		Check: func(_ context.Context, _ *pg.Tx, _ int64, before, body *forwardGatewayBody) error {
			return remote.KeyAgain(before != nil && body.Hostname != before.Hostname, body.APIKey, "/api_key")
		},
		List: rest.ListOptions{Search: rest.SearchIn("search"), Sorts: map[string]string{"name": "name", "hostname": "hostname"},
			Filters: map[string]string{"name": "name", "hostname": "hostname", "group_id": "group_ids"}},
	}.Routes()
}

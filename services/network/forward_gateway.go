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
	PortLimit string     `json:"port_limit" db:"port_limit" doc:"the number of ports to forward, such as 100, or a range of ports, such as 20000-29999"`
	Groups    []rest.Ref `json:"groups" db:"groups" doc:"the IP groups whose servers it forwards to"`
	GroupIDs  []int64    `json:"-" db:"group_ids"`
}

type forwardGatewayBody struct {
	Name      string         `json:"name" db:"name" required:"create" example:"fra1-nat1"`
	Hostname  string         `json:"hostname" db:"hostname" required:"create" example:"nat1.fra1.example.net" doc:"a host name or an address"`
	APIKey    *secret.String `json:"api_key" db:"api_key" alias:"apikey" required:"create" example:"the key of the gateway's own API" doc:"stored encrypted and never shown; on edit, an empty value keeps the old one"`
	PortLimit string         `json:"port_limit" db:"port_limit" alias:"port limit" required:"create" pattern:"^[1-9][0-9]{0,4}(-[1-9][0-9]{0,4})?$" example:"20000-29999" doc:"the number of ports to forward, such as 100, or a range of ports, such as 20000-29999"`
	Groups    []rest.RefID   `json:"groups" db:"group_ids" doc:"the ids of the IP groups whose servers it forwards to"`
}

// Resolve checks what tags cannot express.
func (b *forwardGatewayBody) Resolve(invalid *problem.Fields) {
	if b.Hostname != "" && !remote.IsHost(b.Hostname) {
		invalid.Add("/hostname", "invalid", "must be a host name or an address, without a scheme or port")
	}
	if b.APIKey != nil && !remote.IsHeaderValue(b.APIKey.Reveal()) {
		invalid.Add("/api_key", "invalid", "must consist of printable ASCII characters")
	}
	if b.PortLimit != "" && !isPortLimit(b.PortLimit) {
		invalid.Add("/port_limit", "invalid", "must be a number of ports such as 100, or a range such as 20000-29999")
	}
}

// isPortLimit reports whether a text that has the form of a port limit is in range.
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
		CSV:   &rest.CSV{Names: map[string]pg.FindNames{"groups": pg.NamesIn("ip_group")}},
		Retry: rest.RetryRefused, EditExample: `{"name": "fra1-nat2", "port_limit": "30000-39999"}`,
		Check: func(_ context.Context, _ *pg.Tx, _ int64, before, body *forwardGatewayBody) error {
			return remote.RequireKey(before != nil && body.Hostname != before.Hostname, body.APIKey, "/api_key")
		},
		List: rest.ListOptions{Search: rest.SearchIn("search"), Sorts: map[string]string{"name": "name", "hostname": "hostname"},
			Filters: map[string]string{"name": "name", "hostname": "hostname", "group_id": "group_ids"}},
	}.Routes()
}

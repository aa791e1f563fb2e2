package pxe

import (
	"context"

	"github.com/ironplane/ironplane/pkg/agent"
	"github.com/ironplane/ironplane/pkg/guard"
	"github.com/ironplane/ironplane/pkg/permission"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
)

// DHCPServer is the agent at a site that answers machines which ask for an address and what to boot.
type DHCPServer struct {
	rest.Versioned
	ID   int64  `json:"id" db:"id"`
	Name string `json:"name" db:"name"`
	HTTP HTTP   `json:"http" db:"http_"`
}

// HTTP is where an agent answers.
type HTTP struct {
	Host     string `json:"host" db:"host"`
	Port     *int32 `json:"port,omitempty" db:"port" doc:"the scheme's own where it is not set"`
	UseHTTPS bool   `json:"use_https" db:"use_https"`
}

type dhcpServerBody struct {
	Name string   `json:"name" db:"name" required:"create" example:"Frankfurt 1"`
	HTTP httpBody `json:"http" db:"http_"`
}

type httpBody struct {
	Host     string         `json:"host" db:"host" also:"host" required:"create" example:"dhcp.fra1.example.net" doc:"a name or an address"`
	Port     *int32         `json:"port" db:"port" also:"port" min:"1" max:"65535" example:"8443"`
	UseHTTPS bool           `json:"use_https" db:"use_https" also:"use_https" example:"true"`
	APIKey   *secret.String `json:"api_key" db:"api_key" also:"api_key" example:"what the agent asks of its callers" doc:"kept sealed and never shown; on edit, empty: unchanged"`
}

// Resolve checks what the tags cannot say.
func (b *dhcpServerBody) Resolve(wrong *problem.Fields) { b.HTTP.validate(wrong) }

func (b *httpBody) validate(wrong *problem.Fields) {
	if b.Host != "" && !agent.IsHost(b.Host) {
		wrong.Add("/http/host", "invalid", "must be a name or an address, without a scheme and a port")
	}
	if b.APIKey != nil && !agent.IsHeaderValue(b.APIKey.Reveal()) {
		wrong.Add("/http/api_key", "invalid", "can have printable ASCII characters alone")
	}
}

func (b *httpBody) sameAddress(other *httpBody) bool {
	samePort := b.Port == other.Port || b.Port != nil && other.Port != nil && *b.Port == *other.Port
	return b.Host == other.Host && samePort && b.UseHTTPS == other.UseHTTPS
}

func (s *Service) dhcpServers() []rest.Route {
	return rest.Resource[DHCPServer, dhcpServerBody]{
		DB: s.db, Path: "/pxe/dhcp", ID: "dhcp_id", Noun: "DHCP server", Again: rest.AgainRefused, Edited: `{"name": "Frankfurt 2"}`,
		Guard: guard.Has(permission.PXESettings), Table: "dhcp_server", Box: s.box,
		Check: func(_ context.Context, _ *pg.Tx, _ int64, before, body *dhcpServerBody) error {
			if before == nil {
				return nil
			}
			return agent.KeyAgain(!body.HTTP.sameAddress(&before.HTTP), body.HTTP.APIKey, "/http/api_key")
		},
		By: rest.By{Search: rest.SearchIn("search"), Sorts: map[string]string{"name": "name", "host": "http_host"}, Filters: map[string]string{"name": "name", "host": "http_host"}},
	}.Routes()
}

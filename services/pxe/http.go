package pxe

import (
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/process/agent"
)

// HTTP is where an agent answers.
type HTTP struct {
	Host     string `json:"host" db:"host"`
	Port     *int32 `json:"port,omitempty" db:"port" doc:"the scheme's own where it is not set"`
	UseHTTPS bool   `json:"use_https" db:"use_https"`
}

type httpBody struct {
	Host     string         `json:"host" db:"host" also:"host" required:"create" example:"dhcp.fra1.example.net" doc:"a name or an address"`
	Port     *int32         `json:"port" db:"port" also:"port" min:"1" max:"65535" example:"8443"`
	UseHTTPS bool           `json:"use_https" db:"use_https" also:"use_https" example:"true"`
	APIKey   *secret.String `json:"api_key" db:"api_key" also:"api_key" example:"what the agent asks of its callers" doc:"kept sealed and never shown; on edit, empty: unchanged"`
}

func (b *httpBody) validate(wrong *problem.Fields) {
	if b.Host != "" && !agent.IsHost(b.Host) {
		wrong.Add("/http/host", "invalid", "must be a name or an address, without a scheme and a port")
	}
	if b.APIKey != nil && !agent.IsHeaderValue(b.APIKey.Reveal()) {
		wrong.Add("/http/api_key", "invalid", "can have printable ASCII characters alone")
	}
}

// keyAgain refuses an edit that moves the agent without its key.
func (b *httpBody) keyAgain(before *httpBody) error {
	samePort := b.Port == before.Port || b.Port != nil && before.Port != nil && *b.Port == *before.Port
	moved := b.Host != before.Host || !samePort || b.UseHTTPS != before.UseHTTPS
	return agent.KeyAgain(moved, b.APIKey, "/http/api_key")
}

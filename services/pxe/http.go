package pxe

import (
	"encoding/hex"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/remote"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// HTTP is where an agent answers.
type HTTP struct {
	Host     string `json:"host" db:"host"`
	Port     *int32 `json:"port,omitempty" db:"port" doc:"the scheme's own where it is not set"`
	UseHTTPS bool   `json:"use_https" db:"use_https"`

	Fingerprint *string `json:"fingerprint,omitempty" db:"fingerprint" ext:"true" doc:"of the certificate that it has; left out where a public authority vouches for that"`
}

type httpBody struct {
	Host     string         `json:"host" db:"host" alias:"host" required:"create" example:"dhcp.fra1.example.net" doc:"a name or an address"`
	Port     *int32         `json:"port" db:"port" alias:"port" min:"1" max:"65535" example:"8443"`
	UseHTTPS bool           `json:"use_https" db:"use_https" alias:"use_https" example:"true"`
	APIKey   *secret.String `json:"api_key" db:"api_key" alias:"api_key" example:"what the agent asks of its callers" doc:"kept sealed and never shown; on edit, empty: unchanged"`

	Fingerprint *string `json:"fingerprint" db:"fingerprint" alias:"fingerprint" ext:"true" example:"b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9" doc:"the SHA-256 of the agent's certificate, as site-agent fingerprint prints it, where no public authority vouches for that"`
}

func (b *httpBody) validate(invalid *problem.Fields) {
	if b.Host != "" && !remote.IsHost(b.Host) {
		invalid.Add("/http/host", "invalid", "must be a name or an address, without a scheme and a port")
	}
	if b.APIKey != nil && !remote.IsHeaderValue(b.APIKey.Reveal()) {
		invalid.Add("/http/api_key", "invalid", "can have printable ASCII characters alone")
	}
	if b.Fingerprint == nil {
		return
	}
	sum, err := siteagent.ParseFingerprint(*b.Fingerprint)
	if err != nil {
		invalid.Add("/http/fingerprint", "invalid", "%s", err)
		return
	}
	text := hex.EncodeToString(sum[:])
	b.Fingerprint = &text
}

// keyAgain refuses an edit that moves the agent without its key.
func (b *httpBody) keyAgain(before *httpBody) error {
	moved := b.Host != before.Host || !same(b.Port, before.Port) || b.UseHTTPS != before.UseHTTPS || !same(b.Fingerprint, before.Fingerprint)
	return remote.KeyAgain(moved, b.APIKey, "/http/api_key")
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

package pxe

import (
	"encoding/hex"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/remote"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// HTTP is the address of an agent.
type HTTP struct {
	Host     string `json:"host" db:"host" doc:"The host name or address."`
	Port     *int32 `json:"port,omitempty" db:"port" doc:"The TCP port. Left out if it is the default port of the scheme."`
	UseHTTPS bool   `json:"use_https" db:"use_https" doc:"Whether the agent is called by HTTPS."`

	Fingerprint *string `json:"fingerprint,omitempty" db:"fingerprint" ext:"true" doc:"The SHA-256 fingerprint of the agent's certificate. Left out if a public authority has issued it."`
}

// httpBody is the part of a body with an agent's address and API key.
type httpBody struct {
	Host     string         `json:"host" db:"host" alias:"host" required:"create" example:"dhcp.fra1.example.net" doc:"The host name or address, without a scheme or port."`
	Port     *int32         `json:"port" db:"port" alias:"port" min:"1" max:"65535" example:"8443" doc:"The TCP port. The default is that of the scheme."`
	UseHTTPS bool           `json:"use_https" db:"use_https" alias:"use_https" example:"true" doc:"Whether to call the agent by HTTPS."`
	APIKey   *secret.String `json:"api_key" db:"api_key" alias:"api_key" example:"what the agent asks of its callers" doc:"The API key for calls to the agent. It is stored encrypted and never shown. An empty value in an edit keeps the stored key."`

	Fingerprint *string `json:"fingerprint" db:"fingerprint" alias:"fingerprint" ext:"true" example:"b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9" doc:"The SHA-256 fingerprint of the agent's certificate, as printed by site-agent fingerprint. Needed if no public authority has issued it."`
}

// validate adds errors about the address and the key to invalid. It rewrites the fingerprint in lower case without
// separators.
func (b *httpBody) validate(invalid *problem.Fields) {
	if b.Host != "" && !remote.IsHost(b.Host) {
		invalid.Add("/http/host", "invalid", "must be a host name or an address, without a scheme or port")
	}
	if b.APIKey != nil && !remote.IsHeaderValue(b.APIKey.Reveal()) {
		invalid.Add("/http/api_key", "invalid", "can contain only printable ASCII characters")
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

// requireKey refuses an edit that changes the address without sending the API key. Otherwise an editor could have the
// stored key sent to a host of their choice.
func (b *httpBody) requireKey(before *httpBody) error {
	moved := b.Host != before.Host || !equal(b.Port, before.Port) || b.UseHTTPS != before.UseHTTPS || !equal(b.Fingerprint, before.Fingerprint)
	return remote.RequireKey(moved, b.APIKey, "/http/api_key")
}

// equal compares the values of two pointers. Two nil pointers are equal.
func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

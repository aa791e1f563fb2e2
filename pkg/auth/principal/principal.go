// Package principal tells on whose behalf a request is made, and what it may do.
package principal

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/permission"
)

// OwnerType is a kind of account that a key can belong to.
type OwnerType string

// The owner types. Their values are the first element of an owner's API path.
const (
	Admin       OwnerType = "admin"
	Client      OwnerType = "client"
	Integration OwnerType = "integration"
)

// Owner is an account that keys belong to.
type Owner struct {
	Type OwnerType `json:"type"`
	ID   int64     `json:"id"`
}

// URL is the owner's API path, such as /admin/3.
func (o Owner) URL() string { return fmt.Sprintf("/%s/%d", o.Type, o.ID) }

// ParseOwner reads an owner's API path.
func ParseOwner(url string) (Owner, bool) {
	kind, number, _ := strings.Cut(strings.TrimPrefix(url, "/"), "/")
	id, err := strconv.ParseInt(number, 10, 64)
	o := Owner{OwnerType(kind), id}
	known := o.Type == Admin || o.Type == Client || o.Type == Integration
	return o, known && err == nil && id > 0 && o.URL() == url
}

// Principal is the owner of the key that came with a request, and the key's rights.
type Principal struct {
	KeyID  int64  `json:"key_id"`
	Owner  Owner  `json:"owner"`
	Name   string `json:"name"`
	Grants Grants `json:"grants"`
	// Acting is true if another account works as this one, or if the session came from a link. It cannot change keys,
	// passwords and other credentials.
	Acting bool `json:"acting,omitempty"`
	// SignedIn is when the login was that began the key's session; zero if the key belongs to no session.
	SignedIn time.Time `json:"signed_in,omitzero"`
}

// ByActor stands in the name of an acting session's principal between the names of the account and of the one that acts for it.
const ByActor = ", by "

// Holds reports whether the principal holds a permission with this access.
func (p *Principal) Holds(wanted permission.Permission, a permission.Access) bool {
	return p != nil && p.Grants.Holds(Grant(wanted, a))
}

// Gateway is the peer that vouches for principals.
const Gateway = "gateway"

// Call tells what is known of a request before it is read: the process that sent it and, if that is the gateway, the
// principal that the gateway found.
type Call struct {
	Peer      string     // the process on the other end; empty: unknown, and nothing is allowed
	Principal *Principal // nil: no key came with the request
	IP        netip.Addr // the caller's own address
	RequestID string
	Agent     string // the caller's User-Agent
}

// Client returns the id of the calling client, or 0 if the caller is not a client.
func (c *Call) Client() int64 {
	if c.Principal == nil || c.Principal.Owner.Type != Client {
		return 0
	}
	return c.Principal.Owner.ID
}

type callKey struct{}

// NewContext returns a context with the call. Only code that terminates a connection may use it.
func NewContext(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// FromContext returns the call of a context. Without one it returns the zero Call, which may do nothing.
func FromContext(ctx context.Context) *Call {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		return c
	}
	return &Call{}
}

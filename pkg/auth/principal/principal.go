// Package principal says who is calling and what they may do.
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

// Principal is who is calling: the owner of the key that came with the request.
type Principal struct {
	KeyID  int64  `json:"key_id"`
	Owner  Owner  `json:"owner"`
	Name   string `json:"name"`
	Grants Grants `json:"grants"`
	// Acting says that somebody else uses the account, or that it was come by with a link: it writes no keys, passwords and the like.
	Acting bool `json:"acting,omitempty"`
	// SignedIn is when the session began that the key is of, with a login; zero: it is of none.
	SignedIn time.Time `json:"signed_in,omitzero"`
}

// May tells whether the principal holds the permission with this access.
func (p *Principal) May(wanted permission.Permission, a permission.Access) bool {
	return p != nil && p.Grants.Holds(Grant(wanted, a))
}

// Gateway is the peer that vouches for principals.
const Gateway = "gateway"

// Call is what is known of a request before anything of it is read: which process it came from and, where that
// is the gateway, whom the gateway found to be calling.
type Call struct {
	Peer      string     // the process on the other end; empty: unknown, and nothing is allowed
	Principal *Principal // nil: no key came with the request
	IP        netip.Addr // the caller's own address
	RequestID string
	Agent     string // the program that calls, as it names itself
}

// Client is the calling client's id; 0 where somebody else calls.
func (c *Call) Client() int64 {
	if c.Principal == nil || c.Principal.Owner.Type != Client {
		return 0
	}
	return c.Principal.Owner.ID
}

type callKey struct{}

// With puts the call into a context. Only what terminates a connection may do so.
func With(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// From is the call of a context; the zero Call, which may do nothing, where there is none.
func From(ctx context.Context) *Call {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		return c
	}
	return &Call{}
}

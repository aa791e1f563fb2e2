// Package guard decides which callers may use a route.
package guard

import (
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
)

// Guard decides whether a call may use a route. Every route has one.
type Guard interface {
	// Check returns nil, or the 401 or 403 for the caller. id is the item's number in the path, 0 if the path has none.
	Check(c *principal.Call, a permission.Access, id int64) error
	// String returns the guard as the policy and the API document print it.
	String() string
}

// Has admits callers that hold the permission.
func Has(p permission.Permission) Guard { return has(p) }

type has permission.Permission

func (h has) String() string { return permission.Permission(h).String() }

// Check compares the permission with those of the key.
func (h has) Check(c *principal.Call, a permission.Access, _ int64) error {
	if err := AnyKey.Check(c, a, 0); err != nil {
		return err
	}
	if !c.Principal.Holds(permission.Permission(h), a) {
		return problem.New(problem.Forbidden, "The key lacks %s %s.", h, a)
	}
	return nil
}

// CheckGrantable returns a 403 that names the grants in wanted that the key does not hold. Nobody can grant more than
// they hold, or change an account that holds more. action begins the error's text.
func CheckGrantable(holds, wanted principal.Grants, action string) error {
	if missing := wanted &^ holds; missing != 0 {
		return problem.New(problem.Forbidden, "%s permissions that the key lacks: %s.", action, strings.Join(missing.Names(), ", "))
	}
	return nil
}

// AnyKey admits every valid key. The route's function decides which items it sees.
var AnyKey Guard = anyKey{}

type anyKey struct{}

func (anyKey) String() string { return "any key" }

func (anyKey) Check(c *principal.Call, a permission.Access, _ int64) error {
	if err := Public.Check(c, a, 0); err != nil {
		return err
	}
	if c.Principal == nil {
		return problem.New(problem.Unauthenticated, "An API key is required. Send it as Authorization: Bearer <key>.")
	}
	return nil
}

// ForCredentials admits the callers of another guard. Sessions that began by a link, or that act for an account, can only read.
func ForCredentials(g Guard) Guard { return forCredentials{g} }

type forCredentials struct{ Guard }

func (g forCredentials) Check(c *principal.Call, a permission.Access, id int64) error {
	if err := g.Guard.Check(c, a, id); err != nil {
		return err
	}
	if a == permission.Write && c.Principal != nil && c.Principal.Acting {
		return ErrActing()
	}
	return nil
}

// ErrActing returns the refusal for acting sessions, which must not change credentials.
func ErrActing() error {
	return problem.New(
		problem.Forbidden,
		"This session began by a link, or acts for the account. It cannot change admins, keys, sessions, passwords, second factors "+
			"or super links.",
	)
}

// EveryKey admits every valid key to data that is the same for all callers.
var EveryKey Guard = everyKey{}

type everyKey struct{ anyKey }

// Public admits every request that comes through the gateway, with or without a key.
var Public Guard = public{}

type public struct{}

func (public) String() string { return "public" }

func (public) Check(c *principal.Call, _ permission.Access, _ int64) error {
	return Peers(principal.Gateway).Check(c, permission.Read, 0)
}

// Peers admits these processes of the installation, and no caller from outside. It guards internal routes.
func Peers(names ...string) Guard { return peers{strings.Join(names, ", ")} }

type peers struct{ names string }

func (p peers) String() string { return "internal: " + p.names }

// Check compares the names with the process at the other end.
func (p peers) Check(c *principal.Call, _ permission.Access, _ int64) error {
	for name := range strings.SplitSeq(p.names, ", ") {
		if c.Peer == name && name != "" {
			return nil
		}
	}
	return problem.New(problem.Forbidden, "Only these processes can use this route: %s.", p.names)
}

// IsInternal tells whether a guard admits only processes of the installation.
func IsInternal(g Guard) bool {
	_, ok := g.(peers)
	return ok
}

// Client admits clients only.
var Client Guard = client{}

type client struct{}

func (client) String() string { return "a client" }

func (client) Check(c *principal.Call, a permission.Access, id int64) error {
	if err := AnyKey.Check(c, a, id); err != nil {
		return err
	}
	if c.Client() == 0 {
		return problem.New(problem.Forbidden, "Only a client can use this route.")
	}
	return nil
}

// NotClient admits admins and integrations.
var NotClient Guard = notClient{}

type notClient struct{}

func (notClient) String() string { return "any key, except a client's" }

func (notClient) Check(c *principal.Call, a permission.Access, id int64) error {
	if err := AnyKey.Check(c, a, id); err != nil {
		return err
	}
	if c.Client() != 0 {
		return problem.New(problem.Forbidden, "Clients cannot use this route.")
	}
	return nil
}

// HasOrClient admits callers that hold the permission, and all clients. The route's function decides which items a
// client sees.
func HasOrClient(p permission.Permission) Guard { return hasOrClient{has(p)} }

type hasOrClient struct{ has }

func (g hasOrClient) String() string { return g.has.String() + " or a client" }

func (g hasOrClient) Check(c *principal.Call, a permission.Access, id int64) error {
	if err := AnyKey.Check(c, a, id); err != nil {
		return err
	}
	if c.Client() != 0 {
		return nil
	}
	return g.has.Check(c, a, id)
}

// HasOrReseller is HasOrClient for a route that only does something to accounts below a client. Each client can have some.
func HasOrReseller(p permission.Permission) Guard { return hasOrReseller{hasOrClient{has(p)}} }

type hasOrReseller struct{ hasOrClient }

func (g hasOrReseller) String() string { return g.has.String() + " or a reseller" }

// IsForResellers reports whether a guard admits clients only for accounts below them.
func IsForResellers(g Guard) bool {
	_, ok := g.(hasOrReseller)
	return ok
}

// HasOrSelf admits callers that hold the permission, and an account of this type to its own item.
func HasOrSelf(p permission.Permission, t principal.OwnerType) Guard { return hasOrSelf{has(p), t} }

type hasOrSelf struct {
	has
	self principal.OwnerType
}

func (g hasOrSelf) String() string { return g.has.String() + " or self" }

func (g hasOrSelf) Check(c *principal.Call, a permission.Access, id int64) error {
	if err := AnyKey.Check(c, a, id); err != nil {
		return err
	}
	if c.Principal.Owner == (principal.Owner{Type: g.self, ID: id}) {
		return nil
	}
	return g.has.Check(c, a, id)
}

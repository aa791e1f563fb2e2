// Package guard decides who may use a route.
package guard

import (
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
)

// Guard decides whether a call may use a route. There is no route without one.
type Guard interface {
	// Check answers nil, or the Unauthenticated or Forbidden fault that the caller gets. id is the number that
	// the path names its item by, 0 where it names none.
	Check(c *principal.Call, a permission.Access, id int64) error
	// String is the guard as the policy and the API document print it.
	String() string
}

// Has lets those through who hold the permission.
func Has(p permission.Permission) Guard { return has(p) }

type has permission.Permission

func (h has) String() string { return permission.Permission(h).String() }

// Check compares with what the key's owner holds.
func (h has) Check(c *principal.Call, a permission.Access, _ int64) error {
	if err := AnyKey.Check(c, a, 0); err != nil {
		return err
	}
	if !c.Principal.May(permission.Permission(h), a) {
		return problem.New(problem.Forbidden, "The key lacks %s %s.", h, a)
	}
	return nil
}

// CheckGrantable refuses what a key does not hold, naming it: nobody gives, or writes to who has, more than he holds.
func CheckGrantable(holds, wanted principal.Grants, action string) error {
	if missing := wanted &^ holds; missing != 0 {
		return problem.New(problem.Forbidden, "%s what the key lacks: %s.", action, strings.Join(missing.Names(), ", "))
	}
	return nil
}

// AnyKey lets every valid key through: the route's function decides what it sees.
var AnyKey Guard = anyKey{}

type anyKey struct{}

func (anyKey) String() string { return "any key" }

func (anyKey) Check(c *principal.Call, a permission.Access, _ int64) error {
	if err := Public.Check(c, a, 0); err != nil {
		return err
	}
	if c.Principal == nil {
		return problem.New(problem.Unauthenticated, "The request carries no API key.")
	}
	return nil
}

// EveryKey lets every valid key through, to what all callers see alike.
var EveryKey Guard = everyKey{}

type everyKey struct{ anyKey }

// Public lets everybody through who comes by the gateway.
var Public Guard = public{}

type public struct{}

func (public) String() string { return "public" }

func (public) Check(c *principal.Call, _ permission.Access, _ int64) error {
	return Peers(principal.Gateway).Check(c, permission.Read, 0)
}

// Peers lets these processes of the installation through, and no caller from outside. It guards internal routes.
func Peers(names ...string) Guard { return peers{strings.Join(names, ", ")} }

type peers struct{ names string }

func (p peers) String() string { return "internal: " + p.names }

// Check compares the process at the other end.
func (p peers) Check(c *principal.Call, _ permission.Access, _ int64) error {
	for name := range strings.SplitSeq(p.names, ", ") {
		if c.Peer == name && name != "" {
			return nil
		}
	}
	return problem.New(problem.Forbidden, "This is answered to %s alone.", p.names)
}

// IsInternal tells whether a guard lets no caller from outside through.
func IsInternal(g Guard) bool {
	_, ok := g.(peers)
	return ok
}

// HasOrClient lets those through who hold the permission, and clients: which items there are for them, the route says.
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

// HasOrSelf lets those through who hold the permission, and an account of this type to its own record.
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

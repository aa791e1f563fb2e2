package principal

import (
	"strings"

	"github.com/ironplane/ironplane/pkg/problem"
)

// Guard decides whether a call may use a route. There is no route without one.
type Guard interface {
	// Check answers nil, or the Unauthenticated or Forbidden fault that the caller gets. id is the number that
	// the path names its item by, 0 where it names none.
	Check(c *Call, a Access, id int64) error
	// String is the guard as the policy and the API document print it.
	String() string
}

// Check lets those through who hold the permission.
func (l Permission) Check(c *Call, a Access, _ int64) error {
	if err := AnyKey.Check(c, a, 0); err != nil {
		return err
	}
	if !c.Principal.May(l, a) {
		return problem.New(problem.Forbidden, "The key lacks %s %s.", l, a)
	}
	return nil
}

// AnyKey lets every valid key through: the route's function decides what it sees.
var AnyKey Guard = anyKey{}

type anyKey struct{}

func (anyKey) String() string { return "any key" }

func (anyKey) Check(c *Call, a Access, _ int64) error {
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

// PermissionOfTarget lets every valid key through: the route's function checks the permission of what the item belongs to.
var PermissionOfTarget Guard = permissionOfTarget{}

type permissionOfTarget struct{ anyKey }

func (permissionOfTarget) String() string { return "the target's permission" }

// Public lets everybody through who comes by the gateway.
var Public Guard = public{}

type public struct{}

func (public) String() string { return "public" }

func (public) Check(c *Call, _ Access, _ int64) error { return Peers(Gateway).Check(c, Read, 0) }

// Peers lets these processes of the installation through, and no caller from outside. It guards internal routes.
func Peers(names ...string) Guard { return peers{strings.Join(names, ", ")} }

type peers struct{ names string }

func (p peers) String() string { return "internal: " + p.names }

// Check compares the process at the other end.
func (p peers) Check(c *Call, _ Access, _ int64) error {
	for name := range strings.SplitSeq(p.names, ", ") {
		if c.Peer == name && name != "" {
			return nil
		}
	}
	return problem.New(problem.Forbidden, "This is answered to %s alone.", p.names)
}

// Internal tells whether a guard lets no caller from outside through.
func Internal(g Guard) bool {
	_, is := g.(peers)
	return is
}

// OrSelf lets those through who hold the permission, and an account to its own record.
func (l Permission) OrSelf(t OwnerType) Guard { return orSelf{l, t} }

type orSelf struct {
	permission Permission
	self       OwnerType
}

func (g orSelf) String() string { return g.permission.String() + " or self" }

func (g orSelf) Check(c *Call, a Access, id int64) error {
	if err := AnyKey.Check(c, a, id); err != nil {
		return err
	}
	if c.Principal.Owner == (Owner{g.self, id}) {
		return nil
	}
	return g.permission.Check(c, a, id)
}

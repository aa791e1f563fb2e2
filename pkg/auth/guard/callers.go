package guard

import (
	"slices"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
)

// Callers says which callers a guard admits. One reason is enough.
type Callers struct {
	Public      bool                  `json:"public,omitempty"`      // also without a key
	Clients     bool                  `json:"clients,omitempty"`     // each client
	Keys        bool                  `json:"keys,omitempty"`        // each admin and integration
	Own         []principal.OwnerType `json:"own,omitempty"`         // these accounts, for their own item
	Permissions []string              `json:"permissions,omitempty"` // admins and integrations with one of these
	Every       bool                  `json:"every,omitempty"`       // admins and integrations with every permission
	NotActing   bool                  `json:"not_acting,omitempty"`  // no session that began by a link, or that acts for an account
}

// CallersOf returns the callers that a guard admits. It tries one of each.
func CallersOf(g Guard, a permission.Access) (c Callers) {
	if credentials, ok := g.(forCredentials); ok {
		c = CallersOf(credentials.Guard, a)
		c.NotActing = a == permission.Write
		return c
	}
	admits := func(t principal.OwnerType, held principal.Grants, id int64) bool {
		caller := &principal.Principal{Owner: principal.Owner{Type: t, ID: 1}, Grants: held}
		return g.Check(&principal.Call{Peer: principal.Gateway, Principal: caller}, a, id) == nil
	}
	c.Public = g.Check(&principal.Call{Peer: principal.Gateway}, a, 0) == nil
	c.Clients = admits(principal.Client, 0, 0)
	if c.Keys = admits(principal.Admin, 0, 0) && admits(principal.Integration, 0, 0); c.Keys {
		return c
	}
	for _, t := range []principal.OwnerType{principal.Admin, principal.Integration} {
		if admits(t, 0, 1) {
			c.Own = append(c.Own, t)
		}
	}
	if len(c.Own) == 1 && admits(c.Own[0], 0, 0) { // the permissions of these accounts do not matter
		return c
	}
	for bit := principal.Grants(1); bit <= principal.All; bit <<= 1 {
		if admits(principal.Admin, bit, 0) {
			c.Permissions = append(c.Permissions, bit.Names()...)
		}
	}
	c.Every = c.Permissions == nil && admits(principal.Admin, principal.All, 0)
	return c
}

// Admit reports whether the owner of a key is one of the callers. nil is a request without a key.
func (c Callers) Admit(p *principal.Principal) bool {
	switch {
	case p != nil && p.Acting && c.NotActing:
		return false
	case c.Public:
		return true
	case p == nil:
		return false
	case p.Owner.Type == principal.Client:
		return c.Clients
	default:
		return c.Keys || slices.Contains(c.Own, p.Owner.Type) || c.Every && p.Grants.Holds(principal.All) ||
			p.Grants&principal.ParseGrants(c.Permissions) != 0
	}
}

package guard_test

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
)

func TestGuards(t *testing.T) {
	t.Parallel()
	holder := func(g principal.Grants) *principal.Call {
		return &principal.Call{
			Peer:      principal.Gateway,
			Principal: &principal.Principal{Owner: principal.Owner{Type: principal.Admin, ID: 7}, Grants: g},
		}
	}
	groups := permission.NetworkGroups
	none, read, write := holder(0), holder(principal.Grant(groups, permission.Read)), holder(principal.Grant(groups, permission.Write))
	keyless := &principal.Call{Peer: principal.Gateway}
	forged := &principal.Call{Peer: "network", Principal: read.Principal}
	const allowed = 0
	for _, c := range []struct {
		name string
		by   guard.Guard
		call *principal.Call
		a    permission.Access
		id   int64
		want problem.Kind
	}{
		{"a permission, by who holds it", guard.Has(groups), read, permission.Read, 0, allowed},
		{"a permission's write, by who holds read", guard.Has(groups), read, permission.Write, 0, problem.Forbidden},
		{"a permission's read, by who holds write", guard.Has(groups), write, permission.Read, 0, problem.Forbidden},
		{"a permission, without a key", guard.Has(groups), keyless, permission.Read, 0, problem.Unauthenticated},
		{"a permission, not by the gateway", guard.Has(groups), forged, permission.Read, 0, problem.Forbidden},
		{"a permission, by nobody", guard.Has(groups), &principal.Call{}, permission.Read, 0, problem.Forbidden},
		{"any key", guard.AnyKey, none, permission.Write, 0, allowed},
		{"any key, without one", guard.AnyKey, keyless, permission.Read, 0, problem.Unauthenticated},
		{"any key, not by the gateway", guard.AnyKey, forged, permission.Read, 0, problem.Forbidden},
		{"public", guard.Public, keyless, permission.Read, 0, allowed},
		{"public, not by the gateway", guard.Public, &principal.Call{Peer: "network"}, permission.Read, 0, problem.Forbidden},
		{"self", guard.HasOrSelf(groups, principal.Admin), none, permission.Write, 7, allowed},
		{"another self", guard.HasOrSelf(groups, principal.Admin), none, permission.Read, 8, problem.Forbidden},
		{"a self of another type", guard.HasOrSelf(groups, principal.Client), none, permission.Read, 7, problem.Forbidden},
		{"another self, by who holds the permission", guard.HasOrSelf(groups, principal.Admin), read, permission.Read, 8, allowed},
		{
			"self, not by the gateway", guard.HasOrSelf(groups, principal.Admin), &principal.Call{Peer: "network", Principal: none.Principal},
			permission.Read, 7, problem.Forbidden,
		},
		{"internal", guard.Peers("gateway"), keyless, permission.Read, 0, allowed},
		{"internal, by one of several", guard.Peers("gateway", "network"), &principal.Call{Peer: "network"}, permission.Read, 0, allowed},
		{"internal, by nobody", guard.Peers(), &principal.Call{}, permission.Read, 0, problem.Forbidden},
		{"internal, by another", guard.Peers("gateway"), &principal.Call{Peer: "network"}, permission.Read, 0, problem.Forbidden},
	} {
		err := c.by.Check(c.call, c.a, c.id)
		if c.want == allowed && err != nil || c.want != allowed && !problem.Is(err, c.want) {
			t.Errorf("%s: got %v, want %d", c.name, err, c.want)
		}
	}
}

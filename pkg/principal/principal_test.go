package principal_test

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/problem"
)

func TestGrants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := principal.Grants(rapid.Uint64().Draw(t, "grants")) & principal.All
		if set := g.PermissionSet(); set.Grants() != g {
			t.Fatalf("%v becomes %v as a set", g.Names(), set.Grants().Names())
		}
		var back principal.Grants
		text, err := json.Marshal(g)
		if err == nil {
			err = json.Unmarshal(text, &back)
		}
		if err != nil || back != g {
			t.Fatalf("%s becomes %v: %v", text, back.Names(), err)
		}
	})
	if got := principal.ParseGrants([]string{"network.entities read", "network.moons read", "system.logs", "users.admins own"}); got != principal.NetworkEntities.Grant(principal.Read) {
		t.Errorf("names that are not known grant %v", got.Names())
	}
	if len(principal.All.Names()) != 32 {
		t.Errorf("%d grants", len(principal.All.Names()))
	}
}

func TestParseOwner(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]principal.Owner{
		"/admin/3": {Type: principal.Admin, ID: 3}, "/client/5": {Type: principal.Client, ID: 5}, "/integration/7": {Type: principal.Integration, ID: 7},
	} {
		if got, ok := principal.ParseOwner(url); !ok || got != want || got.URL() != url {
			t.Errorf("%s: %v %t", url, got, ok)
		}
	}
	for _, url := range []string{"", "/", "/admin", "/admin/", "/admin/0", "/admin/-1", "/admin/03", "/admin/3/", "admin/3", "//admin/3", "/server/3", "/admin/9223372036854775808", "/Admin/3"} {
		if got, ok := principal.ParseOwner(url); ok {
			t.Errorf("%s is %v", url, got)
		}
	}
}

func TestGuards(t *testing.T) {
	t.Parallel()
	holder := func(g principal.Grants) *principal.Call {
		return &principal.Call{Peer: principal.Gateway, Principal: &principal.Principal{Owner: principal.Owner{Type: principal.Admin, ID: 7}, Grants: g}}
	}
	permission := principal.NetworkGroups
	none, read, write := holder(0), holder(permission.Grant(principal.Read)), holder(permission.Grant(principal.Write))
	keyless := &principal.Call{Peer: principal.Gateway}
	forged := &principal.Call{Peer: "network", Principal: read.Principal}
	const allowed = 0
	for _, c := range []struct {
		name  string
		guard principal.Guard
		call  *principal.Call
		a     principal.Access
		id    int64
		want  problem.Kind
	}{
		{"a permission, by who holds it", permission, read, principal.Read, 0, allowed},
		{"a permission's write, by who holds read", permission, read, principal.Write, 0, problem.Forbidden},
		{"a permission's read, by who holds write", permission, write, principal.Read, 0, problem.Forbidden},
		{"a permission, without a key", permission, keyless, principal.Read, 0, problem.Unauthenticated},
		{"a permission, not by the gateway", permission, forged, principal.Read, 0, problem.Forbidden},
		{"a permission, by nobody", permission, &principal.Call{}, principal.Read, 0, problem.Forbidden},
		{"any key", principal.AnyKey, none, principal.Write, 0, allowed},
		{"any key, without one", principal.AnyKey, keyless, principal.Read, 0, problem.Unauthenticated},
		{"any key, not by the gateway", principal.AnyKey, forged, principal.Read, 0, problem.Forbidden},
		{"public", principal.Public, keyless, principal.Read, 0, allowed},
		{"public, not by the gateway", principal.Public, &principal.Call{Peer: "network"}, principal.Read, 0, problem.Forbidden},
		{"self", permission.OrSelf(principal.Admin), none, principal.Write, 7, allowed},
		{"another self", permission.OrSelf(principal.Admin), none, principal.Read, 8, problem.Forbidden},
		{"a self of another type", permission.OrSelf(principal.Client), none, principal.Read, 7, problem.Forbidden},
		{"another self, by who holds the permission", permission.OrSelf(principal.Admin), read, principal.Read, 8, allowed},
		{"self, not by the gateway", permission.OrSelf(principal.Admin), &principal.Call{Peer: "network", Principal: none.Principal}, principal.Read, 7, problem.Forbidden},
		{"internal", principal.Peers("gateway"), keyless, principal.Read, 0, allowed},
		{"internal, by one of several", principal.Peers("gateway", "network"), &principal.Call{Peer: "network"}, principal.Read, 0, allowed},
		{"internal, by nobody", principal.Peers(), &principal.Call{}, principal.Read, 0, problem.Forbidden},
		{"internal, by another", principal.Peers("gateway"), &principal.Call{Peer: "network"}, principal.Read, 0, problem.Forbidden},
	} {
		err := c.guard.Check(c.call, c.a, c.id)
		if c.want == allowed && err != nil || c.want != allowed && !problem.Is(err, c.want) {
			t.Errorf("%s: %v, want %d", c.name, err, c.want)
		}
	}
}

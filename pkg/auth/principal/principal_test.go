package principal_test

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
)

func TestGrants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := principal.Grants(rapid.Uint64().Draw(t, "grants")) & principal.All
		var back principal.Grants
		text, err := json.Marshal(g)
		if err == nil {
			err = json.Unmarshal(text, &back)
		}
		if err != nil || back != g {
			t.Fatalf("%s: got %v, %v, want %v", text, back.Names(), err, g.Names())
		}
	})
	if got := principal.ParseGrants(
		[]string{"network.entities read", "network.moons read", "system.logs", "users.admins own"},
	); got != principal.Grant(
		permission.NetworkEntities,
		permission.Read,
	) {
		t.Errorf("names of which one is known: got the grants %v, want network.entities read alone", got.Names())
	}
	if got := len(principal.All.Names()); got != 2*permission.Count {
		t.Errorf("got %d grants, want two for each permission", got)
	}
}

func TestParseOwner(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]principal.Owner{
		"/admin/3": {Type: principal.Admin, ID: 3}, "/client/5": {Type: principal.Client, ID: 5},
		"/integration/7": {Type: principal.Integration, ID: 7},
	} {
		if got, ok := principal.ParseOwner(url); !ok || got != want || got.URL() != url {
			t.Errorf("%s: got %v, %t with the URL %s, want %v, true with the same URL", url, got, ok, got.URL(), want)
		}
	}
	for _, url := range []string{
		"", "/", "/admin", "/admin/", "/admin/0", "/admin/-1", "/admin/03", "/admin/3/", "admin/3", "//admin/3", "/server/3",
		"/admin/9223372036854775808", "/Admin/3",
	} {
		if got, ok := principal.ParseOwner(url); ok {
			t.Errorf("%s: got the owner %v, want none", url, got)
		}
	}
}

package system_test

import (
	"net/http"
	"reflect"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system/integration"
)

// createIntegration creates an integration with these permissions. It returns its id, its path and a client with its key.
func (r *running) createIntegration(name string, grants ...string) (id int64, at string, own *testkit.Client) {
	r.t.Helper()
	id = r.Do("POST", "/integration", map[string]any{"name": name}).Want(200).ID()
	at = path("/integration/%d", id)
	holds := principal.ParseGrants(grants)
	r.Do("PATCH", at+"/permission", principal.SetOf(holds)).Want(200)
	return id, at, r.As(newPrincipal(principal.Integration, id, holds))
}

// readEntry returns what gateways know about an integration.
func (r *running) readEntry(id int64) (entry keycache.Owner) {
	r.t.Helper()
	testkit.Must(r.t, r.Peers(principal.Gateway).Ask(r.t.Context(), "system", path("/internal/owner/integration/%d", id), &entry))
	return entry
}

func TestIntegrations(t *testing.T) {
	t.Parallel()
	s := run(t, service.Settings{})
	id, at, shop := s.createIntegration("Shop", "network.groups read", "network.entities read", "network.entities write")
	s.Do("POST", "/integration", `{"name": "SHOP"}`).WantErrors("/name", "taken")

	// An integration sees itself and its permissions, and no other integration.
	other := s.Do("POST", "/integration", `{"name": "Monitoring"}`).Want(200).ID()
	shop.Do("GET", at, nil).Want(200)
	sets := testkit.Decode[[]principal.PermissionSet](shop.Do("GET", at+"/permission", nil).Want(200))
	if len(sets) != 1 || !sets[0].Network.Groups.Read || sets[0].Network.Groups.Write {
		t.Errorf("got the permissions %+v, want network.groups read", sets)
	}
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		shop.Do(method, path("/integration/%d", other), `{"name": "x"}`).Want(403)
	}
	shop.Do("GET", "/integration", nil).Want(403)
	shop.Do("PATCH", at, `{"name": "Stop"}`).WantDetail(http.StatusForbidden, "The key lacks system.integrations write.")
	shop.Do("PATCH", at, `{"name": "Shop"}`).Want(200) // changes nothing
	shop.Do("PATCH", at+"/permission", `{"users": {"admins": {"write": true}}}`).Want(403)

	// Gateways see each change.
	want := keycache.Owner{
		Active: true,
		Name:   "Shop",
		Grants: principal.ParseGrants([]string{"network.groups read", "network.entities read", "network.entities write"}),
	}
	if got := s.readEntry(id); !reflect.DeepEqual(got, want) {
		t.Errorf("got the entry %+v, want %+v", got, want)
	}
	s.Do("PATCH", at, `{"disabled": true}`).Want(200)
	if got := s.readEntry(id); got.Active {
		t.Errorf("disabled: got the entry %+v, want an inactive one", got)
	}
	s.Do("PATCH", at, `{"disabled": false}`).Want(200)
	if got := s.readEntry(id); !reflect.DeepEqual(got, want) {
		t.Errorf("enabled: got the entry %+v, want %+v", got, want)
	}
	s.Do("PATCH", at+"/permission", `{"network": {"groups": {"read": false}}}`).Want(200)
	s.Do("PATCH", at+"/permission", `{"network": {"groups": {"read": false}}}`).Want(200) // changes nothing
	if got := s.readEntry(id); got.Grants == want.Grants {
		t.Errorf("edited: got the entry %+v, want one without network.groups read", got)
	}
	if items := s.awaitLog("type=integration.permission.edited", 2); items[0].Targets[0].Name != "Shop" {
		t.Errorf("got the log item %+v, want one about Shop", items[0])
	}
	s.Do("PATCH", at+"/permission", `{}`, "If-Match", `"1"`).Want(412)

	// After the deletion, nothing is left.
	s.Do("DELETE", at, nil).Want(200)
	if got := s.readEntry(id); !reflect.DeepEqual(got, keycache.Owner{}) {
		t.Errorf("deleted: got the entry %+v, want none", got)
	}
	s.Do("GET", at+"/permission", nil).Want(404)
	s.Do("PATCH", at+"/permission", `{}`).Want(404)
	if !s.Clients.Closed("integration", id) {
		t.Error("got it deleted without a lease of the clients service, want one")
	}
}

// An integration's clients and keys are counted from the changes of other services.
func TestIntegrationCounts(t *testing.T) {
	t.Parallel()
	s := run(t, service.Settings{})
	shop, at, _ := s.createIntegration("Shop")
	other, otherAt, _ := s.createIntegration("Monitoring")
	client := func(of int64) any { return map[string]any{"integration": map[string]any{"id": of}} }
	key := func(owner string) any { return map[string]any{"owner": map[string]any{"url": owner}} }
	s.Clients.Change("client", pg.Created, nil, client(shop))
	s.Clients.Change("client", pg.Created, nil, client(shop))
	s.Clients.Change("client", pg.Created, nil, map[string]any{"integration": nil})
	s.Clients.Change("client", pg.Edited, client(shop), client(other))
	s.Identity.Change("auth.key", pg.Created, nil, key(at))
	s.Identity.Change("auth.key", pg.Created, nil, key(at))
	s.Identity.Change("auth.key", pg.Created, nil, key("/admin/1"))
	s.Identity.Change("auth.key", pg.Deleted, key(at), nil)
	s.Identity.Change("auth.key", pg.Created, nil, key("/integration/999"))
	for at, want := range map[string][2]int64{at: {1, 1}, otherAt: {1, 0}} {
		testkit.Await(t, "clients and keys are counted", func() [2]int64 {
			got := testkit.Decode[integration.Integration](s.Do("GET", at, nil).Want(200))
			return [2]int64{got.Clients, got.Keys}
		}, func(got [2]int64) bool { return got == want })
	}
}

// With detach=true, an integration is disabled immediately, detached from all its clients, and then deleted.
func TestDetachedIntegration(t *testing.T) {
	t.Parallel()
	s := run(t, service.Settings{})
	id, at, _ := s.createIntegration("Shop", "users.clients read")
	s.Clients.Use("integration", id, "has 5 clients")
	s.Clients.Refer("integration", id, 5)

	_, lesser := s.addAdmin("system.integrations read", "system.integrations write", "users.clients read")
	lesser.Do("DELETE", at+"?detach=true", nil).Want(403)
	s.Do("DELETE", at, nil).WantDetail(http.StatusConflict, "Integration 1 has 5 clients.")
	s.Do("DELETE", at+"?detach=maybe", nil).Want(400)

	release := testkit.HoldLock(t, s.DB, func(tx *pg.Tx) error {
		_, err := tx.Exec(t.Context(), "SELECT FROM integration_count WHERE id = $1 FOR UPDATE", id)
		return err
	})
	s.Clients.Change("client", pg.Created, nil, map[string]any{"integration": map[string]any{"id": id}})
	s.Clients.SetAway(true) // so that nothing is detached yet
	if status := s.Do("DELETE", at+"?detach=true", nil).Status; status != 503 {
		t.Errorf("while clients is away: got %d, want 503", status)
	}
	if got := testkit.Decode[integration.Integration](s.Do("GET", at, nil).Want(200)); !got.Detaching {
		t.Errorf("got %+v, want it detaching", got)
	}
	if s.readEntry(id).Active {
		t.Error("got keys that count while it is being deleted, want none")
	}
	s.Do("DELETE", at, nil).WantDetail(http.StatusConflict, "Integration 1 is already being deleted.")
	s.Do("PATCH", at, `{"disabled": false}`).Want(200)
	if s.readEntry(id).Active {
		t.Error("got keys that count after an edit, want none")
	}
	release()
	s.Clients.SetAway(false)

	testkit.Eventually(t, "the integration is deleted", func() bool { return s.Do("GET", at, nil).Status == 404 })
	s.Do("DELETE", at+"?detach=true", nil).Want(404)
	if left := s.Clients.References("integration", id); left > 0 {
		t.Errorf("got %d clients left, want none", left)
	}
	s.awaitLog("type=integration.deleted", 1)

	// Detaching also continues if the job was lost in a restore, and works without clients.
	id, at, _ = s.createIntegration("Second shop")
	testkit.Execute(t, s.DB, "UPDATE integration SET detaching = true WHERE id = $1", id)
	testkit.Eventually(t, "the second integration is deleted", func() bool { return s.Do("GET", at, nil).Status == 404 })
	_, at, _ = s.createIntegration("Third shop")
	s.Do("DELETE", at+"?detach=true", nil).Want(200)
	testkit.Eventually(t, "the third integration is deleted", func() bool { return s.Do("GET", "/integration", nil).Want(200).Text == "[]\n" })
}

// Callers cannot gain permissions through an integration: they can neither grant what they lack, nor change an integration
// that holds it.
func TestNoPermissionsGainedByAnIntegration(t *testing.T) {
	t.Parallel()
	s := run(t, service.Settings{})
	_, at, _ := s.createIntegration("Shop", "users.admins read", "users.admins write", "system.integrations write")
	_, eve := s.addAdmin("system.integrations read", "system.integrations write")
	const lacks = "The account holds permissions that the key lacks: users.admins read, users.admins write."
	for _, try := range []struct {
		method, path string
		body         any
	}{
		{"PATCH", at, `{"name": "Eve's"}`},
		{"PATCH", at, `{"disabled": true}`},
		{"DELETE", at, nil},
		{"PATCH", at + "/permission", `{"users": {"admins": {"read": false}}}`},
	} {
		eve.Do(try.method, try.path, try.body).WantDetail(http.StatusForbidden, lacks)
	}
	own := path("/integration/%d/permission", eve.Do("POST", "/integration", `{"name": "Eve's"}`).Want(200).ID())
	eve.Do("PATCH", own, `{"users": {"admins": {"read": true}}}`).
		WantDetail(http.StatusForbidden, "The set grants permissions that the key lacks: users.admins read.")
	eve.Do("PATCH", own, `{"system": {"integrations": {"write": true}}}`).Want(200)

	acting := newPrincipal(principal.Admin, 1, principal.All)
	acting.Acting = true
	s.As(acting).Do("PATCH", own, `{"users": {"admins": {"read": true}}}`).Want(403)
}

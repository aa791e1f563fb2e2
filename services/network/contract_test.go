package network_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/neighbours"
	"github.com/ironplane/ironplane/services/network"
)

// stand is the network service with doubles of its neighbours and its tasks. Its Client is an admin with every permission.
type stand struct {
	*testkit.RunningService

	*neighbours.All

	created int64 // clients
}

func newStand(t testing.TB) *stand {
	t.Helper()
	s, all := neighbours.Run(t, network.Definition, testkit.ServiceOptions{})
	return &stand{RunningService: s, All: all}
}

// client creates a client and returns its id.
func (s *stand) client(name string) int64 {
	s.created++
	s.Clients.Set(credentials.Account{
		ID: s.created, Name: name + " Miller", First: name, Last: "Miller", Email: name + "@example.com", Version: 1,
	})
	return s.created
}

// clients creates clients with these names, and returns their ids and API clients with their keys.
func (s *stand) clients(names ...string) (ids map[string]int64, as map[string]*testkit.Client) {
	ids, as = map[string]int64{}, map[string]*testkit.Client{}
	for _, name := range names {
		ids[name] = s.client(name)
		as[name] = s.As(&principal.Principal{KeyID: ids[name], Owner: principal.Owner{Type: principal.Client, ID: ids[name]}, Name: name})
	}
	return ids, as
}

func path(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func TestContract(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ben := c.client("ben")
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	entity := func(address string, server int) map[string]any {
		return map[string]any{"group": group, "address": address, "owner": map[string]any{"id": ben, "server": map[string]any{"id": server}}}
	}
	first := c.Do("POST", "/entity", entity("192.0.2.1", 4)).Want(200).ID()
	second := c.Do("POST", "/entity", entity("192.0.2.2", 5)).Want(200).ID()
	third := c.Do("POST", "/entity", entity("192.0.2.3", 5)).Want(200).ID()
	neighbours.NetworkContract(t, c.Handler(), ben, 2, fmt.Sprintf(
		"has IP entity %d (192.0.2.1); IP entity %d (192.0.2.2); IP entity %d (192.0.2.3)", first, second, third))
}

// Records of IP entities and groups leave out members that other items decide.
func TestRecordsHaveNoCounts(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ben := c.client("ben")
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	body := map[string]any{"group": group, "address": "192.0.2.1", "owner": map[string]any{"id": ben}}
	entity := c.Do("POST", "/entity", body).Want(200).ID()
	c.Clients.Delete(ben)
	testkit.Eventually(t, "the entity of a deleted client is quarantined", func() bool {
		return strings.Contains(c.Do("GET", path("/entity/%d", entity), nil).Want(200).Text, `"status":"quarantined"`)
	})
	testkit.Execute(t, c.DB, path("UPDATE ip_assignment SET owner_id = %d, owner_missing = true WHERE entity_id = %d", ben, entity))
	c.Do("PATCH", path("/entity/%d", entity), `{"vlan": 7}`).Want(200)
	c.Do("POST", path("/entity/%d/release", entity), nil).Want(200)
	c.Do("PATCH", path("/entity/%d", entity), `{"status": "available"}`).Want(200)
	c.Do("DELETE", path("/entity/%d", entity), nil).Want(200)
	c.Do("DELETE", path("/group/%d", group), nil).Want(200)
	var got string
	testkit.Must(t, c.DB.QueryRow(t.Context(), "SELECT string_agg(concat(before, after), E'\\n' ORDER BY id) FROM change").Scan(&got))
	for _, member := range []string{"missing", "siblings_count", "entities", "entitiesCount", "servers"} {
		if strings.Contains(got, `"`+member+`"`) {
			t.Errorf("got %s, want no %s", got, member)
		}
	}
}

// A group's DHCP server follows the pxe service: it is renamed and cleared with the original.
func TestDHCPServerOfAGroup(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	c.PXE.SetDHCPServer(3, "fra1")
	at := path("/group/%d", c.Do("POST", "/group", `{"name": "Frankfurt", "pxe_dhcp_server": 3}`).Want(200).ID())
	c.Do("POST", "/group", `{"name": "Nowhere", "pxe_dhcp_server": 99}`).WantErrors("/pxe_dhcp_server", "not_found")
	c.PXE.SetDHCPServer(3, "fra2")
	testkit.Eventually(t, "the name follows", func() bool {
		return strings.Contains(c.Do("GET", at, nil).Want(200).Text, `"pxe_dhcp_server":{"id":3,"name":"fra2"}`)
	})
	c.PXE.DeleteDHCPServer(3)
	testkit.Eventually(t, "the reference is cleared", func() bool {
		return !strings.Contains(c.Do("GET", at, nil).Want(200).Text, "pxe_dhcp_server")
	})
}

// An IP entity of a running install is neither deleted nor taken from its owner.
func TestInstalledEntity(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	entity := c.Do("POST", "/entity", map[string]any{"group": group, "address": "192.0.2.1"}).Want(200).ID()
	many := map[string]any{"from": "192.0.2.1", "to": "192.0.2.9"}
	c.PXE.Install(entity, "is used by install 7 (web1) that has not ended")
	const detail = "is used by install 7 (web1) that has not ended."
	ben, eve := c.client("ben"), c.client("eve")
	owned := c.Do("POST", "/entity", map[string]any{"group": group, "address": "198.51.100.1", "owner": ben}).Want(200).ID()
	c.PXE.Install(owned, "is used by install 7 (web1) that has not ended")
	for _, end := range []string{`{"owner": null}`, path(`{"owner": {"id": %d}}`, eve)} {
		c.Do("PATCH", path("/entity/%d", owned), end).WantDetail(http.StatusConflict, fmt.Sprintf("IP entity %d %s", owned, detail))
	}
	c.Do("POST", path("/entity/%d/release", owned), nil).WantDetail(http.StatusConflict, fmt.Sprintf("IP entity %d %s", owned, detail))
	c.Do("PATCH", path("/entity/%d", owned), path(`{"owner": {"id": %d, "server": {"id": 4}}}`, ben)).Want(200)
	c.Do("DELETE", path("/entity/%d", entity), nil).WantDetail(http.StatusConflict, fmt.Sprintf("IP entity %d %s", entity, detail))
	if text := c.Do("POST", path("/group/%d/entity/bulk-delete", group), many).Want(409).Text; !strings.Contains(text, "install 7") {
		t.Errorf("got %s, want the install that uses it", text)
	}
	c.PXE.SetAway(true)
	c.Do("POST", path("/entity/%d/release", owned), nil).Want(503)
	c.Do("POST", path("/group/%d/entity/bulk-delete", group), many).Want(503)
	c.Do("DELETE", path("/entity/%d", entity), nil).Want(503)
}

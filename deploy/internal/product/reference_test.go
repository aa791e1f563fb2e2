package product_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/system"
)

func newDHCPServer(t *testing.T, c *testkit.Client, name string) int64 {
	t.Helper()
	return c.Do("POST", "/pxe/dhcp", map[string]any{"name": name, "http": map[string]any{"host": "192.0.2.1"}}).Want(200).ID()
}

// A group refers to a DHCP server, which belongs to another service.
func TestReference(t *testing.T) { shared(t, testReference) }

func testReference(t *testing.T, _ *product.Product, c *testkit.Client) {
	server, other := newDHCPServer(t, c, "fra1"), newDHCPServer(t, c, "fra2")
	group := c.Do("POST", "/group", map[string]any{"name": "Frankfurt 1", "pxe_dhcp_server": map[string]any{"id": server}}).Want(200)
	at, tag := path("/group/%d", group.ID()), group.Header.Get("ETag")
	shows := func(want string) func() bool {
		return func() bool {
			return strings.Contains(c.Do("GET", at, nil).Want(200).Text, `"pxe_dhcp_server":`+want+`}`)
		}
	}
	if !shows(fmt.Sprintf(`{"id":%d,"name":"fra1"}`, server))() {
		t.Errorf("got %s, want the DHCP server %d with the name fra1", group.Text, server)
	}
	for _, value := range []any{999, "fra1", map[string]any{"id": 999}} {
		c.Do("POST", "/group", map[string]any{"name": "Frankfurt 2", "pxe_dhcp_server": value}).
			Want(422).
			WantErrors("/pxe_dhcp_server", code(value))
		c.Do("PATCH", at, map[string]any{"pxe_dhcp_server": value}).Want(422).WantErrors("/pxe_dhcp_server", code(value))
	}

	c.Do("PATCH", path("/pxe/dhcp/%d", server), map[string]any{"name": "renamed"}).Want(200)
	testkit.Eventually(t, "the group shows the new name", shows(fmt.Sprintf(`{"id":%d,"name":"renamed"}`, server)))
	if now := c.Do("GET", at, nil).Header.Get("ETag"); now != tag {
		t.Errorf("got the group's ETag %s after the server was renamed, want %s", now, tag)
	}

	c.Do("PATCH", at, map[string]any{"pxe_dhcp_server": nil}).Want(200)
	c.Do("DELETE", path("/pxe/dhcp/%d", server), nil).Want(200)
	c.Do("PATCH", at, map[string]any{"pxe_dhcp_server": other}).Want(200)
	c.Do("DELETE", path("/pxe/dhcp/%d", other), nil).Want(200)
	testkit.Eventually(t, "the reference is cleared", func() bool { return !strings.Contains(c.Do("GET", at, nil).Text, "pxe_dhcp_server") })
	c.Do("PATCH", at, map[string]any{"pxe_dhcp_server": other}).Want(422).WantErrors("/pxe_dhcp_server", "not_found")
}

// A file server refers to its site's IP group, which belongs to network.
func TestFileServersGroup(t *testing.T) { shared(t, testFileServersGroup) }

func testFileServersGroup(t *testing.T, _ *product.Product, c *testkit.Client) {
	group := c.Do("POST", "/group", `{"name": "Hamburg 1"}`).Want(200).ID()
	body := map[string]any{
		"name":                   "ham1",
		"install_max_concurrent": 20,
		"group_id":               group,
		"host":                   "192.0.2.3",
		"port":                   443,
		"api_key":                "secret",
		"public_key":             "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG",
	}
	at := path("/pxe/file/%d", c.Do("POST", "/pxe/file", body).Want(200).ID())
	body["name"], body["group_id"] = "ham2", 999
	c.Do("POST", "/pxe/file", body).WantErrors("/group_id", "not_found")
	c.Do("PATCH", path("/group/%d", group), `{"name": "Hamburg 2"}`).Want(200)
	testkit.Eventually(t, "the file server shows the group's new name", func() bool {
		return strings.Contains(c.Do("GET", at, nil).Want(200).Text, fmt.Sprintf(`"group":{"id":%d,"name":"Hamburg 2"}`, group))
	})
	c.Do("DELETE", path("/group/%d", group), nil).Want(200)
	testkit.Eventually(t, "the reference is cleared", func() bool { return !strings.Contains(c.Do("GET", at, nil).Want(200).Text, `"group"`) })
	c.Do("PATCH", at, map[string]any{"group": group}).WantErrors("/group", "not_found")
}

// A profile refers to an email template of the system service, which cannot be deleted then.
func TestProfilesEmailTemplate(t *testing.T) { shared(t, testProfilesEmailTemplate) }

func testProfilesEmailTemplate(t *testing.T, _ *product.Product, c *testkit.Client) {
	template := c.Do("POST", "/email/template", `{"name": "ready", "subject": "x", "body": "x"}`).Want(200).ID()
	script := c.Do("POST", "/pxe/boot-script", `{"name": "boot", "body": "#!ipxe"}`).Want(200).ID()
	body := map[string]any{"name": "Debian", "boot_script": script, "email": map[string]any{"template": template}}
	profile := path("/pxe/profile/%d", c.Do("POST", "/pxe/profile", body).Want(200).ID())
	body["name"], body["email"] = "Another", map[string]any{"template": 999}
	c.Do("POST", "/pxe/profile", body).WantErrors("/email/template", "not_found")
	at := path("/email/template/%d", template)
	c.Do("DELETE", at, nil).
		Want(409).
		WantDetail(
			problem.Conflict,
			fmt.Sprintf("Email template %d is used by profile %s (Debian).", template, strings.TrimPrefix(profile, "/pxe/profile/")),
		)
	c.Do("PATCH", at, `{"name": "done", "subject": "x", "body": "x"}`).Want(200)
	testkit.Eventually(t, "the profile shows the template's new name", func() bool {
		return strings.Contains(c.Do("GET", profile, nil).Want(200).Text, `"name":"done"}}`)
	})
	c.Do("PATCH", profile, `{"email": {"template": null}}`).Want(200)
	c.Do("DELETE", at, nil).Want(200)
	c.Do("PATCH", profile, map[string]any{"email": map[string]any{"template": template}}).WantErrors("/email/template", "not_found")

	many := make([]string, 100) // as many as one request may name
	for n := range many {
		many[n] = fmt.Sprint(
			c.Do("POST", "/email/template", map[string]any{"name": fmt.Sprint("template ", n), "subject": "x", "body": "x"}).Want(200).ID(),
		)
	}
	c.Do("DELETE", "/email/template/"+strings.Join(many, ","), nil).Want(200)
}

func code(sent any) string {
	if _, text := sent.(string); text {
		return "type"
	}
	return "not_found"
}

// A reference that is created while its target is deleted never refers to a missing item.
func TestReferenceWhileItsTargetIsDeleted(t *testing.T) {
	t.Parallel()
	p, c := producttest.Split(t)
	rounds := 100
	if *full {
		rounds = 500
	}
	group := path("/group/%d", c.Do("POST", "/group", map[string]any{"name": "Frankfurt 1"}).Want(200).ID())
	created := 0
	for i := range rounds {
		server := newDHCPServer(t, c, fmt.Sprintf("fra%d", i))
		var racing sync.WaitGroup
		racing.Go(func() { c.Do("DELETE", path("/pxe/dhcp/%d", server), nil).Want(200) })
		switch response := c.Do("PATCH", group, map[string]any{"pxe_dhcp_server": server}); response.Status {
		case 200:
			created++
		default:
			response.Want(422)
		}
		racing.Wait()
	}
	var last int64
	if err := p.Databases[pxe.Name].QueryRow(t.Context(), "SELECT count(*) FROM change").Scan(&last); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "network has applied all changes", func() bool {
		var at int64
		err := p.Databases[network.Name].QueryRow(t.Context(), "SELECT seq FROM consumer WHERE source = 'pxe'").Scan(&at)
		return err == nil && at == last
	})
	if text := c.Do("GET", group, nil).Want(200).Text; strings.Contains(text, "pxe_dhcp_server") {
		t.Errorf("got %s after %d references to deleted servers, want no reference", text, created)
	}
	if created == 0 {
		t.Error("got no reference before a deletion, want some")
	}
	var dangling int
	if err := p.Databases[network.Name].QueryRow(t.Context(), "SELECT count(*) FROM ip_group g JOIN ref r ON r.id = g.pxe_dhcp_server_id "+
		"WHERE r.gone").
		Scan(&dangling); err != nil ||
		dangling > 0 {
		t.Errorf("got %d references to deleted servers (%v), want none", dangling, err)
	}
}

// However many callers assign entities to a client while it is deleted, no entity belongs to a deleted client.
func TestAssignmentWhileItsClientIsDeleted(t *testing.T) {
	t.Parallel()
	p, c := producttest.Split(t)
	rounds, callers := 20, 8
	if *full {
		rounds, callers = 500, 64
	}
	group := path("/group/%d", c.Do("POST", "/group", map[string]any{"name": "Frankfurt 1"}).Want(200).ID())
	c.Do("POST", group+"/entity/bulk", map[string]any{"prefix": "198.51.100.0/24", "all": true}).Want(200)
	deleted, kept := 0, 0
	for round := range rounds {
		client := c.Do("POST", "/client", order(fmt.Sprintf("ben-%d@example.com", round))).Want(200).ID()
		at := path("/client/%d", client)
		var racing sync.WaitGroup
		for range callers {
			racing.Go(func() {
				response := c.Do("POST", group+"/allocate", map[string]any{"owner": map[string]any{"id": client}})
				if response.Status == 422 {
					if code := testkit.Decode[problem.Problem](response).Errors[0].Code; code != "not_found" && code != "closing" {
						t.Errorf("got %s, want not_found or closing", response.Text)
					}
					return
				}
				response.Want(200)
			})
		}
		var deletion *testkit.Response
		testkit.Eventually(t, "the client is deleted or not", func() bool { // so many callers can keep network from answering in time
			deletion = c.Do("DELETE", at, nil)
			return deletion.Status != 503
		})
		racing.Wait()
		assigned := testkit.Decode[[]network.IPEntity](c.Do("GET", path("/entity?owner=%d", client), nil).Want(200))
		switch deletion.Status {
		case 200:
			deleted++
			c.Do("GET", at, nil).Want(404)
			if len(assigned) > 0 {
				t.Errorf("client %d is gone: got %d entities, want none", client, len(assigned))
			}
		default:
			kept++
			if text := deletion.Want(409).Text; !strings.Contains(text, "has IP entity") || len(assigned) == 0 {
				t.Errorf("client %d: got %s with %d entities, want a conflict over its IP entities", client, text, len(assigned))
			}
			c.Do("GET", at, nil).Want(200)
			for _, e := range assigned {
				c.Do("POST", path("/entity/%d/release", e.ID), nil).Want(200)
				c.Do("PATCH", path("/entity/%d", e.ID), map[string]any{"status": "available"}).Want(200) // ends the quarantine
			}
			c.Do("DELETE", at, nil).Want(200)
		}
	}
	t.Logf("%d clients were deleted at once, %d had entities", deleted, kept)
	var open int
	if err := p.Databases[clients.Name].QueryRow(t.Context(), "SELECT count(*) FROM closing").Scan(&open); err != nil || open > 0 {
		t.Errorf("got %d deletion leases (%v), want none", open, err)
	}
}

// However many callers create clients of an integration while it is deleted, no client belongs to a deleted integration. An
// integration that was not deleted can get clients after that.
func TestClientsWhileTheirIntegrationIsDeleted(t *testing.T) {
	t.Parallel()
	p, c := producttest.Split(t)
	rounds, callers := 6, 6
	if *full {
		rounds, callers = 500, 64
	}
	deleted, kept := 0, 0
	for round := range rounds {
		id := c.Do("POST", "/integration", map[string]any{"name": fmt.Sprintf("Shop %d", round)}).Want(200).ID()
		at := path("/integration/%d", id)
		body := func(caller int) map[string]any {
			return order(fmt.Sprintf("ben-%d-%d@example.com", round, caller), "billing_id", caller+1, "integration_id", id)
		}
		var deletion *testkit.Response
		var racing sync.WaitGroup
		ended := make(chan struct{})
		racing.Go(func() {
			defer close(ended)
			for deadline := time.Now().Add(soon); ; { // so many callers can keep clients from answering in time
				if deletion = c.Do("DELETE", at, nil); deletion.Status != 503 || time.Now().After(deadline) {
					return
				}
			}
		})
		if round%2 == 1 { // otherwise the clients always come first
			testkit.Eventually(t, "the deletion is under way", func() bool {
				var begun bool
				select {
				case <-ended:
					return true
				default:
					return p.Databases[system.Name].QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM closing WHERE agreed)").Scan(&begun) == nil && begun
				}
			})
		}
		for caller := range callers {
			racing.Go(func() {
				response := c.Do("POST", "/client", body(caller))
				if response.Status == 422 {
					if code := testkit.Decode[problem.Problem](response).Errors[0].Code; code != "not_found" && code != "closing" {
						t.Errorf("got %s, want not_found or closing", response.Text)
					}
					return
				}
				response.Want(200)
			})
		}
		racing.Wait()
		remaining := testkit.Decode[[]clients.ListedClient](c.Do("GET", path("/client?integration_id=%d", id), nil).Want(200))
		if deletion.Status == 200 {
			deleted++
			c.Do("GET", at, nil).Want(404)
			if len(remaining) > 0 {
				t.Errorf("the deleted integration %d: got %d clients, want none", id, len(remaining))
			}
			continue
		}
		kept++
		if text := deletion.Want(409).Text; !strings.Contains(text, "client") || len(remaining) == 0 {
			t.Errorf("integration %d: got %s with %d clients, want a conflict over its clients", id, text, len(remaining))
		}
		c.Do("POST", "/client", body(callers)).Want(200)
	}
	t.Logf("%d integrations were deleted, %d had clients", deleted, kept)
	var open, dangling int
	if err := p.Databases[system.Name].QueryRow(t.Context(), "SELECT count(*) FROM closing").Scan(&open); err != nil || open > 0 {
		t.Errorf("got %d deletion leases (%v), want none", open, err)
	}
	if err := p.Databases[clients.Name].QueryRow(t.Context(), "SELECT count(*) FROM client c LEFT JOIN ref r ON r.type = 'integration' "+
		"AND r.id = c.integration_id WHERE c.integration_id IS NOT NULL AND r.gone IS NOT false").
		Scan(&dangling); err != nil ||
		dangling > 0 {
		t.Errorf("got %d clients of deleted integrations (%v), want none", dangling, err)
	}
}

// Assignments from before owners had to be clients stay, and show that their owner is missing.
func TestFormerOwners(t *testing.T) { producttest.InOneProcess(t, testFormerOwners) }

func testFormerOwners(t *testing.T, p *product.Product, c *testkit.Client) {
	c.Do("POST", "/client", order("ben@example.com")).Want(200)
	c.Do("POST", "/group", `{"name": "Frankfurt 1"}`).Want(200)
	for _, e := range []string{`{"group": 1, "address": "192.0.2.1"}`, `{"group": 1, "address": "192.0.2.2"}`, `{"group": 1, "address": "192.0.2.3", "owner": 1}`} {
		c.Do("POST", "/entity", e).Want(200)
	}
	testkit.Execute(t, p.Databases[network.Name], "DELETE FROM ref WHERE type = 'client'")
	testkit.Execute(t, p.Databases[network.Name], "INSERT INTO ip_owner_of_before VALUES (1), (2)")
	testkit.Execute(
		t,
		p.Databases[network.Name],
		"INSERT INTO ip_assignment (entity_id, owner_id, owner_missing) VALUES (1, 1, true), (2, 2, true)",
	)
	testkit.Execute(t, p.Databases[network.Name], "UPDATE ip_assignment SET owner_name = 'Acme' WHERE entity_id < 3")
	if err := network.New(p.Databases[network.Name], nil, peers.New(network.Name, p.Services)).FindOwners(t.Context()); err != nil {
		t.Fatal(err)
	}
	ownerOf := func(entity int) string {
		return testkit.JSON(testkit.Decode[network.IPEntity](c.Do("GET", path("/entity/%d", entity), nil).Want(200)).Owner)
	}
	if got := ownerOf(
		1,
	) + ownerOf(
		2,
	) + ownerOf(
		3,
	); got != `{"id":1,"name":"Ben Miller"}{"id":2,"name":"Acme","missing":true}{"id":1,"name":"Ben Miller"}` {
		t.Errorf("got the owners %s, want Ben Miller, the missing Acme and Ben Miller", got)
	}
	// A new client with the id of a missing owner does not get the entities, also after an edit of the entity.
	other := path("/client/%d", c.Do("POST", "/client", order("eve@example.com")).Want(200).ID())
	c.Do("PATCH", "/entity/2", `{"nickname": "old", "owner": {"id": 2, "server": {"id": 7}}}`).Want(200)
	if got := ownerOf(2); got != `{"id":2,"name":"Acme","missing":true,"server":{"id":7}}` {
		t.Errorf("got the owner %s, want the missing Acme with server 7", got)
	}
	if list := testkit.Decode[[]network.IPEntity](
		c.Do("GET", "/entity?owner_missing=true", nil).Want(200),
	); len(list) != 1 ||
		list[0].ID != 2 {
		t.Errorf("entities with a missing owner: got %+v, want entity 2", list)
	}
	c.Do("DELETE", other, nil).Want(200)
	c.Do("PATCH", "/entity/2", `{"owner": {"id": 1}}`).Want(200)
	c.Do("PATCH", "/client/1", `{"first": "Benjamin"}`).Want(200)
	testkit.Eventually(
		t,
		"the entity shows the new name",
		func() bool { return strings.Contains(ownerOf(2), `{"id":1,"name":"Benjamin Miller"`) },
	)
	if found := testkit.Decode[[]network.IPEntity](c.Do("GET", "/entity?q=benjamin", nil).Want(200)); len(found) != 3 {
		t.Errorf("search for the new name: got %+v, want 3 entities", found)
	}
	c.Do("PATCH", "/entity/1", `{"owner": {"id": 2}}`).WantErrors("/owner/id", "not_found")
	c.Do("DELETE", "/client/1", nil).
		WantDetail(problem.Conflict, "Client 1 has IP entity 1 (192.0.2.1); IP entity 2 (192.0.2.2); IP entity 3 (192.0.2.3).")
}

package product_test

import (
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
)

// A client's servers are those that its IP entities are of, each once.
func TestServersOfClients(t *testing.T) { both(t, testServersOfClients) }

func testServersOfClients(t *testing.T, p *product.Product, c *testkit.Client) {
	ids, as := newClients(t, c, "parent", "child")
	c.Do("POST", path("/client/%d/sub", ids["parent"]), map[string]any{"client_id": ids["child"]}).Want(200)
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	c.Do("POST", path("/group/%d/entity/bulk", group), map[string]any{"prefix": "192.0.2.0/28"}).Want(200)
	shows := func(want int64) {
		t.Helper()
		testkit.Eventually(t, "the servers are counted", func() bool {
			seen := testkit.Decode[clients.ViewedClient](c.Do("GET", path("/client/%d", ids["child"]), nil).Want(200)).Servers
			listed := testkit.Decode[[]clients.Client](as["parent"].Do("GET", "/client", nil).Want(200))[0].Servers
			linked := testkit.Decode[[]clients.SubLink](as["parent"].Do("GET", path("/client/%d/sub", ids["parent"]), nil).Want(200))[0].Child.Servers
			return seen == want && listed == want && linked == want
		})
	}
	owner := func(name string, server int) map[string]any {
		return map[string]any{"owner": map[string]any{"id": ids[name], "server": map[string]any{"id": server}}}
	}
	tag := c.Do("GET", path("/client/%d", ids["child"]), nil).Header.Get("ETag")
	c.Do("POST", path("/group/%d/allocate", group), map[string]any{"count": 2, "owner": owner("child", 4)["owner"]}).Want(200)
	shows(1)
	c.Do("PATCH", "/entity/3", owner("child", 5)).Want(200)
	c.Do("PATCH", "/entity/4", map[string]any{"owner": map[string]any{"id": ids["child"]}}).Want(200) // of no server
	shows(2)
	c.Do("PATCH", "/entity/3", owner("parent", 5)).Want(200)
	shows(1)
	if now := c.Do("GET", path("/client/%d", ids["child"]), nil).Header.Get("ETag"); now != tag {
		t.Errorf("the servers make %s of the ETag %s", now, tag)
	}
	for _, entity := range []string{"/entity/1/release", "/entity/2/release"} {
		c.Do("POST", entity, nil).Want(200)
	}
	shows(0)

	// What was not heard of is asked for: of before it was counted, or of a network that was restored.
	testkit.Execute(t, p.Databases[clients.Name], "DELETE FROM client_server_count")
	testkit.Execute(
		t,
		p.Databases[clients.Name],
		"INSERT INTO client_recount SELECT id FROM client UNION SELECT * FROM generate_series(9999999999001, 9999999999999)",
	)
	testkit.Eventually(t, "all are counted again", func() bool {
		return testkit.Decode[clients.ViewedClient](c.Do("GET", path("/client/%d", ids["parent"]), nil).Want(200)).Servers == 1
	})

	// What is counted while a client is edited is not what the edit changed.
	testkit.Execute(t, p.Databases[clients.Name], `CREATE FUNCTION count_meanwhile() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		UPDATE client_server_count SET servers = servers + 5 WHERE id = NEW.id; RETURN NEW; END $$`)
	testkit.Execute(
		t,
		p.Databases[clients.Name],
		"CREATE TRIGGER count_meanwhile BEFORE UPDATE ON client FOR EACH ROW EXECUTE FUNCTION count_meanwhile()",
	)
	edited := c.Do("PATCH", path("/client/%d", ids["parent"]), `{"first": "Paula"}`).Want(200)
	if n := testkit.Decode[clients.ViewedClient](edited).Servers; n != 6 {
		t.Errorf("the edit shows %d servers", n)
	}
	producttest.Drain(t, p)
	if text := c.Do("GET", path("/log?type=client.edited&target_type=client&target_id=%d", ids["parent"]), nil).
		Want(200).
		Text; !strings.Contains(text, "Paula") ||
		strings.Contains(text, "serversCount") {
		t.Errorf("the log has of the edit %s", text)
	}
}

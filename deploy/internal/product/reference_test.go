package product_test

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/testkit"
)

func newDHCPServer(t *testing.T, c *testkit.Client, name string) int64 {
	t.Helper()
	return c.Do("POST", "/pxe/dhcp", map[string]any{"name": name, "http": map[string]any{"host": "192.0.2.1"}}).Want(200).ID()
}

// eventually asks until the answer holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain waited until %s", what)
		}
	}
}

// A group names a DHCP server, which is another service's.
func TestReference(t *testing.T) { producttest.Both(t, testReference) }

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
		t.Error(group.Text)
	}
	for _, wrong := range []any{999, "fra1", map[string]any{"id": 999}} {
		c.Do("POST", "/group", map[string]any{"name": "Frankfurt 2", "pxe_dhcp_server": wrong}).Want(422).WantErrors("/pxe_dhcp_server", code(wrong))
		c.Do("PATCH", at, map[string]any{"pxe_dhcp_server": wrong}).Want(422).WantErrors("/pxe_dhcp_server", code(wrong))
	}

	c.Do("PATCH", path("/pxe/dhcp/%d", server), map[string]any{"name": "renamed"}).Want(200)
	eventually(t, "the group shows the new name", shows(fmt.Sprintf(`{"id":%d,"name":"renamed"}`, server)))
	if now := c.Do("GET", at, nil).Header.Get("ETag"); now != tag {
		t.Errorf("that the server was renamed makes %s of the group's ETag %s", now, tag)
	}

	c.Do("PATCH", at, map[string]any{"pxe_dhcp_server": nil}).Want(200)
	c.Do("DELETE", path("/pxe/dhcp/%d", server), nil).Want(200)
	c.Do("PATCH", at, map[string]any{"pxe_dhcp_server": other}).Want(200)
	c.Do("DELETE", path("/pxe/dhcp/%d", other), nil).Want(200)
	eventually(t, "the reference is cleared", func() bool { return !strings.Contains(c.Do("GET", at, nil).Text, "pxe_dhcp_server") })
	c.Do("PATCH", at, map[string]any{"pxe_dhcp_server": other}).Want(422).WantErrors("/pxe_dhcp_server", "not_found")
}

func code(sent any) string {
	if _, text := sent.(string); text {
		return "type"
	}
	return "not_found"
}

var full = flag.Bool("full", false, "delete as many targets of references as in `make crash`")

// However a reference is made while its target is deleted, it does not dangle.
func TestReferenceWhileItsTargetIsDeleted(t *testing.T) {
	t.Parallel()
	p, c := producttest.Split(t)
	rounds := 100
	if *full {
		rounds = 500
	}
	group := path("/group/%d", c.Do("POST", "/group", map[string]any{"name": "Frankfurt 1"}).Want(200).ID())
	made := 0
	for i := range rounds {
		server := newDHCPServer(t, c, fmt.Sprintf("fra%d", i))
		var racing sync.WaitGroup
		racing.Go(func() { c.Do("DELETE", path("/pxe/dhcp/%d", server), nil).Want(200) })
		switch answer := c.Do("PATCH", group, map[string]any{"pxe_dhcp_server": server}); answer.Status {
		case 200:
			made++
		default:
			answer.Want(422)
		}
		racing.Wait()
	}
	var last int64
	if err := p.Databases[pxe.Name].QueryRow(t.Context(), "SELECT count(*) FROM change").Scan(&last); err != nil {
		t.Fatal(err)
	}
	eventually(t, "network has heard of all", func() bool {
		var at int64
		err := p.Databases[network.Name].QueryRow(t.Context(), "SELECT seq FROM consumer WHERE source = 'pxe'").Scan(&at)
		return err == nil && at == last
	})
	if text := c.Do("GET", group, nil).Want(200).Text; strings.Contains(text, "pxe_dhcp_server") {
		t.Errorf("after %d references to what was being deleted: %s", made, text)
	}
	if made == 0 {
		t.Error("no reference was made in time")
	}
	var dangling int
	if err := p.Databases[network.Name].QueryRow(t.Context(), "SELECT count(*) FROM ip_group g JOIN ref r ON r.id = g.pxe_dhcp_server_id WHERE r.gone").Scan(&dangling); err != nil || dangling > 0 {
		t.Error(dangling, err)
	}
}

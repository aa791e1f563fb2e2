package product_test

import (
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// A refused change leaves a record. A refused read, or a request without a key, does not.
func TestRefusalsAreRecorded(t *testing.T) { both(t, testRefusalsAreRecorded) }

func testRefusalsAreRecorded(t *testing.T, p *product.Product, c *testkit.Client) {
	id, unprivileged := newAdmin(t, c, "nobody", `{}`)
	unprivileged.Do("GET", "/group/7", nil).Want(403)
	c.WithKey("").Do("PATCH", "/group/7", map[string]any{"name": "x"}).Want(401)
	c.Do("PATCH", "/group/7", map[string]any{"name": "x"}).Want(404)
	unprivileged.Do("PATCH", "/group/7", map[string]any{"name": "x"}).Want(403)
	unprivileged.Do("POST", "/group", map[string]any{"name": "x"}).Want(403)

	var n int
	err := p.Databases[network.Name].QueryRow(t.Context(), `
		SELECT count(*) FROM change WHERE type = 'request.refused' AND actor_url = $1 AND ip IS NOT NULL AND request_id IS NOT NULL AND (
			targets = '[{"type": "group", "id": 7, "name": "group 7"}]' AND after = '{"method": "PATCH", "route": "/group/{group_id}", "detail": "The key lacks network.groups write."}'
			OR targets = '[]' AND after->>'method' = 'POST')`, path("/admin/%d", id)).Scan(&n)
	if err != nil || n != 2 {
		t.Errorf("got %d records of refusals (%v), want 2", n, err)
	}
	if err := p.Databases[network.Name].QueryRow(t.Context(), `SELECT count(*) FROM change`).Scan(&n); err != nil || n != 2 {
		t.Errorf("got %d records in all (%v), want 2", n, err)
	}
}

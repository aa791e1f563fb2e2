package network_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// The values of a client's fields exist as long as the client.
func TestFieldsOfClients(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ids, as := c.clients("ben", "eve")
	field := path(
		"/field/%d/value",
		c.Do("POST", "/field", `{"name": "Tier", "slug": "tier", "target_type": "client", "default": "iron"}`).Want(200).ID(),
	)
	value := map[string]any{"target_id": ids["ben"], "value": "gold"}
	created := c.Do("POST", field, value).Want(200).ID()
	c.Do("POST", field, value).WantErrors("/target_id", "taken")
	c.Do("POST", field, `{"target_id": 999999, "value": "gold"}`).WantErrors("/target_id", "not_found")
	at := path("%s/%d", field, created)
	c.Do("PATCH", at, `{"target_id": 999999, "value": "gold"}`).WantErrors("/target_id", "not_found")
	of := path("%s?target_id=%d", field, ids["ben"])
	if got := c.Do("GET", of, nil).Want(200).Text; !strings.Contains(got, `"value":"gold"`) {
		t.Errorf("the client's field: got %s, want the value gold", got)
	}

	// They need users.clients.
	shop := c.As(testkit.AdminWith(principal.Grant(permission.UsersClients, permission.Read)))
	other := c.As(testkit.AdminWith(
		principal.Grant(permission.NetworkEntities, permission.Read) | principal.Grant(permission.NetworkEntities, permission.Write)))
	shop.Do("GET", of, nil).Want(200)
	const lacks = "The key lacks %s access to the field's target: one of network.entities, network.groups, server.settings, users.clients."
	shop.Do("PATCH", at, `{"value": "tin"}`).WantDetail(http.StatusForbidden, fmt.Sprintf(lacks, "write"))
	for caller, want := range map[*testkit.Client]string{other: "The key lacks users.clients read.", as["ben"]: fmt.Sprintf(lacks, "read")} {
		caller.Do("GET", of, nil).WantDetail(http.StatusForbidden, want)
		caller.Do("GET", at, nil).Want(403)
		caller.Do("DELETE", at, nil).Want(403)
	}

	// They do not keep a client from being deleted, and are deleted with it.
	c.Clients.Delete(ids["ben"])
	testkit.Eventually(t, "the value is gone", func() bool { return c.Do("GET", at, nil).Status == 404 })
	c.Do("POST", field, value).WantErrors("/target_id", "not_found")
	c.Do(
		"PATCH", path("%s/%d", field, c.Do("POST", field, map[string]any{"target_id": ids["eve"], "value": "tin"}).Want(200).ID()),
		map[string]any{"target_id": ids["ben"], "value": "tin"},
	).
		WantErrors("/target_id", "not_found")
	var left int
	if err := c.DB.QueryRow(t.Context(), "SELECT count(*) FROM field_value").Scan(&left); err != nil || left != 1 {
		t.Errorf("got %d values and the error %v, want 1", left, err)
	}
}

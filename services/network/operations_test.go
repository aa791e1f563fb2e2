package network_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// TestOperations calls each documented operation of the service once.
func TestOperations(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	var left []string
	for _, o := range rest.Operations(network.New(c.DB, box, agreeing{}).Routes()) {
		if !o.Extension && !guard.IsInternal(o.Guard) {
			left = append(left, o.Method+" "+o.Path)
		}
	}
	if len(left) != 26 {
		t.Errorf("got %d documented operations, want 26: %v", len(left), left)
	}
	do := func(method, at string, body any, operation string) *testkit.Response {
		t.Helper()
		if n := slices.Index(left, method+" "+operation); n >= 0 {
			left = slices.Delete(left, n, n+1)
		}
		return c.Do(method, at, body).Want(200)
	}
	resource := func(collection, parameter, body, edit string) int64 {
		t.Helper()
		id := do("POST", collection, body, collection).ID()
		at, item := path(collection+"/%d", id), collection+"/{"+parameter+"}"
		created := do("GET", at, nil, item)
		if list := do("GET", collection, nil, collection).Text; !strings.Contains(list, strings.TrimSpace(created.Text)) {
			t.Errorf("got the list %s, want %s in it", list, created.Text)
		}
		if edited := do("PATCH", at, edit, item); edited.Text == created.Text || edited.Text != c.Do("GET", at, nil).Text {
			t.Errorf("an edit of %s: got %s, want a change that GET shows, too", created.Text, edited.Text)
		}
		return id
	}
	remove := func(collection, parameter string, id int64) {
		t.Helper()
		at := path(collection+"/%d", id)
		do("DELETE", at, nil, collection+"/{"+parameter+"}")
		c.Do("GET", at, nil).Want(404)
	}

	group := resource("/group", "group_id", `{"name": "Berlin"}`, `{"name": "Berlin 1"}`)
	entity := resource("/entity", "entity_id", testkit.JSON(map[string]any{"group": group, "address": "192.0.2.0/28"}), `{"vlan": 7}`)
	gateway := resource(
		"/forward/gateway",
		"gateway_id",
		testkit.JSON(map[string]any{"name": "nat", "hostname": "nat", "apikey": "k", "port limit": "100", "groups": []int64{group}}),
		`{"port_limit": "200"}`,
	)
	speed := resource(
		"/port-speed",
		"port_speed_id",
		`{"name": "fast", "speed": 1000}`,
		`{"name": "faster", "speed": 10000, "billing_id": "F"}`,
	)
	do("GET", "/forward/type", nil, "/forward/type")
	do("GET", "/forward/type/1", nil, "/forward/type/{type_id}")
	field := c.Do("POST", "/field", `{"name": "Rack", "slug": "rack", "target_type": "entity"}`).Want(200).ID()
	value := c.Do("POST", path("/field/%d/value", field), map[string]any{"target_id": entity, "value": "12"}).Want(200)
	do("GET", "/field", nil, "/field")
	do("GET", path("/field/%d", field), nil, "/field/{field_id}")
	if got := do("GET", path("/field/%d/value?target_id=%d", field, entity), nil, "/field/{field_id}/value"); got.Text != value.Text {
		t.Errorf("got %s, want %s", got.Text, value.Text)
	}
	do("GET", path("/field/%d/value/%d", field, value.ID()), nil, "/field/{field_id}/value/{value_id}")

	owner := c.client("ben")
	if input := testkit.Decode[[]network.IPEntity](
		c.Do("POST", path("/group/%d/allocate", group), map[string]any{"owner": map[string]any{"id": owner}}).Want(200),
	); input[0].ID != entity {
		t.Errorf("got %+v allocated, want entity %d", input, entity)
	}
	c.Do("POST", path("/entity/%d/release", entity), nil).Want(200)
	c.Do("PATCH", path("/entity/%d", entity), `{"status": "available"}`).Want(200)
	c.Do("GET", path("/group/%d/utilization", group), nil).Want(200)

	remove("/entity", "entity_id", entity)
	remove("/forward/gateway", "gateway_id", gateway)
	remove("/group", "group_id", group)
	remove("/port-speed", "port_speed_id", speed)
	if len(left) > 0 {
		t.Errorf("got operations that nobody called: %v, want none", left)
	}
}

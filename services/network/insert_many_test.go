package network_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
)

// Rows of a CSV body are inserted together. They become the entities that the same rows make one by one, in the same order.
func TestRowsInsertedTogether(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/group", `{"name": "Paris"}`).Want(200)
	header := "group.id,nickname,billing_id,vlan,full_ip,gateway,subnet_mask,v6_address,v6_gateway," +
		"owner.id,owner.server.id,owner.server.name,status,note\n"
	rows := []string{
		"%d,rack 1,IP,7,10.0.0.9,10.0.0.1,255.255.255.0,,,,,,,",
		"%d,,,,10.0.0.2,,,fd00::2,fd00::1,,,,reserved,kept for ACME",
		"%d,,,,10.0.0.3-10.0.0.5,,,,,1,4,fra1-s4,,",
		"%d,,,,10.1.0.0/29,10.1.0.1,,,,1,,,,",
		"%d,,,,,,,fd00:1::/64,fd00:1::1,,,,reserved,",
		"%d,,,,10.0.0.1,,,,,,,,available,",
	}
	post := func(group int, rows ...string) {
		body := header + strings.Join(rows, "\n") + "\n"
		c.Do("POST", "/entity", strings.ReplaceAll(body, "%d", fmt.Sprint(group)), "Content-Type", "text/csv").Want(200)
	}
	post(1, rows...)
	for _, row := range rows {
		post(2, row)
	}
	list := func(group int) (entities []map[string]any) {
		entities = testkit.Decode[[]map[string]any](c.Do("GET", fmt.Sprintf("/entity?group_id=%d&sort=id", group), nil).Want(200))
		for _, e := range entities {
			delete(e, "id")
			delete(e, "group")
			delete(e, "siblings_count") // of both groups
		}
		return entities
	}
	together, each := list(1), list(2)
	if len(together) != len(rows) || !reflect.DeepEqual(together, each) {
		t.Errorf("got %s, want %s", testkit.JSON(together), testkit.JSON(each))
	}
	use := func(group int) string {
		return c.Do("GET", fmt.Sprintf("/group/%d/utilization", group), nil).Want(200).Text
	}
	if got, want := use(1), use(2); got != want {
		t.Errorf("got the utilization %s, want %s", got, want)
	}
}

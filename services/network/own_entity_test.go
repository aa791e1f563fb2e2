package network_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// A client reads the IP entities that are assigned to it, and learns of no others in any way.
func TestEntitiesOfAClient(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ids, as := c.clients("owner", "other", "nobody")
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	entity := func(address, client string) int64 {
		body := map[string]any{"group": group, "address": address, "nickname": "rack " + address, "billing_id": "IP-7", "vlan": 7}
		if client != "" {
			body["owner"] = map[string]any{"id": ids[client], "server": map[string]any{"id": ids[client] * 10, "name": "srv " + client}}
		}
		return c.Do("POST", "/entity", body).Want(200).ID()
	}
	own, second := entity("192.0.2.1", "owner"), entity("192.0.2.9", "owner")
	others, free := entity("192.0.2.2", "other"), entity("192.0.2.3", "")
	// This assignment is older than the rule that owners are clients. A later client with this id is another one.
	stale := entity("192.0.2.4", "owner")
	testkit.Execute(t, c.DB, fmt.Sprintf("UPDATE ip_assignment SET owner_missing = true WHERE entity_id = %d", stale))

	owner := as["owner"]
	all := fmt.Sprint([]int64{own, second})
	for query, want := range map[string]string{
		"":                       all,
		"?count=true&per_page=1": fmt.Sprint([]int64{own}),
		"?sort=name":             all, "?sort=-address": fmt.Sprint([]int64{second, own}),
		"?q=rack": all, "?q=192.0.2": all, "?q=192.0.2.0/24": all, "?q=192.0.2.2": "[]", "?q=IP-7": all, "?q=srv+other": "[]",
		"?q=other+Miller": "[]", "?q=ra": all,
		"?vlan=7": all, "?billing_id=IP-7": all, path("?group_id=%d", group): all, "?assigned=true": all, "?assigned=false": "[]",
		path("?owner=%d", ids["owner"]): all, path("?owner=%d", ids["other"]): "[]", path("?owner_id=%d&sort=name", ids["other"]): "[]",
		path("?server_id=%d", ids["other"]*10): "[]", "?owner_missing=true": "[]", "?owner_missing=false": all,
		"?q=rack&owner_missing=true": "[]", "?sort=name&vlan=7&q=rack": all,
	} {
		answer := owner.Do("GET", "/entity"+query, nil).Want(200)
		found := []int64{}
		for _, e := range testkit.Decode[[]network.IPEntity](answer) {
			found = append(found, e.ID)
		}
		if fmt.Sprint(found) != want {
			t.Errorf("/entity%s: got %v, want %s", query, found, want)
		}
		if total := answer.Header.Get("X-Total-Count"); strings.Contains(query, "count") && total != "2" {
			t.Errorf("/entity%s: got the X-Total-Count %s, want 2", query, total)
		}
	}
	if sheet := owner.Do("GET", "/entity", nil, "Accept", "text/csv").
		Want(200).
		Text; strings.Count(sheet, "\n") != 3 ||
		strings.Contains(sheet, "192.0.2.2") {
		t.Errorf("got the table %s, want two rows without 192.0.2.2", sheet)
	}
	if got := as["nobody"].Do("GET", "/entity", nil).Want(200).Text; got != "[]\n" {
		t.Errorf("a client without entities: got %s, want an empty list", got)
	}
	if shown := testkit.Decode[network.IPEntity](
		owner.Do("GET", path("/entity/%d", own), nil).Want(200),
	); shown.Owner == nil || *shown.Owner.Name != "owner Miller" ||
		shown.FullIP != "192.0.2.1" {
		t.Errorf("got %+v, want 192.0.2.1 of owner Miller", shown)
	}
	for _, unknown := range []int64{others, free, stale, 999999} {
		owner.Do("GET", path("/entity/%d", unknown), nil).Want(404)
	}

	// Fields and all changes but its nickname are for operators.
	field := c.Do("POST", "/field", `{"name": "Rack unit", "slug": "unit", "target_type": "entity"}`).Want(200).ID()
	c.Do("POST", path("/field/%d/value", field), map[string]any{"target_id": own, "value": "12"}).Want(200)
	if got := c.Do("GET", path("/entity/%d?include=fields", own), nil).Want(200).Text; !strings.Contains(got, `"value":"12"`) {
		t.Errorf("with include=fields: got %s, want the value 12", got)
	}
	owner.Do("GET", path("/entity/%d?include=fields", own), nil).WantDetail(http.StatusForbidden, "The key lacks network.entities read.")
	owner.Do("GET", path("/field/%d/value?target_id=%d", field, own), nil).Want(403)
	for _, id := range []int64{own, others, 999999} {
		at := path("/entity/%d", id)
		for _, change := range []string{"DELETE " + at, "DELETE " + at + ",1"} {
			method, path, _ := strings.Cut(change, " ")
			owner.Do(method, path, `{"nickname": "mine"}`).WantDetail(http.StatusForbidden, "The key lacks network.entities write.")
		}
	}
	for _, change := range []string{
		"POST /entity", path("POST /group/%d/allocate", group), path("POST /group/%d/entity/bulk", group),
		path("POST /group/%d/entity/bulk-delete", group), "GET /group", path("GET /group/%d", group),
	} {
		method, path, _ := strings.Cut(change, " ")
		owner.Do(method, path, `{}`).Want(403)
	}

	for _, foreign := range []int64{others, free, stale, 999999} {
		owner.Do("POST", path("/entity/%d/release", foreign), nil).Want(404)
		owner.Do("POST", path("/entity/%d/give", foreign), path(`{"owner": {"id": %d}}`, ids["other"])).Want(404)
	}

	// It sees the present assignments.
	c.Do("POST", path("/entity/%d/release", own), nil).Want(200)
	owner.Do("GET", path("/entity/%d", own), nil).Want(404)
	c.Do("PATCH", path("/entity/%d", free), map[string]any{"owner": map[string]any{"id": ids["owner"]}}).Want(200)
	owner.Do("GET", path("/entity/%d", free), nil).Want(200)
	as["other"].Do("GET", path("/entity/%d", free), nil).Want(404)
}

// A client names the IP entities that are assigned to it, and changes nothing else of them.
func TestClientNamesItsEntities(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ids, as := c.clients("owner", "other")
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	second := c.Do("POST", "/group", `{"name": "Paris"}`).Want(200).ID()
	entity := func(address string, client string) int64 {
		owner := map[string]any{"id": ids[client], "server": map[string]any{"id": 4, "name": "srv 4"}}
		body := map[string]any{"group": group, "address": address, "gateway": "192.0.2.254", "subnet_mask": "255.255.255.0", "owner": owner}
		return c.Do("POST", "/entity", body).Want(200).ID()
	}
	own, more, others := entity("192.0.2.1", "owner"), entity("192.0.2.2", "owner"), entity("192.0.2.3", "other")
	free := c.Do("POST", "/entity", map[string]any{"group": group, "address": "192.0.2.9"}).Want(200).ID()
	owner, at := as["owner"], path("/entity/%d", own)

	got := testkit.Decode[network.IPEntity](owner.Do("PATCH", at, `{"nickname": "web 1"}`).Want(200))
	if got.Name != "web 1" || got.Owner.Server == nil || *got.Owner.Server.Name != "srv 4" {
		t.Errorf("got %+v, want the name web 1 and the server srv 4", got)
	}
	if got := testkit.Decode[network.IPEntity](c.Do("GET", at, nil).Want(200)); got.Name != "web 1" {
		t.Errorf("an admin reads the name %s, want web 1", got.Name)
	}
	whole := owner.Do("GET", at, nil).Want(200).Text // what was read can be sent back with another name
	owner.Do("PATCH", at, strings.ReplaceAll(whole, "web 1", "web 2")).Want(200)
	for _, one := range testkit.Decode[[]network.IPEntity](owner.Do("PATCH", path("/entity/%d,%d", own, more), `{"nickname": "pair"}`).Want(200)) {
		if one.Name != "pair" {
			t.Errorf("got the name %s, want pair", one.Name)
		}
	}
	owner.Do("PATCH", at, `{"nickname": null}`).Want(200)

	for body, member := range map[string]string{
		path(`{"group": %d}`, second):                      "group",
		`{"group": 99999}`:                                 "group",
		`{"billing_id": "mine"}`:                           "billing_id",
		`{"vlan": 7, "nickname": "x"}`:                     "vlan",
		`{"full_ip": "192.0.2.77"}`:                        "v4.address",
		`{"address": "192.0.2.3"}`:                         "v4.address",
		`{"v4": {"gateway": "192.0.2.253"}}`:               "v4.gateway",
		`{"subnet_mask": "255.255.0.0"}`:                   "v4.subnet_mask",
		`{"v6_address": "2001:db8::1"}`:                    "v6.address",
		path(`{"owner": {"id": %d}}`, ids["other"]):        "owner.id",
		`{"owner": null}`:                                  "owner.id",
		`{"owner": {"server": {"name": "mine"}}}`:          "owner.server.name",
		`{"owner": {"server": {"id": 5, "name": "mine"}}}`: "owner.server.id",
		`{"status": "available"}`:                          "status",
		`{"note": "mine"}`:                                 "note",
	} {
		want := fmt.Sprintf("A client can change only the nickname of its IP entities, not %s of IP entity %d.", member, own)
		owner.Do("PATCH", at, body).WantDetail(http.StatusForbidden, want)
	}
	for _, foreign := range []int64{others, free, 999999} {
		owner.Do("PATCH", path("/entity/%d", foreign), `{"nickname": "mine"}`).Want(404)
		owner.Do("PATCH", path("/entity/%d,%d", own, foreign), `{"nickname": "mine"}`).Want(404)
		owner.Do("PATCH", path("/entity/%d,%d", foreign, own), `{"vlan": 1}`).Want(404)
	}
	owner.Do("POST", "/entity", path("id,nickname\n%d,mine\n", own), "Content-Type", "text/csv").
		WantDetail(http.StatusForbidden, "The key lacks network.entities write.")
	if got := testkit.Decode[network.IPEntity](c.Do("GET", at, nil).Want(200)); got.Nickname != nil || got.Owner.ID != ids["owner"] {
		t.Errorf("got %+v, want the entity without a nickname, and with its owner", got)
	}
}

package network_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

func TestForwardGateway(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	for _, name := range []string{"Berlin", "Bern"} {
		c.Do("POST", "/group", map[string]any{"name": name}).Want(200)
	}
	created := c.Do("POST", "/forward/gateway", `{"name": "nat1", "hostname": "nat1.example.net", "apikey": "hunter2", "port limit": "20000-29999", "groups": [2, {"id": 1}, {"id": 2, "name": "x"}]}`).
		Want(200)
	if want := `{"id":1,"name":"nat1","hostname":"nat1.example.net","port_limit":"20000-29999","groups":[{"id":1,"name":"Berlin"},{"id":2,"name":"Bern"}]}` + "\n"; created.Text != want {
		t.Fatalf("got %s, want %s", created.Text, want)
	}
	second := c.Do("POST", "/forward/gateway", `{"name": "nat2", "hostname": "2001:db8::1", "api_key": "k", "port_limit": "100"}`).Want(200)
	if want := fmt.Sprintf(
		`{"id":%d,"name":"nat2","hostname":"2001:db8::1","port_limit":"100","groups":[]}`+"\n",
		second.ID(),
	); second.Text != want {
		t.Fatalf("got %s, want %s", second.Text, want)
	}
	c.Do("POST", "/forward/gateway", `{}`).
		WantErrors("/api_key", "required", "/hostname", "required", "/name", "required", "/port_limit", "required")
	c.Do("POST", "/forward/gateway", `{"name": "nat1", "hostname": "x", "api_key": "k", "port_limit": "1"}`).WantErrors("/name", "taken")
	c.Do("POST", "/forward/gateway", `{"name": "x", "hostname": "x", "api_key": "k", "apikey": "l", "port_limit": "1"}`).
		WantErrors("/apikey", "disagrees")
	c.Do("POST", "/forward/gateway", `{"name": "x", "hostname": "https://x", "api_key": "a\nb", "port_limit": "1", "groups": 3}`).
		WantErrors("/api_key", "invalid", "/groups", "type", "/hostname", "invalid")
	c.Do("POST", "/forward/gateway", `{"name": "x", "hostname": "x", "api_key": "k", "port_limit": "1", "groups": [1, "x"]}`).
		WantErrors("/groups", "type")
	c.Do("POST", "/forward/gateway", `{"name": "x", "hostname": "x", "api_key": "k", "port_limit": "1", "groups": [1, 9]}`).
		WantErrors("/groups", "not_found")
	for _, limit := range []string{"0", "65536", "-1", "5-4", "1-65536", "1-2-3", "01", " 1", "all", "１"} {
		c.Do("POST", "/forward/gateway", map[string]any{"name": "x", "hostname": "x", "api_key": "k", "port_limit": limit}).
			WantErrors("/port_limit", "invalid")
	}

	edit := func(body, groups string) {
		t.Helper()
		if g := testkit.Decode[network.ForwardGateway](
			c.Do("PATCH", "/forward/gateway/1", body).Want(200),
		); testkit.JSON(g.Groups) != groups ||
			g.Name != "nat1" {
			t.Errorf("%s: got %+v, want nat1 with the groups %s", body, g, groups)
		}
	}
	for _, elsewhere := range []string{`{"hostname": "evil.example.net"}`, `{"hostname": "evil.example.net", "api_key": ""}`} { // a key that is kept is not sent there
		c.Do("PATCH", "/forward/gateway/1", elsewhere).WantErrors("/api_key", "required")
	}
	edit(`{"hostname": "nat2.example.net", "apikey": "hunter3"}`, `[{"id":1,"name":"Berlin"},{"id":2,"name":"Bern"}]`)
	edit(`{"hostname": "nat1.example.net", "apikey": "hunter2"}`, `[{"id":1,"name":"Berlin"},{"id":2,"name":"Bern"}]`)
	edit(`{"port_limit": "65535"}`, `[{"id":1,"name":"Berlin"},{"id":2,"name":"Bern"}]`)
	edit(`{"groups": [{"id": 2}], "api_key": ""}`, `[{"id":2,"name":"Bern"}]`)
	c.Do("DELETE", "/group/2", nil).WantDetail(problem.Conflict, "IP group 2 is in use by forwarding gateway 1 (nat1). Delete it first.")
	c.Do("DELETE", "/group/1", nil).Want(200)
	var sealed []byte
	if err := db.QueryRow(t.Context(), "SELECT api_key FROM forward_gateway WHERE id = 1").Scan(&sealed); err != nil {
		t.Fatal(err)
	}
	if key, err := box.Open(
		seal.Location{Table: "forward_gateway", Column: "api_key", ID: 1},
		sealed,
	); err != nil ||
		key.Reveal() != "hunter2" {
		t.Errorf("got the key %q and the error %v, want hunter2", key.Reveal(), err)
	}

	for query, want := range map[string][]string{
		"group_id=2": {"nat1"}, "group_id=1": {}, "group_id=2&name=nat2": {}, "sort=-hostname": {"nat1", "nat2"},
	} {
		if got := names(c.Do("GET", "/forward/gateway?"+query, nil)); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
	list := c.Do("GET", "/forward/gateway", nil, "Accept", "text/csv").Want(200).Text
	if want := fmt.Sprintf(
		"id,name,hostname,port_limit,groups\n1,nat1,nat1.example.net,65535,2\n%d,nat2,2001:db8::1,100,\n",
		second.ID(),
	); list != want {
		t.Errorf("got %s, want %s", list, want)
	}
	c.Do(
		"POST", "/forward/gateway",
		strings.NewReplacer(
			"nat1,nat1", "nat3,nat1", "nat2,2001", "nat4,2001", "groups\n", "groups,api_key\n", "65535,2\n", "65535,2,k\n", "100,\n", "100,,k\n",
		).Replace(testkit.WithoutIDs(t, list)),
		"Content-Type", "text/csv",
	).
		Want(200)
	if g := testkit.Decode[[]network.ForwardGateway](c.Do("GET", "/forward/gateway?q=nat3", nil))[0]; testkit.JSON(
		g.Groups,
	) != `[{"id":2,"name":"Bern"}]` {
		t.Errorf("got %+v, want the group Bern alone", g)
	}
	edit(`{"groups": null}`, `[]`)
	c.Do("DELETE", "/forward/gateway/1", nil).Want(200)
}

func TestForwardTypes(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	if got := c.Do("GET", "/forward/type", nil).
		Want(200).
		Text; got != `[{"id":1,"name":"Port to port","slug":"port_to_port"},{"id":2,"name":"IP to IP","slug":"ip_to_ip"}]`+"\n" {
		t.Errorf("got %s, want port_to_port and ip_to_ip", got)
	}
	if got := c.Do("GET", "/forward/type/2", nil).
		Want(200); got.Text != `{"id":2,"name":"IP to IP","slug":"ip_to_ip"}`+"\n" ||
		got.Header.Get("ETag") != `"1"` {
		t.Errorf(`got %s with the ETag %s, want ip_to_ip with the ETag "1"`, got.Text, got.Header.Get("ETag"))
	}
	c.Do("GET", "/forward/type/3", nil).Want(404)
	c.Do("POST", "/forward/type", `{}`).Want(405)
}

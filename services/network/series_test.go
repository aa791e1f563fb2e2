package network_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

func TestSeries(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	for _, s := range []struct {
		body  string
		count int
		names []string // the first ones
	}{
		{`{"prefix": "192.0.2.0/25"}`, 126, []string{"192.0.2.1", "192.0.2.2"}},
		{`{"prefix": "192.0.2.128/25", "all": true}`, 128, []string{"192.0.2.128", "192.0.2.129"}},
		{`{"prefix": "198.51.106.0/31"}`, 2, []string{"198.51.106.0", "198.51.106.1"}},
		{`{"prefix": "198.51.106.2/32"}`, 1, []string{"198.51.106.2"}},
		{`{"prefix": "198.51.106.64/26", "subnet_mask": "255.255.255.0"}`, 64, []string{"198.51.106.64"}},
		{`{"from": "198.51.107.0", "to": "198.51.107.255"}`, 256, []string{"198.51.107.0"}},
		{`{"prefix": "2001:db8:2::/126"}`, 4, []string{"2001:db8:2::"}},
		{`{"from": "198.51.100.1", "to": "198.51.100.4", "gateway": "198.51.100.2", "subnet_mask": "255.255.255.0", "vlan": 7, "vlan_increment": 2}`, 3, []string{"198.51.100.1", "198.51.100.3", "198.51.100.4"}},
		{`{"prefix": "198.51.101.0/24", "gateway": "198.51.101.1", "subnet_mask": "255.255.255.0", "vlan": 7, "vlan_increment": 1}`, 253, []string{"198.51.101.2", "198.51.101.3"}},
		{`{"prefix": "198.51.102.0/24", "gateway": "198.51.102.1", "subnet_mask": "255.255.255.0", "all": true}`, 255, []string{"198.51.102.0", "198.51.102.2"}},
		{`{"from": "198.51.103.0", "to": "198.51.103.255", "subnet_mask": "255.255.254.0"}`, 255, []string{"198.51.103.0", "198.51.103.1"}},
		{`{"prefix": "198.51.104.0/31", "subnet_mask": "255.255.255.254"}`, 2, []string{"198.51.104.0"}},
		{`{"prefix": "198.51.104.4/32", "subnet_mask": "255.255.255.255"}`, 1, []string{"198.51.104.4"}},
		{`{"from": "10.0.0.4", "to": "10.0.0.9", "increment": 3, "gateway": "10.0.0.1", "subnet_mask": "255.255.255.0"}`, 2, []string{"10.0.0.4-10.0.0.6", "10.0.0.7-10.0.0.9"}},
		{`{"prefix": "203.0.113.0/24", "length": 29, "vlan": 100, "vlan_increment": 1}`, 32, []string{"203.0.113.0/29", "203.0.113.8/29"}},
		{`{"prefix": "2001:db8::/126", "gateway": "fe80::1"}`, 4, []string{"2001:db8::", "2001:db8::1"}},
		{`{"from": "2001:db8::100", "to": "2001:db8::1ff", "increment": 16}`, 16, []string{"2001:db8::100/124", "2001:db8::110/124"}},
		{`{"prefix": "2001:db8:1::/56", "length": 64, "gateway": "fe80::1"}`, 256, []string{"2001:db8:1::/64", "2001:db8:1:1::/64"}},
	} {
		before := len(testkit.Decode[[]rest.Ref](c.Do("GET", "/entity?group_id=1", nil)))
		created := testkit.Decode[rest.Bulk](c.Do("POST", "/group/1/entity/bulk", s.body).Want(200))
		if created.Count != s.count || created.Last-created.First != int64(s.count-1) {
			t.Errorf("%s: got %+v, want %d entities with ids in a row", s.body, created, s.count)
		}
		all := testkit.Decode[[]rest.Ref](c.Do("GET", "/entity?group_id=1", nil))[before:]
		for i, name := range s.names {
			if all[i].Name != name {
				t.Errorf("%s: got %s, want %s", s.body, all[i].Name, name)
			}
		}
		if len(all) != s.count || all[0].ID != created.First || all[len(all)-1].ID != created.Last {
			t.Errorf("%s: got %d entities, want %d with the ids %d to %d", s.body, len(all), s.count, created.First, created.Last)
		}
	}
	e := testkit.Decode[[]network.IPEntity](c.Do("GET", "/entity?q=198.51.100.3", nil).Want(200))[0]
	if *e.VLAN != 9 || *e.Gateway != "198.51.100.2" || *e.SubnetMask != "255.255.255.0" {
		t.Errorf("got %+v, want VLAN 9, the gateway 198.51.100.2 and the mask 255.255.255.0", e)
	}
	if e := testkit.Decode[[]network.IPEntity](c.Do("GET", "/entity?q=198.51.101.2", nil).Want(200))[0]; *e.VLAN != 7 {
		t.Errorf("the first entity: got %+v, want the first VLAN, 7", e)
	}
	// Gateways of other entities are left out, too, unless all is set.
	c.Do("POST", "/entity", `{"group": 1, "address": "198.51.108.9", "gateway": "198.51.108.6", "subnet_mask": "255.255.255.0"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "v6_address": "2001:db8:3::9", "v6_gateway": "2001:db8:3::1"}`).Want(200)
	c.Do("POST", "/group/1/entity/bulk", `{"prefix": "198.51.108.0/29", "increment": 2}`).WantErrors("/prefix", "conflict")
	c.Do("POST", "/group/1/entity/bulk", `{"from": "198.51.108.4", "to": "198.51.108.7", "increment": 2}`).WantErrors("/to", "conflict")
	for body, want := range map[string]string{
		`{"prefix": "198.51.108.0/29"}`:                               "198.51.108.1 198.51.108.2 198.51.108.3 198.51.108.4 198.51.108.5",
		`{"from": "198.51.108.6", "to": "198.51.108.7", "all": true}`: "198.51.108.6 198.51.108.7",
		`{"prefix": "2001:db8:3::/126"}`:                              "2001:db8:3:: 2001:db8:3::2 2001:db8:3::3",
	} {
		created := testkit.Decode[rest.Bulk](c.Do("POST", "/group/1/entity/bulk", body).Want(200))
		var got []string
		for id := created.First; id <= created.Last; id++ {
			got = append(got, testkit.Decode[rest.Ref](c.Do("GET", path("/entity/%d", id), nil).Want(200)).Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", body, got, want)
		}
	}
	// Entities may exist at the addresses that are left out.
	c.Do("POST", "/entity", `{"group": 1, "address": "198.51.105.1", "nickname": "router"}`).Want(200)
	const beside = `{"prefix": "198.51.105.0/29", "gateway": "198.51.105.1", "subnet_mask": "255.255.255.248"}`
	c.Do("POST", "/group/1/entity/bulk", beside).Want(200)
	c.Do("POST", "/group/1/entity/bulk", beside).WantErrors("/prefix", "overlaps")
	if got := fullIPs(
		c.Do("POST", "/group/1/allocate", `{"prefix": 64, "family": "v6", "owner": {"id": 1}}`),
	); !slices.Equal(
		got,
		[]string{"2001:db8:1::/64"},
	) {
		t.Errorf("got %v, want 2001:db8:1::/64", got)
	}
}

func TestSeriesRefused(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "address": "192.0.2.77"}`).Want(200)
	for _, refused := range []struct {
		body   string
		errors []string
	}{
		{`{}`, []string{"/from", "required"}},
		{`{"from": "10.0.0.1"}`, []string{"/from", "required"}},
		{`{"from": "10.0.0.1", "to": "10.0.0.9", "prefix": "10.0.0.0/24"}`, []string{"/prefix", "conflict"}},
		{`{"from": "10.0.0.1", "to": "10.0.0.0"}`, []string{"/to", "out_of_range"}},
		{`{"from": "10.0.0.01", "to": "2001:db8::1"}`, []string{"/from", "invalid", "/to", "invalid"}},
		{`{"from": "10.0.0.0", "to": "10.1.0.0"}`, []string{"/to", "out_of_range"}},
		{`{"prefix": "10.0.0.0/15"}`, []string{"/prefix", "out_of_range"}},
		{`{"prefix": "2001:db8::/32"}`, []string{"/prefix", "out_of_range"}},
		{`{"prefix": "10.0.0.1/24"}`, []string{"/prefix", "host_bits"}},
		{`{"prefix": "127.0.0.0/24"}`, []string{"/prefix", "out_of_range"}},
		{`{"from": "9.255.255.255", "to": "10.0.0.0"}`, []string{"/to", "straddles"}},
		{`{"from": "10.0.0.0", "to": "10.0.0.255", "increment": 3}`, []string{"/increment", "out_of_range"}},
		{`{"from": "10.0.0.0", "to": "10.0.0.255", "increment": 9223372036854775807}`, []string{"/increment", "out_of_range"}},
		{`{"prefix": "10.0.0.0/24", "increment": 2, "length": 31}`, []string{"/length", "conflict"}},
		{`{"prefix": "10.0.0.0/24", "length": 33}`, []string{"/length", "out_of_range"}},
		{`{"prefix": "10.0.0.0/24", "length": 23}`, []string{"/length", "out_of_range"}},
		{`{"from": "10.0.0.1", "to": "10.0.0.8", "length": 29}`, []string{"/length", "host_bits"}},
		{`{"prefix": "2001:db8::/120", "increment": 3}`, []string{"/increment", "invalid"}},
		{`{"from": "2001:db8::1", "to": "2001:db8::2", "increment": 2}`, []string{"/increment", "host_bits"}},
		{`{"prefix": "10.0.0.0/24", "subnet_mask": "255.255.255.128"}`, []string{"/prefix", "out_of_range"}},
		{`{"prefix": "10.0.0.0/24", "subnet_mask": "255.0.255.0"}`, []string{"/subnet_mask", "invalid"}},
		{`{"prefix": "10.0.0.0/24", "length": 29, "subnet_mask": "255.255.255.0"}`, []string{"/subnet_mask", "conflict"}},
		{`{"prefix": "2001:db8::/120", "subnet_mask": "255.255.255.0"}`, []string{"/subnet_mask", "conflict"}},
		{`{"prefix": "10.0.0.0/24", "gateway": "10.0.1.1", "subnet_mask": "255.255.255.0"}`, []string{"/gateway", "out_of_range"}},
		{`{"prefix": "10.0.0.0/24", "gateway": "10.0.0.1", "increment": 4, "all": true}`, []string{"/gateway", "conflict"}},
		{`{"prefix": "10.0.0.0/24", "gateway": "10.0.0.1", "length": 30}`, []string{"/gateway", "out_of_range"}},
		{`{"from": "10.0.0.1", "to": "10.0.0.1", "gateway": "10.0.0.1"}`, []string{"/to", "conflict"}},
		{`{"from": "10.0.0.0", "to": "10.0.0.1", "gateway": "10.0.0.1", "subnet_mask": "255.255.255.0"}`, []string{"/to", "conflict"}},
		{`{"prefix": "10.0.0.0/24", "increment": 4, "subnet_mask": "255.255.255.0"}`, []string{"/prefix", "conflict"}},
		{`{"prefix": "10.0.0.0/24", "vlan_increment": 1}`, []string{"/vlan", "required"}},
		{`{"prefix": "10.0.0.0/24", "vlan": 4000, "vlan_increment": 1}`, []string{"/vlan_increment", "out_of_range"}},
		{`{"prefix": "192.0.2.0/24"}`, []string{"/prefix", "overlaps"}},
	} {
		t.Log(refused.body)
		c.Do("POST", "/group/1/entity/bulk", refused.body).WantErrors(refused.errors...)
	}
	c.Do("POST", "/group/7/entity/bulk", `{"prefix": "10.0.0.0/24"}`).Want(404)
	message := testkit.Decode[problem.Problem](c.Do("POST", "/group/1/entity/bulk", `{"from": "192.0.2.70", "to": "192.0.2.80"}`).Want(422)).Errors[0].Message
	if message != "overlaps with IP entity 1 (192.0.2.77) in IP group 1 (Berlin)" {
		t.Errorf("got %q, want an overlap with IP entity 1", message)
	}
	if n := len(names(c.Do("GET", "/entity", nil))); n != 1 {
		t.Errorf("got %d entities, want 1", n)
	}
}

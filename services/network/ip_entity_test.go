package network_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

func TestIPEntityForms(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)

	for _, form := range []struct{ body, want string }{
		{`"address": "192.0.2.10"`,
			`"name":"192.0.2.10","address":"192.0.2.10","full_ip":"192.0.2.10","siblings_count":0,"group":{"id":1,"name":"Berlin"},"v4":{"address":"192.0.2.10","full":"192.0.2.10","range_end":"192.0.2.10"}`},
		{`"address": "192.0.2.16/32", "name": "one"`,
			`"name":"one","nickname":"one","address":"192.0.2.16","full_ip":"192.0.2.16","siblings_count":0,"group":{"id":1,"name":"Berlin"},"v4":{"address":"192.0.2.16","full":"192.0.2.16","range_end":"192.0.2.16"}`},
		{`"v4": {"address": "192.0.2.20", "range_end": "192.0.2.29", "subnet_mask": "255.255.255.128", "gateway": "192.0.2.1"}, "vlan": 7`,
			`"name":"192.0.2.20-192.0.2.29","address":"192.0.2.20","full_ip":"192.0.2.20-192.0.2.29","gateway":"192.0.2.1","subnet_mask":"255.255.255.128","vlan":7,"siblings_count":0,"group":{"id":1,"name":"Berlin"},"v4":{"address":"192.0.2.20","full":"192.0.2.20-192.0.2.29","gateway":"192.0.2.1","range_end":"192.0.2.29","subnet_mask":"255.255.255.128"}`},
		{`"v4": {"address": "192.0.2.30", "range_end": "192.0.2.30"}`,
			`"name":"192.0.2.30","address":"192.0.2.30","full_ip":"192.0.2.30","siblings_count":0,"group":{"id":1,"name":"Berlin"},"v4":{"address":"192.0.2.30","full":"192.0.2.30","range_end":"192.0.2.30"}`},
		{`"address": "192.0.2.64/29", "subnet_mask": "255.255.255.248", "gateway": "192.0.2.65"`,
			`"name":"192.0.2.64/29","address":"192.0.2.64/29","full_ip":"192.0.2.64/29","gateway":"192.0.2.65","subnet_mask":"255.255.255.248","siblings_count":0,"group":{"id":1,"name":"Berlin"},"v4":{"address":"192.0.2.64/29","full":"192.0.2.64/29","gateway":"192.0.2.65","subnet_mask":"255.255.255.248"}`},
		{`"v6_address": "2001:DB8:0:0:0::/64", "v6_gateway": "fe80::1"`,
			`"name":"2001:db8::/64","full_ip":"2001:db8::/64","v6_address":"2001:db8::/64","v6_gateway":"fe80::1","siblings_count":0,"group":{"id":1,"name":"Berlin"},"v6":{"address":"2001:db8::/64","gateway":"fe80::1"}`},
		{`"address": "10.0.0.1", "v4": {"address": "10.0.0.1"}, "v6": {"address": "fd00::1"}`,
			`"name":"10.0.0.1","address":"10.0.0.1","full_ip":"10.0.0.1","v6_address":"fd00::1","siblings_count":0,"group":{"id":1,"name":"Berlin"},"v4":{"address":"10.0.0.1","full":"10.0.0.1","range_end":"10.0.0.1"},"v6":{"address":"fd00::1"}`},
		{`"v4": {"address": "203.0.113.100", "full": "203.0.113.100-203.0.113.110"}`,
			`"name":"203.0.113.100-203.0.113.110","address":"203.0.113.100","full_ip":"203.0.113.100-203.0.113.110","siblings_count":0,"group":{"id":1,"name":"Berlin"},"v4":{"address":"203.0.113.100","full":"203.0.113.100-203.0.113.110","range_end":"203.0.113.110"}`},
	} {
		created := c.Do("POST", "/entity", `{"group": {"id": 1}, `+form.body+`}`).Want(200)
		if want := fmt.Sprintf(`{"id":%d,%s,"status":"available"}`+"\n", created.ID(), form.want); created.Text != want {
			t.Errorf("%s: got\n%s, want\n%s", form.body, created.Text, want)
		}
		// A view that is sent back changes nothing.
		if second := c.Do("PATCH", fmt.Sprint("/entity/", created.ID()), created.Text).Want(200); second.Text != created.Text {
			t.Errorf("what was read is sent back: got\n%s, want\n%s", second.Text, created.Text)
		}
	}
}

// Every spelling of an address, a range or a prefix creates the same entity.
func TestIPEntitySpellings(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	for want, bodies := range map[string][]string{
		"192.0.2.1": {`"full_ip": "192.0.2.1"`, `"v4": {"full": "192.0.2.1"}`, `"full_ip": "192.0.2.1-192.0.2.1"`, `"address": "192.0.2.1", "range_end": "192.0.2.1"`,
			`"address": "192.0.2.1", "full_ip": "192.0.2.1", "range_end": "", "v4": {"full": "192.0.2.1", "range_end": "192.0.2.1"}`},
		"192.0.2.1-192.0.2.9": {`"full_ip": "192.0.2.1-192.0.2.9"`, `"v4": {"full": "192.0.2.1-192.0.2.9"}`, `"address": "192.0.2.1", "range_end": "192.0.2.9"`,
			`"address": "192.0.2.1", "v4": {"full": "192.0.2.1-192.0.2.9", "range_end": "192.0.2.9"}`, `"full_ip": "192.0.2.1-192.0.2.9", "v6": null`},
		"192.0.2.0/29":  {`"full_ip": "192.0.2.0/29"`, `"v4": {"full": "192.0.2.0/29", "address": "192.0.2.0/29"}`},
		"2001:db8::1":   {`"full_ip": "2001:db8::1"`, `"full_ip": "2001:db8::1", "v6": {"address": "2001:db8::1", "range_end": "2001:db8::1"}`, `"v6_address": "2001:DB8:0::1"`},
		"2001:db8::/64": {`"full_ip": "2001:db8::/64"`, `"full_ip": "2001:db8::/64", "v6_address": "2001:db8::/64"`},
	} {
		for _, body := range bodies {
			created := c.Do("POST", "/entity", `{"group": 1, `+body+`}`).Want(200)
			if got := testkit.Decode[network.IPEntity](created).FullIP; got != want {
				t.Errorf("%s: got %s, want %s", body, got, want)
			}
			c.Do("DELETE", fmt.Sprint("/entity/", created.ID()), nil).Want(200)
		}
	}
	rows := "group,full_ip,v4.full,range_end\n1,192.0.2.1-192.0.2.9,,\n1,,192.0.2.11-192.0.2.19,192.0.2.19\n1,2001:db8::7,,\n"
	c.Do("POST", "/entity", rows, "Content-Type", "text/csv").Want(200)
	if got := names(c.Do("GET", "/entity", nil)); !slices.Equal(got, []string{"192.0.2.1-192.0.2.9", "192.0.2.11-192.0.2.19", "2001:db8::7"}) {
		t.Errorf("got %v, want 192.0.2.1-192.0.2.9, 192.0.2.11-192.0.2.19 and 2001:db8::7", got)
	}
}

func TestIPEntityRefused(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	for _, refused := range []struct {
		body   string
		errors []string
	}{
		{``, []string{"/v4/address", "required"}},
		{`"address": ""`, []string{"/v4/address", "required"}},
		{`"address": 7`, []string{"/address", "invalid"}},
		{`"address": "010.0.0.1"`, []string{"/address", "invalid"}},
		{`"address": "10.0.0"`, []string{"/address", "invalid"}},
		{`"address": " 10.0.0.1"`, []string{"/address", "invalid"}},
		{`"address": "１0.0.0.1"`, []string{"/address", "invalid"}},
		{`"address": "::ffff:10.0.0.1"`, []string{"/address", "invalid"}},
		{`"address": "2001:db8::1"`, []string{"/address", "invalid"}},
		{`"v6_address": "10.0.0.1"`, []string{"/v6_address", "invalid"}},
		{`"v6_address": "::ffff:10.0.0.1"`, []string{"/v6_address", "invalid"}},
		{`"v6_address": "2001:db8::1%eth0"`, []string{"/v6_address", "invalid"}},
		{`"v6_address": "::192.0.2.1"`, []string{"/v6_address", "invalid"}},
		{`"v6_address": "2001:db8::192.0.2.1"`, []string{"/v6_address", "invalid"}},
		{`"v6_address": "2001:db8::192.0.2.0/120"`, []string{"/v6_address", "invalid"}},
		{`"full_ip": "10.0.0.1-"`, []string{"/full_ip", "invalid"}},
		{`"full_ip": "-10.0.0.1"`, []string{"/full_ip", "required"}},
		{`"full_ip": "10.0.0.1-10.0.0.x"`, []string{"/full_ip", "invalid"}},
		{`"full_ip": "10.0.0.9-10.0.0.1"`, []string{"/full_ip", "out_of_range"}},
		{`"v4": {"full": "10.0.0.0/29-10.0.0.9"}`, []string{"/v4/full", "conflict"}},
		{`"address": "10.0.0.1", "full_ip": "10.0.0.1-10.0.0.9", "v4": {"full": "10.0.0.1"}`, []string{"/v4/full", "disagrees"}},
		{`"range_end": "10.0.0.9", "v4": {"full": "10.0.0.1"}`, []string{"/v4/full", "disagrees"}},
		{`"v6": {"address": "2001:db8::1", "range_end": "2001:db8::2"}`, []string{"/v6/range_end", "conflict"}},
		{`"v6": {"address": "2001:db8::/64", "range_end": "2001:db8::"}`, []string{"/v6/range_end", "conflict"}},
		{`"v6_address": "2001:db8::1/64"`, []string{"/v6_address", "host_bits"}},
		{`"v6_address": "2001:db8::/064"`, []string{"/v6_address", "invalid"}},
		{`"address": "10.0.0.1/24"`, []string{"/address", "host_bits"}},
		{`"address": "10.0.0.0/33"`, []string{"/address", "invalid"}},
		{`"address": "0.0.0.0/0"`, []string{"/address", "out_of_range"}},
		{`"address": "127.0.0.1"`, []string{"/address", "out_of_range"}},
		{`"address": "224.0.0.5"`, []string{"/address", "out_of_range"}},
		{`"address": "172.0.0.0/8"`, []string{"/address", "straddles"}},
		{`"v4": {"address": "9.255.255.255", "range_end": "10.0.0.0"}`, []string{"/v4/address", "straddles"}},
		{`"v6_address": "f000::/4"`, []string{"/v6_address", "out_of_range"}},
		{`"v6_address": "f800::/5"`, []string{"/v6_address", "out_of_range"}},
		{`"v6_address": "::1"`, []string{"/v6_address", "out_of_range"}},
		{`"v4": {"address": "10.0.0.9", "range_end": "10.0.0.8"}`, []string{"/v4/range_end", "out_of_range"}},
		{`"v4": {"address": "10.0.0.0/24", "range_end": "10.0.0.8"}`, []string{"/v4/range_end", "conflict"}},
		{`"v4": {"address": "10.0.0.1", "range_end": "10.0.1.8", "subnet_mask": "255.255.255.0"}`, []string{"/v4/range_end", "out_of_range"}},
		{`"v4": {"range_end": "10.0.1.8", "subnet_mask": "255.255.255.0"}`, []string{"/v4/address", "required"}},
		{`"address": "10.0.0.0/24", "subnet_mask": "255.255.0.0"`, []string{"/subnet_mask", "disagrees"}},
		{`"address": "10.0.0.1", "subnet_mask": "255.0.255.0"`, []string{"/subnet_mask", "invalid"}},
		{`"address": "10.0.0.1", "subnet_mask": "0.0.0.0"`, []string{"/subnet_mask", "invalid"}},
		{`"address": "10.0.0.1", "subnet_mask": "24"`, []string{"/subnet_mask", "invalid"}},
		{`"address": "10.0.0.9", "subnet_mask": "255.255.255.0", "gateway": "10.0.1.1"`, []string{"/gateway", "out_of_range"}},
		{`"address": "10.0.0.0/24", "gateway": "10.0.1.1"`, []string{"/gateway", "out_of_range"}},
		{`"v4": {"address": "10.0.0.1", "range_end": "10.0.0.9", "gateway": "10.0.0.5"}`, []string{"/v4/gateway", "conflict"}},
		{`"v6_address": "2001:db8::/64", "v6_gateway": "2001:db8:1::1"`, []string{"/v6_gateway", "out_of_range"}},
		{`"v6_gateway": "2001:db8:1::1"`, []string{"/v4/address", "required", "/v6/address", "required"}},
		{`"address": "10.0.0.1", "v4": {"address": "10.0.0.2"}`, []string{"/v4/address", "disagrees"}},
		{`"address": "10.0.0.1", "vlan": 0`, []string{"/vlan", "out_of_range"}},
		{`"address": "10.0.0.1", "vlan": 4095`, []string{"/vlan", "out_of_range"}},
		{`"address": "10.0.0.1", "owner": {"name": "Acme"}`, []string{"/owner/id", "required"}},
		{`"address": "10.0.0.1", "v4": 7`, []string{"/v4", "type"}},
		{`"address": "10.0.0.1", "group": 99`, []string{"/group", "not_found"}},
		{`"address": "10.0.0.1", "group": null`, []string{"/group", "required"}},
		{`"address": "10.0.0.x", "vlan": "x", "gateway": "y", "nickname": "a\u0000b"`, []string{"/address", "invalid", "/gateway", "invalid", "/nickname", "invalid", "/vlan", "type"}},
	} {
		body := `{` + refused.body
		if !slices.Contains(refused.errors, "/group") {
			body += map[bool]string{true: `"group": 1`, false: `, "group": 1`}[refused.body == ""]
		}
		t.Log(body)
		c.Do("POST", "/entity", body+`}`).WantErrors(refused.errors...)
	}
	if left := c.Do("GET", "/entity", nil).Want(200).Text; left != "[]\n" {
		t.Fatalf("got the entities %s, want none", left)
	}
}

func TestIPEntityEdit(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/group", `{"name": "Bern"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "v4": {"address": "10.0.0.5", "range_end": "10.0.0.9"}, "v6_address": "fd00::/64", "vlan": 5, "owner": {"id": 3, "server": {"id": 8, "name": "srv8"}}}`).
		Want(200)
	c.Do("POST", "/entity", `{"group": 2, "address": "10.0.0.7"}`).Want(200) // private space is another group's own

	edit := func(body string) network.IPEntity {
		return testkit.Decode[network.IPEntity](c.Do("PATCH", "/entity/1", body).Want(200))
	}
	if e := edit(`{"nickname": "rack"}`); e.Name != "rack" || *e.VLAN != 5 || e.FullIP != "10.0.0.5-10.0.0.9" || e.Owner.Server.ID != 8 {
		t.Fatalf("got %+v, want rack with VLAN 5, 10.0.0.5-10.0.0.9 and server 8", e)
	}
	if e := edit(
		`{"nickname": null, "vlan": null, "v6": null, "owner": {"server": null}}`,
	); e.Name != "10.0.0.5-10.0.0.9" || e.VLAN != nil || e.V6 != nil || e.Owner == nil ||
		e.Owner.Server != nil {
		t.Fatalf("got %+v, want 10.0.0.5-10.0.0.9 with an owner, but without VLAN, IPv6 address and server", e)
	}
	if e := edit(`{"owner": null, "v4": {"range_end": null}}`); e.FullIP != "10.0.0.5" || e.Owner != nil {
		t.Fatalf("got %+v, want 10.0.0.5 without an owner", e)
	}
	if e := edit(`{"address": "10.0.0.7"}`); e.FullIP != "10.0.0.7" {
		t.Fatalf("got %+v, want 10.0.0.7", e)
	}
	c.Do("PATCH", "/entity/1", `{"group": 2}`).WantErrors("/v4/address", "overlaps")
	read := c.Do("GET", "/entity/1", nil).Want(200).Text // and written back, to another address
	if e := edit(
		strings.ReplaceAll(
			strings.ReplaceAll(read, `"address":"10.0.0.7"`, `"address":"10.0.0.6"`),
			`"name":"10.0.0.7"`,
			`"name":"10.0.0.7","nickname":"10.0.0.7"`,
		),
	); e.Name != "10.0.0.6" {
		t.Fatalf("got %+v, want the name 10.0.0.6", e)
	}
	edit(`{"address": "10.0.1.0/28"}`)
	if e := edit(`{"address": "10.0.1.0/29"}`); e.FullIP != "10.0.1.0/29" || *e.SubnetMask != "255.255.255.248" {
		t.Fatalf("got %+v, want 10.0.1.0/29 with the mask 255.255.255.248", e)
	}
	if e := edit(`{"address": null, "v6_address": "fd00::/64"}`); e.FullIP != "fd00::/64" || e.V4 != nil {
		t.Fatalf("got %+v, want fd00::/64 without an IPv4 address", e)
	}
	if e := edit(`{"v6": null, "address": "10.0.0.7"}`); e.FullIP != "10.0.0.7" {
		t.Fatalf("got %+v, want 10.0.0.7", e)
	}
	c.Do("PATCH", "/entity/1", `{"address": null}`).WantErrors("/address", "required")
	if e := edit(`{"group": {"id": 2, "name": "names are not read"}, "address": "10.0.0.8"}`); e.Group != (rest.Ref{ID: 2, Name: "Bern"}) {
		t.Fatalf("got %+v, want group 2, Bern", e)
	}
}

// A whole view can be sent back with one member changed in either spelling: the other spelling gives way.
func TestIPEntityReadChangedAndSentBack(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	single, named := `{"group": 1, "address": "10.0.0.5", "gateway": "10.0.0.1"}`, `{"group": 1, "nickname": "rack", "address": "10.0.0.5", "v6_address": "fd00::1"}`
	prefix, span := `{"group": 1, "address": "10.0.1.0/29"}`, `{"group": 1, "v4": {"address": "10.0.2.1", "range_end": "10.0.2.9", "subnet_mask": "255.255.255.0"}}`
	for _, test := range []struct{ entity, was, is, want string }{
		{single, `"address":"10.0.0.5","full`, `"address":"10.0.0.6","full`, "10.0.0.6 10.0.0.6"},
		{single, `{"address":"10.0.0.5"`, `{"address":"10.0.0.6"`, "10.0.0.6 10.0.0.6"},
		{single, `"name":"10.0.0.5"`, `"name":"shelf"`, "shelf 10.0.0.5"},
		{single, `"name":"10.0.0.5"`, `"name":"10.0.0.5","nickname":"shelf"`, "shelf 10.0.0.5"},
		{named, `"name":"rack"`, `"name":"shelf"`, "shelf 10.0.0.5 fd00::1"},
		{named, `"nickname":"rack"`, `"nickname":"shelf"`, "shelf 10.0.0.5 fd00::1"},
		{named, `"nickname":"rack"`, `"nickname":""`, "10.0.0.5 10.0.0.5 fd00::1"},
		{named, `"v6_address":"fd00::1"`, `"v6_address":"fd00::2"`, "rack 10.0.0.5 fd00::2"},
		{named, `"v6":{"address":"fd00::1"`, `"v6":{"address":"FD00::2"`, "rack 10.0.0.5 fd00::2"},
		{prefix, `"address":"10.0.1.0/29","full`, `"address":"10.0.1.0/28","full`, "10.0.1.0/28 10.0.1.0/28"},
		{prefix, `{"address":"10.0.1.0/29"`, `{"address":"10.0.1.0/28"`, "10.0.1.0/28 10.0.1.0/28"},
		{span, `"address":"10.0.2.1","full`, `"address":"10.0.2.2","full`, "10.0.2.2-10.0.2.9 10.0.2.2-10.0.2.9"},
		{span, `"range_end":"10.0.2.9"`, `"range_end":"10.0.2.8"`, "10.0.2.1-10.0.2.8 10.0.2.1-10.0.2.8"},
	} {
		created := c.Do("POST", "/entity", test.entity).Want(200)
		item := fmt.Sprintf("/entity/%d", created.ID())
		back := c.Do("PATCH", item, created.Text).Want(200)
		if back.Text != created.Text || back.Header.Get("ETag") != created.Header.Get("ETag") {
			t.Errorf("what was read is sent back: got %s, want %s with the same ETag", back.Text, created.Text)
		}
		changed := strings.Replace(created.Text, test.was, test.is, 1)
		if changed == created.Text {
			t.Fatalf("got %s, want %s in it", created.Text, test.was)
		}
		after := testkit.Decode[network.IPEntity](c.Do("PATCH", item, changed).Want(200))
		got := after.Name + " " + after.FullIP
		if after.V6Address != nil {
			got += " " + *after.V6Address
		}
		if got != test.want {
			t.Errorf("%s: got %s, want %s", changed, got, test.want)
		}
		c.Do("DELETE", item, nil).Want(200)
	}
	c.Do("POST", "/entity", single).Want(200)
	c.Do("PATCH", "/entity/14", `{"address": "10.0.0.6", "v4": {"address": "10.0.0.7"}}`).WantErrors("/v4/address", "disagrees")
}

// Two spellings of one address do not contradict each other.
func TestFormsOfOneAddress(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	for _, body := range []string{
		`"v6_address": "2001:DB8::1", "v6_gateway": "FE80:0::1", "v6": {"address": "2001:db8:0::1", "range_end": "2001:db8::1", "gateway": "fe80::1"}`,
		`"full_ip": "2001:0db8::1", "v6": {"address": "2001:db8::1/128", "gateway": "fe80::1"}`,
	} {
		entity := testkit.Decode[network.IPEntity](c.Do("POST", "/entity", `{"group": 1, `+body+`}`).Want(200))
		if *entity.V6.Address != "2001:db8::1" || *entity.V6Gateway != "fe80::1" {
			t.Errorf("%s: got %s, want 2001:db8::1 with the gateway fe80::1", body, testkit.JSON(entity))
		}
		item := fmt.Sprint("/entity/", entity.ID)
		same := c.Do("PATCH", item, `{"v6_address": "2001:DB8::1", "v6": {"address": "2001:db8:0:0::1"}}`).Want(200)
		if same.Header.Get("ETag") != c.Do("GET", item, nil).Want(200).Header.Get("ETag") || same.Header.Get("ETag") != `"1"` {
			t.Errorf(`another spelling of the same address: got the ETag %s, want "1"`, same.Header.Get("ETag"))
		}
		c.Do("DELETE", item, nil).Want(200)
	}
	c.Do("POST", "/entity", `{"group": 1, "v6_address": "2001:DB8::1", "v6": {"address": "2001:db8::2"}}`).
		WantErrors("/v6/address", "disagrees")
}

func TestIPEntityOverlap(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/group", `{"name": "Bern"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "address": "192.0.2.0/28", "v6_address": "2001:db8::/64"}`).Want(200)

	got := testkit.Decode[problem.Problem](
		c.Do("POST", "/entity", `{"group": 2, "address": "192.0.2.15", "v6_address": "2001:db8::1"}`).Want(422),
	)
	if len(got.Errors) != 2 || got.Errors[0].Message != "overlaps with IP entity 1 (192.0.2.0/28) in IP group 1 (Berlin)" ||
		got.Errors[1].Pointer != "/v6_address" {
		t.Fatalf("got %+v, want an overlap with IP entity 1 and one of /v6_address", got)
	}
	c.Do("POST", "/entity", `{"group": 2, "address": "192.0.2.16"}`).Want(200)
}

// The parser accepts exactly the spellings that net/netip accepts, and answers with net/netip's own spelling.
func TestAddressesAgainstNetip(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	bits := rapid.OneOf(rapid.Just(-1), rapid.IntRange(0, 128))
	rapid.Check(t, func(t *rapid.T) {
		text, member := spelling(t), "address"
		if rapid.Bool().Draw(t, "v6") {
			member = "v6_address"
		}
		if n := bits.Draw(t, "bits"); n >= 0 {
			text = fmt.Sprint(text, "/", n)
		}
		answer := c.Do("POST", "/entity", map[string]any{"group": 1, member: text})
		want, ok := oracle(text, member == "v6_address")
		if !ok {
			answer.Want(422)
			return
		}
		created := testkit.Decode[network.IPEntity](answer.Want(200))
		if created.FullIP != want {
			t.Fatalf("%s: got %s, want %s", text, created.FullIP, want)
		}
		c.Do("DELETE", fmt.Sprint("/entity/", created.ID), nil).Want(200)
	})
}

// spelling draws an address in some spelling, valid or not.
func spelling(t *rapid.T) string {
	b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes")
	switch rapid.IntRange(0, 6).Draw(t, "form") {
	case 0:
		return netip.AddrFrom4([4]byte(b)).String()
	case 1:
		return fmt.Sprintf("%d.%d.%d.%d", b[0], b[1], b[2], b[3]&0xf0)
	case 2:
		return fmt.Sprintf("%03d.%d.%d.%d", b[0], b[1], b[2], b[3])
	case 3:
		return netip.AddrFrom16([16]byte(b)).StringExpanded()
	case 4:
		copy(b[:2], []byte{0x20, 0x01})
		copy(b[6:], make([]byte, rapid.IntRange(0, 10).Draw(t, "zeros")))
		return netip.AddrFrom16([16]byte(b)).String()
	case 5:
		return netip.AddrFrom16([16]byte(b)).WithZone("eth0").String()
	default:
		return rapid.StringMatching(`[0-9a-fA-F:.]{1,20}`).Draw(t, "text")
	}
}

// oracle returns the expected result for a text, from net/netip alone.
func oracle(text string, v6 bool) (string, bool) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return "", false
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p.Addr().Is6() != v6 || p.Masked() != p || v6 && strings.Contains(text, ".") {
		return "", false
	}
	space := netipx.RangeOfPrefix(p)
	for _, never := range []string{
		"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "::/8", "fe80::/10", "fec0::/10", "ff00::/8",
	} {
		if space.Overlaps(netipx.RangeOfPrefix(netip.MustParsePrefix(never))) {
			return "", false
		}
	}
	for _, private := range []string{"10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"} {
		if q := netip.MustParsePrefix(private); q.Overlaps(p) && p.Bits() < q.Bits() {
			return "", false
		}
	}
	if p.IsSingleIP() {
		return p.Addr().String(), true
	}
	return p.String(), true
}

package importer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
)

func readRecords(t *testing.T, records ...string) *source.Plan {
	t.Helper()
	plan, err := source.ReadNetBox(strings.NewReader("[" + strings.Join(records, ",") + "]"))
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func recordJSON(model string, pk int, fields string) string {
	return fmt.Sprintf(`{"model": %q, "pk": %d, "fields": {%s}}`, model, pk, fields)
}

func TestPlan(t *testing.T) {
	t.Parallel()
	site := func(pk int, name string) string { return recordJSON("dcim.site", pk, fmt.Sprintf(`"name": %q`, name)) }
	vrf := func(pk int, name string) string { return recordJSON("ipam.vrf", pk, fmt.Sprintf(`"name": %q`, name)) }
	prefix := func(pk int, prefix, more string) string {
		return recordJSON("ipam.prefix", pk, fmt.Sprintf(`"prefix": %q %s`, prefix, more))
	}
	address := func(pk int, address, more string) string {
		return recordJSON("ipam.ipaddress", pk, fmt.Sprintf(`"address": %q %s`, address, more))
	}
	span := func(pk int, start, end, more string) string {
		return recordJSON("ipam.iprange", pk, fmt.Sprintf(`"start_address": %q, "end_address": %q %s`, start, end, more))
	}
	const container = `, "status": "container"`

	for name, test := range map[string]struct {
		records   []string
		available selectors
		groups    []string
		entities  []string
		skipped   []string
		others    []string
	}{
		"a site without anything": {
			records: []string{site(1, "B"), site(2, "A"), recordJSON("dcim.site", 3, `"slug": "c"`)},
			groups:  []string{"A", "B", "c"},
		},
		"a prefix with nothing inside": {
			records: []string{
				site(1, "A"), recordJSON("ipam.vlan", 1, `"vid": 100`),
				prefix(1, "10.0.0.0/24", `, "site": 1, "vlan": 1, "description": " office "`),
			},
			groups:   []string{"A"},
			entities: []string{`A: 10.0.0.0/24 reserved vlan 100 "office" (ipam.prefix 1)`},
		},
		"a site as NetBox 4.2 writes it": {
			records:  []string{site(1, "A"), prefix(1, "10.0.0.0/24", `, "scope_type": ["dcim", "site"], "scope_id": 1, "_site": 1`)},
			groups:   []string{"A"},
			entities: []string{"A: 10.0.0.0/24 reserved (ipam.prefix 1)"},
		},
		"site and VLAN of the smallest prefix that has one": {
			records: []string{
				site(1, "A"), site(2, "B"), recordJSON("ipam.vlan", 1, `"vid": 100`), recordJSON("ipam.vlan", 2, `"vid": 200`),
				prefix(1, "10.0.0.0/8", `, "site": 2, "vlan": 2`+container),
				prefix(2, "10.0.0.0/16", `, "site": 1, "vlan": 1`+container),
				prefix(3, "10.0.0.0/24", ""),
				prefix(4, "10.0.1.0/24", ""),
				address(1, "10.0.0.5/24", `, "dns_name": "a.example", "description": "b"`),
				address(2, "10.1.0.5/24", `, "description": "b"`),
			},
			groups: []string{"A", "B"},
			entities: []string{
				`A: 10.0.0.5 reserved mask 255.255.255.0 vlan 100 "a.example" (ipam.ipaddress 1)`,
				"A: 10.0.1.0/24 reserved vlan 100 (ipam.prefix 4)",
				`B: 10.1.0.5 reserved mask 255.255.255.0 vlan 200 "b" (ipam.ipaddress 2)`,
			},
			skipped: []string{
				"ipam.prefix 1: container; its content is imported",
				"ipam.prefix 2: container; its content is imported",
				"ipam.prefix 3: prefix with addresses or ranges, which are imported",
			},
		},
		"records of one prefix that disagree are not inherited": {
			records: []string{
				site(1, "A"), site(2, "B"), site(3, "C"),
				prefix(1, "10.0.0.0/8", `, "site": 3`+container),
				prefix(2, "10.0.0.0/24", `, "site": 1`), prefix(3, "10.0.0.0/24", `, "site": 2`),
				prefix(4, "10.0.1.0/24", `, "site": 1`), prefix(5, "10.0.1.0/24", `, "site": 2`),
				address(1, "10.0.0.5/24", ""),
			},
			groups: []string{"A", "B", "C", "NetBox: no site"},
			entities: []string{
				"A: 10.0.1.0/24 reserved (ipam.prefix 4)",
				"B: 10.0.1.0/24 reserved (ipam.prefix 5)",
				"NetBox: no site: 10.0.0.5 reserved mask 255.255.255.0 (ipam.ipaddress 1)",
			},
			skipped: []string{
				"ipam.prefix 1: container; its content is imported",
				"ipam.prefix 2: prefix with addresses or ranges, which are imported",
				"ipam.prefix 3: prefix with addresses or ranges, which are imported",
			},
		},
		"prefixes that hold others": {
			records: []string{
				prefix(1, "10.0.0.0/8", container), prefix(2, "10.0.0.0/16", ""), prefix(3, "10.0.0.0/24", ""),
				prefix(4, "172.16.0.0/12", container),
			},
			groups:   []string{"NetBox: no site"},
			entities: []string{"NetBox: no site: 10.0.0.0/24 reserved (ipam.prefix 3)"},
			skipped: []string{
				"ipam.prefix 1: container; its content is imported",
				"ipam.prefix 4: empty container",
				"ipam.prefix 2: prefix with smaller prefixes, which are imported",
			},
		},
		"a VRF without a site becomes a group": {
			records: []string{
				vrf(1, "Red"), vrf(2, "Blue"), vrf(3, "Blue"), vrf(4, "Empty"),
				prefix(1, "10.0.0.0/24", `, "vrf": 1`), prefix(2, "10.0.0.0/24", `, "vrf": 2`),
				prefix(3, "10.0.0.0/24", `, "vrf": 3, "description": "10.0.0.0/24"`), prefix(4, "10.0.0.0/24", ""),
				address(1, "10.0.0.1/24", ""),
			},
			groups: []string{"NetBox: VRF Blue (id 2)", "NetBox: VRF Blue (id 3)", "NetBox: VRF Red", "NetBox: no site"},
			entities: []string{
				"NetBox: VRF Blue (id 2): 10.0.0.0/24 reserved (ipam.prefix 2)",
				"NetBox: VRF Blue (id 3): 10.0.0.0/24 reserved (ipam.prefix 3)",
				"NetBox: VRF Red: 10.0.0.0/24 reserved (ipam.prefix 1)",
				"NetBox: no site: 10.0.0.1 reserved mask 255.255.255.0 (ipam.ipaddress 1)",
			},
			skipped: []string{"ipam.prefix 4: prefix with addresses or ranges, which are imported"},
		},
		"a VRF's space at a site moves as a whole where it overlaps": {
			records: []string{
				site(1, "A"), vrf(1, "Red"), vrf(2, "Blue"),
				prefix(1, "10.0.0.0/24", `, "site": 1`),
				prefix(2, "10.0.0.0/28", `, "site": 1, "vrf": 1`), prefix(3, "10.9.0.0/24", `, "site": 1, "vrf": 1`),
				prefix(4, "10.9.0.0/24", `, "site": 1, "vrf": 2`),
			},
			groups: []string{"A", "A: VRF Red"},
			entities: []string{
				"A: 10.0.0.0/24 reserved (ipam.prefix 1)",
				"A: 10.9.0.0/24 reserved (ipam.prefix 4)",
				"A: VRF Red: 10.0.0.0/28 reserved (ipam.prefix 2)",
				"A: VRF Red: 10.9.0.0/24 reserved (ipam.prefix 3)",
			},
		},
		"public space exists once": {
			records: []string{
				vrf(1, "Red"), prefix(1, "198.51.100.0/24", ""), address(1, "198.51.100.1/24", `, "vrf": 1`), address(2, "203.0.113.1/24", ""),
				address(3, "203.0.113.1/24", `, "vrf": 1`),
			},
			groups: []string{"NetBox: VRF Red", "NetBox: no site"},
			entities: []string{
				"NetBox: VRF Red: 198.51.100.1 reserved mask 255.255.255.0 (ipam.ipaddress 1)",
				"NetBox: no site: 203.0.113.1 reserved mask 255.255.255.0 (ipam.ipaddress 2)",
			},
			skipped: []string{
				"ipam.prefix 1: overlaps another record at another site or in another VRF; an installation has each public address once " +
					"(198.51.100.1, ipam.ipaddress 1)",
				"ipam.ipaddress 3: same address as another record at another site or in another VRF; an installation has each public " +
					"address once (203.0.113.1, ipam.ipaddress 2)",
			},
		},
		"addresses in ranges, and duplicates": {
			records: []string{
				span(1, "10.0.0.10/24", "10.0.0.19/24", `, "description": "pool"`),
				span(2, "10.0.0.15/24", "10.0.0.25/24", ""),
				span(3, "10.0.0.30/24", "10.0.0.30/24", ""),
				address(1, "10.0.0.12/24", ""), address(2, "10.0.0.40/24", ""), address(3, "10.0.0.40/32", ""),
			},
			groups: []string{"NetBox: no site"},
			entities: []string{
				`NetBox: no site: 10.0.0.10-10.0.0.11 reserved mask 255.255.255.0 "pool" (ipam.iprange 1)`,
				"NetBox: no site: 10.0.0.12 reserved mask 255.255.255.0 (ipam.ipaddress 1)",
				`NetBox: no site: 10.0.0.13-10.0.0.19 reserved mask 255.255.255.0 "pool" (ipam.iprange 1)`,
				"NetBox: no site: 10.0.0.30 reserved mask 255.255.255.0 (ipam.iprange 3)",
				"NetBox: no site: 10.0.0.40 reserved mask 255.255.255.0 (ipam.ipaddress 2)",
			},
			skipped: []string{
				"ipam.iprange 2: overlaps another record (10.0.0.13-10.0.0.19, ipam.iprange 1)",
				"ipam.ipaddress 3: same address as another record (10.0.0.40, ipam.ipaddress 2)",
			},
		},
		"the subnet of host addresses": {
			records: []string{
				prefix(1, "10.0.0.0/24", ""), prefix(2, "10.0.0.9/32", ""), prefix(3, "10.1.0.0/16", container),
				address(1, "10.0.0.5/32", ""), address(2, "10.1.0.5/32", ""), address(3, "10.2.0.5/32", ""), address(4, "10.0.0.9/32", ""),
				span(1, "10.0.0.100/28", "10.0.0.200/28", ""),
				prefix(4, "10.0.0.33/32", ""),
			},
			groups: []string{"NetBox: no site"},
			entities: []string{
				"NetBox: no site: 10.0.0.5 reserved mask 255.255.255.0 (ipam.ipaddress 1)",
				"NetBox: no site: 10.0.0.9 reserved mask 255.255.255.0 (ipam.ipaddress 4)",
				"NetBox: no site: 10.0.0.33 reserved mask 255.255.255.0 (ipam.prefix 4)",
				"NetBox: no site: 10.0.0.100-10.0.0.200 reserved mask 255.255.255.0 (ipam.iprange 1)",
				"NetBox: no site: 10.1.0.5 reserved (ipam.ipaddress 2)",
				"NetBox: no site: 10.2.0.5 reserved (ipam.ipaddress 3)",
			},
			skipped: []string{
				"ipam.prefix 3: container; its content is imported",
				"ipam.prefix 2: prefix with addresses or ranges, which are imported",
				"ipam.prefix 1: prefix with smaller prefixes, which are imported",
			},
		},
		"gateways": {
			records: []string{
				vrf(1, "Red"),
				address(1, "10.0.0.1/24", `, "role": "vrrp"`), address(2, "10.0.0.1/24", `, "role": "vrrp"`),
				address(3, "10.0.0.9/24", ""), address(4, "10.0.0.9/24", `, "vrf": 1`),
				address(5, "10.0.1.1/24", `, "role": "hsrp"`), address(6, "10.0.1.2/24", `, "role": "glbp"`), address(7, "10.0.1.9/24", ""),
				address(8, "10.0.2.1/24", `, "role": "vip"`), address(9, "10.0.2.9/24", ""),
				address(10, "10.0.3.1/24", `, "role": "carp", "status": "deprecated"`), address(11, "10.0.3.9/24", ""),
				span(1, "10.0.0.20/24", "10.0.0.29/24", ""),
				span(2, "10.0.4.0/24", "10.0.4.9/24", ""), address(12, "10.0.4.1/24", `, "role": "vrrp"`), address(13, "10.0.4.20/24", ""),
			},
			groups: []string{"NetBox: VRF Red", "NetBox: no site"},
			entities: []string{
				"NetBox: VRF Red: 10.0.0.9 reserved mask 255.255.255.0 (ipam.ipaddress 4)",
				"NetBox: no site: 10.0.0.1 reserved mask 255.255.255.0 (ipam.ipaddress 1)",
				"NetBox: no site: 10.0.0.9 reserved mask 255.255.255.0 gateway 10.0.0.1 (ipam.ipaddress 3)",
				"NetBox: no site: 10.0.0.20-10.0.0.29 reserved mask 255.255.255.0 gateway 10.0.0.1 (ipam.iprange 1)",
				"NetBox: no site: 10.0.1.1 reserved mask 255.255.255.0 (ipam.ipaddress 5)",
				"NetBox: no site: 10.0.1.2 reserved mask 255.255.255.0 (ipam.ipaddress 6)",
				"NetBox: no site: 10.0.1.9 reserved mask 255.255.255.0 (ipam.ipaddress 7)",
				"NetBox: no site: 10.0.2.1 reserved mask 255.255.255.0 (ipam.ipaddress 8)",
				"NetBox: no site: 10.0.2.9 reserved mask 255.255.255.0 (ipam.ipaddress 9)",
				"NetBox: no site: 10.0.3.1 reserved mask 255.255.255.0 (ipam.ipaddress 10)",
				"NetBox: no site: 10.0.3.9 reserved mask 255.255.255.0 (ipam.ipaddress 11)",
				"NetBox: no site: 10.0.4.0 reserved mask 255.255.255.0 gateway 10.0.4.1 (ipam.iprange 2)",
				"NetBox: no site: 10.0.4.1 reserved mask 255.255.255.0 (ipam.ipaddress 12)",
				"NetBox: no site: 10.0.4.2-10.0.4.9 reserved mask 255.255.255.0 gateway 10.0.4.1 (ipam.iprange 2)",
				"NetBox: no site: 10.0.4.20 reserved mask 255.255.255.0 gateway 10.0.4.1 (ipam.ipaddress 13)",
			},
			skipped: []string{
				"ipam.ipaddress 2: same address as another record (10.0.0.1, ipam.ipaddress 1)",
			},
		},
		"IPv6": {
			records: []string{
				site(1, "A"),
				prefix(1, "2001:db8::/48", `, "site": 1`+container), prefix(2, "2001:db8:0:1::/64", ""), prefix(3, "2001:db8:0:2::/64", ""),
				address(1, "2001:db8:0:1::1/64", `, "role": "vrrp"`), address(2, "2001:DB8:0:1:0::0005/64", ""), address(3, "2001:db8:0:1::6/128", ""),
				span(1, "2001:db8:0:1::10/64", "2001:db8:0:1::1f/64", ""), span(2, "2001:db8:0:1::20/64", "2001:db8:0:1::2a/64", ""),
				address(4, "::ffff:10.0.0.1/128", ""), prefix(4, "::ffff:0:0/96", ""), prefix(5, "::/1", ""), prefix(6, "8000::/1", ""),
			},
			groups: []string{"A"},
			entities: []string{
				"A: 2001:db8:0:1::1 reserved (ipam.ipaddress 1)",
				"A: 2001:db8:0:1::5 reserved gateway 2001:db8:0:1::1 (ipam.ipaddress 2)",
				"A: 2001:db8:0:1::6 reserved gateway 2001:db8:0:1::1 (ipam.ipaddress 3)",
				"A: 2001:db8:0:1::10/124 reserved (ipam.iprange 1)",
				"A: 2001:db8:0:2::/64 reserved (ipam.prefix 3)",
			},
			skipped: []string{
				"ipam.ipaddress 4: IPv4 written as IPv6",
				"ipam.iprange 2: IPv6 range that is not a prefix; an IPv6 entity is an address or a prefix",
				"ipam.prefix 1: container; its content is imported",
				"ipam.prefix 6: contains private and public addresses",
				"ipam.prefix 2: prefix with addresses or ranges, which are imported",
				"ipam.prefix 4: prefix with addresses or ranges, which are imported",
				"ipam.prefix 5: prefix with smaller prefixes, which are imported",
			},
		},
		"pools become single addresses, without what is in use": {
			records: []string{
				site(1, "A"), vrf(1, "Red"),
				prefix(1, "198.51.100.0/28", `, "site": 1, "is_pool": true`),
				prefix(2, "198.51.100.4/30", ""), address(1, "198.51.100.1/28", `, "role": "vrrp"`), address(2, "198.51.100.3/32", `, "vrf": 1`),
				span(1, "198.51.100.8/28", "198.51.100.13/28", ""),
				prefix(3, "198.51.100.32/28", `, "is_pool": true, "mark_utilized": true`),
				prefix(4, "198.51.100.64/28", `, "is_pool": true, "status": "reserved"`),
			},
			groups: []string{"A", "NetBox: VRF Red", "NetBox: no site"},
			entities: []string{
				"A: 198.51.100.0 available mask 255.255.255.240 gateway 198.51.100.1 (ipam.prefix 1)",
				"A: 198.51.100.1 reserved mask 255.255.255.240 (ipam.ipaddress 1)",
				"A: 198.51.100.2 available mask 255.255.255.240 gateway 198.51.100.1 (ipam.prefix 1)",
				"A: 198.51.100.4/30 reserved (ipam.prefix 2)",
				"A: 198.51.100.8-198.51.100.13 reserved mask 255.255.255.240 gateway 198.51.100.1 (ipam.iprange 1)",
				"A: 198.51.100.14 available mask 255.255.255.240 gateway 198.51.100.1 (ipam.prefix 1)",
				"A: 198.51.100.15 available mask 255.255.255.240 gateway 198.51.100.1 (ipam.prefix 1)",
				"NetBox: VRF Red: 198.51.100.3 reserved (ipam.ipaddress 2)",
				"NetBox: no site: 198.51.100.32/28 reserved (ipam.prefix 3)",
				"NetBox: no site: 198.51.100.64/28 reserved (ipam.prefix 4)",
			},
		},
		"a part of a range behind a range that comes later": {
			records: []string{
				address(1, "198.51.100.5/24", ""), span(1, "198.51.100.1/24", "198.51.100.2/24", ""),
				span(2, "198.51.100.2/24", "198.51.100.9/24", ""), span(3, "198.51.100.3/24", "198.51.100.4/24", ""),
				span(4, "198.51.100.4/24", "198.51.100.4/24", ""),
			},
			groups: []string{"NetBox: no site"},
			entities: []string{
				"NetBox: no site: 198.51.100.1-198.51.100.2 reserved mask 255.255.255.0 (ipam.iprange 1)",
				"NetBox: no site: 198.51.100.3-198.51.100.4 reserved mask 255.255.255.0 (ipam.iprange 3)",
				"NetBox: no site: 198.51.100.5 reserved mask 255.255.255.0 (ipam.ipaddress 1)",
				"NetBox: no site: 198.51.100.6-198.51.100.9 reserved mask 255.255.255.0 (ipam.iprange 2)",
			},
			skipped: []string{
				"ipam.iprange 4: inside an imported range (198.51.100.3-198.51.100.4, ipam.iprange 3)",
				"ipam.iprange 2: overlaps another record (198.51.100.1-198.51.100.2, ipam.iprange 1)",
			},
		},
		"the second pool is in use": {
			records: []string{
				vrf(1, "Red"), prefix(1, "198.51.100.0/31", `, "vrf": 1`),
				prefix(2, "198.51.100.0/32", `, "is_pool": true`), prefix(3, "100.128.0.0/32", `, "is_pool": true`),
			},
			groups: []string{"NetBox: VRF Red", "NetBox: no site"},
			entities: []string{
				"NetBox: VRF Red: 198.51.100.0/31 reserved (ipam.prefix 1)",
				"NetBox: no site: 100.128.0.0 available (ipam.prefix 3)",
			},
			skipped: []string{"ipam.prefix 2: stock without a free address; its content is imported"},
		},
		"prefixes that --available names": {
			records: []string{
				recordJSON("ipam.role", 1, `"name": "Customer", "slug": "customers"`), recordJSON("ipam.role", 2, `"name": "Office"`),
				recordJSON("extras.tag", 1, `"name": "For sale", "slug": "sale"`),
				recordJSON("contenttypes.contenttype", 9, `"app_label": "ipam", "model": "prefix"`),
				recordJSON("extras.taggeditem", 1, `"content_type": 9, "object_id": 3, "tag": 1`),
				recordJSON("extras.taggeditem", 2, `"content_type": ["ipam", "prefix"], "object_id": 4, "tag": ["For sale"]`),
				recordJSON("extras.taggeditem", 3, `"content_type": ["ipam", "ipaddress"], "object_id": 2, "tag": 1`),
				prefix(1, "10.0.0.0/30", `, "role": 1`), prefix(2, "10.0.1.0/30", `, "role": 2`), prefix(3, "10.0.2.0/31", ""),
				prefix(4, "10.0.3.0/32", ""), prefix(5, "10.0.4.0/30", ""), prefix(6, "10.16.0.0/12", `, "role": 1`),
				prefix(7, "2001:db8:1::/64", `, "role": 1`), prefix(8, "2001:db8:2::/48", `, "role": 1`), address(1, "2001:db8:2::1/64", ""),
				prefix(9, "10.32.0.0/12", `, "role": 1`), address(2, "10.32.0.1/12", ""), prefix(10, "10.0.5.0/30", `, "role": 1`),
				span(1, "10.0.5.0/30", "10.0.5.2/30", ""), prefix(11, "10.0.6.0/30", `, "role": 1`), prefix(12, "10.0.6.0/30", `, "role": 2`),
			},
			available: selectors{{"role", "customers"}, {"tag", "sale"}, {"prefix", "10.0.4.0/30"}},
			groups:    []string{"NetBox: no site"},
			entities: []string{
				"NetBox: no site: 10.0.0.1 available mask 255.255.255.252 (ipam.prefix 1)",
				"NetBox: no site: 10.0.0.2 available mask 255.255.255.252 (ipam.prefix 1)",
				"NetBox: no site: 10.0.1.0/30 reserved (ipam.prefix 2)",
				"NetBox: no site: 10.0.2.0 available mask 255.255.255.254 (ipam.prefix 3)",
				"NetBox: no site: 10.0.2.1 available mask 255.255.255.254 (ipam.prefix 3)",
				"NetBox: no site: 10.0.3.0 available (ipam.prefix 4)",
				"NetBox: no site: 10.0.4.1 available mask 255.255.255.252 (ipam.prefix 5)",
				"NetBox: no site: 10.0.4.2 available mask 255.255.255.252 (ipam.prefix 5)",
				"NetBox: no site: 10.0.5.0-10.0.5.2 reserved mask 255.255.255.252 (ipam.iprange 1)",
				"NetBox: no site: 10.0.6.0/30 reserved (ipam.prefix 11)",
				"NetBox: no site: 10.16.0.0/12 reserved (ipam.prefix 6)",
				"NetBox: no site: 10.32.0.1 reserved mask 255.240.0.0 (ipam.ipaddress 2)",
				"NetBox: no site: 2001:db8:1::/64 available (ipam.prefix 7)",
				"NetBox: no site: 2001:db8:2::1 reserved (ipam.ipaddress 1)",
			},
			skipped: []string{
				"ipam.prefix 8: IPv6 stock with something in use; its content is imported. Add the free prefixes yourself",
				"ipam.prefix 12: same address as another record (10.0.6.0/30, ipam.prefix 11)",
				"ipam.prefix 9: stock larger than a /16 with something in use; its content is imported. Name smaller prefixes with --available",
				"ipam.prefix 10: stock without a free address; its content is imported",
			},
		},
		"devices": {
			records: []string{
				recordJSON("dcim.device", 1, `"name": "fra1-s1", "primary_ip4": 1`), recordJSON("dcim.device", 2, `"name": null`),
				recordJSON("dcim.device", 3, `"name": "idle"`), recordJSON("virtualization.virtualmachine", 1, `"name": "vm1"`),
				recordJSON("dcim.interface", 5, `"device": 2`), recordJSON("virtualization.vminterface", 5, `"virtual_machine": 1`),
				address(1, "10.0.0.1/24", ""), address(2, "10.0.0.2/24", `, "assigned_object_type": ["dcim", "interface"], "assigned_object_id": 5`),
				address(3, "10.0.0.3/24", `, "assigned_object_type": ["virtualization", "vminterface"], "assigned_object_id": 5`),
			},
			groups: []string{"NetBox: no site"},
			entities: []string{
				"NetBox: no site: 10.0.0.1 reserved mask 255.255.255.0 (ipam.ipaddress 1)",
				"NetBox: no site: 10.0.0.2 reserved mask 255.255.255.0 (ipam.ipaddress 2)",
				"NetBox: no site: 10.0.0.3 reserved mask 255.255.255.0 (ipam.ipaddress 3)",
			},
			others: []string{
				"dcim.device 3: device without an address in the file; not imported",
				"dcim.device 1: device; named in the notes of its addresses (10.0.0.1)",
				"dcim.device 2: device; named in the notes of its addresses (10.0.0.2)",
				"virtualization.virtualmachine 1: device; named in the notes of its addresses (10.0.0.3)",
			},
		},
		"records that become no entity": {
			records: []string{recordJSON("tenancy.tenant", 1, `"name": "T"`), recordJSON("ipam.vlan", 1, `"vid": 100`)},
			others: []string{
				"ipam.vlan 1: VLAN without space; not imported, since a VLAN is a number of an entity",
				"tenancy.tenant 1: tenant that is not in the file of --clients; its space is reserved, or stock",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := newPlan(readRecords(t, test.records...), test.available)
			var entities, skipped, others []string
			for _, e := range plan.Entities {
				e.Note = "" // TestNotes shows it
				entities = append(entities, e.String())
			}
			for _, l := range plan.Skipped {
				text := l.Source.String() + ": " + l.Reason
				if l.Detail != "" {
					text += " (" + l.Detail + ")"
				}
				skipped = append(skipped, text)
			}
			expect(t, "groups", plan.Groups, test.groups)
			expect(t, "entities", entities, test.entities)
			expect(t, "skipped", skipped, test.skipped)
			for _, o := range plan.Others {
				text := o.Source.String() + ": " + o.Reason
				if o.Detail != "" {
					text += " (" + o.Detail + ")"
				}
				others = append(others, text)
			}
			if test.others != nil {
				expect(t, "others", others, test.others)
			}
		})
	}
}

func expect(t *testing.T, name string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n  %s\nwant\n  %s", name, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

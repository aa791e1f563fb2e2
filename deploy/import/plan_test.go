package main

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"
	"pgregory.net/rapid"
)

func parseDump(t *testing.T, records ...string) *dump {
	t.Helper()
	d, err := readDump(strings.NewReader("[" + strings.Join(records, ",") + "]"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func recordJSON(model string, pk int, fields string) string {
	return fmt.Sprintf(`{"model": %q, "pk": %d, "fields": {%s}}`, model, pk, fields)
}

func TestPlan(t *testing.T) {
	t.Parallel()
	site := func(pk int, name string) string { return recordJSON(modelSite, pk, fmt.Sprintf(`"name": %q`, name)) }
	vrf := func(pk int, name string) string { return recordJSON(modelVRF, pk, fmt.Sprintf(`"name": %q`, name)) }
	prefix := func(pk int, prefix, more string) string {
		return recordJSON(modelPrefix, pk, fmt.Sprintf(`"prefix": %q %s`, prefix, more))
	}
	address := func(pk int, address, more string) string {
		return recordJSON(modelAddress, pk, fmt.Sprintf(`"address": %q %s`, address, more))
	}
	span := func(pk int, start, end, more string) string {
		return recordJSON(modelRange, pk, fmt.Sprintf(`"start_address": %q, "end_address": %q %s`, start, end, more))
	}
	const container = `, "status": "container"`

	for name, test := range map[string]struct {
		records  []string
		groups   []string
		entities []string
		skipped  []string
	}{
		"a site without anything": {
			records: []string{site(1, "B"), site(2, "A"), recordJSON(modelSite, 3, `"slug": "c"`)},
			groups:  []string{"A", "B", "c"},
		},
		"a prefix with nothing inside": {
			records: []string{
				site(1, "A"), recordJSON(modelVLAN, 1, `"vid": 100`),
				prefix(1, "10.0.0.0/24", `, "site": 1, "vlan": 1, "description": " office "`),
			},
			groups:   []string{"A"},
			entities: []string{`A: 10.0.0.0/24 vlan 100 "office" (ipam.prefix 1)`},
		},
		"a site as NetBox 4.2 writes it": {
			records:  []string{site(1, "A"), prefix(1, "10.0.0.0/24", `, "scope_type": ["dcim", "site"], "scope_id": 1, "_site": 1`)},
			groups:   []string{"A"},
			entities: []string{"A: 10.0.0.0/24 (ipam.prefix 1)"},
		},
		"site and VLAN of the smallest prefix that has one": {
			records: []string{
				site(1, "A"), site(2, "B"), recordJSON(modelVLAN, 1, `"vid": 100`), recordJSON(modelVLAN, 2, `"vid": 200`),
				prefix(1, "10.0.0.0/8", `, "site": 2, "vlan": 2`+container),
				prefix(2, "10.0.0.0/16", `, "site": 1, "vlan": 1`+container),
				prefix(3, "10.0.0.0/24", ""),
				prefix(4, "10.0.1.0/24", ""),
				address(1, "10.0.0.5/24", `, "dns_name": "a.example", "description": "b"`),
				address(2, "10.1.0.5/24", `, "description": "b"`),
			},
			groups: []string{"A", "B"},
			entities: []string{
				`A: 10.0.0.5 mask 255.255.255.0 vlan 100 "a.example" (ipam.ipaddress 1)`,
				"A: 10.0.1.0/24 vlan 100 (ipam.prefix 4)",
				`B: 10.1.0.5 mask 255.255.255.0 vlan 200 "b" (ipam.ipaddress 2)`,
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
				"A: 10.0.1.0/24 (ipam.prefix 4)",
				"B: 10.0.1.0/24 (ipam.prefix 5)",
				"NetBox: no site: 10.0.0.5 mask 255.255.255.0 (ipam.ipaddress 1)",
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
			entities: []string{"NetBox: no site: 10.0.0.0/24 (ipam.prefix 3)"},
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
			groups: []string{"NetBox: VRF Blue (NetBox id 2)", "NetBox: VRF Blue (NetBox id 3)", "NetBox: VRF Red", "NetBox: no site"},
			entities: []string{
				"NetBox: VRF Blue (NetBox id 2): 10.0.0.0/24 (ipam.prefix 2)",
				"NetBox: VRF Blue (NetBox id 3): 10.0.0.0/24 (ipam.prefix 3)",
				"NetBox: VRF Red: 10.0.0.0/24 (ipam.prefix 1)",
				"NetBox: no site: 10.0.0.1 mask 255.255.255.0 (ipam.ipaddress 1)",
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
				"A: 10.0.0.0/24 (ipam.prefix 1)",
				"A: 10.9.0.0/24 (ipam.prefix 4)",
				"A: VRF Red: 10.0.0.0/28 (ipam.prefix 2)",
				"A: VRF Red: 10.9.0.0/24 (ipam.prefix 3)",
			},
		},
		"public space exists once": {
			records: []string{
				vrf(1, "Red"), prefix(1, "198.51.100.0/24", ""), address(1, "198.51.100.1/24", `, "vrf": 1`), address(2, "203.0.113.1/24", ""),
				address(3, "203.0.113.1/24", `, "vrf": 1`),
			},
			groups: []string{"NetBox: VRF Red", "NetBox: no site"},
			entities: []string{
				"NetBox: VRF Red: 198.51.100.1 mask 255.255.255.0 (ipam.ipaddress 1)",
				"NetBox: no site: 203.0.113.1 mask 255.255.255.0 (ipam.ipaddress 2)",
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
				`NetBox: no site: 10.0.0.10-10.0.0.19 mask 255.255.255.0 "pool" (ipam.iprange 1)`,
				"NetBox: no site: 10.0.0.30 mask 255.255.255.0 (ipam.iprange 3)",
				"NetBox: no site: 10.0.0.40 mask 255.255.255.0 (ipam.ipaddress 2)",
			},
			skipped: []string{
				"ipam.ipaddress 1: inside an imported range (10.0.0.10-10.0.0.19, ipam.iprange 1)",
				"ipam.iprange 2: overlaps another record (10.0.0.10-10.0.0.19, ipam.iprange 1)",
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
				"NetBox: no site: 10.0.0.5 mask 255.255.255.0 (ipam.ipaddress 1)",
				"NetBox: no site: 10.0.0.9 mask 255.255.255.0 (ipam.ipaddress 4)",
				"NetBox: no site: 10.0.0.33 mask 255.255.255.0 (ipam.prefix 4)",
				"NetBox: no site: 10.0.0.100-10.0.0.200 mask 255.255.255.0 (ipam.iprange 1)",
				"NetBox: no site: 10.1.0.5 (ipam.ipaddress 2)",
				"NetBox: no site: 10.2.0.5 (ipam.ipaddress 3)",
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
				"NetBox: VRF Red: 10.0.0.9 mask 255.255.255.0 (ipam.ipaddress 4)",
				"NetBox: no site: 10.0.0.1 mask 255.255.255.0 (ipam.ipaddress 1)",
				"NetBox: no site: 10.0.0.9 mask 255.255.255.0 gateway 10.0.0.1 (ipam.ipaddress 3)",
				"NetBox: no site: 10.0.0.20-10.0.0.29 mask 255.255.255.0 gateway 10.0.0.1 (ipam.iprange 1)",
				"NetBox: no site: 10.0.1.1 mask 255.255.255.0 (ipam.ipaddress 5)",
				"NetBox: no site: 10.0.1.2 mask 255.255.255.0 (ipam.ipaddress 6)",
				"NetBox: no site: 10.0.1.9 mask 255.255.255.0 (ipam.ipaddress 7)",
				"NetBox: no site: 10.0.2.1 mask 255.255.255.0 (ipam.ipaddress 8)",
				"NetBox: no site: 10.0.2.9 mask 255.255.255.0 (ipam.ipaddress 9)",
				"NetBox: no site: 10.0.3.1 mask 255.255.255.0 (ipam.ipaddress 10)",
				"NetBox: no site: 10.0.3.9 mask 255.255.255.0 (ipam.ipaddress 11)",
				"NetBox: no site: 10.0.4.0-10.0.4.9 mask 255.255.255.0 (ipam.iprange 2)",
				"NetBox: no site: 10.0.4.20 mask 255.255.255.0 gateway 10.0.4.1 (ipam.ipaddress 13)",
			},
			skipped: []string{
				"ipam.ipaddress 12: inside an imported range (10.0.4.0-10.0.4.9, ipam.iprange 2)",
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
				"A: 2001:db8:0:1::1 (ipam.ipaddress 1)",
				"A: 2001:db8:0:1::5 gateway 2001:db8:0:1::1 (ipam.ipaddress 2)",
				"A: 2001:db8:0:1::6 gateway 2001:db8:0:1::1 (ipam.ipaddress 3)",
				"A: 2001:db8:0:1::10/124 (ipam.iprange 1)",
				"A: 2001:db8:0:2::/64 (ipam.prefix 3)",
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
		"records that become no entity": {
			records: []string{recordJSON(modelTenant, 1, `"name": "T"`), recordJSON(modelVLAN, 1, `"vid": 100`)},
			skipped: []string{
				"ipam.vlan 1: VLAN without a prefix; in Ironplane a VLAN is a number of an entity",
				"tenancy.tenant 1: tenant that is not in the file of --clients; its entities have no owner",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := newPlan(parseDump(t, test.records...))
			var entities, skipped []string
			for _, e := range plan.Entities {
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
		})
	}
}

func expect(t *testing.T, name string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n  %s\nwant\n  %s", name, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// drawDump returns a random dump from a small address space, so that many records overlap.
func drawDump(t *rapid.T) *dump {
	d := &dump{
		sites: map[int64]site{1: {Name: "A"}, 2: {Name: "B"}}, vrfs: map[int64]vrf{1: {Name: "Red"}, 2: {Name: "Blue"}},
		vlans: map[int64]vlan{1: {VID: 100}, 2: {VID: 200}}, tenants: map[int64]tenant{1: {}},
		prefixes: map[int64]prefix{}, ranges: map[int64]addressRange{}, addresses: map[int64]address{},
	}
	bases := rapid.SampledFrom([]netip.Addr{
		netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("198.51.100.0"), netip.MustParseAddr("100.127.255.240"),
		netip.MustParseAddr("2001:db8::"), netip.MustParseAddr("fd00::"), netip.MustParseAddr("::ffff:10.0.0.0"),
	})
	reference := rapid.Int64Range(0, 2)
	drawAddress := func(base netip.Addr) netip.Addr {
		a := base
		for range rapid.IntRange(0, 31).Draw(t, "offset") {
			a = a.Next()
		}
		return a
	}
	drawBits := func(a netip.Addr) int {
		return a.BitLen() - rapid.SampledFrom([]int{0, 0, 1, 2, 3, 4, 5, 8, 26}).Draw(t, "host bits")
	}
	for pk := range rapid.Int64Range(0, 12).Draw(t, "prefixes") {
		a := drawAddress(bases.Draw(t, "base"))
		d.prefixes[pk+1] = prefix{
			Prefix: netip.PrefixFrom(a, drawBits(a)).Masked(), Site: reference.Draw(t, "site"), VRF: reference.Draw(t, "vrf"),
			VLAN: reference.Draw(t, "vlan"), Status: rapid.SampledFrom([]string{"active", "container"}).Draw(t, "status"),
		}
	}
	for pk := range rapid.Int64Range(0, 6).Draw(t, "ranges") {
		base := bases.Draw(t, "base")
		ends := []netip.Addr{drawAddress(base), drawAddress(base)}
		slices.SortFunc(ends, netip.Addr.Compare)
		bits := drawBits(base)
		d.ranges[pk+1] = addressRange{
			Start: netip.PrefixFrom(ends[0], bits), End: netip.PrefixFrom(ends[1], bits), VRF: reference.Draw(t, "vrf"),
		}
	}
	for pk := range rapid.Int64Range(0, 20).Draw(t, "addresses") {
		a := drawAddress(bases.Draw(t, "base"))
		d.addresses[pk+1] = address{
			Address: netip.PrefixFrom(a, drawBits(a)), VRF: reference.Draw(t, "vrf"),
			Role: rapid.SampledFrom([]string{"", "", "vip", "vrrp"}).Draw(t, "role"),
		}
	}
	return d
}

func TestPlanProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDump(t)
		plan := newPlan(d)

		for i, a := range plan.Entities {
			for _, b := range plan.Entities[:i] {
				if a.Span.Overlaps(b.Span) && (a.Group == b.Group || !isPrivate(a.Span) || !isPrivate(b.Span)) {
					t.Fatalf("got %s and %s, want no overlap", a, b)
				}
			}
		}

		seen := map[Source]int{}
		for _, e := range plan.Entities {
			seen[e.Source]++
		}
		for _, l := range plan.Skipped {
			seen[l.Source]++
		}
		for model, pks := range map[string][]int64{
			modelPrefix: keys(d.prefixes), modelRange: keys(d.ranges), modelAddress: keys(d.addresses), modelTenant: keys(d.tenants),
		} {
			for _, pk := range pks {
				if n := seen[Source{model, pk}]; n != 1 {
					t.Fatalf("got %s planned or skipped %d times, want once", Source{model, pk}, n)
				}
			}
		}

		held := map[string]bool{"A": true, "B": true}
		for _, e := range plan.Entities {
			held[e.Group] = true
			accept(t, d, e)
		}
		for _, group := range plan.Groups {
			if !held[group] {
				t.Fatalf("got the group %s without entities, want none like it", group)
			}
			delete(held, group)
		}
		if len(held) != 0 {
			t.Fatalf("got no group for the entities of %v, want all groups planned", held)
		}

		if second := newPlan(d); !reflect.DeepEqual(plan, second) {
			t.Fatalf("got %v when planned again, want %v", second, plan)
		}
	})
}

// accept checks an entity by the rules of the API.
func accept(t *rapid.T, d *dump, e Entity) {
	switch {
	case !e.Span.IsValid() || e.Span.From().Is4In6():
		t.Fatalf("got %s, want an IPv4 or IPv6 address", e)
	case isPrivate(netipx.IPRangeFrom(e.Span.From(), e.Span.From())) != isPrivate(e.Span):
		t.Fatalf("got %s, want all of it private or all public", e)
	case e.Subnet.IsValid() && (!e.Subnet.Contains(e.Span.From()) || !e.Subnet.Contains(e.Span.To())):
		t.Fatalf("got %s, want it in its subnet %s", e, e.Subnet)
	case e.Gateway.IsValid() && (!e.Subnet.Contains(e.Gateway) || e.Span.Contains(e.Gateway)):
		t.Fatalf("got %s with gateway %s, want a gateway in %s and outside the range", e, e.Gateway, e.Subnet)
	case e.Span.From().Is6() && strings.Contains(e.Address(), "-"):
		t.Fatalf("got %s, want no range of IPv6", e)
	}
	span, ok := parseSpan(e.Address())
	if !ok || span != e.Span {
		t.Fatalf("%s: got %s read back, want %s", e, span, e.Span)
	}
	if e.Source.Model == modelPrefix && d.prefixes[e.Source.PK].isContainer() {
		t.Fatalf("got the container %s, want no containers", e)
	}
}

func keys[T any](records map[int64]T) []int64 {
	var pks []int64
	for pk := range sorted(records) {
		pks = append(pks, pk)
	}
	return pks
}

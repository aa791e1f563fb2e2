package importer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
)

// describeOthers says what becomes of the records that are no space: VLANs, VRFs, tenants and devices.
func (p *planner) describeOthers(entities []Entity) []Remark {
	var others []Remark
	add := func(kind source.Kind, pk int64, name, reason, detail string) {
		others = append(others, Remark{p.from.Source(kind, pk), name, reason, detail})
	}
	inVLAN := map[int64]int{}
	for _, e := range entities {
		inVLAN[e.vlan]++
	}
	for pk, v := range source.Sorted(p.from.VLANs) {
		name := strings.TrimSpace(fmt.Sprintf("%d %s", v.ID, v.Name))
		if n := inVLAN[pk]; n > 0 {
			add(source.VLANKind, pk, name, "VLAN; its number is the vlan of the entities in its prefixes", fmt.Sprintf("%d entities", n))
		} else {
			add(source.VLANKind, pk, name, "VLAN without space; not imported, since a VLAN is a number of an entity", "")
		}
	}
	for pk, name := range source.Sorted(p.from.VRFs) {
		if groups := slices.Sorted(maps.Keys(p.groups[pk])); groups != nil {
			add(source.VRF, pk, name, "VRF; its space is in a group", strings.Join(groups, ", "))
		} else {
			add(source.VRF, pk, name, "VRF without space; not imported", "")
		}
	}
	for pk, name := range source.Sorted(p.from.Tenants) {
		if c := p.from.Customers[pk]; c != (source.Customer{}) {
			add(source.Tenant, pk, name, "tenant; owns its space as a client", c.Email)
		} else {
			add(source.Tenant, pk, name, "tenant that is not in the file of --clients; its space is reserved, or stock", "")
		}
	}
	addresses := map[int64][]string{}
	for _, a := range p.from.Addresses {
		for _, device := range a.Devices {
			addresses[device] = append(addresses[device], a.Span.From().String())
		}
	}
	for pk, name := range source.Sorted(p.from.Devices) {
		if used := addresses[pk]; used != nil {
			add(source.Device, pk, name, "device; named in the notes of its addresses", strings.Join(used, ", "))
		} else {
			add(source.Device, pk, name, "device without an address in the file; not imported", "")
		}
	}
	return others
}

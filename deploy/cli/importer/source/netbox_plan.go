package source

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
)

// machineOffset is added to the primary keys of virtual machines, which are devices of the plan, too.
const (
	machineOffset = 1 << 40
	machineModel  = "virtualization.virtualmachine"
)

// gatewayRoles are the roles of addresses that routers share as a gateway. Addresses with the roles "vip" and "anycast"
// are as often load balancers and name servers, so they do not count.
var gatewayRoles = []string{"vrrp", "hsrp", "glbp", "carp"}

// plan turns the export into an address plan.
func (d *netBox) plan() *Plan {
	p := newPlan("NetBox", netBoxModels)
	for pk, s := range d.sites {
		p.Sites[pk] = cmp.Or(strings.TrimSpace(s.Name), s.Slug, p.Source(Site, pk).String())
	}
	for pk, v := range d.vrfs {
		p.VRFs[pk] = strings.TrimSpace(v.Name)
	}
	for pk, v := range d.vlans {
		p.VLANs[pk] = VLAN{v.VID, v.Name}
	}
	for pk, t := range d.tenants {
		p.Tenants[pk] = t.Name
	}
	for pk, v := range d.devices {
		p.Devices[pk] = cmp.Or(v.Name, p.Source(Device, pk).String())
	}
	for pk, v := range d.machines {
		p.Devices[machineOffset+pk] = cmp.Or(v.Name, p.Source(Device, machineOffset+pk).String())
	}
	d.addPrefixes(p)
	for pk, r := range d.ranges {
		p.Ranges = append(p.Ranges, Space{
			Source: p.Source(Range, pk), Kind: Range, Span: r.span(), Bits: r.Start.Bits(), VRF: r.VRF, Tenant: r.Tenant,
			Status: r.Status, Nickname: r.Description, Details: []string{r.Description},
		})
	}
	d.addAddresses(p)
	p.finish()
	return p
}

func (d *netBox) addPrefixes(p *Plan) {
	tags := d.prefixTags()
	for pk, x := range d.prefixes {
		s := Space{
			Source: p.Source(Prefix, pk), Kind: Prefix, Span: netipx.RangeOfPrefix(x.Prefix), Bits: x.Prefix.Bits(),
			Site: x.site(), VRF: x.VRF, VLAN: x.VLAN, Tenant: x.Tenant, Status: cmp.Or(x.Status, statusActive),
			IsContainer: x.Status == "container", IsPool: x.IsPool, IsFull: x.MarkUtilized,
			Nickname: x.Description, Tags: tags[pk],
		}
		if role, ok := d.roles[x.Role]; ok {
			s.Role, s.Roles = cmp.Or(role.Name, role.Slug), []string{role.Slug, role.Name}
		}
		if x.Role != 0 {
			s.Roles = append(s.Roles, fmt.Sprint(x.Role))
		}
		s.Details = []string{x.Description}
		p.Prefixes = append(p.Prefixes, s)
	}
}

// prefixTags returns the tags of each prefix: their names and slugs.
func (d *netBox) prefixTags() map[int64][]string {
	tags := map[int64][]string{}
	for _, item := range Sorted(d.taggedItems) {
		if d.modelOf(item.ContentType) != netBoxModels[Prefix] {
			continue
		}
		for pk, tag := range Sorted(d.tags) {
			if pk == item.Tag.PK || item.Tag.Name != "" && tag.Name == item.Tag.Name {
				tags[item.ObjectID] = append(tags[item.ObjectID], tag.Slug, tag.Name)
			}
		}
		if item.Tag.Name != "" {
			tags[item.ObjectID] = append(tags[item.ObjectID], item.Tag.Name)
		}
	}
	return tags
}

// modelOf returns the name of a content type's model, such as dcim.interface.
func (d *netBox) modelOf(t netBoxContentType) string {
	if known, ok := d.contentTypes[t.PK]; ok && t.PK != 0 {
		t = known
	}
	return t.AppLabel + "." + t.Model
}

// addAddresses adds the addresses. The nickname is the DNS name, or the description.
func (d *netBox) addAddresses(p *Plan) {
	primary := map[int64][]int64{}
	for _, list := range []struct {
		devices map[int64]netBoxDevice
		offset  int64
	}{{d.devices, 0}, {d.machines, machineOffset}} {
		for pk, v := range Sorted(list.devices) {
			for _, address := range []int64{v.PrimaryIP4, v.PrimaryIP6} {
				primary[address] = append(primary[address], list.offset+pk)
			}
		}
	}
	for pk, a := range d.addresses {
		s := Space{
			Source: p.Source(Address, pk), Kind: Address, Span: SingleAddress(a.Address.Addr()), Bits: a.Address.Bits(),
			VRF: a.VRF, Tenant: a.Tenant, Status: a.Status, Role: a.Role, Nickname: cmp.Or(a.DNSName, a.Description),
			IsGateway: slices.Contains(gatewayRoles, a.Role) && a.Status != "deprecated",
		}
		if a.DNSName != "" {
			s.Details = append(s.Details, "dns "+a.DNSName)
		}
		s.Details = append(s.Details, a.Description)
		s.Devices = d.devicesOf(pk, a, primary)
		p.Addresses = append(p.Addresses, s)
	}
}

// devicesOf returns the devices that use an address: by one of their interfaces, or as their primary address.
func (d *netBox) devicesOf(pk int64, a netBoxAddress, primary map[int64][]int64) []int64 {
	used := map[int64]bool{}
	for _, device := range primary[pk] {
		used[device] = true
	}
	switch d.modelOf(a.AssignedType) {
	case "dcim.interface":
		used[d.interfaces[a.AssignedID].Device] = true
	case "virtualization.vminterface":
		used[machineOffset+d.ports[a.AssignedID].VirtualMachine] = true
	}
	delete(used, 0)
	delete(used, machineOffset)
	return slices.Sorted(maps.Keys(used))
}

// SingleAddress returns the range of one address.
func SingleAddress(a netip.Addr) netipx.IPRange { return netipx.IPRangeFrom(a, a) }

package rows

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"
)

// subnetSize is the number of entities in a subnet: a /24 and a /56. Each entity has a sixteenth of it.
const subnetSize = 16

// space allocates subnets: public ones once in the installation, private ones once in each group. Consecutive subnets are far
// apart, since a GiST index grows slowest with ascending addresses.
type space struct {
	public4, public6   uint32
	private4, private6 []uint32 // by the group's number
	publicBits         int      // in the number of a public subnet
}

// privateBits is the number of bits in the number of a subnet of 10.0.0.0/8.
const privateBits = 16

func newSpace(groups, entities int) *space {
	return &space{private4: make([]uint32, groups), private6: make([]uint32, groups), publicBits: bits.Len(uint(entities / subnetSize))}
}

// nextNumber returns the next number with this many bits. It returns each number once before it begins again.
func nextNumber(counter *uint32, bits int) uint32 {
	*counter++
	return *counter * 0x9e3779b1 & (1<<bits - 1)
}

// subnet is the space of the next entities of a group. An address is invalid if they do not have that family.
type subnet struct {
	group  int
	vlan   any
	v4, v6 netip.Addr // the first address
}

// next allocates a random subnet for a group: public or private, IPv4, IPv6 or both.
func (s *space) next(r *rand.Rand, group int) subnet {
	n := subnet{group: group}
	kind := r.IntN(100)
	switch {
	case kind < 58:
		n.v4 = v4At(0x17000000, nextNumber(&s.public4, s.publicBits)) // from 23.0.0.0 on
	case kind < 92:
		n.v4 = v4At(0x0a000000, nextNumber(&s.private4[group], privateBits)) // from 10.0.0.0 on
	}
	switch {
	case kind >= 54 && kind < 58, kind >= 92 && kind < 98:
		n.v6 = v6At(0x2a05<<48, nextNumber(&s.public6, s.publicBits)) // from 2a05:: on
	case kind >= 90:
		n.v6 = v6At(0xfd00<<48, nextNumber(&s.private6[group], privateBits)) // from fd00:: on
	}
	if r.IntN(10) < 7 {
		u := r.Float64()
		n.vlan = int32(2 + u*u*u*4092) // some VLANs are frequent, most are rare
	}
	return n
}

// v4At returns the first address of a /24 by its number after base.
func v4At(base, subnet uint32) netip.Addr {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], base+subnet<<8)
	return netip.AddrFrom4(a)
}

// v6At returns the first address of a /56 by its number after base.
func v6At(base uint64, subnet uint32) netip.Addr {
	var a [16]byte
	binary.BigEndian.PutUint64(a[:], base+uint64(subnet)<<8)
	return netip.AddrFrom16(a)
}

// v4Columns returns the columns v4_first, v4_last, v4_bits, v4_mask and v4_router of the subnet's entity in a slot.
func (n *subnet) v4Columns(r *rand.Rand, slot int) [5]any {
	if !n.v4.IsValid() {
		return [5]any{}
	}
	at := func(i int) netip.Addr {
		a := n.v4.As4()
		a[3] = byte(i)
		return netip.AddrFrom4(a)
	}
	from := slot * 16
	router := at(1)
	switch kind := r.IntN(100); {
	case kind < 85:
		address := at(from + 2 + r.IntN(13))
		return [5]any{address, address, nil, int16(24), router}
	case kind < 90:
		return [5]any{at(from + 2), at(from + 3 + r.IntN(12)), nil, int16(24), router}
	default:
		return [5]any{at(from + 8), at(from + 15), int16(29), nil, router}
	}
}

// v6Columns returns the columns v6_first, v6_last, v6_bits and v6_router of the subnet's entity in a slot.
func (n *subnet) v6Columns(r *rand.Rand, slot int) [4]any {
	if !n.v6.IsValid() {
		return [4]any{}
	}
	first := n.v6.As16()
	router := first
	router[15] = 1
	first[7] = byte(slot * 16)
	maxID := first
	if r.IntN(2) == 0 {
		first[15] = byte(2 + r.IntN(250))
		return [4]any{netip.AddrFrom16(first), netip.AddrFrom16(first), nil, netip.AddrFrom16(router)}
	}
	for i := 8; i < 16; i++ {
		maxID[i] = 0xff
	}
	return [4]any{netip.AddrFrom16(first), netip.AddrFrom16(maxID), int16(64), netip.AddrFrom16(router)}
}

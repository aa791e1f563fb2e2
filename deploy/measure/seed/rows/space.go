package rows

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"
)

// subnetSize is how many entities share a subnet: a /24 and a /56, in which each has a sixteenth for itself.
const subnetSize = 16

// space hands out subnets, none twice: public ones in the whole world, private ones in each group. Those of a moment lie
// far apart. Address after address would be the order in which a GiST index takes longest to grow.
type space struct {
	public4, public6   uint32
	private4, private6 []uint32 // by the group's number
	publicBits         int      // of the numbers of as many subnets as there can be
}

// privateBits are those of the number of a subnet in 10.0.0.0/8.
const privateBits = 16

func newSpace(groups, entities int) *space {
	return &space{private4: make([]uint32, groups), private6: make([]uint32, groups), publicBits: bits.Len(uint(entities / subnetSize))}
}

// take answers the next number of so many bits: each once, before the first comes again.
func take(counter *uint32, bits int) uint32 {
	*counter++
	return *counter * 0x9e3779b1 & (1<<bits - 1)
}

// subnet is where the next entities of a group lie. A family that they do not have is not valid.
type subnet struct {
	group  int
	vlan   any
	v4, v6 netip.Addr // the first address
}

func (s *space) next(r *rand.Rand, group int) subnet {
	n := subnet{group: group}
	kind := r.IntN(100)
	switch {
	case kind < 58:
		n.v4 = v4At(0x17000000, take(&s.public4, s.publicBits)) // from 23.0.0.0 on
	case kind < 92:
		n.v4 = v4At(0x0a000000, take(&s.private4[group], privateBits)) // from 10.0.0.0 on
	}
	switch {
	case kind >= 54 && kind < 58, kind >= 92 && kind < 98:
		n.v6 = v6At(0x2a05<<48, take(&s.public6, s.publicBits)) // from 2a05:: on
	case kind >= 90:
		n.v6 = v6At(0xfd00<<48, take(&s.private6[group], privateBits)) // from fd00:: on
	}
	if r.IntN(10) < 7 {
		u := r.Float64()
		n.vlan = int32(2 + u*u*u*4092) // some are everywhere, most are rare
	}
	return n
}

func v4At(base, subnet uint32) netip.Addr {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], base+subnet<<8)
	return netip.AddrFrom4(a)
}

func v6At(base uint64, subnet uint32) netip.Addr {
	var a [16]byte
	binary.BigEndian.PutUint64(a[:], base+uint64(subnet)<<8)
	return netip.AddrFrom16(a)
}

// v4Columns are the columns v4_first, v4_last, v4_bits, v4_mask and v4_router of the subnet's entity in a slot.
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

// v6Columns are the columns v6_first, v6_last, v6_bits and v6_router of the subnet's entity in a slot.
func (n *subnet) v6Columns(r *rand.Rand, slot int) [4]any {
	if !n.v6.IsValid() {
		return [4]any{}
	}
	first := n.v6.As16()
	router := first
	router[15] = 1
	first[7] = byte(slot * 16)
	last := first
	if r.IntN(2) == 0 {
		first[15] = byte(2 + r.IntN(250))
		return [4]any{netip.AddrFrom16(first), netip.AddrFrom16(first), nil, netip.AddrFrom16(router)}
	}
	for i := 8; i < 16; i++ {
		last[i] = 0xff
	}
	return [4]any{netip.AddrFrom16(first), netip.AddrFrom16(last), int16(64), netip.AddrFrom16(router)}
}

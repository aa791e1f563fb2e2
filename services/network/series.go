package network

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// longestSeries is how many entities one call can make.
const longestSeries = 1 << 16

// series is many entities of one size, side by side.
type series struct {
	span
	Increment     *int64  `json:"increment" min:"1" max:"9223372036854775807" doc:"addresses an entity: 1 makes addresses, more make ranges, or, of IPv6, prefixes; 1 where it is not sent" example:"1"`
	Length        *int32  `json:"length" min:"1" max:"128" doc:"instead of increment: makes prefixes of this length" example:"29"`
	Gateway       *string `json:"gateway" doc:"is made no entity itself" example:"192.0.2.1"`
	SubnetMask    *string `json:"subnet_mask" doc:"of the subnet that all lie in; its network and broadcast addresses are made no entities" example:"255.255.255.0"`
	All           bool    `json:"all" doc:"makes the network and broadcast addresses entities, too" example:"false"`
	VLAN          *int32  `json:"vlan" min:"1" max:"4094" example:"100"`
	VLANIncrement *int32  `json:"vlan_increment" min:"0" max:"4093" doc:"what each entity's VLAN is above that of the one before; 0 where it is not sent" example:"0"`

	step     *big.Int // addresses an entity
	bits     *int
	mask     *int
	gateway  *netip.Addr
	leftOut  []netip.Addr // which are made no entities
	howLarge string       // the member that is wrong where the size of an entity is

	firsts, lasts []netip.Addr
	vlans         []*int32
	runs          []netipx.IPRange // what the entities fill
}

// Resolve checks the members, and works out the entities.
func (s *series) Resolve(invalid *problem.Fields) {
	for _, check := range []func(*problem.Fields){s.readSpan, s.readSize, s.readSubnet, s.layOut, s.numberVLANs} {
		if check(invalid); len(*invalid) > 0 {
			return
		}
	}
}

func (s *series) readSpan(invalid *problem.Fields) {
	if s.read(invalid); len(*invalid) == 0 {
		s.family.checkSpace(s.where, s.first, s.last, invalid)
	}
}

func (s *series) readSize(invalid *problem.Fields) {
	s.howLarge, s.step = "/increment", big.NewInt(1)
	switch {
	case s.Length != nil && s.Increment != nil:
		invalid.Add("/length", "conflict", "cannot stand beside increment")
		return
	case s.Length != nil:
		length := int(*s.Length)
		s.howLarge = "/length"
		if length > s.family.bits {
			invalid.Add("/length", "out_of_range", "must be from 1 to %d", s.family.bits)
			return
		}
		s.bits = &length
	case s.Increment != nil:
		s.step.SetInt64(*s.Increment)
		if free := s.step.BitLen() - 1; s.family == v6 && free > 0 {
			if *s.Increment != 1<<free {
				invalid.Add("/increment", "invalid", "must be a power of two: IPv6 has no ranges, but prefixes")
				return
			}
			length := s.family.bits - free
			s.bits = &length
		}
	}
	if s.bits == nil {
		return
	}
	if netip.PrefixFrom(s.first, *s.bits).Masked().Addr() != s.first {
		invalid.Add(s.howLarge, "host_bits", "%s is not the first address of such a prefix", s.first)
	}
	s.step.Lsh(big.NewInt(1), uint(s.family.bits-*s.bits))
	if *s.bits == s.family.bits { // which is an address
		s.bits = nil
	}
}

func (s *series) readSubnet(invalid *problem.Fields) {
	var subnet netip.Prefix
	if s.SubnetMask != nil {
		if s.family == v6 || s.bits != nil {
			invalid.Add("/subnet_mask", "conflict", "is of IPv4 addresses and ranges alone")
			return
		}
		if s.mask = parseMask("/subnet_mask", *s.SubnetMask, invalid); s.mask == nil {
			return
		}
		if subnet = netip.PrefixFrom(s.first, *s.mask).Masked(); !subnet.Contains(s.last) {
			invalid.Add(s.where, "out_of_range", "lies outside the subnet %s", subnet)
		}
		if ends := netipx.RangeOfPrefix(subnet); !s.All && *s.mask < 31 { // a /31 has neither (RFC 3021)
			s.leaveOut(ends.From(), s.where, "makes a range with the network address %s, which all allows", invalid)
			s.leaveOut(ends.To(), s.where, "makes a range with the broadcast address %s, which all allows", invalid)
		}
	}
	if s.Gateway == nil {
		return
	}
	gateway, ok := s.family.parseAddress("/gateway", *s.Gateway, invalid)
	switch s.gateway = &gateway; {
	case !ok || gateway.IsLinkLocalUnicast() && s.family == v6:
	case s.bits != nil:
		invalid.Add("/gateway", "out_of_range", "lies outside of all prefixes but one")
	case subnet.IsValid() && !subnet.Contains(gateway):
		invalid.Add("/gateway", "out_of_range", "lies outside the subnet %s", subnet)
	default:
		s.leaveOut(gateway, "/gateway", "makes a range with the gateway %s", invalid)
	}
}

// leaveOut makes an address no entity. One that is not alone cannot be left out.
func (s *series) leaveOut(a netip.Addr, pointer, message string, invalid *problem.Fields) {
	if !s.contains(a) {
		return
	}
	if s.step.Cmp(big.NewInt(1)) > 0 {
		invalid.Add(pointer, "conflict", message, a)
	}
	s.leftOut = append(s.leftOut, a)
}

func (s *series) layOut(invalid *problem.Fields) {
	at, end := number(s.first), number(s.last)
	all := new(big.Int).Sub(end, at)
	all.Add(all, big.NewInt(1))
	count, over := new(big.Int).QuoRem(all, s.step, new(big.Int))
	if over.Sign() != 0 {
		invalid.Add(s.howLarge, "out_of_range", "does not divide the %s addresses", all)
		return
	}
	if count.Cmp(big.NewInt(longestSeries)) > 0 {
		invalid.Add(s.where, "out_of_range", "makes %s entities; one call makes at most %d", count, longestSeries)
		return
	}
	for at.Cmp(end) <= 0 {
		first := s.family.address(at)
		last := s.family.address(new(big.Int).Sub(at.Add(at, s.step), big.NewInt(1)))
		if slices.Contains(s.leftOut, first) {
			continue
		}
		if n := len(s.runs); n > 0 && s.runs[n-1].To().Next() == first {
			s.runs[n-1] = netipx.IPRangeFrom(s.runs[n-1].From(), last)
		} else {
			s.runs = append(s.runs, netipx.IPRangeFrom(first, last))
		}
		s.firsts, s.lasts = append(s.firsts, first), append(s.lasts, last)
	}
	if len(s.firsts) == 0 {
		invalid.Add(s.where, "conflict", "makes no entity: the gateway, network and broadcast addresses are left out")
	}
}

func (s *series) numberVLANs(invalid *problem.Fields) {
	s.vlans = make([]*int32, len(s.firsts))
	step := int32(0)
	if s.VLANIncrement != nil {
		step = *s.VLANIncrement
	}
	if s.VLAN == nil {
		if step > 0 {
			invalid.Add("/vlan", "required", "is required where vlan_increment is set")
		}
		return
	}
	if highest := int64(*s.VLAN) + int64(len(s.vlans)-1)*int64(step); highest > 4094 {
		invalid.Add("/vlan_increment", "out_of_range", "leads up to the VLAN %d; 4094 is the last", highest)
		return
	}
	for i := range s.vlans {
		s.vlans[i] = new(*s.VLAN + int32(i)*step)
	}
}

func number(a netip.Addr) *big.Int { return new(big.Int).SetBytes(a.AsSlice()) }

func (f *family) address(n *big.Int) netip.Addr {
	a, _ := netip.AddrFromSlice(n.FillBytes(make([]byte, f.bits/8)))
	return a
}

// mostTargets is how many of a series' entities stand in its record.
const mostTargets = 100

type seriesRequest struct {
	Group int64 `path:"*"`
	Body  rest.Body[series]
}

var entitySeries = rest.Mutation[seriesRequest, rest.Bulk]{
	Method:    http.MethodPost,
	Path:      "/group/{group_id}/entity/bulk",
	Guard:     guard.Has(permission.NetworkEntities),
	Name:      "createIPEntities",
	Summary:   "Create many IP entities side by side",
	Extension: true,
	Effect: rest.Effect{
		Logs:  rest.LogsSummary,
		Retry: rest.RetryRefused,
	},
	Example: `{"prefix": "198.51.100.0/28", "vlan": 7}`,
	Do:      createSeries,
}

func createSeries(ctx context.Context, tx *pg.Tx, req seriesRequest) (rest.Bulk, error) {
	var made rest.Bulk
	s, err := req.Body.New()
	if err != nil {
		return made, err
	}
	if err := tx.Lock(ctx, addressSpace, s.family.scope(s.first, req.Group)); err != nil {
		return made, err
	}
	var group rest.Ref
	if err := tx.QueryRow(ctx, "SELECT id, name FROM ip_group WHERE id = $1 FOR KEY SHARE", req.Group).
		Scan(&group.ID, &group.Name); err != nil {
		return made, err
	}
	for _, run := range s.runs {
		var invalid problem.Fields
		first, last := run.From(), run.To()
		err := s.family.inTheWay(ctx, tx, s.where, &first, &last, rest.RefID(req.Group), 0, &invalid)
		if err = errors.Join(err, invalid.Err()); err != nil {
			return made, err
		}
	}
	var some []int64
	err = tx.QueryRow(ctx, s.family.in(`
		WITH made AS (
			INSERT INTO ip_entity (group_id, vlan, {v}_first, {v}_last, {v}_bits, {v}_router, v4_mask)
			SELECT $1, vlan, first, last, $5, $6, $7
			FROM unnest($2::inet[], $3::inet[], $4::int[]) WITH ORDINALITY AS item (first, last, vlan, n) ORDER BY n
			RETURNING id)
		SELECT count(*), min(id), max(id), (array_agg(id ORDER BY id))[:$8] FROM made`),
		req.Group, s.firsts, s.lasts, s.vlans, s.bits, s.gateway, s.mask, mostTargets).Scan(&made.Count, &made.First, &made.Last, &some)
	if err != nil {
		return made, fmt.Errorf("create %d IP entities: %w", len(s.firsts), err)
	}
	entities, err := entityView.Some(ctx, tx, some)
	if err != nil {
		return made, fmt.Errorf("read what was created: %w", err)
	}
	record := pg.Record{Kind: "entity", Action: pg.Created, After: made}
	for i := range entities {
		record.Targets = append(record.Targets, entities[i].target())
	}
	tx.Record(record)
	return made, nil
}

package network

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/netip"
	"slices"

	"github.com/jackc/pgx/v5"
	"go4.org/netipx"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// maxSeries is the number of entities that one call can create.
const maxSeries = 1 << 16

// series is the body of a bulk creation: adjacent entities of one size.
type series struct {
	span
	Increment     *int64  `json:"increment" min:"1" max:"9223372036854775807" doc:"the number of addresses in each entity: 1 creates single addresses, more create ranges, or IPv6 prefixes; default 1" example:"1"`
	Length        *int32  `json:"length" min:"1" max:"128" doc:"instead of increment: create prefixes of this length" example:"29"`
	Gateway       *string `json:"gateway" doc:"the gateway of all entities; no entity is created for it" example:"192.0.2.1"`
	SubnetMask    *string `json:"subnet_mask" doc:"the mask of the subnet around all entities; default the prefix, if that is set. No entities are created for network and broadcast addresses." example:"255.255.255.0"`
	All           bool    `json:"all" doc:"create entities for the network and broadcast addresses and for gateways of other entities, too" example:"false"`
	VLAN          *int32  `json:"vlan" min:"1" max:"4094" example:"100"`
	VLANIncrement *int32  `json:"vlan_increment" min:"0" max:"4093" doc:"the difference between the VLANs of two adjacent entities; default 0" example:"0"`

	Status *string `json:"status" enum:"available,reserved" example:"available" doc:"the status of all entities; default available"`
	Note   *string `json:"note" max:"1000" lines:"true" doc:"why the entities are reserved, and until when"`

	step       *big.Int // addresses in each entity
	bits       *int
	mask       *int
	gateway    *netip.Addr
	excluded   map[netip.Addr]bool // addresses for which no entity is created
	sizeMember string              // the member that errors about the size of an entity name

	firstAddresses, lastAddresses []netip.Addr
	vlans                         []*int32
	runs                          []netipx.IPRange // the addresses of all entities
}

// Resolve checks the members, and computes the entities.
func (s *series) Resolve(invalid *problem.Fields) {
	if s.Note != nil && !s.isReserved() {
		invalid.Add("/note", "conflict", "can only be set where status is reserved")
	}
	s.excluded = map[netip.Addr]bool{}
	for _, check := range []func(*problem.Fields){s.readSpan, s.readSize, s.readSubnet, s.layOut, s.numberVLANs} {
		if check(invalid); len(*invalid) > 0 {
			return
		}
	}
}

// isReserved reports whether the entities are created with the status reserved.
func (s *series) isReserved() bool { return s.Status != nil && *s.Status == reserved }

func (s *series) readSpan(invalid *problem.Fields) {
	if s.read(invalid); len(*invalid) == 0 {
		s.family.checkSpace(s.spanMember, s.first, s.last, invalid)
	}
}

// readSize sets the size of each entity from the length or the increment.
func (s *series) readSize(invalid *problem.Fields) {
	s.sizeMember, s.step = "/increment", big.NewInt(1)
	switch {
	case s.Length != nil && s.Increment != nil:
		invalid.Add("/length", "conflict", "cannot be combined with increment")
		return
	case s.Length != nil:
		length := int(*s.Length)
		s.sizeMember = "/length"
		if length > s.family.bits {
			invalid.Add("/length", "out_of_range", "must be from 1 to %d", s.family.bits)
			return
		}
		s.bits = &length
	case s.Increment != nil:
		s.step.SetInt64(*s.Increment)
		if free := s.step.BitLen() - 1; s.family == v6 && free > 0 {
			if *s.Increment != 1<<free {
				invalid.Add("/increment", "invalid", "must be a power of two: IPv6 has prefixes instead of ranges")
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
		invalid.Add(s.sizeMember, "host_bits", "does not fit: %s is not the first address of such a prefix", s.first)
	}
	s.step.Lsh(big.NewInt(1), uint(s.family.bits-*s.bits))
	if *s.bits == s.family.bits { // a single address
		s.bits = nil
	}
}

// readSubnet sets the mask and the gateway, and excludes the addresses that they take from the series.
func (s *series) readSubnet(invalid *problem.Fields) {
	var subnet netip.Prefix
	if s.SubnetMask != nil {
		if s.family == v6 || s.bits != nil {
			invalid.Add("/subnet_mask", "conflict", "can only be set for IPv4 addresses and ranges")
			return
		}
		if s.mask = parseMask("/subnet_mask", *s.SubnetMask, invalid); s.mask == nil {
			return
		}
		if subnet = netip.PrefixFrom(s.first, *s.mask).Masked(); !subnet.Contains(s.last) {
			invalid.Add(s.spanMember, "out_of_range", "lies outside the subnet %s", subnet)
		}
		s.excludeEnds(subnet, invalid)
	} else if s.Prefix != nil && s.family == v4 && s.bits == nil {
		p, _ := netipx.IPRangeFrom(s.first, s.last).Prefix()
		s.excludeEnds(p, invalid)
	}
	if s.Gateway == nil {
		return
	}
	gateway, ok := s.family.parseAddress("/gateway", *s.Gateway, invalid)
	switch s.gateway = &gateway; {
	case !ok || gateway.IsLinkLocalUnicast() && s.family == v6:
	case s.bits != nil:
		invalid.Add("/gateway", "out_of_range", "cannot be set for several prefixes: it lies in one of them at most")
	case subnet.IsValid() && !subnet.Contains(gateway):
		invalid.Add("/gateway", "out_of_range", "lies outside the subnet %s", subnet)
	default:
		s.exclude(gateway, "/gateway", "lies inside a range: %s", invalid)
	}
}

// excludeEnds skips the network and broadcast addresses of a subnet. A /31 and a /32 have none (RFC 3021).
func (s *series) excludeEnds(subnet netip.Prefix, invalid *problem.Fields) {
	if ends := netipx.RangeOfPrefix(subnet); !s.All && subnet.Bits() < 31 {
		s.exclude(ends.From(), s.spanMember, "has a range with the network address %s: set all to create it", invalid)
		s.exclude(ends.To(), s.spanMember, "has a range with the broadcast address %s: set all to create it", invalid)
	}
}

// excludeGateways skips the gateways of the group's other entities. A prefix may have a gateway inside.
func (s *series) excludeGateways(ctx context.Context, tx *pg.Tx, group int64) error {
	if s.All || s.bits != nil {
		return nil
	}
	rows, err := tx.Query(
		ctx,
		s.family.writeSQL("SELECT DISTINCT {v}_router FROM ip_entity WHERE group_id = $1 AND {v}_router BETWEEN $2 AND $3"),
		group,
		s.first,
		s.last,
	)
	if err != nil {
		return fmt.Errorf("find gateways: %w", err)
	}
	gateways, err := pgx.CollectRows(rows, pgx.RowTo[netip.Addr])
	if err != nil || len(gateways) == 0 {
		return err
	}
	var invalid problem.Fields
	for _, gateway := range gateways {
		s.exclude(gateway, s.spanMember, "has a range with the gateway %s of another IP entity: set all to create it", &invalid)
	}
	if len(invalid) == 0 {
		s.layOut(&invalid)
	}
	if len(invalid) == 0 {
		s.numberVLANs(&invalid)
	}
	return invalid.Err()
}

// exclude skips the entity of an address. An address inside a larger entity cannot be skipped: that is an error.
func (s *series) exclude(a netip.Addr, pointer, message string, invalid *problem.Fields) {
	if !s.contains(a) {
		return
	}
	if s.step.Cmp(big.NewInt(1)) > 0 {
		invalid.Add(pointer, "conflict", message, a)
	}
	s.excluded[a] = true
}

// layOut computes the first and the last address of each entity, and the runs of addresses without a gap.
func (s *series) layOut(invalid *problem.Fields) {
	s.firstAddresses, s.lastAddresses, s.runs = nil, nil, nil
	at, end := number(s.first), number(s.last)
	all := new(big.Int).Sub(end, at)
	all.Add(all, big.NewInt(1))
	count, over := new(big.Int).QuoRem(all, s.step, new(big.Int))
	if over.Sign() != 0 {
		invalid.Add(s.sizeMember, "out_of_range", "must divide the number of addresses, %s", all)
		return
	}
	if count.Cmp(big.NewInt(maxSeries)) > 0 {
		invalid.Add(s.spanMember, "out_of_range", "has %s entities, but one call creates at most %d", count, maxSeries)
		return
	}
	for at.Cmp(end) <= 0 {
		first := s.family.addressAt(at)
		last := s.family.addressAt(new(big.Int).Sub(at.Add(at, s.step), big.NewInt(1)))
		if s.excluded[first] {
			continue
		}
		if n := len(s.runs); n > 0 && s.runs[n-1].To().Next() == first {
			s.runs[n-1] = netipx.IPRangeFrom(s.runs[n-1].From(), last)
		} else {
			s.runs = append(s.runs, netipx.IPRangeFrom(first, last))
		}
		s.firstAddresses, s.lastAddresses = append(s.firstAddresses, first), append(s.lastAddresses, last)
	}
	if len(s.firstAddresses) == 0 {
		invalid.Add(s.spanMember, "conflict", "has no address left: the gateway, network and broadcast addresses are left out")
	}
}

// numberVLANs computes the VLAN of each entity.
func (s *series) numberVLANs(invalid *problem.Fields) {
	s.vlans = make([]*int32, len(s.firstAddresses))
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
	if lastVLAN := int64(*s.VLAN) + int64(len(s.vlans)-1)*int64(step); lastVLAN > 4094 {
		invalid.Add("/vlan_increment", "out_of_range", "leads to VLAN %d, but VLANs end at 4094", lastVLAN)
		return
	}
	for i := range s.vlans {
		s.vlans[i] = new(*s.VLAN + int32(i)*step)
	}
}

func number(a netip.Addr) *big.Int { return new(big.Int).SetBytes(a.AsSlice()) }

func (f *family) addressAt(n *big.Int) netip.Addr {
	a, _ := netip.AddrFromSlice(n.FillBytes(make([]byte, f.bits/8)))
	return a
}

// maxTargets is the number of entities that the record of a bulk operation names.
const maxTargets = 100

// seriesRecord is the record of a bulk creation in the log.
type seriesRecord struct {
	rest.Bulk
	Status *string `json:"status,omitempty"`
	Note   *string `json:"note,omitempty"`
}

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
	var created rest.Bulk
	s, err := req.Body.New()
	if err != nil {
		return created, err
	}
	if err := tx.Lock(ctx, addressSpaceLock, s.family.scopeOf(s.first, req.Group)); err != nil {
		return created, err
	}
	var group rest.Ref
	if err := tx.QueryRow(ctx, "SELECT id, name FROM ip_group WHERE id = $1 FOR KEY SHARE", req.Group).
		Scan(&group.ID, &group.Name); err != nil {
		return created, err
	}
	if err := s.excludeGateways(ctx, tx, req.Group); err != nil {
		return created, err
	}
	for _, run := range s.runs {
		var invalid problem.Fields
		first, last := run.From(), run.To()
		err := s.family.findOverlap(ctx, tx, s.spanMember, &first, &last, rest.RefID(req.Group), 0, &invalid)
		if err = errors.Join(err, invalid.Err()); err != nil {
			return created, err
		}
	}
	ids, err := s.insert(ctx, tx, req.Group)
	if err != nil {
		return created, fmt.Errorf("create %d IP entities: %w", len(s.firstAddresses), err)
	}
	created = rest.Bulk{Count: len(ids), First: ids[0], Last: ids[len(ids)-1]}
	entities, err := entityView.GetMany(ctx, tx, ids[:min(len(ids), maxTargets)])
	if err != nil {
		return created, fmt.Errorf("read the created entities: %w", err)
	}
	record := pg.Record{Kind: "entity", Action: pg.Created, After: seriesRecord{created, s.Status, s.Note}}
	for i := range entities {
		record.Targets = append(record.Targets, entities[i].target())
	}
	tx.Record(record)
	return created, nil
}

// insert inserts the entities and returns their ids in ascending order.
func (s *series) insert(ctx context.Context, tx *pg.Tx, group int64) ([]int64, error) {
	rows, err := tx.Query(ctx, s.family.writeSQL(`
		INSERT INTO ip_entity (group_id, vlan, {v}_first, {v}_last, {v}_bits, {v}_router, v4_mask)
		SELECT $1, vlan, first, last, $5, $6, $7
		FROM unnest($2::inet[], $3::inet[], $4::int[]) WITH ORDINALITY AS item (first, last, vlan, n) ORDER BY n
		RETURNING id`), group, s.firstAddresses, s.lastAddresses, s.vlans, s.bits, s.gateway, s.mask)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err == nil && s.isReserved() {
		_, err = tx.Exec(ctx, "INSERT INTO ip_assignment (entity_id, group_id, note) SELECT unnest($1::bigint[]), $2, $3", ids, group, s.Note)
	}
	slices.Sort(ids)
	return ids, err
}

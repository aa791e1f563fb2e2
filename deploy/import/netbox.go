package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Models of NetBox that are read; records of others are passed over.
const (
	modelSite    = "dcim.site"
	modelVRF     = "ipam.vrf"
	modelVLAN    = "ipam.vlan"
	modelPrefix  = "ipam.prefix"
	modelRange   = "ipam.iprange"
	modelAddress = "ipam.ipaddress"
	modelTenant  = "tenancy.tenant"
)

// Source names a record of NetBox.
type Source struct {
	Model string
	PK    int64
}

func (s Source) String() string { return fmt.Sprintf("%s %d", s.Model, s.PK) }

// dump is a NetBox export: its records by primary key. A reference of 0 is one that is not set.
type dump struct {
	sites     map[int64]site
	vrfs      map[int64]vrf
	vlans     map[int64]vlan
	prefixes  map[int64]prefix
	ranges    map[int64]addressRange
	addresses map[int64]address
	tenants   map[int64]tenant
	customers map[int64]customer // that tenants become
}

type site struct {
	Name string `json:"name"`
	Slug string `json:"slug"`
}

type vrf struct {
	Name string `json:"name"`
}

type vlan struct {
	VID  int32  `json:"vid"`
	Name string `json:"name"`
}

type prefix struct {
	Tenant      int64        `json:"tenant"`
	Prefix      netip.Prefix `json:"prefix"`
	Site        int64        `json:"site"`
	ScopeSite   int64        `json:"_site"` // where NetBox 4.2 and later keep the site
	VRF         int64        `json:"vrf"`
	VLAN        int64        `json:"vlan"`
	Status      string       `json:"status"`
	Description string       `json:"description"`
}

func (p prefix) site() int64 { return cmp.Or(p.Site, p.ScopeSite) }

func (p prefix) isContainer() bool { return p.Status == "container" }

type addressRange struct {
	Tenant      int64        `json:"tenant"`
	Start       netip.Prefix `json:"start_address"`
	End         netip.Prefix `json:"end_address"`
	VRF         int64        `json:"vrf"`
	Description string       `json:"description"`
}

func (r addressRange) span() netipx.IPRange { return netipx.IPRangeFrom(r.Start.Addr(), r.End.Addr()) }

type address struct {
	Tenant      int64        `json:"tenant"`
	Address     netip.Prefix `json:"address"`
	VRF         int64        `json:"vrf"`
	Status      string       `json:"status"`
	Role        string       `json:"role"`
	DNSName     string       `json:"dns_name"`
	Description string       `json:"description"`
}

type tenant struct {
	Name string `json:"name"`
}

// readDump reads what `manage.py dumpdata` wrote. A record that cannot be understood, or that refers to one that
// is missing, could change where others belong, so it is an error that names it, not something to pass over.
func readDump(r io.Reader) (*dump, error) {
	d := &dump{
		sites: map[int64]site{}, vrfs: map[int64]vrf{}, vlans: map[int64]vlan{}, prefixes: map[int64]prefix{},
		ranges: map[int64]addressRange{}, addresses: map[int64]address{}, tenants: map[int64]tenant{}, customers: map[int64]customer{},
	}
	decoder := json.NewDecoder(r)
	if first, err := decoder.Token(); err != nil || first != json.Delim('[') {
		return nil, cmp.Or(err, errors.New("not a JSON array of records, as dumpdata writes it"))
	}
	var faults faultList
	for n := 1; decoder.More(); n++ {
		var record record
		if err := decoder.Decode(&record); err != nil {
			return nil, fmt.Errorf("record %d: %w", n, err)
		}
		if err := d.take(record); err != nil {
			faults.add("%s %s: %w", record.Model, record.PK, err)
		}
	}
	if _, err := decoder.Token(); err != nil {
		return nil, fmt.Errorf("the end of the array: %w", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("something follows the array of records")
	}
	d.check(&faults)
	return d, faults.err()
}

type record struct {
	Model  string          `json:"model"`
	PK     json.RawMessage `json:"pk"` // a number, except of some of the models that are passed over
	Fields json.RawMessage `json:"fields"`
}

func (d *dump) take(r record) error {
	switch r.Model {
	case modelSite:
		return keep(d.sites, r)
	case modelVRF:
		return keep(d.vrfs, r)
	case modelVLAN:
		return keep(d.vlans, r)
	case modelPrefix:
		return keep(d.prefixes, r)
	case modelRange:
		return keep(d.ranges, r)
	case modelAddress:
		return keep(d.addresses, r)
	case modelTenant:
		return keep(d.tenants, r)
	default:
		return nil
	}
}

func keep[T any](records map[int64]T, r record) error {
	var pk int64
	if err := json.Unmarshal(r.PK, &pk); err != nil || pk < 1 {
		return errors.New("has no number for a primary key")
	}
	if _, twice := records[pk]; twice {
		return errors.New("stands in the file twice")
	}
	var fields T
	if err := json.Unmarshal(r.Fields, &fields); err != nil {
		return err
	}
	records[pk] = fields
	return nil
}

// check finds what JSON alone does not: missing addresses, ranges that end before they start, open references.
func (d *dump) check(faults *faultList) {
	for pk, p := range ordered(d.prefixes) {
		source := Source{modelPrefix, pk}
		if !p.Prefix.IsValid() {
			faults.add("%s: has no prefix", source)
		}
		faults.addUnless(known(d.sites, p.site()), source, Source{modelSite, p.site()})
		faults.addUnless(known(d.vrfs, p.VRF), source, Source{modelVRF, p.VRF})
		faults.addUnless(known(d.vlans, p.VLAN), source, Source{modelVLAN, p.VLAN})
	}
	for pk, r := range ordered(d.ranges) {
		source := Source{modelRange, pk}
		if !r.span().IsValid() {
			faults.add("%s: does not run from a start_address up to an end_address", source)
		}
		faults.addUnless(known(d.vrfs, r.VRF), source, Source{modelVRF, r.VRF})
	}
	for pk, a := range ordered(d.addresses) {
		source := Source{modelAddress, pk}
		if !a.Address.IsValid() {
			faults.add("%s: has no address", source)
		}
		faults.addUnless(known(d.vrfs, a.VRF), source, Source{modelVRF, a.VRF})
	}
}

func known[T any](records map[int64]T, reference int64) bool {
	_, ok := records[reference]
	return ok || reference == 0
}

// ordered goes through records by primary key, so that the same file gives the same plan every time.
func ordered[T any](records map[int64]T) iter.Seq2[int64, T] {
	return func(yield func(int64, T) bool) {
		for _, pk := range slices.Sorted(maps.Keys(records)) {
			if !yield(pk, records[pk]) {
				return
			}
		}
	}
}

const shownFaults = 10

// faultList collects what is wrong with a file and shows the first of it.
type faultList struct {
	shown []error
	more  int
}

func (f *faultList) add(format string, args ...any) {
	if len(f.shown) == shownFaults {
		f.more++
		return
	}
	f.shown = append(f.shown, fmt.Errorf(format, args...))
}

func (f *faultList) addUnless(known bool, from, to Source) {
	if !known {
		f.add("%s: refers to %s, which is not in the file: export that model, too", from, to)
	}
}

func (f *faultList) err() error {
	if f.more > 0 {
		return errors.Join(append(f.shown, fmt.Errorf("and %d more", f.more))...)
	}
	return errors.Join(f.shown...)
}

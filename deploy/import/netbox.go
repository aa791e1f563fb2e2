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

// The models of NetBox that are imported. Records of other models are ignored.
const (
	modelSite    = "dcim.site"
	modelVRF     = "ipam.vrf"
	modelVLAN    = "ipam.vlan"
	modelPrefix  = "ipam.prefix"
	modelRange   = "ipam.iprange"
	modelAddress = "ipam.ipaddress"
	modelTenant  = "tenancy.tenant"
)

// Source identifies a record of NetBox by its model and primary key.
type Source struct {
	Model string
	PK    int64
}

func (s Source) String() string { return fmt.Sprintf("%s %d", s.Model, s.PK) }

// dump is a NetBox export: the records of each model by primary key. A reference of 0 means that none is set.
type dump struct {
	sites     map[int64]site
	vrfs      map[int64]vrf
	vlans     map[int64]vlan
	prefixes  map[int64]prefix
	ranges    map[int64]addressRange
	addresses map[int64]address
	tenants   map[int64]tenant
	customers map[int64]customer // the clients to create, by the tenant's primary key
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
	ScopeSite   int64        `json:"_site"` // the site's field in NetBox 4.2 and later
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

// readDump reads the output of `manage.py dumpdata`. It reports each record that it cannot read, or that refers to a
// missing record. It skips none of these, since a skipped prefix could put other records into the wrong group.
func readDump(r io.Reader) (*dump, error) {
	d := &dump{
		sites: map[int64]site{}, vrfs: map[int64]vrf{}, vlans: map[int64]vlan{}, prefixes: map[int64]prefix{},
		ranges: map[int64]addressRange{}, addresses: map[int64]address{}, tenants: map[int64]tenant{}, customers: map[int64]customer{},
	}
	decoder := json.NewDecoder(r)
	if first, err := decoder.Token(); err != nil || first != json.Delim('[') {
		return nil, cmp.Or(err, errors.New("the file is not a JSON array of records, as dumpdata writes it"))
	}
	var errs errorList
	for n := 1; decoder.More(); n++ {
		var record record
		if err := decoder.Decode(&record); err != nil {
			return nil, fmt.Errorf("record %d: %w", n, err)
		}
		if err := d.add(record); err != nil {
			errs.add("%s %s: %w", record.Model, record.PK, err)
		}
	}
	if _, err := decoder.Token(); err != nil {
		return nil, fmt.Errorf("read the end of the array: %w", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("the file goes on after the array of records")
	}
	d.check(&errs)
	return d, errs.err()
}

// record is one element of the export, with the fields not yet decoded.
type record struct {
	Model  string          `json:"model"`
	PK     json.RawMessage `json:"pk"` // a number, except in some of the ignored models
	Fields json.RawMessage `json:"fields"`
}

func (d *dump) add(r record) error {
	switch r.Model {
	case modelSite:
		return addRecord(d.sites, r)
	case modelVRF:
		return addRecord(d.vrfs, r)
	case modelVLAN:
		return addRecord(d.vlans, r)
	case modelPrefix:
		return addRecord(d.prefixes, r)
	case modelRange:
		return addRecord(d.ranges, r)
	case modelAddress:
		return addRecord(d.addresses, r)
	case modelTenant:
		return addRecord(d.tenants, r)
	default:
		return nil
	}
}

// addRecord decodes a record and adds it. It returns an error if the primary key is invalid or not unique.
func addRecord[T any](records map[int64]T, r record) error {
	var pk int64
	if err := json.Unmarshal(r.PK, &pk); err != nil || pk < 1 {
		return errors.New("the primary key is not a positive number")
	}
	if _, twice := records[pk]; twice {
		return errors.New("the file has this record twice")
	}
	var fields T
	if err := json.Unmarshal(r.Fields, &fields); err != nil {
		return err
	}
	records[pk] = fields
	return nil
}

// check finds errors that decoding JSON does not: missing addresses, ranges that end before they start, and references
// to missing records.
func (d *dump) check(errs *errorList) {
	for pk, p := range sorted(d.prefixes) {
		source := Source{modelPrefix, pk}
		if !p.Prefix.IsValid() {
			errs.add("%s: has no prefix", source)
		}
		errs.requireReference(isKnown(d.sites, p.site()), source, Source{modelSite, p.site()})
		errs.requireReference(isKnown(d.vrfs, p.VRF), source, Source{modelVRF, p.VRF})
		errs.requireReference(isKnown(d.vlans, p.VLAN), source, Source{modelVLAN, p.VLAN})
	}
	for pk, r := range sorted(d.ranges) {
		source := Source{modelRange, pk}
		if !r.span().IsValid() {
			errs.add("%s: start_address is not before end_address", source)
		}
		errs.requireReference(isKnown(d.vrfs, r.VRF), source, Source{modelVRF, r.VRF})
	}
	for pk, a := range sorted(d.addresses) {
		source := Source{modelAddress, pk}
		if !a.Address.IsValid() {
			errs.add("%s: has no address", source)
		}
		errs.requireReference(isKnown(d.vrfs, a.VRF), source, Source{modelVRF, a.VRF})
	}
}

// isKnown reports whether a reference is 0 or refers to one of the records.
func isKnown[T any](records map[int64]T, reference int64) bool {
	_, ok := records[reference]
	return ok || reference == 0
}

// sorted yields records by primary key, so that the same file gives the same plan every time.
func sorted[T any](records map[int64]T) iter.Seq2[int64, T] {
	return func(yield func(int64, T) bool) {
		for _, pk := range slices.Sorted(maps.Keys(records)) {
			if !yield(pk, records[pk]) {
				return
			}
		}
	}
}

const maxShownErrors = 10

// errorList collects the errors of a file, and keeps the first ten of them.
type errorList struct {
	shown []error
	more  int
}

func (f *errorList) add(format string, args ...any) {
	if len(f.shown) == maxShownErrors {
		f.more++
		return
	}
	f.shown = append(f.shown, fmt.Errorf(format, args...))
}

// requireReference adds an error unless the reference exists.
func (f *errorList) requireReference(exists bool, from, to Source) {
	if !exists {
		f.add("%s: refers to %s, which is not in the file; export that model, too", from, to)
	}
}

func (f *errorList) err() error {
	if f.more > 0 {
		return errors.Join(append(f.shown, fmt.Errorf("and %d more", f.more))...)
	}
	return errors.Join(f.shown...)
}

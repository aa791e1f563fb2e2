package source

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
	"strings"

	"go4.org/netipx"
)

// netBoxModels are the models that become something. Others serve these, or are ignored.
var netBoxModels = map[Kind]string{
	Range: "ipam.iprange", Address: "ipam.ipaddress", Prefix: "ipam.prefix", Site: "dcim.site", VRF: "ipam.vrf",
	VLANKind: "ipam.vlan", Tenant: "tenancy.tenant", Device: "dcim.device",
}

// netBox is a NetBox export: the records of each model by primary key. A reference of 0 means that none is set.
type netBox struct {
	sites        map[int64]netBoxSite
	vrfs         map[int64]netBoxNamed
	vlans        map[int64]netBoxVLAN
	prefixes     map[int64]netBoxPrefix
	ranges       map[int64]netBoxRange
	addresses    map[int64]netBoxAddress
	tenants      map[int64]netBoxNamed
	roles        map[int64]netBoxNamed
	devices      map[int64]netBoxDevice
	machines     map[int64]netBoxDevice
	interfaces   map[int64]netBoxInterface // of devices
	ports        map[int64]netBoxInterface // of virtual machines
	tags         map[int64]netBoxNamed
	taggedItems  map[int64]netBoxTaggedItem
	contentTypes map[int64]netBoxContentType
}

type netBoxSite struct {
	Name string `json:"name"`
	Slug string `json:"slug"`
}

type netBoxNamed struct {
	Name string `json:"name"`
	Slug string `json:"slug"`
}

type netBoxVLAN struct {
	VID  int32  `json:"vid"`
	Name string `json:"name"`
}

type netBoxPrefix struct {
	Tenant       int64        `json:"tenant"`
	Prefix       netip.Prefix `json:"prefix"`
	Site         int64        `json:"site"`
	ScopeSite    int64        `json:"_site"` // the site's field in NetBox 4.2 and later
	VRF          int64        `json:"vrf"`
	VLAN         int64        `json:"vlan"`
	Role         int64        `json:"role"`
	Status       string       `json:"status"`
	IsPool       bool         `json:"is_pool"`
	MarkUtilized bool         `json:"mark_utilized"`
	Description  string       `json:"description"`
}

func (p netBoxPrefix) site() int64 { return cmp.Or(p.Site, p.ScopeSite) }

type netBoxRange struct {
	Tenant      int64        `json:"tenant"`
	Start       netip.Prefix `json:"start_address"`
	End         netip.Prefix `json:"end_address"`
	VRF         int64        `json:"vrf"`
	Status      string       `json:"status"`
	Description string       `json:"description"`
}

func (r netBoxRange) span() netipx.IPRange { return netipx.IPRangeFrom(r.Start.Addr(), r.End.Addr()) }

type netBoxAddress struct {
	Tenant       int64             `json:"tenant"`
	Address      netip.Prefix      `json:"address"`
	VRF          int64             `json:"vrf"`
	Status       string            `json:"status"`
	Role         string            `json:"role"`
	DNSName      string            `json:"dns_name"`
	Description  string            `json:"description"`
	AssignedType netBoxContentType `json:"assigned_object_type"`
	AssignedID   int64             `json:"assigned_object_id"`
}

type netBoxDevice struct {
	Name       string `json:"name"`
	PrimaryIP4 int64  `json:"primary_ip4"`
	PrimaryIP6 int64  `json:"primary_ip6"`
}

type netBoxInterface struct {
	Device         int64 `json:"device"`
	VirtualMachine int64 `json:"virtual_machine"`
}

type netBoxTaggedItem struct {
	ContentType netBoxContentType `json:"content_type"`
	ObjectID    int64             `json:"object_id"`
	Tag         netBoxTagRef      `json:"tag"`
}

// netBoxContentType names a model. dumpdata writes its primary key, or with --natural-foreign its app and model.
type netBoxContentType struct {
	PK       int64  `json:"-"`
	AppLabel string `json:"app_label"`
	Model    string `json:"model"`
}

// UnmarshalJSON reads a record, a primary key, or an array of app and model.
func (t *netBoxContentType) UnmarshalJSON(text []byte) error {
	var names []string
	switch text[0] {
	case '{':
		type plain netBoxContentType
		return json.Unmarshal(text, (*plain)(t))
	case '[':
		err := json.Unmarshal(text, &names)
		if err == nil && len(names) == 2 {
			t.AppLabel, t.Model = names[0], names[1]
		}
		return err
	default:
		return json.Unmarshal(text, &t.PK)
	}
}

// netBoxTagRef names a tag by its primary key, or by its name.
type netBoxTagRef struct {
	PK   int64
	Name string
}

// UnmarshalJSON reads a primary key, or an array with a name.
func (t *netBoxTagRef) UnmarshalJSON(text []byte) error {
	if text[0] != '[' {
		return json.Unmarshal(text, &t.PK)
	}
	var names []string
	err := json.Unmarshal(text, &names)
	t.Name = strings.Join(names, " ")
	return err
}

// ReadNetBox reads the output of `manage.py dumpdata`. It reports each record that it cannot read, or that refers to a
// missing record. It skips none of these, since a skipped prefix could put other records into the wrong group.
func ReadNetBox(r io.Reader) (*Plan, error) {
	d := &netBox{
		sites: map[int64]netBoxSite{}, vrfs: map[int64]netBoxNamed{}, vlans: map[int64]netBoxVLAN{}, prefixes: map[int64]netBoxPrefix{},
		ranges: map[int64]netBoxRange{}, addresses: map[int64]netBoxAddress{}, tenants: map[int64]netBoxNamed{},
		roles: map[int64]netBoxNamed{}, devices: map[int64]netBoxDevice{}, machines: map[int64]netBoxDevice{},
		interfaces: map[int64]netBoxInterface{}, ports: map[int64]netBoxInterface{}, tags: map[int64]netBoxNamed{},
		taggedItems: map[int64]netBoxTaggedItem{}, contentTypes: map[int64]netBoxContentType{},
	}
	decoder := json.NewDecoder(r)
	if first, err := decoder.Token(); err != nil || first != json.Delim('[') {
		return nil, cmp.Or(err, errors.New("the file is not a JSON array of records, as dumpdata writes it"))
	}
	var errs errorList
	for n := 1; decoder.More(); n++ {
		var record netBoxRecord
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
	return d.plan(), errs.err()
}

// netBoxRecord is one element of the export, with the fields not yet decoded.
type netBoxRecord struct {
	Model  string          `json:"model"`
	PK     json.RawMessage `json:"pk"` // a number, except in some of the ignored models
	Fields json.RawMessage `json:"fields"`
}

func (d *netBox) add(r netBoxRecord) error {
	switch r.Model {
	case netBoxModels[Site]:
		return addRecord(d.sites, r)
	case netBoxModels[VRF]:
		return addRecord(d.vrfs, r)
	case netBoxModels[VLANKind]:
		return addRecord(d.vlans, r)
	case netBoxModels[Prefix]:
		return addRecord(d.prefixes, r)
	case netBoxModels[Range]:
		return addRecord(d.ranges, r)
	case netBoxModels[Address]:
		return addRecord(d.addresses, r)
	case netBoxModels[Tenant]:
		return addRecord(d.tenants, r)
	case netBoxModels[Device]:
		return addRecord(d.devices, r)
	case "ipam.role":
		return addRecord(d.roles, r)
	case "dcim.interface":
		return addRecord(d.interfaces, r)
	case machineModel:
		return addRecord(d.machines, r)
	case "virtualization.vminterface":
		return addRecord(d.ports, r)
	case "extras.tag":
		return addRecord(d.tags, r)
	case "extras.taggeditem":
		return addRecord(d.taggedItems, r)
	case "contenttypes.contenttype":
		return addRecord(d.contentTypes, r)
	default:
		return nil
	}
}

// addRecord decodes a record and adds it. It returns an error if the primary key is invalid or not unique.
func addRecord[T any](records map[int64]T, r netBoxRecord) error {
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
func (d *netBox) check(errs *errorList) {
	reference := func(kind Kind, pk int64) Source { return Source{netBoxModels[kind], pk} }
	for pk, p := range Sorted(d.prefixes) {
		source := reference(Prefix, pk)
		if !p.Prefix.IsValid() {
			errs.add("%s: has no prefix", source)
		}
		requireReference(errs, source, d.sites, reference(Site, p.site()))
		requireReference(errs, source, d.vrfs, reference(VRF, p.VRF))
		requireReference(errs, source, d.vlans, reference(VLANKind, p.VLAN))
	}
	for pk, r := range Sorted(d.ranges) {
		source := reference(Range, pk)
		if !r.span().IsValid() {
			errs.add("%s: start_address is not before end_address", source)
		}
		requireReference(errs, source, d.vrfs, reference(VRF, r.VRF))
	}
	for pk, a := range Sorted(d.addresses) {
		source := reference(Address, pk)
		if !a.Address.IsValid() {
			errs.add("%s: has no address", source)
		}
		requireReference(errs, source, d.vrfs, reference(VRF, a.VRF))
	}
}

// Sorted yields records by primary key, so that the same file gives the same plan every time.
func Sorted[T any](records map[int64]T) iter.Seq2[int64, T] {
	return func(yield func(int64, T) bool) {
		for _, pk := range slices.Sorted(maps.Keys(records)) {
			if !yield(pk, records[pk]) {
				return
			}
		}
	}
}

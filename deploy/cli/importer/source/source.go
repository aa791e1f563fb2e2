// Package source reads the address plans of other systems: NetBox, phpIPAM and CSV files.
package source

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
)

// Plan is an address plan as another system has it. A reference of 0 means that none is set.
type Plan struct {
	System    string // such as NetBox; begins notes and names of groups
	Sites     map[int64]string
	VRFs      map[int64]string
	VLANs     map[int64]VLAN
	Tenants   map[int64]string
	Devices   map[int64]string
	Prefixes  []Space
	Ranges    []Space
	Addresses []Space
	Customers map[int64]Customer // the clients of tenants, from the file of --clients
	models    map[Kind]string
}

// Kind is what a record describes.
type Kind int

// The kinds of records. Ranges, addresses and prefixes come in the order in which they get their space.
const (
	Range Kind = iota
	Address
	Prefix
	Site
	VRF
	VLANKind
	Tenant
	Device
)

// Source identifies a record by the name of its model and its primary key.
type Source struct {
	Model string
	PK    int64
}

func (s Source) String() string { return fmt.Sprintf("%s %d", s.Model, s.PK) }

// Source returns the name of a record.
func (p *Plan) Source(kind Kind, pk int64) Source {
	if pk > machineOffset {
		return Source{machineModel, pk - machineOffset}
	}
	return Source{p.models[kind], pk}
}

// VLAN is a number with a name.
type VLAN struct {
	ID   int32
	Name string
}

// Customer is the client of a tenant. The zero value means that the tenant becomes no client.
type Customer struct{ Email, First, Last string }

// Space is an address, a range or a prefix of the other system.
type Space struct {
	Source  Source
	Kind    Kind
	Span    netipx.IPRange
	Bits    int // length of the subnet's prefix, or of the prefix itself
	Site    int64
	VRF     int64
	VLAN    int64
	Tenant  int64
	Devices []int64

	Status      string // as the system calls it
	IsAvailable bool   // the system says that it is free
	IsContainer bool   // only holds smaller prefixes
	IsPool      bool   // all its addresses can be used, network and broadcast included
	IsFull      bool   // the system says that nothing in it is free
	IsGateway   bool
	Gateway     netip.Addr
	Nickname    string
	Role        string   // such as vrrp
	Roles, Tags []string // what --available can name
	Details     []string // for the note
}

// CanHoldStock reports whether free addresses of a range or a prefix may be given to clients.
func (s *Space) CanHoldStock() bool {
	return (s.Status == statusActive || s.IsAvailable) && !s.IsContainer && !s.IsFull
}

const statusActive = "active"

// Note says why the space is in use, such as "NetBox: active, dns fra1-web3, device fra1-s3".
func (p *Plan) Note(s *Space) string {
	parts := []string{cmp.Or(s.Status, "no status")}
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+value)
		}
	}
	add("role ", s.Role)
	for _, detail := range s.Details {
		add("", detail)
	}
	for _, device := range s.Devices {
		add("device ", p.Devices[device])
	}
	add("tenant ", p.Tenants[s.Tenant])
	return oneLine(p.NotePrefix()+strings.Join(parts, ", "), maxNote)
}

// NotePrefix begins the notes of this system. The import changes no reservation with another note.
func (p *Plan) NotePrefix() string { return p.System + ": " }

// The lengths of texts in the API, in characters.
const (
	maxNickname = 255
	maxNote     = 1000
)

// oneLine returns a text that fits into one line of CSV and into a member of the API.
func oneLine(text string, length int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > length {
		runes = append(runes[:length-1], '…')
	}
	return string(runes)
}

// finish brings texts and records into their final form.
func (p *Plan) finish() {
	for _, list := range [][]Space{p.Prefixes, p.Ranges, p.Addresses} {
		slices.SortFunc(list, func(a, b Space) int { return cmp.Compare(a.Source.PK, b.Source.PK) })
		for i := range list {
			list[i].Nickname = oneLine(list[i].Nickname, maxNickname)
			list[i].Status = strings.ToLower(strings.TrimSpace(list[i].Status))
		}
	}
}

func newPlan(system string, models map[Kind]string) *Plan {
	return &Plan{
		System: system, models: models, Sites: map[int64]string{}, VRFs: map[int64]string{}, VLANs: map[int64]VLAN{},
		Tenants: map[int64]string{}, Devices: map[int64]string{}, Customers: map[int64]Customer{},
	}
}

package source

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go4.org/netipx"
)

var phpIPAMModels = map[Kind]string{
	Range: "range", Address: "address", Prefix: "subnet", Site: "section", VRF: "vrf", VLANKind: "vlan", Tenant: "customer", Device: "device",
}

// phpIPAM holds the lists of phpIPAM's API that an import reads, each as the API returns it.
type phpIPAM struct {
	Sections  phpIPAMList[phpIPAMNamed]   `json:"sections"`
	Subnets   phpIPAMList[phpIPAMSubnet]  `json:"subnets"`
	Addresses phpIPAMList[phpIPAMAddress] `json:"addresses"`
	VLANs     phpIPAMList[phpIPAMVLAN]    `json:"vlan"`
	VRFs      phpIPAMList[phpIPAMVRF]     `json:"vrf"`
	Devices   phpIPAMList[phpIPAMNamed]   `json:"devices"`
	Customers phpIPAMList[phpIPAMNamed]   `json:"customers"`
	Tags      phpIPAMList[phpIPAMTag]     `json:"tags"`
}

// phpIPAMList reads an array, or an answer of the API with the array in data. Without items the API sends no array.
type phpIPAMList[T any] []T

// UnmarshalJSON reads either form.
func (l *phpIPAMList[T]) UnmarshalJSON(text []byte) error {
	if text[0] == '[' {
		return json.Unmarshal(text, (*[]T)(l))
	}
	var answer struct {
		Success phpIPAMBool     `json:"success"`
		Code    phpIPAMNumber   `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return err
	}
	switch {
	case answer.Data != nil && answer.Data[0] == '[':
		return json.Unmarshal(answer.Data, (*[]T)(l))
	case answer.Code == 404, bool(answer.Success):
		return nil
	default:
		return fmt.Errorf("phpIPAM answered %d %s", answer.Code, answer.Message)
	}
}

// phpIPAMNumber reads a number, or a text with one. Text without a number is 0.
type phpIPAMNumber int64

// UnmarshalJSON reads either form.
func (n *phpIPAMNumber) UnmarshalJSON(text []byte) error {
	digits := strings.Trim(string(text), `"`)
	if digits == "" || digits == "null" {
		return nil
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return fmt.Errorf("%s is not a number", text)
	}
	*n = phpIPAMNumber(v)
	return nil
}

// phpIPAMBool reads true, false, 1, 0, and these as texts.
type phpIPAMBool bool

// UnmarshalJSON reads all forms.
func (b *phpIPAMBool) UnmarshalJSON(text []byte) error {
	*b = phpIPAMBool(slices.Contains([]string{"1", "true"}, strings.Trim(string(text), `"`)))
	return nil
}

type phpIPAMNamed struct {
	ID       phpIPAMNumber `json:"id"`
	Name     string        `json:"name"`     // of a section
	Title    string        `json:"title"`    // of a customer
	Hostname string        `json:"hostname"` // of a device
}

type phpIPAMVLAN struct {
	ID     phpIPAMNumber `json:"vlanId"`
	OldID  phpIPAMNumber `json:"id"`
	Number phpIPAMNumber `json:"number"`
	Name   string        `json:"name"`
}

type phpIPAMVRF struct {
	ID    phpIPAMNumber `json:"vrfId"`
	OldID phpIPAMNumber `json:"id"`
	Name  string        `json:"name"`
}

type phpIPAMTag struct {
	ID   phpIPAMNumber `json:"id"`
	Type string        `json:"type"`
}

type phpIPAMSubnet struct {
	ID          phpIPAMNumber `json:"id"`
	Subnet      string        `json:"subnet"`
	Mask        phpIPAMNumber `json:"mask"`
	Section     phpIPAMNumber `json:"sectionId"`
	VRF         phpIPAMNumber `json:"vrfId"`
	VLAN        phpIPAMNumber `json:"vlanId"`
	Customer    phpIPAMNumber `json:"customer_id"`
	IsFolder    phpIPAMBool   `json:"isFolder"`
	IsFull      phpIPAMBool   `json:"isFull"`
	IsPool      phpIPAMBool   `json:"isPool"`
	Tag         phpIPAMNumber `json:"tag"`
	Description string        `json:"description"`
}

type phpIPAMAddress struct {
	ID          phpIPAMNumber `json:"id"`
	Subnet      phpIPAMNumber `json:"subnetId"`
	IP          string        `json:"ip"`
	IsGateway   phpIPAMBool   `json:"is_gateway"`
	Tag         phpIPAMNumber `json:"tag"`
	Device      phpIPAMNumber `json:"deviceId"`
	Customer    phpIPAMNumber `json:"customer_id"`
	Hostname    string        `json:"hostname"`
	Description string        `json:"description"`
}

// phpIPAMTags are the tags that every phpIPAM has.
var phpIPAMTags = map[phpIPAMNumber]string{1: "offline", 2: "used", 3: "reserved", 4: "dhcp"}

// ReadPHPIPAM reads a JSON object with the lists of phpIPAM's API. It reports each record that it cannot read.
func ReadPHPIPAM(from io.Reader) (*Plan, error) {
	var d phpIPAM
	decoder := json.NewDecoder(from)
	if err := decoder.Decode(&d); err != nil {
		return nil, fmt.Errorf("read the object with the lists of phpIPAM's API: %w", err)
	}
	if d.Subnets == nil {
		return nil, errors.New("the file has no subnets")
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("the file goes on after the object")
	}
	p := newPlan("phpIPAM", phpIPAMModels)
	for _, list := range []struct {
		from []phpIPAMNamed
		to   map[int64]string
	}{{d.Sections, p.Sites}, {d.Customers, p.Tenants}, {d.Devices, p.Devices}} {
		for _, item := range list.from {
			list.to[int64(item.ID)] = strings.TrimSpace(cmp.Or(item.Name, item.Title, item.Hostname, fmt.Sprintf("id %d", item.ID)))
		}
	}
	for _, v := range d.VLANs {
		p.VLANs[int64(cmp.Or(v.ID, v.OldID))] = VLAN{int32(v.Number), v.Name}
	}
	for _, v := range d.VRFs {
		p.VRFs[int64(cmp.Or(v.ID, v.OldID))] = v.Name
	}
	var errs errorList
	d.addAddresses(p, d.addSubnets(p, &errs), &errs)
	p.finish()
	return p, errs.err()
}

// addSubnets adds the subnets, and returns all of them by id. Folders only hold subnets.
func (d *phpIPAM) addSubnets(p *Plan, errs *errorList) map[phpIPAMNumber]*Space {
	subnets := map[phpIPAMNumber]*Space{}
	for _, x := range d.Subnets {
		source := p.Source(Prefix, int64(x.ID))
		if subnets[x.ID] != nil {
			errs.add("%s: the file has this record twice", source)
		}
		s := &Space{
			Source: source, Kind: Prefix, Bits: int(x.Mask), Site: int64(x.Section), VRF: int64(x.VRF), VLAN: int64(x.VLAN),
			Tenant: int64(x.Customer), Status: statusActive, IsPool: bool(x.IsPool), IsFull: bool(x.IsFull),
			Nickname: x.Description, Details: []string{x.Description},
		}
		subnets[x.ID] = s
		if x.IsFolder {
			continue
		}
		if x.Tag != 0 && x.Tag != 2 {
			s.Status = d.tag(x.Tag)
		}
		s.Tags = []string{d.tag(cmp.Or(x.Tag, 2))}
		address, err := netip.ParseAddr(x.Subnet)
		prefix, err2 := address.Prefix(int(x.Mask))
		if err := cmp.Or(err, err2); err != nil {
			errs.add("%s: %s/%d is not a prefix", source, x.Subnet, x.Mask)
			continue
		}
		s.Span = netipx.RangeOfPrefix(prefix)
		requireReference(errs, source, p.Sites, p.Source(Site, s.Site))
		requireReference(errs, source, p.VRFs, p.Source(VRF, s.VRF))
		requireReference(errs, source, p.VLANs, p.Source(VLANKind, s.VLAN))
		p.Prefixes = append(p.Prefixes, *s)
	}
	return subnets
}

// tag returns the name of a tag.
func (d *phpIPAM) tag(id phpIPAMNumber) string {
	for _, t := range d.Tags {
		if t.ID == id && t.Type != "" {
			return strings.ToLower(t.Type)
		}
	}
	return cmp.Or(phpIPAMTags[id], fmt.Sprintf("tag %d", id))
}

func (d *phpIPAM) addAddresses(p *Plan, subnets map[phpIPAMNumber]*Space, errs *errorList) {
	for _, a := range d.Addresses {
		source := p.Source(Address, int64(a.ID))
		address, err := netip.ParseAddr(a.IP)
		if err != nil {
			errs.add("%s: %q is not an address", source, a.IP)
			continue
		}
		subnet := subnets[a.Subnet]
		if subnet == nil {
			errs.add("%s: refers to %s, which is not in the file", source, p.Source(Prefix, int64(a.Subnet)))
			continue
		}
		s := Space{
			Source: source, Kind: Address, Span: SingleAddress(address), Bits: subnet.Bits, Site: subnet.Site, VRF: subnet.VRF,
			VLAN: subnet.VLAN, Tenant: int64(a.Customer), Status: d.tag(cmp.Or(a.Tag, 2)),
			IsGateway: bool(a.IsGateway), Nickname: cmp.Or(a.Hostname, a.Description),
		}
		if a.Hostname != "" {
			s.Details = append(s.Details, "dns "+a.Hostname)
		}
		s.Details = append(s.Details, a.Description)
		if a.Device != 0 {
			s.Devices = []int64{int64(a.Device)}
		}
		p.Addresses = append(p.Addresses, s)
	}
}

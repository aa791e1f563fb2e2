package dhcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
)

const (
	server6Port, client6Port = dhcpv6.DefaultServerPort, dhcpv6.DefaultClientPort
	// mostRelays is how many relay agents can be between a client and the server.
	mostRelays = 8
	preferred  = 255 // a client looks no further
)

// listenToClients6 is for clients on the interface, and switches there that add where they are. Packets that others have sent to their
// own servers on other interfaces arrive here, too.
func (s *Server) listenToClients6() (*net.UDPConn, error) {
	at, err := net.InterfaceByName(s.Interface)
	if err != nil {
		return nil, err
	}
	return net.ListenMulticastUDP("udp6", at, &net.UDPAddr{IP: dhcpv6.AllDHCPRelayAgentsAndServers, Port: server6Port, Zone: at.Name})
}

// listenToRelays6 is for relay agents in other networks, which are answered from the address that they ask.
func (s *Server) listenToRelays6() (*net.UDPConn, error) {
	beside := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) (err error) {
		failed := conn.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) })
		return errors.Join(failed, err)
	}}
	conn, err := beside.ListenPacket(context.Background(), "udp6", netip.AddrPortFrom(s.IPv6, server6Port).String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

// question6 is what a client asks by DHCPv6.
type question6 struct {
	*dhcpv6.Message
	client machine.Client
	class  string // PXEClient, HTTPClient, or nothing
	ipxe   bool
	relay  *dhcpv6.RelayMessage // the outermost; nil: none
	link   netip.Addr           // an address of the client's link
}

// Answer6 is what a packet is answered, and where it goes; nil: nothing.
func (s *Server) Answer6(packet []byte, from netip.AddrPort) (reply []byte, to netip.AddrPort) {
	q, ok := s.parse6(packet, from.Addr())
	if !ok {
		return nil, to
	}
	r := s.answer6(q)
	if r == nil {
		return nil, to
	}
	if q.relay == nil {
		return r.ToBytes(), netip.AddrPortFrom(from.Addr(), client6Port)
	}
	relayed, err := dhcpv6.NewRelayReplFromRelayForw(q.relay, r)
	if err != nil {
		return nil, to
	}
	return relayed.ToBytes(), netip.AddrPortFrom(from.Addr(), server6Port)
}

// parse6 reads a packet. ok: it is of a client with an Ethernet address, on this link or behind relay agents.
func (s *Server) parse6(packet []byte, from netip.Addr) (q *question6, ok bool) {
	p, err := dhcpv6.FromBytes(packet)
	if err != nil || from.IsLinkLocalUnicast() && from.Zone() != s.Interface {
		return nil, false
	}
	q = &question6{client: machine.Client{IPv6: true}, link: s.IPv6}
	var nearest *dhcpv6.RelayMessage // to the client
	for n := 0; p != nil && p.IsRelay(); n++ {
		relay, is := p.(*dhcpv6.RelayMessage)
		if !is || n == mostRelays || relay.MessageType != dhcpv6.MessageTypeRelayForward {
			return nil, false
		}
		if q.relay == nil {
			q.relay = relay
		}
		nearest, p = relay, relay.Options.RelayMessage()
		if link, _ := netip.AddrFromSlice(relay.LinkAddr); !link.IsUnspecified() {
			q.link = link
		}
	}
	if q.Message, ok = p.(*dhcpv6.Message); !ok {
		return nil, false
	}
	sender := from
	var mac net.HardwareAddr
	if nearest != nil {
		from, _ = netip.AddrFromSlice(nearest.PeerAddr)
		remote := nearest.Options.RemoteID()
		if remote == nil {
			remote = &dhcpv6.OptRemoteID{}
		}
		q.client.Port = portOf(nearest.Options.InterfaceID(), remote.RemoteID)
		if kind, told := nearest.Options.ClientLinkLayerAddress(); kind == iana.HWTypeEthernet {
			mac = told
		}
	}
	if !from.IsLinkLocalUnicast() {
		return nil, false
	}
	if mac == nil {
		mac = hardware(from, q.Options.ClientID())
	}
	if len(mac) != 6 || mac[0]&1 == 1 {
		return nil, false
	}
	for _, name := range q.Options.UserClasses() {
		q.ipxe = q.ipxe || string(name) == "iPXE"
	}
	for _, vendor := range q.Options.VendorClasses() {
		for _, text := range vendor.Data {
			if c := class(string(text)); c != "" {
				q.class = c
			}
		}
	}
	q.client.MAC, q.client.Boots = mac.String(), q.class != "" || q.ipxe
	if q.relay != nil && !sender.IsLinkLocalUnicast() && !s.isRelay(sender) {
		s.Machines.Relayed(q.client, sender)
		return nil, false
	}
	return q, true
}

// hardware is the Ethernet address that a client's own address is made of or, where it is made of none, its DUID.
func hardware(from netip.Addr, duid dhcpv6.DUID) net.HardwareAddr {
	if a := from.As16(); a[11] == 0xff && a[12] == 0xfe {
		return net.HardwareAddr{a[8] ^ 2, a[9], a[10], a[13], a[14], a[15]}
	}
	switch d := duid.(type) {
	case *dhcpv6.DUIDLL:
		if d.HWType == iana.HWTypeEthernet {
			return d.LinkLayerAddr
		}
	case *dhcpv6.DUIDLLT:
		if d.HWType == iana.HWTypeEthernet {
			return d.LinkLayerAddr
		}
	}
	return nil
}

// own is the address that a client makes itself of its link's prefix and its Ethernet address. ok: the link is the agent's, or that of
// the machine's IP entity: any other one only the relay agent says, and who says that he is one could name a link of his own.
func (s *Server) own(q *question6, lease machine.Lease) (own netip.Addr, ok bool) {
	const bits = 64
	known := netip.PrefixFrom(s.IPv6, bits).Masked().Contains(q.link) || lease.Address.IsValid() && lease.Address.Masked().Contains(q.link)
	mac, err := net.ParseMAC(q.client.MAC)
	if err != nil || !known {
		return own, false
	}
	a := q.link.As16()
	copy(a[8:], []byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
	return netip.AddrFrom16(a), true
}

// duid is the server's name, made of its address.
func (s *Server) duid() *dhcpv6.DUIDUUID {
	sum := sha256.Sum256([]byte("DHCPv6 server " + s.IPv6.String()))
	id := [16]byte(sum[:])
	const version, variant = 0x80, 0x80 // of RFC 9562: what it is made of is up to who makes it
	id[6], id[8] = id[6]&0x0f|version, id[8]&0x3f|variant
	return &dhcpv6.DUIDUUID{UUID: id}
}

// toUs tells whether a client names this server, or none where it may.
func (s *Server) toUs(q *question6) bool {
	mine, given := false, q.Options.ServerID()
	if given != nil {
		mine = bytes.Equal(given.ToBytes(), s.duid().ToBytes())
	}
	switch q.MessageType {
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRebind:
		return given == nil && q.Options.ClientID() != nil
	case dhcpv6.MessageTypeInformationRequest:
		return (given == nil || mine) && len(q.Options.IANA()) == 0
	}
	return mine && q.Options.ClientID() != nil
}

func (s *Server) answer6(q *question6) *dhcpv6.Message {
	if !s.toUs(q) || s.Proxy && q.MessageType != dhcpv6.MessageTypeInformationRequest {
		return nil
	}
	begins := q.MessageType == dhcpv6.MessageTypeSolicit || q.MessageType == dhcpv6.MessageTypeInformationRequest
	if begins && !s.Machines.Known(q.client) {
		return nil
	}
	lease, ok := s.Machines.Offered(q.client)
	if !ok {
		return nil
	}
	if q.MessageType == dhcpv6.MessageTypeInformationRequest {
		if own, ok := s.own(q, lease); q.client.Boots && (!ok || !s.Machines.Leased(q.client, own)) {
			return nil
		}
		return s.booting6(q, s.told(q, dhcpv6.MessageTypeReply, lease))
	}
	if !lease.Address.IsValid() {
		if q.MessageType == dhcpv6.MessageTypeRenew { // what this server gave it once
			return s.lease6(q, dhcpv6.MessageTypeReply, lease)
		}
		return nil
	}
	switch q.MessageType {
	case dhcpv6.MessageTypeSolicit:
		r := s.lease6(q, dhcpv6.MessageTypeAdvertise, lease)
		r.AddOption(dhcpv6.OptPreference(preferred))
		return r
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind:
		if len(q.Options.IANA()) == 0 || !s.Machines.Leased(q.client, lease.Address.Addr()) {
			return nil
		}
		return s.lease6(q, dhcpv6.MessageTypeReply, lease)
	case dhcpv6.MessageTypeConfirm:
		return s.confirm(q, lease)
	case dhcpv6.MessageTypeDecline:
		for _, a := range addresses(q) {
			s.Machines.Declined(q.client, a)
		}
		return s.status(q, iana.StatusSuccess)
	case dhcpv6.MessageTypeRelease: // the address stays the machine's
		return s.status(q, iana.StatusSuccess)
	}
	return nil
}

// addresses are those that a client has.
func addresses(q *question6) (all []netip.Addr) {
	for _, ia := range q.Options.IANA() {
		for _, a := range ia.Options.Addresses() {
			if address, ok := netip.AddrFromSlice(a.IPv6Addr); ok {
				all = append(all, address)
			}
		}
	}
	return all
}

// confirm says whether what a client has is still its own.
func (s *Server) confirm(q *question6, lease machine.Lease) *dhcpv6.Message {
	has := addresses(q)
	if len(has) == 0 {
		return nil
	}
	for _, a := range has {
		if a != lease.Address.Addr() {
			return s.status(q, iana.StatusNotOnLink)
		}
	}
	if !s.Machines.Leased(q.client, lease.Address.Addr()) {
		return nil
	}
	return s.status(q, iana.StatusSuccess)
}

// reply6 begins one.
func (s *Server) reply6(q *question6, kind dhcpv6.MessageType) *dhcpv6.Message {
	r := &dhcpv6.Message{MessageType: kind, TransactionID: q.TransactionID}
	if id := q.GetOneOption(dhcpv6.OptionClientID); id != nil {
		r.AddOption(id)
	}
	r.AddOption(dhcpv6.OptServerID(s.duid()))
	return r
}

func (s *Server) status(q *question6, code iana.StatusCode) *dhcpv6.Message {
	r := s.reply6(q, dhcpv6.MessageTypeReply)
	r.AddOption(&dhcpv6.OptStatusCode{StatusCode: code})
	return r
}

// told is a reply with what goes with an address.
func (s *Server) told(q *question6, kind dhcpv6.MessageType, lease machine.Lease) *dhcpv6.Message {
	r := s.reply6(q, kind)
	if len(lease.Nameservers) > 0 {
		servers := make([]net.IP, len(lease.Nameservers))
		for i, a := range lease.Nameservers {
			servers[i] = a.AsSlice()
		}
		r.AddOption(dhcpv6.OptDNS(servers...))
	}
	return r
}

// lease6 is a reply with an address for the first interface that is named, and none for others. What a client has instead it is to
// give up.
func (s *Server) lease6(q *question6, kind dhcpv6.MessageType, lease machine.Lease) *dhcpv6.Message {
	r := s.told(q, kind, lease)
	for i, asked := range q.Options.IANA() {
		ia := &dhcpv6.OptIANA{IaId: asked.IaId}
		if i == 0 && lease.Address.IsValid() {
			ia.T1, ia.T2 = lease.Time/2, lease.Time/5*4
			ia.Options.Add(has(lease.Address.Addr(), lease.Time))
		} else {
			ia.Options.Add(&dhcpv6.OptStatusCode{StatusCode: iana.StatusNoAddrsAvail})
		}
		if q.MessageType == dhcpv6.MessageTypeRenew || q.MessageType == dhcpv6.MessageTypeRebind {
			for _, a := range asked.Options.Addresses() {
				if address, ok := netip.AddrFromSlice(a.IPv6Addr); ok && (i > 0 || !lease.Address.IsValid() || address != lease.Address.Addr()) {
					ia.Options.Add(has(address, 0))
				}
			}
		}
		r.AddOption(ia)
	}
	return s.booting6(q, r)
}

func has(address netip.Addr, lifetime time.Duration) *dhcpv6.OptIAAddress {
	return &dhcpv6.OptIAAddress{IPv6Addr: address.AsSlice(), PreferredLifetime: lifetime, ValidLifetime: lifetime}
}

// booting6 adds what to boot: firmware iPXE, and iPXE a script that is made for this machine.
func (s *Server) booting6(q *question6, r *dhcpv6.Message) *dhcpv6.Message {
	switch {
	case !q.client.Boots:
	case q.ipxe:
		r.AddOption(dhcpv6.OptBootFileURL(s.IPv6URL + script))
	default:
		name := s.bootloader(q.client, q.Options.ArchTypes())
		if name == "" {
			break
		}
		if q.class == "HTTPClient" {
			vendor := q.Options.VendorClasses()[0]
			r.AddOption(&dhcpv6.OptVendorClass{EnterpriseNumber: vendor.EnterpriseNumber, Data: [][]byte{[]byte(q.class)}})
			r.AddOption(dhcpv6.OptBootFileURL(s.IPv6URL + "/" + name))
			break
		}
		r.AddOption(dhcpv6.OptBootFileURL("tftp://[" + s.IPv6.String() + "]/" + name))
	}
	return r
}

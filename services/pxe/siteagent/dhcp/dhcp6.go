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
	// maxRelayHops is the largest number of relay agents between a client and the server.
	maxRelayHops  = 8
	maxPreference = 255 // tells the client to wait for no other server
)

// listenToClients6 listens to clients on the interface, and to switches that add a client's port. The socket also receives packets
// that other interfaces received, which parse6 drops.
func (s *Server) listenToClients6() (*net.UDPConn, error) {
	iface, err := net.InterfaceByName(s.Interface)
	if err != nil {
		return nil, err
	}
	return net.ListenMulticastUDP("udp6", iface, &net.UDPAddr{IP: dhcpv6.AllDHCPRelayAgentsAndServers, Port: server6Port, Zone: iface.Name})
}

// listenToRelays6 listens to relay agents in other networks. Its replies come from the address that the relay agents send to.
func (s *Server) listenToRelays6() (*net.UDPConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) (err error) {
		failed := conn.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) })
		return errors.Join(failed, err)
	}}
	conn, err := config.ListenPacket(context.Background(), "udp6", netip.AddrPortFrom(s.IPv6, server6Port).String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

// request6 is a client's DHCPv6 message.
type request6 struct {
	*dhcpv6.Message
	client machine.Client
	class  string // PXEClient, HTTPClient or empty
	ipxe   bool
	relay  *dhcpv6.RelayMessage // the outermost; nil: none
	link   netip.Addr           // an address of the client's link
}

// Answer6 returns the reply to a packet and its destination, or nil for no reply.
func (s *Server) Answer6(packet []byte, from netip.AddrPort) (reply []byte, to netip.AddrPort) {
	req, ok := s.parse6(packet, from.Addr())
	if !ok {
		return nil, to
	}
	r := s.answer6(req)
	if r == nil {
		return nil, to
	}
	if req.relay == nil {
		return r.ToBytes(), netip.AddrPortFrom(from.Addr(), client6Port)
	}
	relayed, err := dhcpv6.NewRelayReplFromRelayForw(req.relay, r)
	if err != nil {
		return nil, to
	}
	return relayed.ToBytes(), netip.AddrPortFrom(from.Addr(), server6Port)
}

// parse6 parses a packet. ok is false unless it comes from an Ethernet client on this link or behind trusted relay agents.
func (s *Server) parse6(packet []byte, from netip.Addr) (req *request6, ok bool) {
	p, err := dhcpv6.FromBytes(packet)
	if err != nil || from.IsLinkLocalUnicast() && from.Zone() != s.Interface {
		return nil, false
	}
	req = &request6{client: machine.Client{IsIPv6: true}, link: s.IPv6}
	var nearest *dhcpv6.RelayMessage // the one nearest to the client
	for hops := 0; p != nil && p.IsRelay(); hops++ {
		relay, isRelay := p.(*dhcpv6.RelayMessage)
		if !isRelay || hops == maxRelayHops || relay.MessageType != dhcpv6.MessageTypeRelayForward {
			return nil, false
		}
		if req.relay == nil {
			req.relay = relay
		}
		nearest, p = relay, relay.Options.RelayMessage()
		if link, _ := netip.AddrFromSlice(relay.LinkAddr); !link.IsUnspecified() {
			req.link = link
		}
	}
	if req.Message, ok = p.(*dhcpv6.Message); !ok {
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
		req.client.Port = formatPort(nearest.Options.InterfaceID(), remote.RemoteID)
		if kind, linkAddress := nearest.Options.ClientLinkLayerAddress(); kind == iana.HWTypeEthernet {
			mac = linkAddress
		}
	}
	if !from.IsLinkLocalUnicast() {
		return nil, false
	}
	if mac == nil {
		mac = hardwareAddress(from, req.Options.ClientID())
	}
	if len(mac) != 6 || mac[0]&1 == 1 {
		return nil, false
	}
	for _, name := range req.Options.UserClasses() {
		req.ipxe = req.ipxe || string(name) == "iPXE"
	}
	for _, vendor := range req.Options.VendorClasses() {
		for _, text := range vendor.Data {
			if c := vendorClass(string(text)); c != "" {
				req.class = c
			}
		}
	}
	req.client.MAC, req.client.IsBooting = mac.String(), req.class != "" || req.ipxe
	if req.relay != nil && !sender.IsLinkLocalUnicast() && !s.isTrustedRelay(sender) {
		s.Machines.RefuseRelay(req.client, sender)
		return nil, false
	}
	return req, true
}

// hardwareAddress returns the Ethernet address in the client's link-local address or, if there is none, in its DUID.
func hardwareAddress(from netip.Addr, duid dhcpv6.DUID) net.HardwareAddr {
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

// ownAddress returns the address that a client forms from its link's prefix and its Ethernet address. ok is false unless the link
// is the agent's or that of the machine's IP entity. Any other link is known only from the relay agent, and anyone on the
// interface could claim to be one.
func (s *Server) ownAddress(req *request6, lease machine.Lease) (own netip.Addr, ok bool) {
	const bits = 64
	known := netip.PrefixFrom(s.IPv6, bits).Masked().Contains(req.link) || lease.Address.IsValid() && lease.Address.Masked().Contains(req.link)
	mac, err := net.ParseMAC(req.client.MAC)
	if err != nil || !known {
		return own, false
	}
	a := req.link.As16()
	copy(a[8:], []byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
	return netip.AddrFrom16(a), true
}

// serverDUID returns the server's DUID, which is derived from its address.
func (s *Server) serverDUID() *dhcpv6.DUIDUUID {
	sum := sha256.Sum256([]byte("DHCPv6 server " + s.IPv6.String()))
	id := [16]byte(sum[:])
	const version, variant = 0x80, 0x80 // of RFC 9562: a UUID with content of our own
	id[6], id[8] = id[6]&0x0f|version, id[8]&0x3f|variant
	return &dhcpv6.DUIDUUID{UUID: id}
}

// isForThisServer6 reports whether the client names this server, or no server where the message allows that.
func (s *Server) isForThisServer6(req *request6) bool {
	matches, serverID := false, req.Options.ServerID()
	if serverID != nil {
		matches = bytes.Equal(serverID.ToBytes(), s.serverDUID().ToBytes())
	}
	switch req.MessageType {
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRebind:
		return serverID == nil && req.Options.ClientID() != nil
	case dhcpv6.MessageTypeInformationRequest:
		return (serverID == nil || matches) && len(req.Options.IANA()) == 0
	}
	return matches && req.Options.ClientID() != nil
}

// answer6 returns the reply to a request, or nil.
func (s *Server) answer6(req *request6) *dhcpv6.Message {
	if !s.isForThisServer6(req) || s.Proxy && req.MessageType != dhcpv6.MessageTypeInformationRequest {
		return nil
	}
	isFirst := req.MessageType == dhcpv6.MessageTypeSolicit || req.MessageType == dhcpv6.MessageTypeInformationRequest
	if isFirst && !s.Machines.Admit(req.client) {
		return nil
	}
	lease, ok := s.Machines.FindLease(req.client)
	if !ok {
		return nil
	}
	if req.MessageType == dhcpv6.MessageTypeInformationRequest {
		if own, ok := s.ownAddress(req, lease); req.client.IsBooting && (!ok || !s.Machines.ConfirmLease(req.client, own)) {
			return nil
		}
		return s.addBootOptions6(req, s.configReply6(req, dhcpv6.MessageTypeReply, lease))
	}
	if !lease.Address.IsValid() {
		if req.MessageType == dhcpv6.MessageTypeRenew { // this server gave it the address earlier
			return s.leaseReply6(req, dhcpv6.MessageTypeReply, lease)
		}
		return nil
	}
	switch req.MessageType {
	case dhcpv6.MessageTypeSolicit:
		r := s.leaseReply6(req, dhcpv6.MessageTypeAdvertise, lease)
		r.AddOption(dhcpv6.OptPreference(maxPreference))
		return r
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind:
		if len(req.Options.IANA()) == 0 || !s.Machines.ConfirmLease(req.client, lease.Address.Addr()) {
			return nil
		}
		return s.leaseReply6(req, dhcpv6.MessageTypeReply, lease)
	case dhcpv6.MessageTypeConfirm:
		return s.confirm6(req, lease)
	case dhcpv6.MessageTypeDecline:
		for _, a := range clientAddresses(req) {
			s.Machines.DeclineLease(req.client, a)
		}
		return s.statusReply6(req, iana.StatusSuccess)
	case dhcpv6.MessageTypeRelease: // the machine keeps its address
		return s.statusReply6(req, iana.StatusSuccess)
	}
	return nil
}

// clientAddresses returns the addresses that the client says it has.
func clientAddresses(req *request6) (all []netip.Addr) {
	for _, ia := range req.Options.IANA() {
		for _, a := range ia.Options.Addresses() {
			if address, ok := netip.AddrFromSlice(a.IPv6Addr); ok {
				all = append(all, address)
			}
		}
	}
	return all
}

// confirm6 tells the client whether its addresses are still valid.
func (s *Server) confirm6(req *request6, lease machine.Lease) *dhcpv6.Message {
	assigned := clientAddresses(req)
	if len(assigned) == 0 {
		return nil
	}
	for _, a := range assigned {
		if a != lease.Address.Addr() {
			return s.statusReply6(req, iana.StatusNotOnLink)
		}
	}
	if !s.Machines.ConfirmLease(req.client, lease.Address.Addr()) {
		return nil
	}
	return s.statusReply6(req, iana.StatusSuccess)
}

// newReply6 returns a reply with both sides' DUIDs.
func (s *Server) newReply6(req *request6, kind dhcpv6.MessageType) *dhcpv6.Message {
	r := &dhcpv6.Message{MessageType: kind, TransactionID: req.TransactionID}
	if id := req.GetOneOption(dhcpv6.OptionClientID); id != nil {
		r.AddOption(id)
	}
	r.AddOption(dhcpv6.OptServerID(s.serverDUID()))
	return r
}

// statusReply6 returns a reply with only a status.
func (s *Server) statusReply6(req *request6, code iana.StatusCode) *dhcpv6.Message {
	r := s.newReply6(req, dhcpv6.MessageTypeReply)
	r.AddOption(&dhcpv6.OptStatusCode{StatusCode: code})
	return r
}

// configReply6 returns a reply with the DNS servers.
func (s *Server) configReply6(req *request6, kind dhcpv6.MessageType, lease machine.Lease) *dhcpv6.Message {
	r := s.newReply6(req, kind)
	if len(lease.Nameservers) > 0 {
		servers := make([]net.IP, len(lease.Nameservers))
		for i, a := range lease.Nameservers {
			servers[i] = a.AsSlice()
		}
		r.AddOption(dhcpv6.OptDNS(servers...))
	}
	return r
}

// leaseReply6 returns a reply with an address for the client's first interface, and none for others. It gives other addresses of
// the client a lifetime of 0, so that the client drops them.
func (s *Server) leaseReply6(req *request6, kind dhcpv6.MessageType, lease machine.Lease) *dhcpv6.Message {
	r := s.configReply6(req, kind, lease)
	for i, requested := range req.Options.IANA() {
		ia := &dhcpv6.OptIANA{IaId: requested.IaId}
		if i == 0 && lease.Address.IsValid() {
			ia.T1, ia.T2 = lease.TTL/2, lease.TTL/5*4
			ia.Options.Add(iaAddress(lease.Address.Addr(), lease.TTL))
		} else {
			ia.Options.Add(&dhcpv6.OptStatusCode{StatusCode: iana.StatusNoAddrsAvail})
		}
		if req.MessageType == dhcpv6.MessageTypeRenew || req.MessageType == dhcpv6.MessageTypeRebind {
			for _, a := range requested.Options.Addresses() {
				if address, ok := netip.AddrFromSlice(a.IPv6Addr); ok && (i > 0 || !lease.Address.IsValid() || address != lease.Address.Addr()) {
					ia.Options.Add(iaAddress(address, 0))
				}
			}
		}
		r.AddOption(ia)
	}
	return s.addBootOptions6(req, r)
}

func iaAddress(address netip.Addr, lifetime time.Duration) *dhcpv6.OptIAAddress {
	return &dhcpv6.OptIAAddress{IPv6Addr: address.AsSlice(), PreferredLifetime: lifetime, ValidLifetime: lifetime}
}

// addBootOptions6 adds what to boot: iPXE for firmware, and the machine's script for iPXE.
func (s *Server) addBootOptions6(req *request6, r *dhcpv6.Message) *dhcpv6.Message {
	switch {
	case !req.client.IsBooting:
	case req.ipxe:
		r.AddOption(dhcpv6.OptBootFileURL(s.IPv6URL + scriptPath))
	default:
		name := s.bootloaderFor(req.client, req.Options.ArchTypes())
		if name == "" {
			break
		}
		if req.class == "HTTPClient" {
			vendor := req.Options.VendorClasses()[0]
			r.AddOption(&dhcpv6.OptVendorClass{EnterpriseNumber: vendor.EnterpriseNumber, Data: [][]byte{[]byte(req.class)}})
			r.AddOption(dhcpv6.OptBootFileURL(s.IPv6URL + "/" + name))
			break
		}
		r.AddOption(dhcpv6.OptBootFileURL("tftp://[" + s.IPv6.String() + "]/" + name))
	}
	return r
}

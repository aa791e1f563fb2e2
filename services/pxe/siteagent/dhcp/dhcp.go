// Package dhcp serves DHCP to machines that boot: addresses and what to boot, or only the latter as a proxy beside another server.
package dhcp

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
)

const (
	serverPort, clientPort = dhcpv4.ServerPort, dhcpv4.ClientPort
	// ProxyPort is the port for requests to a proxy.
	ProxyPort     = 4011
	maxPacketSize = 4096
)

// Settings are the operator's settings.
type Settings struct {
	Interface string         // the machines' network interface
	Proxy     bool           // offer what to boot, and no addresses
	Server    netip.Addr     // the agent's own IPv4 address, for TFTP too
	IPv6      netip.Addr     // the agent's own IPv6 address; invalid: no DHCPv6
	URL       string         // the base URL of the agent for machines
	IPv6URL   string         // the base URL for machines without IPv4
	Relays    []netip.Prefix // the source addresses of trusted relay agents
}

// Server answers DHCP and DHCPv6.
type Server struct {
	Settings
	Machines *machine.Machines
	Log      *slog.Logger
}

// Run answers requests until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var answering sync.WaitGroup
	defer answering.Wait()
	for _, socket := range s.sockets() {
		conn, err := socket.listen()
		if err != nil {
			err = fmt.Errorf("listen for DHCP: %w", err)
			cancel(err)
			return err
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		answering.Go(func() {
			defer stop()
			cancel(s.serve(conn, socket.answer))
		})
	}
	answering.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// socket is an address to listen at, and the function that answers its packets.
type socket struct {
	listen func() (*net.UDPConn, error)
	answer answerFunc
}

// answerFunc returns the reply to a packet and its destination, or nil for no reply.
type answerFunc func(packet []byte, from netip.AddrPort) (reply []byte, to netip.AddrPort)

// sockets returns the sockets that the settings ask for.
func (s *Server) sockets() (all []socket) {
	ports := []int{serverPort}
	if s.Proxy {
		ports = append(ports, ProxyPort)
	}
	for _, port := range ports {
		all = append(all, socket{func() (*net.UDPConn, error) {
			return server4.NewIPv4UDPConn(s.Interface, &net.UDPAddr{Port: port})
		}, func(packet []byte, from netip.AddrPort) ([]byte, netip.AddrPort) { return s.Answer(packet, from, port) }})
	}
	if s.IPv6.IsValid() {
		all = append(all, socket{s.listenToClients6, s.Answer6}, socket{s.listenToRelays6, s.Answer6})
	}
	return all
}

// serve answers packets one after the other. The kernel drops what arrives faster than that.
func (s *Server) serve(conn *net.UDPConn, answer answerFunc) error {
	packet := make([]byte, maxPacketSize)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(packet)
		if err != nil {
			return fmt.Errorf("read DHCP: %w", err)
		}
		reply, to := answer(packet[:n], netip.AddrPortFrom(from.Addr().Unmap(), from.Port()))
		if reply == nil {
			continue
		}
		if _, err := conn.WriteToUDPAddrPort(reply, to); err != nil {
			s.Log.Warn("send DHCP reply failed", "to", to, "error", err)
		}
	}
}

// request is a client's DHCP message.
type request struct {
	*dhcpv4.DHCPv4
	client machine.Client
	class  string // PXEClient, HTTPClient or empty
	ipxe   bool
	port   int // the server's port that received it
}

// Answer returns the reply to a packet and its destination, or nil for no reply.
func (s *Server) Answer(packet []byte, from netip.AddrPort, port int) (reply []byte, to netip.AddrPort) {
	req, ok := s.parse(packet, from.Addr())
	if !ok {
		return nil, to
	}
	req.port = port
	r := s.answer(req)
	if r == nil {
		return nil, to
	}
	return r.ToBytes(), replyAddress(req, r, from)
}

// replyAddress returns the destination of a reply: the relay agent, the client's own address, or broadcast.
func replyAddress(req *request, r *dhcpv4.DHCPv4, from netip.AddrPort) netip.AddrPort {
	switch relay, clientAddress := toAddr(req.GatewayIPAddr), toAddr(req.ClientIPAddr); {
	case relay.IsValid():
		return netip.AddrPortFrom(relay, serverPort)
	case req.port == ProxyPort:
		return from
	case clientAddress.IsValid() && r.MessageType() != dhcpv4.MessageTypeNak:
		return netip.AddrPortFrom(clientAddress, clientPort)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), clientPort)
}

// isTrustedRelay reports whether an address belongs to a relay agent that the operator trusts.
func (s *Server) isTrustedRelay(from netip.Addr) bool {
	return slices.ContainsFunc(s.Relays, func(p netip.Prefix) bool { return p.Contains(from) })
}

// parse parses a packet. ok is false unless it is a request of an Ethernet client, sent by the client itself or a trusted relay
// agent. It believes the client's port only from a relay agent, or from a switch that adds it before the client has an address.
func (s *Server) parse(packet []byte, from netip.Addr) (req *request, ok bool) {
	p, err := dhcpv4.FromBytes(packet)
	if err != nil || p.OpCode != dhcpv4.OpcodeBootRequest || p.HWType != iana.HWTypeEthernet || len(p.ClientHWAddr) != 6 ||
		p.ClientHWAddr[0]&1 == 1 {
		return nil, false
	}
	req = &request{DHCPv4: p, ipxe: isIPXE(p)}
	req.class = vendorClass(p.ClassIdentifier())
	req.client = machine.Client{MAC: p.ClientHWAddr.String(), IsBooting: req.class != "" || req.ipxe, Subnet: toAddr(p.GatewayIPAddr)}
	if req.client.Subnet.IsValid() && !s.isTrustedRelay(from) {
		s.Machines.RefuseRelay(req.client, from)
		return nil, false
	}
	if info := p.RelayAgentInfo(); info != nil && (from.IsUnspecified() || s.isTrustedRelay(from)) {
		req.client.Port = formatPort(info.Get(dhcpv4.AgentCircuitIDSubOption), info.Get(dhcpv4.AgentRemoteIDSubOption))
		if link := info.Get(dhcpv4.LinkSelectionSubOption); len(link) == 4 {
			req.client.Subnet = toAddr(link)
		}
	}
	req.client.IsRenewal = toAddr(p.ClientIPAddr).IsValid() && req.client.Port == "" && !req.client.Subnet.IsValid()
	return req, true
}

// vendorClass returns the kind of firmware that a vendor class begins with, or "".
func vendorClass(text string) string {
	for _, class := range []string{"PXEClient", "HTTPClient"} {
		if strings.HasPrefix(text, class) {
			return class
		}
	}
	return ""
}

// isIPXE reports whether the client is iPXE. iPXE sends its user class as plain text, against RFC 3004; others send a length
// first.
func isIPXE(p *dhcpv4.DHCPv4) bool {
	class := p.Options.Get(dhcpv4.OptionUserClassInformation)
	return string(class) == "iPXE" || slices.Contains(p.UserClass(), "iPXE")
}

// formatPort joins the circuit and the switch that a relay agent names.
func formatPort(circuit, remote []byte) string {
	var parts []string
	for _, part := range [][]byte{circuit, remote} {
		if len(part) > 0 {
			parts = append(parts, printable(part))
		}
	}
	return strings.Join(parts, " of ")
}

// printable returns the bytes as text if they are printable ASCII, or in hexadecimal digits.
func printable(b []byte) string {
	for _, c := range b {
		if c <= ' ' || c > '~' {
			return hex.EncodeToString(b)
		}
	}
	return string(b)
}

// toAddr returns an IPv4 address, or an invalid one if ip is missing or 0.0.0.0.
func toAddr(ip net.IP) netip.Addr {
	a, ok := netip.AddrFromSlice(ip.To4())
	if !ok || a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// answer returns the reply to a request, or nil.
func (s *Server) answer(req *request) *dhcpv4.DHCPv4 {
	if s.Proxy {
		return s.answerProxy(req)
	}
	switch req.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		if !s.Machines.Admit(req.client) {
			return nil
		}
		lease, ok := s.Machines.FindLease(req.client)
		if !ok || !lease.Address.IsValid() {
			return nil
		}
		return s.leaseReply(req, dhcpv4.MessageTypeOffer, lease)
	case dhcpv4.MessageTypeRequest:
		return s.answerRequest(req)
	case dhcpv4.MessageTypeDecline:
		if a := toAddr(req.RequestedIPAddress()); a.IsValid() && s.isForThisServer(req) {
			s.Machines.DeclineLease(req.client, a)
		}
	case dhcpv4.MessageTypeInform:
		if lease, ok := s.Machines.FindLease(req.client); ok && lease.Address.IsValid() {
			lease.TTL = 0
			return s.leaseReply(req, dhcpv4.MessageTypeAck, lease)
		}
	}
	return nil
}

// isForThisServer reports whether the client names this server, or no server.
func (s *Server) isForThisServer(req *request) bool {
	id := toAddr(req.ServerIdentifier())
	return !id.IsValid() || id == s.Server
}

// answerRequest confirms the address that a client requests. It refuses any other than the client's own.
func (s *Server) answerRequest(req *request) *dhcpv4.DHCPv4 {
	if !s.isForThisServer(req) {
		return nil
	}
	requested := toAddr(req.RequestedIPAddress())
	if !requested.IsValid() {
		requested = toAddr(req.ClientIPAddr)
	}
	lease, ok := s.Machines.FindLease(req.client)
	if !ok {
		return nil
	}
	if lease.Address.Addr() != requested {
		r := s.newReply(req, dhcpv4.MessageTypeNak)
		r.SetBroadcast() // or a relay agent would send it to an address that the client does not have
		return r
	}
	if !s.Machines.ConfirmLease(req.client, requested) {
		return nil
	}
	return s.leaseReply(req, dhcpv4.MessageTypeAck, lease)
}

// answerProxy answers with what to boot, and notes which address the machine requests from the other server.
func (s *Server) answerProxy(req *request) *dhcpv4.DHCPv4 {
	switch req.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		if req.client.IsBooting && s.Machines.Admit(req.client) {
			return s.addBootOptions(req, s.newReply(req, dhcpv4.MessageTypeOffer))
		}
	case dhcpv4.MessageTypeRequest:
		clientAddress := toAddr(req.RequestedIPAddress())
		if !clientAddress.IsValid() {
			clientAddress = toAddr(req.ClientIPAddr)
		}
		if !clientAddress.IsValid() || !s.Machines.ConfirmLease(req.client, clientAddress) || !req.client.IsBooting ||
			req.port == serverPort && toAddr(req.ServerIdentifier()) != s.Server {
			return nil
		}
		return s.addBootOptions(req, s.newReply(req, dhcpv4.MessageTypeAck))
	}
	return nil
}

// newReply returns a reply with the options that relay agents and clients expect back.
func (s *Server) newReply(req *request, kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	r := &dhcpv4.DHCPv4{
		HopCount:      0,
		YourIPAddr:    net.IPv4zero,
		ServerIPAddr:  net.IPv4zero,
		ClientIPAddr:  net.IPv4zero,
		GatewayIPAddr: req.GatewayIPAddr,
		Options:       dhcpv4.Options{},
	}
	for _, modify := range []dhcpv4.Modifier{
		dhcpv4.WithReply(req.DHCPv4), dhcpv4.WithMessageType(kind), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(s.Server.AsSlice())),
		dhcpv4.WithOptionCopied(req.DHCPv4, dhcpv4.OptionRelayAgentInformation),
		dhcpv4.WithOptionCopied(req.DHCPv4, dhcpv4.OptionClientIdentifier),
		dhcpv4.WithOptionCopied(req.DHCPv4, dhcpv4.OptionClientMachineIdentifier),
	} {
		modify(r)
	}
	if kind == dhcpv4.MessageTypeAck {
		r.ClientIPAddr = req.ClientIPAddr
	}
	return r
}

// leaseReply returns a reply with an address and its network settings.
func (s *Server) leaseReply(req *request, kind dhcpv4.MessageType, lease machine.Lease) *dhcpv4.DHCPv4 {
	r := s.newReply(req, kind)
	if lease.TTL > 0 {
		r.YourIPAddr = lease.Address.Addr().AsSlice()
		r.UpdateOption(dhcpv4.OptIPAddressLeaseTime(lease.TTL))
	}
	r.UpdateOption(dhcpv4.OptSubnetMask(net.CIDRMask(lease.Address.Bits(), 32)))
	if lease.Gateway.IsValid() {
		r.UpdateOption(dhcpv4.OptRouter(lease.Gateway.AsSlice()))
	}
	if len(lease.Nameservers) > 0 {
		servers := make([]net.IP, len(lease.Nameservers))
		for i, a := range lease.Nameservers {
			servers[i] = a.AsSlice()
		}
		r.UpdateOption(dhcpv4.OptDNS(servers...))
	}
	name, domain, _ := strings.Cut(lease.Hostname, ".")
	if name != "" {
		r.UpdateOption(dhcpv4.OptHostName(name))
	}
	if domain != "" {
		r.UpdateOption(dhcpv4.OptDomainName(domain))
	}
	return s.addBootOptions(req, r)
}

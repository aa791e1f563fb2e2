package dhcp_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/dhcp"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
)

// A relay agent gets back what it sent. At another port than the one where it got its script, a machine gets no reply.
func TestRelay(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, machine.Settings{}, false)
	relayed := func(port string) dhcpv4.Modifier {
		return func(p *dhcpv4.DHCPv4) {
			p.GatewayIPAddr, p.HopCount = net.IPv4(192, 0, 2, 62), 1
			withClass("PXEClient", iana.INTEL_X86PC)(p)
			p.UpdateOption(
				dhcpv4.OptRelayAgentInfo(
					dhcpv4.OptGeneric(dhcpv4.AgentCircuitIDSubOption, []byte(port)),
					dhcpv4.OptGeneric(dhcpv4.AgentRemoteIDSubOption, []byte{0, 1, 2}),
				),
			)
		}
	}
	s.from = netip.MustParseAddrPort("198.51.100.7:67")
	if r, _ := s.ask(dhcpv4.MessageTypeDiscover, relayed("eth1/0/9")); r != nil {
		t.Errorf("got %s for an unknown relay agent, want no answer", r.Summary())
	}
	const refused = "no address: the relay agent 198.51.100.7 is not in IRONPLANE_AGENT_DHCP_RELAYS"
	if len(s.reports) != 1 || s.reports[0].Event != siteagent.EventRefused || s.reports[0].Response != refused {
		t.Errorf("got the reports %+v, want one refusal: %s", s.reports, refused)
	}
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest} {
		s.ask(kind, relayed("eth1/0/9"), dhcpv4.WithRelay(net.IPv4zero), withRequestedIP("192.0.2.10"))
	}
	s.from = unspecified
	if r, _ := s.ask(dhcpv4.MessageTypeDiscover, withClass("PXEClient", iana.INTEL_X86PC)); r == nil {
		t.Error("got no answer after an unknown relay agent named another port, want one")
	}
	s.from = netip.MustParseAddrPort("198.51.100.7:67")
	const token = "zyxwvutsrqponmlkjihgfedcba"
	s.putMachine(func(m *siteagent.Machine) { m.Token = token })
	s.server.Relays = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest} {
		r, to := s.ask(kind, relayed("eth1/0/7"), withRequestedIP("192.0.2.10"))
		if r == nil || to.String() != "192.0.2.62:67" || !r.GatewayIPAddr.Equal(net.IPv4(192, 0, 2, 62)) ||
			string(r.RelayAgentInfo().Get(dhcpv4.AgentCircuitIDSubOption)) != "eth1/0/7" {
			t.Fatalf("got %v to %s, want an answer to 192.0.2.62:67 with the port eth1/0/7", r, to)
		}
		if b := r.ToBytes(); !bytes.Contains(b[240:], append([]byte{82, 15, 1, 8}, "eth1/0/7"...)) {
			t.Errorf("got %q, want the relay agent's option as it was sent", b)
		}
	}
	for _, boot := range []string{siteagent.BootInstall, siteagent.BootWait} { // also after it lost its slot
		s.putMachine(func(m *siteagent.Machine) { m.Token, m.Boot = token, boot })
		for _, with := range []dhcpv4.Modifier{relayed("eth1/0/8"), withClass("PXEClient", iana.INTEL_X86PC)} {
			for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform} {
				if r, _ := s.ask(kind, with, withRequestedIP("192.0.2.10")); r != nil {
					t.Errorf("got %s at another port, want no answer", r.Summary())
				}
			}
		}
	}
	const want = "no address: it asks at port eth1/0/8 of 000102, but got its script at port eth1/0/7 of 000102"
	if last := s.reports[len(s.reports)-1]; last.Event != siteagent.EventRefused || last.Response != want {
		t.Errorf("got the report %+v, want a refusal: %s", last, want)
	}
	if r, to := s.ask(
		dhcpv4.MessageTypeRequest,
		relayed("eth1/0/7"),
		withRequestedIP("192.0.2.11"),
	); r == nil || r.MessageType() != dhcpv4.MessageTypeNak || !r.IsBroadcast() ||
		to.String() != "192.0.2.62:67" {
		t.Errorf("got %v to %s, want a broadcast NAK to 192.0.2.62:67", r, to)
	}
}

// A proxy offers no addresses. It knows the machine by the address that it requests from the other server.
func TestProxy(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, machine.Settings{Discover: true}, true)
	firmware, other := withClass("PXEClient", iana.EFI_BC), withServer(netip.MustParseAddr("192.0.2.2"))
	r, _ := s.ask(dhcpv4.MessageTypeDiscover, firmware)
	if r == nil || !r.YourIPAddr.IsUnspecified() || r.IPAddressLeaseTime(0) != 0 || r.ClassIdentifier() != "PXEClient" ||
		r.BootFileName != "local/boot/ipxe.efi" ||
		!bytes.Equal(r.Options.Get(dhcpv4.OptionVendorSpecificInformation), []byte{6, 1, 8, 255}) {
		t.Fatalf("got %v, want local/boot/ipxe.efi for PXEClient without an address", r)
	}
	if r, _ := s.ask(dhcpv4.MessageTypeDiscover); r != nil {
		t.Errorf("got %s for a system, want no answer", r.Summary())
	}
	if r, _ := s.ask(dhcpv4.MessageTypeRequest, firmware, other, withRequestedIP("192.0.2.10")); r != nil {
		t.Errorf("got %s to the request of another server's offer, want no answer", r.Summary())
	}
	if r, to := s.askAt(
		dhcp.ProxyPort,
		dhcpv4.MessageTypeRequest,
		firmware,
		withServer(serverAddress),
		dhcpv4.WithClientIP(net.IPv4(192, 0, 2, 10)),
	); r == nil || r.MessageType() != dhcpv4.MessageTypeAck ||
		r.BootFileName != "local/boot/ipxe.efi" ||
		to != unspecified {
		t.Errorf("got %v to %s, want an ACK with local/boot/ipxe.efi to %s", r, to, unspecified)
	}
	if r, _ := s.askAt(
		dhcp.ProxyPort,
		dhcpv4.MessageTypeRequest,
		withClass("PXEClient", iana.INTEL_X86PC),
		dhcpv4.WithUserClass("iPXE", false),
		withServer(serverAddress),
		dhcpv4.WithClientIP(net.IPv4(192, 0, 2, 10)),
	); r == nil ||
		!r.ServerIPAddr.Equal(serverAddress.AsSlice()) ||
		r.BootFileName == "" {
		t.Errorf("got %v, want an answer that iPXE accepts: the server %s and a boot file", r, serverAddress)
	}
	if s.scriptStatus() != 200 {
		t.Error("got no script, want 200")
	}
	unknown := dhcpv4.WithHwAddr(net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1})
	if r, _ := s.ask(dhcpv4.MessageTypeDiscover, unknown, firmware); r == nil {
		t.Error("got no answer to an unknown machine, want one")
	}
}

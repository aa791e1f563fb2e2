package dhcp_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
)

const url6 = "http://[2001:db8:1::1]"

var (
	serverAddress6  = netip.MustParseAddr("2001:db8:1::1")
	machineAddress6 = netip.MustParseAddr("2001:db8:1::10")
	linkLocal6      = netip.MustParseAddr("fe80::5054:ff:fe12:3456") // formed from mac
	uuid            = &dhcpv6.DUIDUUID{UUID: [16]byte{1, 2, 3}}
)

// packet6 returns a message of the machine, with the kind of DUID that iPXE and UEFI use.
func packet6(t testing.TB, kind dhcpv6.MessageType, with ...dhcpv6.Modifier) *dhcpv6.Message {
	t.Helper()
	p, err := dhcpv6.NewMessage(append([]dhcpv6.Modifier{dhcpv6.WithClientID(uuid)}, with...)...)
	if err != nil {
		t.Fatal(err)
	}
	p.MessageType = kind
	return p
}

func (s *testServer) ask6(kind dhcpv6.MessageType, with ...dhcpv6.Modifier) *dhcpv6.Message {
	s.Helper()
	return s.send6(packet6(s, kind, with...), netip.AddrPortFrom(linkLocal6.WithZone("eth1"), 546), 546)
}

// send6 sends a packet and returns the reply, or nil. The reply must go to the sender's address and this port.
func (s *testServer) send6(p dhcpv6.DHCPv6, from netip.AddrPort, port uint16) *dhcpv6.Message {
	s.Helper()
	reply, to := s.server.Answer6(p.ToBytes(), from)
	if reply == nil {
		return nil
	}
	read, err := dhcpv6.FromBytes(reply)
	if err != nil {
		s.Fatal(err)
	}
	inner, _ := p.GetInnerMessage()
	r, err := read.GetInnerMessage()
	if err != nil || r.TransactionID != inner.TransactionID || to != netip.AddrPortFrom(from.Addr(), port) || r.Options.ServerID() == nil {
		s.Errorf("got %v to %s (%v), want an answer to %v at port %d with our server ID", r, to, err, inner.TransactionID, port)
	}
	if id := inner.Options.ClientID(); id != nil && !bytes.Equal(r.Options.ClientID().ToBytes(), id.ToBytes()) {
		s.Errorf("got an answer to another client, want the client ID of the request: %s", r.Summary())
	}
	return r
}

func withClass6(name string, arch iana.Arch) dhcpv6.Modifier {
	return func(p dhcpv6.DHCPv6) {
		p.AddOption(&dhcpv6.OptVendorClass{EnterpriseNumber: 343, Data: [][]byte{[]byte(name + ":Arch:00007:UNDI:003000")}})
		p.AddOption(dhcpv6.OptClientArchType(arch))
	}
}

func withServer6(duid dhcpv6.DUID) dhcpv6.Modifier { return dhcpv6.WithServerID(duid) }

func withIA(addresses ...netip.Addr) dhcpv6.Modifier {
	return func(p dhcpv6.DHCPv6) {
		one := &dhcpv6.OptIANA{IaId: [4]byte{1, 2, 3, 4}}
		for _, a := range addresses {
			one.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: a.AsSlice()})
		}
		p.AddOption(one)
	}
}

// leased lists the addresses in a reply. A minus marks those that the client has to drop.
func leased(r *dhcpv6.Message) (all string) {
	for _, one := range r.Options.IANA() {
		for _, a := range one.Options.Addresses() {
			if all += " "; a.ValidLifetime == 0 {
				all += "-"
			}
			all += a.IPv6Addr.String()
		}
		if status := one.Options.Status(); status != nil {
			all += " " + status.StatusCode.String()
		}
	}
	return all
}

// Each kind of firmware gets the iPXE that it can load over IPv6, and iPXE gets the machine's script.
func TestBootFile6(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, machine.Settings{}, false)
	for name, tc := range map[string]struct {
		with dhcpv6.Modifier
		url  string
	}{
		"UEFI":        {withClass6("PXEClient", iana.EFI_X86_64), "tftp://[2001:db8:1::1]/local/boot/ipxe.efi"},
		"arm64":       {withClass6("PXEClient", iana.EFI_ARM64), "tftp://[2001:db8:1::1]/local/boot/ipxe-arm64.efi"},
		"HTTP":        {withClass6("HTTPClient", iana.EFI_X86_64_HTTP), url6 + "/local/boot/ipxe.efi"},
		"HTTP, arm64": {withClass6("HTTPClient", iana.EFI_ARM64_HTTP), url6 + "/local/boot/ipxe-arm64.efi"},
		"IA-32":       {withClass6("PXEClient", iana.EFI_IA32), ""},
		"iPXE":        {dhcpv6.WithUserClass([]byte("iPXE")), url6 + "/i/boot"},
		"a system":    {func(dhcpv6.DHCPv6) {}, ""},
	} {
		for kind, answered := range map[dhcpv6.MessageType]dhcpv6.MessageType{
			dhcpv6.MessageTypeSolicit: dhcpv6.MessageTypeAdvertise, dhcpv6.MessageTypeInformationRequest: dhcpv6.MessageTypeReply,
		} {
			with := []dhcpv6.Modifier{tc.with}
			if kind == dhcpv6.MessageTypeSolicit {
				with = append(with, withIA())
			}
			r := s.ask6(kind, with...)
			if r == nil || r.MessageType != answered || len(r.Options.DNS()) != 1 || r.Options.DNS()[0].String() != "2001:db8::53" {
				t.Fatalf("%s: got %v, want %s with the DNS server 2001:db8::53", name, r, answered)
			}
			if got := r.Options.BootFileURL(); got != tc.url {
				t.Errorf("%s: got the boot file %q, want %q", name, got, tc.url)
			}
			if vendor := r.Options.VendorClass(
				343,
			); (len(vendor) == 1 && string(vendor[0]) == "HTTPClient") != (name == "HTTP" || name == "HTTP, arm64") {
				t.Errorf("%s: got the vendor class %q, want HTTPClient for HTTP only", name, vendor)
			}
			if got := leased(r); kind == dhcpv6.MessageTypeSolicit && (got != " 2001:db8:1::10" || r.Options.Preference() != 255) {
				t.Errorf("%s: got the offer%s with preference %d, want 2001:db8:1::10 with 255", name, got, r.Options.Preference())
			}
		}
	}
}

// A machine gets the address that the control plane names, and drops others.
func TestLease6(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, machine.Settings{}, false)
	firmware := withClass6("PXEClient", iana.EFI_X86_64)
	advertised := s.ask6(dhcpv6.MessageTypeSolicit, firmware, withIA())
	if advertised == nil {
		t.Fatal("got no answer, want an advertisement")
	}
	ourServerID, another := withServer6(advertised.Options.ServerID()), netip.MustParseAddr("2001:db8:1::99")
	if s.scriptStatusAt(machineAddress6.String()) != 404 {
		t.Error("got the script before the machine has its address, want 404")
	}
	for name, r := range map[string]*dhcpv6.Message{
		"of another server":  s.ask6(dhcpv6.MessageTypeRequest, firmware, withIA(machineAddress6), withServer6(uuid)),
		"of no server":       s.ask6(dhcpv6.MessageTypeRequest, firmware, withIA(machineAddress6)),
		"solicit to us":      s.ask6(dhcpv6.MessageTypeSolicit, firmware, withIA(), ourServerID),
		"without an address": s.ask6(dhcpv6.MessageTypeRequest, firmware, ourServerID),
		"a reply":            s.ask6(dhcpv6.MessageTypeReply, firmware, withIA(machineAddress6), ourServerID),
		"from the internet":  s.send6(packet6(t, dhcpv6.MessageTypeSolicit, firmware, withIA()), netip.AddrPortFrom(another, 546), 546),
		"another interface": s.send6(
			packet6(t, dhcpv6.MessageTypeSolicit, firmware, withIA()), netip.AddrPortFrom(linkLocal6.WithZone("eth2"), 546), 546,
		),
		"an unknown machine": s.send6(
			packet6(t, dhcpv6.MessageTypeSolicit, firmware, withIA()), netip.MustParseAddrPort("[fe80::5054:ff:fe00:1%eth1]:546"), 546,
		),
	} {
		if r != nil {
			t.Errorf("%s: got %s, want no answer", name, r.Summary())
		}
	}
	for _, step := range []struct {
		kind   dhcpv6.MessageType
		with   []dhcpv6.Modifier
		leased string
		status iana.StatusCode
	}{
		{dhcpv6.MessageTypeRequest, []dhcpv6.Modifier{firmware, withIA(another), ourServerID}, " 2001:db8:1::10", 0},
		{dhcpv6.MessageTypeRenew, []dhcpv6.Modifier{withIA(machineAddress6), ourServerID}, " 2001:db8:1::10", 0},
		{dhcpv6.MessageTypeRenew, []dhcpv6.Modifier{withIA(machineAddress6, another), ourServerID}, " 2001:db8:1::10 -2001:db8:1::99", 0},
		{dhcpv6.MessageTypeRebind, []dhcpv6.Modifier{withIA(another)}, " 2001:db8:1::10 -2001:db8:1::99", 0},
		{dhcpv6.MessageTypeRequest, []dhcpv6.Modifier{withIA(), withIA(), ourServerID}, " 2001:db8:1::10 NoAddrsAvail", 0},
		{dhcpv6.MessageTypeConfirm, []dhcpv6.Modifier{withIA(machineAddress6)}, "", iana.StatusSuccess},
		{dhcpv6.MessageTypeConfirm, []dhcpv6.Modifier{withIA(machineAddress6, another)}, "", iana.StatusNotOnLink},
		{dhcpv6.MessageTypeDecline, []dhcpv6.Modifier{withIA(machineAddress6), ourServerID}, "", iana.StatusSuccess},
		{dhcpv6.MessageTypeRelease, []dhcpv6.Modifier{withIA(machineAddress6), ourServerID}, "", iana.StatusSuccess},
	} {
		r := s.ask6(step.kind, step.with...)
		if r == nil || r.MessageType != dhcpv6.MessageTypeReply || leased(r) != step.leased {
			t.Errorf("%s: got %v, want a reply that gives %q", step.kind, r, step.leased)
			continue
		}
		if status := r.Options.Status(); (status == nil) != (step.leased != "") || status != nil && status.StatusCode != step.status {
			t.Errorf("%s: got %v, want %s", step.kind, status, step.status)
		}
	}
	if last := s.reports[len(s.reports)-1]; last.Event != siteagent.EventRefused || last.Address != machineAddress6.String() {
		t.Errorf("got the report %+v, want a refusal of %s", last, machineAddress6)
	}
	if s.scriptStatusAt(machineAddress6.String()) != 200 || s.scriptStatusAt("192.0.2.10") != 404 {
		t.Errorf("got the script at other addresses or none, want it at %s only", machineAddress6)
	}
}

// A machine without an IPv6 address gets what to boot. It is known by the address that it forms itself.
func TestOwnAddress(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, machine.Settings{}, false)
	s.putMachine(func(m *siteagent.Machine) { m.IPv6 = nil })
	ipxe := dhcpv6.WithUserClass([]byte("iPXE"))
	if r := s.ask6(dhcpv6.MessageTypeSolicit, ipxe, withIA()); r != nil {
		t.Errorf("got the offer%s, want none", leased(r))
	}
	if r := s.ask6(dhcpv6.MessageTypeInformationRequest); r == nil || r.Options.BootFileURL() != "" {
		t.Errorf("got %v for a system, want an answer without a boot file", r)
	}
	const own = "2001:db8:1:0:5054:ff:fe12:3456"
	if s.scriptStatusAt(own) != 404 {
		t.Error("got the script for a system, want 404")
	}
	if r := s.ask6(dhcpv6.MessageTypeInformationRequest, ipxe); r == nil || r.Options.BootFileURL() != url6+"/i/boot" {
		t.Errorf("got %v, want the boot file %s", r, url6+"/i/boot")
	}
	if s.scriptStatusAt(own) != 200 {
		t.Error("got no script, want 200")
	}
	// A relay agent that is not trusted cannot say where the machine is.
	forged, err := dhcpv6.EncapsulateRelay(
		packet6(t, dhcpv6.MessageTypeInformationRequest, ipxe),
		dhcpv6.MessageTypeRelayForward,
		net.ParseIP("2001:db8:bad::1"),
		linkLocal6.AsSlice(),
	)
	if err != nil {
		t.Fatal(err)
	}
	if r := s.send6(forged, netip.MustParseAddrPort("[2001:db8:bad::1]:547"), 547); r != nil {
		t.Errorf("got %s on another link, want no answer", r.Summary())
	}
	if s.scriptStatusAt("2001:db8:bad:0:5054:ff:fe12:3456") != 404 {
		t.Error("got the script at the forged address, want 404")
	}
}

// A proxy offers what to boot, and no addresses.
func TestProxy6(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, machine.Settings{Discover: true}, true)
	if r := s.ask6(dhcpv6.MessageTypeSolicit, withIA()); r != nil {
		t.Errorf("got the offer%s, want none", leased(r))
	}
	if r := s.ask6(dhcpv6.MessageTypeInformationRequest, withClass6("PXEClient", iana.EFI_X86_64)); r == nil || r.Options.BootFileURL() == "" {
		t.Errorf("got %v, want an answer with a boot file", r)
	}
}

// A machine is identified by its link-local address, by its DUID, or by a relay agent.
func TestClientIdentification6(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, machine.Settings{}, false)
	private := netip.MustParseAddrPort("[fe80::1:2:3:4%eth1]:546")
	for name, tc := range map[string]struct {
		duid dhcpv6.DUID
		ok   bool
	}{
		"LL":               {&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: mac}, true},
		"LLT":              {&dhcpv6.DUIDLLT{HWType: iana.HWTypeEthernet, Time: 7, LinkLayerAddr: mac}, true},
		"LL of a tunnel":   {&dhcpv6.DUIDLL{HWType: iana.HWTypeInfiniband, LinkLayerAddr: mac}, false},
		"LL, short":        {&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: mac[:4]}, false},
		"LL of a group":    {&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr{1, 0, 0, 0, 0, 1}}, false},
		"UUID":             {uuid, false},
		"of an enterprise": {&dhcpv6.DUIDEN{EnterpriseNumber: 43793, EnterpriseIdentifier: mac}, false},
	} {
		p := packet6(t, dhcpv6.MessageTypeSolicit, withIA())
		p.UpdateOption(dhcpv6.OptClientID(tc.duid))
		if r := s.send6(p, private, 546); (r != nil) != tc.ok {
			t.Errorf("%s: got %v, want an answer: %v", name, r, tc.ok)
		}
	}
}

// Relay agents get back what they sent, in their order. At another port than the one where it got its script, a machine gets no
// reply.
func TestRelay6(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, machine.Settings{}, false)
	at := netip.MustParseAddrPort("[2001:db8:2::1]:1547")
	relayed := func(kind dhcpv6.MessageType, port string, deep int, with ...dhcpv6.Modifier) dhcpv6.DHCPv6 {
		p := dhcpv6.DHCPv6(packet6(t, kind, append(with, withClass6("PXEClient", iana.EFI_X86_64))...))
		for n := range deep {
			link, peer := net.IPv6zero, net.ParseIP("fe80::1:2:3:4")
			if n > 0 {
				link, peer = net.ParseIP("2001:db8:2::1"), net.ParseIP("2001:db8:3::1")
			}
			r, err := dhcpv6.EncapsulateRelay(p, dhcpv6.MessageTypeRelayForward, link, peer)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				r.AddOption(dhcpv6.OptInterfaceID([]byte(port)))
				r.AddOption(&dhcpv6.OptRemoteID{EnterpriseNumber: 9, RemoteID: []byte{0, 1, 2}})
				r.AddOption(dhcpv6.OptClientLinkLayerAddress(iana.HWTypeEthernet, mac))
			}
			p = r
		}
		return p
	}
	if r := s.send6(relayed(dhcpv6.MessageTypeSolicit, "eth1/0/7", 2, withIA()), at, 547); r != nil {
		t.Errorf("got %s for an unknown relay agent, want no answer", r.Summary())
	}
	const refused = "no address: the relay agent 2001:db8:2::1 is not in IRONPLANE_AGENT_DHCP_RELAYS"
	if len(s.reports) != 1 || s.reports[0].Event != siteagent.EventRefused || s.reports[0].Response != refused {
		t.Errorf("got the reports %+v, want one refusal: %s", s.reports, refused)
	}
	s.server.Relays = []netip.Prefix{netip.MustParsePrefix("2001:db8:2::/64")}
	reply, _ := s.server.Answer6(relayed(dhcpv6.MessageTypeSolicit, "eth1/0/7", 2, withIA()).ToBytes(), at)
	outer, err := dhcpv6.FromBytes(reply)
	if err != nil {
		t.Fatal(err)
	}
	first, isRelay := outer.(*dhcpv6.RelayMessage)
	second, isNested := first.Options.RelayMessage().(*dhcpv6.RelayMessage)
	if !isRelay || !isNested || first.MessageType != dhcpv6.MessageTypeRelayReply || first.LinkAddr.String() != "2001:db8:2::1" ||
		string(second.Options.InterfaceID()) != "eth1/0/7" ||
		second.PeerAddr.String() != "fe80::1:2:3:4" {
		t.Errorf("got %s, want both relay replies with the addresses and the port of the request", outer.Summary())
	}
	advertised, err := outer.GetInnerMessage()
	if err != nil {
		t.Fatal(err)
	}
	ourServerID := withServer6(advertised.Options.ServerID())
	if r := s.send6(
		relayed(dhcpv6.MessageTypeRequest, "eth1/0/7", 2, withIA(), ourServerID),
		at,
		547,
	); r == nil ||
		leased(r) != " 2001:db8:1::10" {
		t.Fatalf("got %v, want 2001:db8:1::10", r)
	}
	// A port that is pinned by IPv6 holds for IPv4.
	if r, _ := s.ask(1, withClass("PXEClient", iana.EFI_BC)); r != nil {
		t.Errorf("got %s by IPv4 from no port, want no answer", r.Summary())
	}
	const want = "no address: it asks at an unknown port, but got its script at port eth1/0/7 of 000102"
	if last := s.reports[len(s.reports)-1]; last.Event != siteagent.EventRefused || last.Response != want {
		t.Errorf("got the report %+v, want a refusal: %s", last, want)
	}
	for name, p := range map[string]dhcpv6.DHCPv6{
		"another port":    relayed(dhcpv6.MessageTypeRequest, "eth1/0/8", 2, withIA(), ourServerID),
		"too many relays": relayed(dhcpv6.MessageTypeSolicit, "eth1/0/7", 9, withIA()),
	} {
		if r := s.send6(p, at, 547); r != nil {
			t.Errorf("%s: got %s, want no answer", name, r.Summary())
		}
	}
}

// No packet makes the server fail, and each reply is a valid message.
func FuzzAnswer6(f *testing.F) {
	from := netip.AddrPortFrom(linkLocal6.WithZone("eth1"), 546)
	servers := map[bool]*testServer{false: newTestServer(f, machine.Settings{}, false), true: newTestServer(f, machine.Settings{}, true)}
	advertised := servers[false].ask6(dhcpv6.MessageTypeSolicit, withIA())
	for kind := dhcpv6.MessageTypeSolicit; kind <= dhcpv6.MessageTypeInformationRequest; kind++ {
		for _, with := range []dhcpv6.Modifier{withClass6("HTTPClient", iana.EFI_X86_64_HTTP), dhcpv6.WithUserClass([]byte("iPXE"))} {
			p := packet6(f, kind, with, withIA(machineAddress6), withServer6(advertised.Options.ServerID()))
			relay, err := dhcpv6.EncapsulateRelay(p, dhcpv6.MessageTypeRelayForward, serverAddress6.AsSlice(), linkLocal6.AsSlice())
			if err != nil {
				f.Fatal(err)
			}
			f.Add(p.ToBytes(), false)
			f.Add(relay.ToBytes(), true)
		}
	}
	f.Fuzz(func(t *testing.T, packet []byte, proxy bool) {
		const maxSize = 4096 // the server's buffer
		reply, _ := servers[proxy].server.Answer6(packet[:min(len(packet), maxSize)], from)
		servers[proxy].reports = nil
		if reply == nil {
			return
		}
		if _, err := dhcpv6.FromBytes(reply); err != nil {
			t.Errorf("%x: got an answer that cannot be read (%v), want a DHCPv6 message", packet, err)
		}
	})
}

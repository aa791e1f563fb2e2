package dhcp_test

import (
	"bytes"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/dhcp"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
)

var (
	mac           = net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0x56}
	serverAddress = netip.MustParseAddr("192.0.2.1")
	unspecified   = netip.MustParseAddrPort("0.0.0.0:68")
)

const url = "http://192.0.2.1"

// testServer is a server that knows one machine.
type testServer struct {
	testing.TB
	server   *dhcp.Server
	from     netip.AddrPort // the source of what ask sends
	machines *machine.Machines
	reports  []siteagent.Report
}

func newTestServer(t testing.TB, settings machine.Settings, proxy bool) *testServer {
	t.Helper()
	s := &testServer{TB: t, from: unspecified}
	settings.URL, settings.IPv6URL = url, url6
	var err error
	s.machines, err = machine.Open(t.TempDir(), settings, func(r siteagent.Report) error {
		s.reports = append(s.reports, r)
		return nil
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.putMachine(func(*siteagent.Machine) {})
	s.server = &dhcp.Server{
		Settings: dhcp.Settings{Interface: "eth1", Proxy: proxy, Server: serverAddress, IPv6: serverAddress6, URL: url, IPv6URL: url6},
		Machines: s.machines,
		Log:      slog.New(slog.DiscardHandler),
	}
	return s
}

// putMachine puts the machine with a change.
func (s *testServer) putMachine(change func(*siteagent.Machine)) {
	s.Helper()
	m := siteagent.Machine{
		ID:          7,
		MACs:        []string{mac.String()},
		Hostname:    "web1.example.com",
		IPv4:        &siteagent.Address{Prefix: "192.0.2.10/26", Gateway: "192.0.2.62"},
		IPv6:        &siteagent.Address{Prefix: machineAddress6.String() + "/64", Gateway: "2001:db8:1::1"},
		Nameservers: []string{"192.0.2.53", "2001:db8::53"},
		Boot:        siteagent.BootInstall,
		Token:       "0123456789abcdefghijklmnop",
		Files:       siteagent.Files{Boot: "#!ipxe"},
	}
	change(&m)
	if err := s.machines.Put(m); err != nil {
		s.Fatal(err)
	}
}

// ask sends a message of the machine, and returns the reply, or nil, and its destination.
func (s *testServer) ask(kind dhcpv4.MessageType, with ...dhcpv4.Modifier) (*dhcpv4.DHCPv4, netip.AddrPort) {
	s.Helper()
	return s.askAt(dhcpv4.ServerPort, kind, with...)
}

func (s *testServer) askAt(port int, kind dhcpv4.MessageType, with ...dhcpv4.Modifier) (*dhcpv4.DHCPv4, netip.AddrPort) {
	s.Helper()
	p, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(mac), dhcpv4.WithMessageType(kind)}, with...)...)
	if err != nil {
		s.Fatal(err)
	}
	reply, to := s.server.Answer(p.ToBytes(), s.from, port)
	if reply == nil {
		return nil, to
	}
	r, err := dhcpv4.FromBytes(reply)
	if err != nil {
		s.Fatal(err)
	}
	if r.TransactionID != p.TransactionID || r.OpCode != dhcpv4.OpcodeBootReply || !bytes.Equal(r.ClientHWAddr, p.ClientHWAddr) ||
		!r.ServerIdentifier().Equal(serverAddress.AsSlice()) {
		s.Errorf("got %s, want a reply of %s with the transaction and MAC address of the request", r.Summary(), serverAddress)
	}
	return r, to
}

// scriptStatus is the status of the machine's request for its script.
func (s *testServer) scriptStatus() int { return s.scriptStatusAt("192.0.2.10") }

func (s *testServer) scriptStatusAt(address string) int {
	response, request := httptest.NewRecorder(), httptest.NewRequest("GET", "/i/boot", nil)
	request.RemoteAddr = net.JoinHostPort(address, "4711")
	s.machines.Handler().ServeHTTP(response, request)
	return response.Code
}

func withClass(name string, arch ...iana.Arch) dhcpv4.Modifier {
	return func(p *dhcpv4.DHCPv4) {
		p.UpdateOption(dhcpv4.OptClassIdentifier(name + ":Arch:00000:UNDI:002001"))
		if len(arch) > 0 {
			p.UpdateOption(dhcpv4.OptClientArch(arch...))
		}
		p.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionClientMachineIdentifier, []byte("\x000123456789abcdef")))
	}
}

func withRequestedIP(address string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(address)))
}

func withServer(server netip.Addr) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(server.AsSlice()))
}

// Each kind of firmware gets the iPXE that it can load, and iPXE gets the machine's script.
func TestBootFile(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, machine.Settings{}, false)
	for name, tc := range map[string]struct {
		with []dhcpv4.Modifier
		file string
	}{
		"BIOS":            {[]dhcpv4.Modifier{withClass("PXEClient", iana.INTEL_X86PC)}, "local/boot/undionly.kpxe"},
		"no architecture": {[]dhcpv4.Modifier{withClass("PXEClient")}, "local/boot/undionly.kpxe"},
		"UEFI":            {[]dhcpv4.Modifier{withClass("PXEClient", iana.EFI_BC)}, "local/boot/ipxe.efi"},
		"UEFI, 9":         {[]dhcpv4.Modifier{withClass("PXEClient", iana.EFI_X86_64)}, "local/boot/ipxe.efi"},
		"arm64":           {[]dhcpv4.Modifier{withClass("PXEClient", iana.EFI_ARM64)}, "local/boot/ipxe-arm64.efi"},
		"HTTP":            {[]dhcpv4.Modifier{withClass("HTTPClient", iana.EFI_X86_64_HTTP)}, url + "/local/boot/ipxe.efi"},
		"HTTP, arm64":     {[]dhcpv4.Modifier{withClass("HTTPClient", iana.EFI_ARM64_HTTP)}, url + "/local/boot/ipxe-arm64.efi"},
		"IA-32":           {[]dhcpv4.Modifier{withClass("PXEClient", iana.EFI_IA32)}, ""},
		"iPXE":            {[]dhcpv4.Modifier{withClass("PXEClient", iana.EFI_BC), dhcpv4.WithUserClass("iPXE", false)}, url + "/i/boot"},
		"iPXE, RFC 3004":  {[]dhcpv4.Modifier{dhcpv4.WithUserClass("iPXE", true)}, url + "/i/boot"},
		"a system":        {nil, ""},
	} {
		r, to := s.ask(dhcpv4.MessageTypeDiscover, tc.with...)
		if r == nil || r.MessageType() != dhcpv4.MessageTypeOffer || to.String() != "255.255.255.255:68" {
			t.Fatalf("%s: got %v to %s, want an offer to 255.255.255.255:68", name, r, to)
		}
		if got := r.BootFileNameOption(); got != tc.file || r.BootFileName != tc.file {
			t.Errorf("%s: got the boot files %q and %q, want %q", name, got, r.BootFileName, tc.file)
		}
		if isHTTP := len(tc.file) > 4 &&
			tc.file[:4] == "http"; !isHTTP && tc.file != "" &&
			(!r.ServerIPAddr.Equal(serverAddress.AsSlice()) || r.TFTPServerName() != serverAddress.String()) {
			t.Errorf("%s: got the TFTP server %s, %s, want %s", name, r.ServerIPAddr, r.TFTPServerName(), serverAddress)
		}
		if got := r.ClassIdentifier(); got != map[bool]string{true: "HTTPClient"}[name == "HTTP" || name == "HTTP, arm64"] {
			t.Errorf("%s: got the class %q, want HTTPClient for HTTP only", name, got)
		}
		if r.YourIPAddr.String() != "192.0.2.10" || r.SubnetMask().String() != "ffffffc0" || len(r.Router()) != 1 ||
			r.Router()[0].String() != "192.0.2.62" ||
			len(r.DNS()) != 1 ||
			r.DNS()[0].String() != "192.0.2.53" ||
			r.HostName() != "web1" ||
			r.DomainName() != "example.com" ||
			r.IPAddressLeaseTime(0) == 0 {
			t.Errorf("%s: got %s, want the address, network and names of web1", name, r.Summary())
		}
	}
}

// A machine with Secure Boot gets the signed bootloader that its firmware can load.
func TestBootFileOfSecureBoot(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, machine.Settings{}, false)
	s.putMachine(func(m *siteagent.Machine) { m.SecureBoot = true })
	for architecture, want := range map[iana.Arch]string{
		iana.EFI_BC: "local/boot/shimx64.efi", iana.EFI_X86_64: "local/boot/shimx64.efi", iana.INTEL_X86PC: "local/boot/undionly.kpxe",
	} {
		r, _ := s.ask(dhcpv4.MessageTypeDiscover, withClass("PXEClient", architecture))
		if r == nil || r.BootFileNameOption() != want {
			t.Errorf("%v: got %v, want the boot file %s", architecture, r, want)
		}
	}
}

// A machine gets the address that the control plane names, and no other. The server ignores requests to other servers.
func TestLease(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, machine.Settings{}, false)
	firmware := withClass("PXEClient", iana.EFI_BC)
	if r, _ := s.ask(
		dhcpv4.MessageTypeDiscover,
		firmware,
	); r == nil ||
		!bytes.HasPrefix(r.Options.Get(dhcpv4.OptionClientMachineIdentifier), []byte("\x000123")) {
		t.Errorf("got %v, want the machine identifier of the request", r)
	}
	if s.scriptStatus() != 404 {
		t.Error("got the script before the machine has its address, want 404")
	}
	if r, _ := s.ask(
		dhcpv4.MessageTypeRequest,
		firmware,
		withRequestedIP("192.0.2.10"),
		withServer(netip.MustParseAddr("192.0.2.2")),
	); r != nil {
		t.Errorf("got %s to the request of another server's offer, want no answer", r.Summary())
	}
	for _, with := range [][]dhcpv4.Modifier{
		{withRequestedIP("192.0.2.11"), withServer(serverAddress)},
		{withRequestedIP("192.0.2.11")},
		{dhcpv4.WithClientIP(net.IPv4(192, 0, 2, 11))},
	} {
		if r, to := s.ask(
			dhcpv4.MessageTypeRequest,
			with...); r == nil || r.MessageType() != dhcpv4.MessageTypeNak || to.String() != "255.255.255.255:68" ||
			!r.YourIPAddr.IsUnspecified() {
			t.Errorf("got %v to %s for another address, want a NAK to 255.255.255.255:68", r, to)
		}
	}
	if r, _ := s.ask(
		dhcpv4.MessageTypeRequest,
		firmware,
		withRequestedIP("192.0.2.10"),
		withServer(serverAddress),
	); r == nil || r.MessageType() != dhcpv4.MessageTypeAck ||
		r.YourIPAddr.String() != "192.0.2.10" {
		t.Errorf("got %v, want an ACK of 192.0.2.10", r)
	}
	if r, to := s.ask(
		dhcpv4.MessageTypeRequest,
		dhcpv4.WithClientIP(net.IPv4(192, 0, 2, 10)),
	); r == nil || r.MessageType() != dhcpv4.MessageTypeAck ||
		to.String() != "192.0.2.10:68" {
		t.Errorf("got %v to %s for a renewal, want an ACK to 192.0.2.10:68", r, to)
	}
	if r, _ := s.ask(
		dhcpv4.MessageTypeInform,
		dhcpv4.WithClientIP(net.IPv4(192, 0, 2, 10)),
	); r == nil || !r.YourIPAddr.IsUnspecified() || r.IPAddressLeaseTime(0) != 0 ||
		r.SubnetMask() == nil {
		t.Errorf("got %v, want the subnet mask without an address or lease", r)
	}
	if s.scriptStatus() != 200 {
		t.Error("got no script, want 200")
	}
	if r, _ := s.ask(
		dhcpv4.MessageTypeDecline,
		withRequestedIP("192.0.2.10"),
		withServer(serverAddress),
	); r != nil ||
		s.reports[len(s.reports)-1].Event != siteagent.EventRefused {
		t.Errorf("got %v and the reports %+v, want no answer and a refusal", r, s.reports)
	}
	for _, kind := range []dhcpv4.MessageType{
		dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeOffer, dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNone,
	} {
		if r, _ := s.ask(kind); r != nil {
			t.Errorf("%s: got %s, want no answer", kind, r.Summary())
		}
	}
	mac := dhcpv4.WithHwAddr(net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1})
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform} {
		if r, _ := s.ask(kind, firmware, mac, withRequestedIP("192.0.2.10")); r != nil {
			t.Errorf("got %s for an unknown machine, want no answer", r.Summary())
		}
	}
}

// A machine whose address was withdrawn gives it up at its next request.
func TestAddressIsWithdrawn(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, machine.Settings{}, false)
	s.putMachine(func(m *siteagent.Machine) {
		m.Boot, m.Token, m.Files, m.IPv4, m.IPv6, m.Reason = siteagent.BootLocal, "", siteagent.Files{}, nil, nil, "it is another's"
	})
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeInform} {
		if r, _ := s.ask(kind, withClass("PXEClient", iana.EFI_BC)); r != nil {
			t.Errorf("got %s, want no answer", r.Summary())
		}
	}
	if r, _ := s.ask(
		dhcpv4.MessageTypeRequest,
		dhcpv4.WithClientIP(net.IPv4(192, 0, 2, 10)),
	); r == nil ||
		r.MessageType() != dhcpv4.MessageTypeNak {
		t.Errorf("got %v for a renewal, want a NAK", r)
	}
	if last := s.reports[len(s.reports)-1]; last.Event != siteagent.EventRefused || last.Response != "no address: it is another's" {
		t.Errorf("got the report %+v, want the refusal of another's address", last)
	}
	serverReply := s.ask6(dhcpv6.MessageTypeInformationRequest)
	if serverReply == nil {
		t.Fatal("got no answer, want one with the server ID")
	}
	if r := s.ask6(
		dhcpv6.MessageTypeRenew,
		withIA(machineAddress6),
		withServer6(serverReply.Options.ServerID()),
	); r == nil ||
		leased(r) != " -2001:db8:1::10 NoAddrsAvail" {
		t.Errorf("got %v for a renewal, want 2001:db8:1::10 without a lifetime and NoAddrsAvail", r)
	}
	if r := s.ask6(dhcpv6.MessageTypeSolicit, withIA()); r != nil {
		t.Errorf("got the offer%s, want none", leased(r))
	}
}

// No packet makes the server fail, and each reply is a valid message.
func FuzzAnswer(f *testing.F) {
	for _, kind := range []dhcpv4.MessageType{
		dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform, dhcpv4.MessageTypeDecline,
	} {
		p, err := dhcpv4.New(
			dhcpv4.WithHwAddr(mac),
			dhcpv4.WithMessageType(kind),
			withClass("PXEClient", iana.EFI_BC),
			withRequestedIP("192.0.2.10"),
			dhcpv4.WithUserClass("iPXE", kind == dhcpv4.MessageTypeInform),
			dhcpv4.WithOption(dhcpv4.OptRelayAgentInfo(dhcpv4.OptGeneric(dhcpv4.LinkSelectionSubOption, []byte{192, 0, 2, 0}))),
		)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p.ToBytes(), false)
		f.Add(p.ToBytes(), true)
	}
	pool := machine.Settings{
		Discover: true,
		Pool:     machine.Pool{First: netip.MustParseAddr("192.0.2.20"), Last: netip.MustParseAddr("192.0.2.22"), Bits: 24},
	}
	servers := map[bool]*testServer{false: newTestServer(f, pool, false), true: newTestServer(f, machine.Settings{Discover: true}, true)}
	f.Fuzz(func(t *testing.T, packet []byte, proxy bool) {
		for _, port := range []int{dhcpv4.ServerPort, dhcp.ProxyPort} {
			reply, _ := servers[proxy].server.Answer(packet, unspecified, port)
			servers[proxy].reports = nil
			if reply == nil {
				continue
			}
			if _, err := dhcpv4.FromBytes(reply); err != nil {
				t.Errorf("%x: got an answer that cannot be read (%v), want a DHCPv4 message", packet, err)
			}
		}
	})
}

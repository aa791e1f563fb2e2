package agent_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
)

const (
	mac            = "52:54:00:12:34:56"
	token          = "0123456789abcdefghijklmnop"
	machineAddress = "192.0.2.10"
)

var bootSettings = machine.Settings{URL: "http://192.0.2.1"}

func web1() siteagent.Machine {
	return siteagent.Machine{
		ID:       7,
		Revision: 1,
		MACs:     []string{mac},
		Hostname: "web1.example.com",
		IPv4:     &siteagent.Address{Prefix: machineAddress + "/24", Gateway: "192.0.2.1"},
		Nameservers: []string{
			"192.0.2.53",
		},
		Boot:  siteagent.BootInstall,
		Token: token,
		Files: siteagent.Files{Boot: "#!ipxe\n# web1's", Preseed: "its preseed", During: "its during", After: "its after"},
	}
}

func (r *testAgent) putMachine(m siteagent.Machine) {
	r.Helper()
	if err := r.client.PutMachine(r.Context(), m); err != nil {
		r.Fatal(err)
	}
}

// switchOn boots a machine, which has its address then.
func (r *testAgent) switchOn(c machine.Client, address string) {
	r.Helper()
	c.IsBooting = true
	if !r.agent.Machines().Admit(c) || !r.agent.Machines().ConfirmLease(c, netip.MustParseAddr(address)) {
		r.Fatalf("got no address for %v, want %s", c, address)
	}
}

// machineRequest sends a request from a machine's address.
func (r *testAgent) machineRequest(method, path, from, body string) (status int, text string) {
	r.Helper()
	response, request := httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(body))
	request.RemoteAddr = from + ":4711"
	if body != "" {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.machines.ServeHTTP(response, request)
	return response.Code, response.Body.String()
}

func (r *testAgent) wantResponse(method, path, from, body string, status int, part string) {
	r.Helper()
	if got, text := r.machineRequest(method, path, from, body); got != status || !strings.Contains(text, part) {
		r.Errorf("%s %s from %s: got %d %s, want %d with %q", method, path, from, got, text, status, part)
	}
}

// reports returns the feed's reports as text.
func (r *testAgent) reports() (all []string) {
	r.Helper()
	for after := int64(0); ; {
		found, err := r.client.GetFeed(r.Context(), after)
		if err != nil {
			r.Fatal(err)
		}
		if len(found.Entries) == 0 {
			return all
		}
		for _, e := range found.Entries {
			after = e.Number
			if m := e.Machine; e.Kind == "machine" {
				all = append(all, strings.TrimSpace(fmt.Sprintf("%d %s %s: %s %s %s", m.ID, m.Address, m.Event, m.Response, m.Step, m.Error)))
			}
		}
	}
}

func (r *testAgent) wantReported(want ...string) {
	r.Helper()
	if got := r.reports(); !slices.Equal(got, want) {
		r.Errorf("got the reports\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A machine gets its script once per boot and its files until it reports the end. After that it boots its disk. After a restart of
// the agent it waits until the control plane has confirmed the install.
func TestInstall(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := startWith(t, folder, bootSettings)
	r.putMachine(web1())
	r.switchOn(machine.Client{MAC: mac}, machineAddress)
	restart := func() {
		r.Helper()
		r.stop()
		r = startWith(t, folder, bootSettings)
	}
	restart()
	wantHeld := func(want siteagent.MachineRevision) {
		r.Helper()
		if held, err := r.client.ListMachines(t.Context()); err != nil || !slices.Equal(held, []siteagent.MachineRevision{want}) {
			t.Errorf("got the machines %v (%v), want %v", held, err, want)
		}
	}
	wantHeld(siteagent.MachineRevision{ID: 7, Revision: 1, Unconfirmed: true})
	r.wantResponse("GET", "/i/boot", machineAddress, "", 200, "the control plane has not confirmed this install")
	r.putMachine(web1())
	wantHeld(siteagent.MachineRevision{ID: 7, Revision: 1})
	r.wantResponse("HEAD", "/i/boot", machineAddress, "", 405, "")
	r.wantResponse("GET", "/i/boot", machineAddress, "", 200, "# web1's")
	restart()
	r.wantResponse("GET", "/i/"+token+"/boot", machineAddress, "", 404, "no such file")
	r.putMachine(web1())
	r.wantResponse("GET", "/i/boot", machineAddress, "", 200, "reboot")
	r.wantResponse("GET", "/i/"+token+"/boot", machineAddress, "", 200, "reboot")
	r.switchOn(machine.Client{MAC: mac}, machineAddress)
	r.wantResponse("GET", "/i/"+token+"/boot", machineAddress, "", 200, "# web1's")
	for path, want := range map[string]string{
		"preseed": "its preseed", "nocloud/user-data": "its preseed", "nocloud/meta-data": "", "during": "its during", "after": "its after",
	} {
		r.wantResponse("GET", "/i/"+token+"/"+path, machineAddress, "", 200, want)
	}
	r.wantResponse("GET", "/i/"+token+"/etc/passwd", machineAddress, "", 404, "")
	r.wantResponse("POST", "/i/"+token+"/progress", machineAddress, "step=disk&progress=101", 422, "/progress")
	for n := range 100 {
		r.wantResponse("POST", "/i/"+token+"/progress", machineAddress, fmt.Sprintf("step=disk%%0A&progress=%d", n), 200, "noted")
	}
	r.wantResponse("POST", "/i/"+token+"/done", machineAddress, "", 200, "noted")
	restart()
	r.wantResponse("POST", "/i/"+token+"/done", machineAddress, "", 200, "noted")
	for _, path := range []string{"boot", "preseed", "after"} {
		r.wantResponse("GET", "/i/"+token+"/"+path, machineAddress, "", 404, "no such file")
	}
	r.switchOn(machine.Client{MAC: mac}, machineAddress)
	r.wantResponse("GET", "/i/boot", machineAddress, "", 200, "local.efi")
	all := r.reports()
	if n := len(slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.Contains(s, " progress: ") })); n < 2 || n > 50 {
		t.Errorf("got %d reports of progress, want 2 to 50", n)
	}
	end := slices.Index(all, "7 192.0.2.10 done: noted")
	if end < 1 || slices.Index(all[end+1:], all[end]) >= 0 {
		t.Fatalf("got the reports\n%s\nwant machine 7 done once, after others", strings.Join(all, "\n"))
	}
	if found, err := r.client.GetFeed(t.Context(), 0); err != nil || !slices.ContainsFunc(found.Entries, func(e siteagent.Entry) bool {
		return e.Machine != nil && e.Machine.Progress == 99 && e.Machine.Step == "disk" && e.Machine.MAC == mac
	}) {
		t.Errorf("got %+v (%v), want the step disk with progress 99 of %s", found.Entries, err, mac)
	}
	if got := all[end+1:]; !slices.Equal(
		got,
		[]string{"7 192.0.2.10 lease: the address 192.0.2.10", "7 192.0.2.10 local: a script that boots its disk"},
	) {
		t.Errorf("got the reports %q after it was done, want its lease and its boot from the disk", got)
	}
}

// A machine with Secure Boot has loaded GRUB, and gets scripts for it by TFTP. With another bootloader it restarts.
func TestSecureBoot(t *testing.T) {
	t.Parallel()
	r := startWith(t, t.TempDir(), bootSettings)
	address := netip.MustParseAddr(machineAddress)
	wantFile := func(name, want string) {
		t.Helper()
		if got, ok := r.agent.Machines().ReadGRUBFile(name, address); !strings.Contains(got, want) || ok != (want != "") {
			t.Errorf("%s: got %q and %v, want %q", name, got, ok, want)
		}
	}
	m := web1()
	m.Boot, m.Token, m.Reason, m.Files = siteagent.BootWait, "", "It's full.", siteagent.Files{}
	r.putMachine(m)
	r.switchOn(machine.Client{MAC: mac}, machineAddress)
	wantFile("grub/other.cfg", "")
	m.Revision, m.SecureBoot = 2, true
	r.putMachine(m)
	wantFile("grub/grub.cfg", "source $prefix/machine.cfg")
	wantFile("grub/x86_64-efi/grub.cfg", "")
	wantFile("grub/machine.cfg", "echo 'Ironplane: this machine waits. It s full.'\n")
	m = web1()
	m.Revision, m.SecureBoot, m.Files.Boot = 3, true, "linux '(tftp,192.0.2.1)/linux'"
	r.putMachine(m)
	r.wantResponse("GET", "/i/boot", machineAddress, "", 200, "#!ipxe\necho Ironplane: this machine restarts")
	m.Revision, m.SecureBoot = 4, false
	r.putMachine(m)
	wantFile("grub/machine.cfg", "reboot") // it has loaded GRUB, and its script is for iPXE now
	m.Revision, m.SecureBoot = 5, true
	r.putMachine(m)
	wantFile("grub/machine.cfg", "linux '(tftp,192.0.2.1)/linux'")
	wantFile("grub/machine.cfg", "reboot")
	r.wantResponse("POST", "/i/"+token+"/done", machineAddress, "", 200, "noted")
	wantFile("grub/machine.cfg", "chainloader ($root)/EFI/$loader.efi")
	local, _ := r.agent.Machines().ReadGRUBFile("grub/machine.cfg", address)
	loaders := regexp.MustCompile("for loader in .*; do").FindString(local)
	if own := testkit.CodeBlock(t, "../../../../docs/do/netboot.md", "netboot bootloaders"); loaders == "" || !strings.Contains(own, loaders) {
		t.Errorf("got the loaders %q, want those of the GRUB that docs/do/netboot.md builds", loaders)
	}
	r.wantReported(
		"7 192.0.2.10 lease: the address 192.0.2.10",
		"7 192.0.2.10 ask: a script that asks again: It's full.",
		"7 192.0.2.10 refused: a script that restarts it: it has loaded iPXE, and its boot script is for another bootloader",
		"7 192.0.2.10 refused: a script that restarts it: it has loaded GRUB, and its boot script is for another bootloader",
		"7 192.0.2.10 boot: its boot script",
		"7 192.0.2.10 refused: a script that restarts it: it already got its boot script in this boot",
		"7 192.0.2.10 done: noted",
		"7 192.0.2.10 local: a script that boots its disk",
	)
}

// A second attempt has a token of its own. A failure is reported with its error.
func TestSecondAttempt(t *testing.T) {
	t.Parallel()
	r := startWith(t, t.TempDir(), bootSettings)
	one := web1()
	one.Boot, one.Token, one.Files, one.Reason = siteagent.BootWait, "", siteagent.Files{}, "file server ${x} || is full"
	r.putMachine(one)
	r.switchOn(machine.Client{MAC: mac}, machineAddress)
	r.wantResponse("GET", "/i/boot", machineAddress, "", 200, "waits. file server   x     is full\n")
	r.wantResponse("GET", "/i/boot", machineAddress, "", 200, "sleep 5")
	two := web1()
	two.Revision = 2
	r.putMachine(two)
	if err := r.client.PutMachine(t.Context(), one); !siteagent.IsRefusal(err, 409) {
		t.Errorf("got %v, want a refusal with 409", err)
	}
	r.wantResponse("GET", "/i/boot", machineAddress, "", 200, "# web1's")
	r.wantResponse("POST", "/i/"+token+"/failed", machineAddress, "error=no+disk%1B[2J", 200, "noted")
	r.wantResponse("GET", "/i/boot", machineAddress, "", 200, "sanboot")
	two.Revision, two.Token = 3, "another"+token
	r.putMachine(two)
	r.wantResponse("GET", "/i/boot", machineAddress, "", 200, "reboot")
	r.switchOn(machine.Client{MAC: mac}, machineAddress)
	r.wantResponse("GET", "/i/"+token+"/boot", machineAddress, "", 404, "")
	r.wantResponse("GET", "/i/boot", machineAddress, "", 200, "# web1's")
	testkit.Must(t, r.client.DeleteMachine(t.Context(), 7))
	testkit.Must(t, r.client.DeleteMachine(t.Context(), 7))
	r.wantResponse("GET", "/i/boot", machineAddress, "", 404, "")
	r.wantResponse("POST", "/i/another"+token+"/done", machineAddress, "", 404, "")
	if left, err := filepath.Glob(filepath.Join(r.folder, "machines/*")); err != nil || len(left) > 0 {
		t.Errorf("got the files %v (%v) of machines, want none", left, err)
	}
	r.wantReported(
		"7 192.0.2.10 lease: the address 192.0.2.10",
		"7 192.0.2.10 ask: a script that asks again: file server ${x} || is full",
		"7 192.0.2.10 boot: its boot script",
		"7 192.0.2.10 failed: noted  no disk [2J",
		"7 192.0.2.10 local: a script that boots its disk",
		"7 192.0.2.10 refused: a script that restarts it: it already got its boot script in this boot",
		"7 192.0.2.10 lease: the address 192.0.2.10",
		"7 192.0.2.10 boot: its boot script",
	)
}

// A token works only from the machine's leased address, and at the port where the machine got its script.
func TestTokenOfAnotherMachine(t *testing.T) {
	t.Parallel()
	r := startWith(t, t.TempDir(), bootSettings)
	r.putMachine(web1())
	other := web1()
	other.ID, other.MACs, other.IPv4, other.Token = 8, []string{
		"52:54:00:12:34:57",
	}, &siteagent.Address{
		Prefix: "192.0.2.11/24",
	}, "the other's "+token
	r.putMachine(other)
	r.wantResponse("GET", "/i/"+token+"/preseed", machineAddress, "", 404, "") // it has no address yet
	port7, port8 := machine.Client{MAC: mac, Port: "eth1/0/7"}, machine.Client{MAC: mac, Port: "eth1/0/8"}
	r.switchOn(port7, machineAddress)
	r.switchOn(machine.Client{MAC: other.MACs[0]}, "192.0.2.11")
	r.wantResponse("GET", "/i/boot", "192.0.2.12", "", 404, "")
	for _, path := range []string{"boot", "preseed", "after"} {
		r.wantResponse("GET", "/i/"+token+"/"+path, "192.0.2.11", "", 404, "no such file")
		r.wantResponse("GET", "/i/"+token[1:]+"/"+path, machineAddress, "", 404, "no such file")
	}
	r.wantResponse("POST", "/i/"+token+"/done", "192.0.2.11", "", 404, "")
	for _, from := range []machine.Client{port8, {MAC: mac}} {
		from.IsBooting = true
		if r.agent.Machines().Admit(from) {
			t.Error("got an answer at another port, want none")
		}
		if _, ok := r.agent.Machines().FindLease(from); ok {
			t.Error("got an offer at another port, want none")
		}
		if r.agent.Machines().ConfirmLease(from, netip.MustParseAddr(machineAddress)) {
			t.Error("got a lease at another port, want none")
		}
	}
	if !r.agent.Machines().ConfirmLease(machine.Client{MAC: mac, IsRenewal: true}, netip.MustParseAddr(machineAddress)) {
		t.Error("got no renewal of the lease, want one")
	}
	r.wantResponse("GET", "/i/boot", machineAddress, "", 200, "# web1's")
	r.wantResponse("POST", "/i/"+token+"/progress", machineAddress, strings.Repeat("x", 70_000), 400, "cannot be read")
	for _, report := range r.reports() {
		if strings.Contains(report, token) {
			t.Errorf("got the report %s, want it without the token", report)
		}
	}
	got := r.reports()
	if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "192.0.2.11 is not its leased address") }) {
		t.Errorf("got the reports\n%s\nwant one that 192.0.2.11 is not its leased address", strings.Join(got, "\n"))
	}
	// The next attempt may use another port.
	next := web1()
	next.Revision, next.Token = 2, "another"+token
	r.putMachine(next)
	r.switchOn(port8, machineAddress)
}

// An unknown machine reports its hardware, and boots its disk.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	settings := bootSettings
	settings.Discover, settings.Pool = true, machine.Pool{
		First:   netip.MustParseAddr("192.0.2.10"),
		Last:    netip.MustParseAddr("192.0.2.12"),
		Gateway: netip.MustParseAddr("192.0.2.11"),
		Bits:    24,
	}
	r := startWith(t, t.TempDir(), settings)
	r.putMachine(web1())
	c := machine.Client{MAC: "52:54:00:00:00:01", IsBooting: true}
	for range 2 {
		if lease, ok := r.agent.Machines().FindLease(c); !ok || lease.Address.String() != "192.0.2.12/24" {
			t.Fatalf("got the offer %v (%v), want 192.0.2.12/24", lease, ok)
		}
	}
	if lease, ok := r.agent.Machines().FindLease(machine.Client{MAC: "52:54:00:00:00:02", IsBooting: true}); ok {
		t.Errorf("got the offer %v for a second machine, want none", lease)
	}
	if r.agent.Machines().ConfirmLease(c, netip.MustParseAddr("192.0.2.10")) ||
		!r.agent.Machines().ConfirmLease(c, netip.MustParseAddr("192.0.2.12")) {
		t.Error("got a lease of 192.0.2.10 or none of 192.0.2.12, want only 192.0.2.12")
	}
	if r.agent.Machines().Admit(machine.Client{MAC: c.MAC}) {
		t.Error("got an answer to a machine that does not boot, want none")
	}
	r.wantResponse("GET", "/i/boot", "192.0.2.12", "", 200, "/i/discover?uuid=${uuid}&serial=${serial:uristring}&")
	r.wantResponse("GET", "/i/discover?serial=A%201&mac0="+c.MAC+"&secret=x", "192.0.2.12", "", 200, "sanboot")
	found, err := r.client.GetFeed(t.Context(), 0)
	testkit.Must(t, err)
	report := found.Entries[len(found.Entries)-1].Machine
	if report == nil || report.Event != siteagent.EventDiscovered || report.ID != 0 || report.MAC != c.MAC || len(report.Facts) != 2 ||
		report.Facts["serial"] != "A 1" {
		t.Errorf("got %+v, want the discovery of %s with its serial number", report, c.MAC)
	}
	r.agent.Machines().DeclineLease(c, netip.MustParseAddr("192.0.2.12"))
	if lease, ok := r.agent.Machines().FindLease(c); ok {
		t.Errorf("got the offer %v of a declined address, want none", lease)
	}
}

// A machine that sends many different reports does not push others' reports out of the feed, nor the end of its own installation.
func TestFloodOfReports(t *testing.T) {
	t.Parallel()
	settings := bootSettings
	settings.Discover = true
	r := startWith(t, t.TempDir(), settings)
	r.putMachine(web1())
	const flood = 1500
	address := netip.MustParseAddr("192.0.2.0")
	for range flood {
		address = address.Next()
		r.switchOn(machine.Client{MAC: mac}, address.String())
	}
	unknown := machine.Client{MAC: "52:54:00:00:00:01", IsBooting: true}
	if !r.agent.Machines().ConfirmLease(unknown, netip.MustParseAddr("198.51.100.1")) {
		t.Fatal("got no lease for an unknown machine, want one")
	}
	for n := range flood {
		r.wantResponse("GET", fmt.Sprintf("/i/discover?serial=%d", n), "198.51.100.1", "", 200, "sanboot")
	}
	r.wantResponse("POST", "/i/"+token+"/done", address.String(), "", 200, "noted")
	all := r.reports()
	if n := len(all); n < 1100 || n > 2*flood-300 {
		t.Errorf("got %d reports, want 1100 to %d", n, 2*flood-300)
	}
	if last := all[len(all)-1]; !strings.Contains(last, " done: ") {
		t.Errorf("got %s as the last report, want that it is done", last)
	}
}

// An invalid machine is refused with the invalid member's name.
func TestMachineIsRefused(t *testing.T) {
	t.Parallel()
	r := startWith(t, t.TempDir(), bootSettings)
	for body, want := range map[string]string{
		`{"id": 8}`:                  "/id",
		`{"id": 7, "boot": "local"}`: "/macs",
		`{"id": 7, "boot": "local", "macs": ["52-54-00-12-34-56"]}`:                                                     "/macs/0",
		`{"id": 7, "boot": "off", "macs": ["52:54:00:12:34:56"]}`:                                                       "/boot",
		`{"id": 7, "boot": "install", "macs": ["52:54:00:12:34:56"]}`:                                                   "/files/boot",
		`{"id": 7, "boot": "local", "macs": ["52:54:00:12:34:56"], "ipv4": {"prefix": "2001:db8::1/64"}}`:               "/ipv4/prefix",
		`{"id": 7, "boot": "local", "macs": ["52:54:00:12:34:56"], "ipv4": {"prefix": "192.0.2.1/24", "gateway": "x"}}`: "/ipv4/gateway",
		`{"id": 7, "boot": "local", "macs": ["52:54:00:12:34:56"], "nameservers": ["x"]}`:                               "/nameservers/0",
		`{"id": 7, "boot": "local", "macs": ["52:54:00:12:34:56"], "token": "short"}`:                                   "/token",
	} {
		if status, text := r.request(
			"PUT",
			"/v1/machine/7",
			key,
			strings.NewReader(body),
		); status != http.StatusUnprocessableEntity ||
			!strings.Contains(text, want) {
			t.Errorf("%s: got %d %s, want %d with %s", body, status, text, http.StatusUnprocessableEntity, want)
		}
	}
	if status, _ := r.request("PUT", "/v1/machine/7", key, io.LimitReader(neverEnding{}, 64<<20)); status != http.StatusBadRequest {
		t.Errorf("got %d for a large body, want %d", status, http.StatusBadRequest)
	}
	if h, err := r.client.GetHealth(t.Context()); err != nil || h.MachinesURL != bootSettings.URL {
		t.Errorf("got %+v (%v), want the machines URL %s", h, err, bootSettings.URL)
	}
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) {
	return copy(p, bytes.Repeat([]byte(" "), len(p))), nil
}

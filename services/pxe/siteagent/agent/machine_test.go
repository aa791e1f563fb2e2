package agent_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
)

const (
	mac   = "52:54:00:12:34:56"
	token = "0123456789abcdefghijklmnop"
	at    = "192.0.2.10"
)

var boots = machine.Settings{URL: "http://192.0.2.1"}

func web1() siteagent.Machine {
	return siteagent.Machine{
		ID:       7,
		Revision: 1,
		MACs:     []string{mac},
		Hostname: "web1.example.com",
		IPv4:     &siteagent.Address{Prefix: at + "/24", Gateway: "192.0.2.1"},
		Nameservers: []string{
			"192.0.2.53",
		},
		Boot:  siteagent.BootInstall,
		Token: token,
		Files: siteagent.Files{Boot: "#!ipxe\n# web1's", Preseed: "its preseed", During: "its during", After: "its after"},
	}
}

func (r *running) name(m siteagent.Machine) {
	r.Helper()
	if err := r.client.PutMachine(r.Context(), m); err != nil {
		r.Fatal(err)
	}
}

// switchOn is what a machine does first: it boots, and has its address then.
func (r *running) switchOn(c machine.Client, address string) {
	r.Helper()
	c.Boots = true
	if !r.agent.Machines().Known(c) || !r.agent.Machines().Leased(c, netip.MustParseAddr(address)) {
		r.Fatalf("got no address for %v, want %s", c, address)
	}
}

// ask is a request that comes from an address.
func (r *running) ask(method, path, from, body string) (status int, text string) {
	r.Helper()
	response, request := httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(body))
	request.RemoteAddr = from + ":4711"
	if body != "" {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.machines.ServeHTTP(response, request)
	return response.Code, response.Body.String()
}

func (r *running) want(method, path, from, body string, status int, part string) {
	r.Helper()
	if got, text := r.ask(method, path, from, body); got != status || !strings.Contains(text, part) {
		r.Errorf("%s %s from %s: got %d %s, want %d with %q", method, path, from, got, text, status, part)
	}
}

// reported is what machines did, as text, and empties nothing.
func (r *running) reported() (all []string) {
	r.Helper()
	for after := int64(0); ; {
		found, err := r.client.Feed(r.Context(), after)
		if err != nil {
			r.Fatal(err)
		}
		if len(found.Entries) == 0 {
			return all
		}
		for _, e := range found.Entries {
			after = e.Number
			if m := e.Machine; e.Kind == "machine" {
				all = append(all, strings.TrimSpace(fmt.Sprintf("%d %s %s: %s %s %s", m.ID, m.Address, m.What, m.Got, m.Step, m.Error)))
			}
		}
	}
}

func (r *running) wantReported(want ...string) {
	r.Helper()
	if got := r.reported(); !slices.Equal(got, want) {
		r.Errorf("got the reports\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A machine has its script once each time that it boots, its files until it ends, and its disk from then on, also where the agent
// was started anew in between and nobody has told it anything.
func TestInstall(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := startWith(t, folder, boots)
	r.name(web1())
	r.switchOn(machine.Client{MAC: mac}, at)
	again := func() {
		r.Helper()
		r.stop()
		r = startWith(t, folder, boots)
	}
	again()
	if held, err := r.client.Machines(t.Context()); err != nil || !slices.Equal(held, []siteagent.Held{{ID: 7, Revision: 1}}) {
		t.Errorf("got the machines %v (%v), want machine 7 in revision 1", held, err)
	}
	r.want("HEAD", "/i/boot", at, "", 405, "")
	r.want("GET", "/i/boot", at, "", 200, "# web1's")
	again()
	r.want("GET", "/i/boot", at, "", 200, "reboot")
	r.want("GET", "/i/"+token+"/boot", at, "", 200, "reboot")
	r.switchOn(machine.Client{MAC: mac}, at)
	r.want("GET", "/i/"+token+"/boot", at, "", 200, "# web1's")
	for path, want := range map[string]string{
		"preseed": "its preseed", "nocloud/user-data": "its preseed", "nocloud/meta-data": "", "during": "its during", "after": "its after",
	} {
		r.want("GET", "/i/"+token+"/"+path, at, "", 200, want)
	}
	r.want("GET", "/i/"+token+"/etc/passwd", at, "", 404, "")
	r.want("POST", "/i/"+token+"/progress", at, "step=disk&progress=101", 422, "/progress")
	for n := range 100 {
		r.want("POST", "/i/"+token+"/progress", at, fmt.Sprintf("step=disk%%0A&progress=%d", n), 200, "noted")
	}
	r.want("POST", "/i/"+token+"/done", at, "", 200, "noted")
	again()
	r.want("POST", "/i/"+token+"/done", at, "", 200, "noted")
	for _, path := range []string{"boot", "preseed", "after"} {
		r.want("GET", "/i/"+token+"/"+path, at, "", 404, "no such file")
	}
	r.switchOn(machine.Client{MAC: mac}, at)
	r.want("GET", "/i/boot", at, "", 200, "local.efi")
	all := r.reported()
	if n := len(slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.Contains(s, " progress: ") })); n < 2 || n > 50 {
		t.Errorf("got %d reports of progress, want 2 to 50", n)
	}
	end := slices.Index(all, "7 192.0.2.10 done: noted")
	if end < 1 || slices.Index(all[end+1:], all[end]) >= 0 {
		t.Fatalf("got the reports\n%s\nwant machine 7 done once, after others", strings.Join(all, "\n"))
	}
	if found, err := r.client.Feed(t.Context(), 0); err != nil || !slices.ContainsFunc(found.Entries, func(e siteagent.Entry) bool {
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

// A second attempt has a token of its own; that it failed is said with why.
func TestSecondAttempt(t *testing.T) {
	t.Parallel()
	r := startWith(t, t.TempDir(), boots)
	one := web1()
	one.Boot, one.Token, one.Files, one.Reason = siteagent.BootWait, "", siteagent.Files{}, "file server ${x} || is full"
	r.name(one)
	r.switchOn(machine.Client{MAC: mac}, at)
	r.want("GET", "/i/boot", at, "", 200, "waits. file server   x     is full\n")
	r.want("GET", "/i/boot", at, "", 200, "sleep 5")
	two := web1()
	two.Revision = 2
	r.name(two)
	if err := r.client.PutMachine(t.Context(), one); !siteagent.IsRefusal(err, 409) {
		t.Errorf("got %v, want a refusal with 409", err)
	}
	r.want("GET", "/i/boot", at, "", 200, "# web1's")
	r.want("POST", "/i/"+token+"/failed", at, "error=no+disk%1B[2J", 200, "noted")
	r.want("GET", "/i/boot", at, "", 200, "sanboot")
	two.Revision, two.Token = 3, "another"+token
	r.name(two)
	r.want("GET", "/i/boot", at, "", 200, "reboot")
	r.switchOn(machine.Client{MAC: mac}, at)
	r.want("GET", "/i/"+token+"/boot", at, "", 404, "")
	r.want("GET", "/i/boot", at, "", 200, "# web1's")
	testkit.Must(t, r.client.DeleteMachine(t.Context(), 7))
	testkit.Must(t, r.client.DeleteMachine(t.Context(), 7))
	r.want("GET", "/i/boot", at, "", 404, "")
	r.want("POST", "/i/another"+token+"/done", at, "", 404, "")
	if left, err := filepath.Glob(filepath.Join(r.folder, "machines/*")); err != nil || len(left) > 0 {
		t.Errorf("got the files %v (%v) of machines, want none", left, err)
	}
	r.wantReported(
		"7 192.0.2.10 lease: the address 192.0.2.10",
		"7 192.0.2.10 ask: a script that asks again: file server ${x} || is full",
		"7 192.0.2.10 boot: its boot script",
		"7 192.0.2.10 failed: noted  no disk [2J",
		"7 192.0.2.10 local: a script that boots its disk",
		"7 192.0.2.10 refused: a script that restarts it: it had its boot script since it was switched on",
		"7 192.0.2.10 lease: the address 192.0.2.10",
		"7 192.0.2.10 boot: its boot script",
	)
}

// A token is good for the address that the machine was leased, at the port where it got its script.
func TestRogue(t *testing.T) {
	t.Parallel()
	r := startWith(t, t.TempDir(), boots)
	r.name(web1())
	other := web1()
	other.ID, other.MACs, other.IPv4, other.Token = 8, []string{
		"52:54:00:12:34:57",
	}, &siteagent.Address{
		Prefix: "192.0.2.11/24",
	}, "the other's "+token
	r.name(other)
	r.want("GET", "/i/"+token+"/preseed", at, "", 404, "") // it has no address yet
	here, elsewhere := machine.Client{MAC: mac, Port: "eth1/0/7"}, machine.Client{MAC: mac, Port: "eth1/0/8"}
	r.switchOn(here, at)
	r.switchOn(machine.Client{MAC: other.MACs[0]}, "192.0.2.11")
	r.want("GET", "/i/boot", "192.0.2.12", "", 404, "")
	for _, path := range []string{"boot", "preseed", "after"} {
		r.want("GET", "/i/"+token+"/"+path, "192.0.2.11", "", 404, "no such file")
		r.want("GET", "/i/"+token[1:]+"/"+path, at, "", 404, "no such file")
	}
	r.want("POST", "/i/"+token+"/done", "192.0.2.11", "", 404, "")
	for _, from := range []machine.Client{elsewhere, {MAC: mac}} {
		from.Boots = true
		if r.agent.Machines().Known(from) {
			t.Error("got an answer at another port, want none")
		}
		if _, ok := r.agent.Machines().Offered(from); ok {
			t.Error("got an offer at another port, want none")
		}
		if r.agent.Machines().Leased(from, netip.MustParseAddr(at)) {
			t.Error("got a lease at another port, want none")
		}
	}
	if !r.agent.Machines().Leased(machine.Client{MAC: mac, Renews: true}, netip.MustParseAddr(at)) {
		t.Error("got no renewal of the lease, want one")
	}
	r.want("GET", "/i/boot", at, "", 200, "# web1's")
	r.want("POST", "/i/"+token+"/progress", at, strings.Repeat("x", 70_000), 400, "cannot be read")
	for _, report := range r.reported() {
		if strings.Contains(report, token) {
			t.Errorf("got the report %s, want it without the token", report)
		}
	}
	got := r.reported()
	if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "192.0.2.11 is not the address") }) {
		t.Errorf("got the reports\n%s\nwant one that 192.0.2.11 is not the address", strings.Join(got, "\n"))
	}
	// With the next attempt it may be elsewhere.
	next := web1()
	next.Revision, next.Token = 2, "another"+token
	r.name(next)
	r.switchOn(elsewhere, at)
}

// A machine that nobody named says what it is, and goes on to its disk.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	settings := boots
	settings.Discover, settings.Pool = true, machine.Pool{
		First:   netip.MustParseAddr("192.0.2.10"),
		Last:    netip.MustParseAddr("192.0.2.12"),
		Gateway: netip.MustParseAddr("192.0.2.11"),
		Bits:    24,
	}
	r := startWith(t, t.TempDir(), settings)
	r.name(web1())
	c := machine.Client{MAC: "52:54:00:00:00:01", Boots: true}
	for range 2 {
		if lease, ok := r.agent.Machines().Offered(c); !ok || lease.Address.String() != "192.0.2.12/24" {
			t.Fatalf("got the offer %v (%v), want 192.0.2.12/24", lease, ok)
		}
	}
	if lease, ok := r.agent.Machines().Offered(machine.Client{MAC: "52:54:00:00:00:02", Boots: true}); ok {
		t.Errorf("got the offer %v for a second machine, want none", lease)
	}
	if r.agent.Machines().Leased(c, netip.MustParseAddr("192.0.2.10")) || !r.agent.Machines().Leased(c, netip.MustParseAddr("192.0.2.12")) {
		t.Error("got a lease of 192.0.2.10 or none of 192.0.2.12, want only 192.0.2.12")
	}
	if r.agent.Machines().Known(machine.Client{MAC: c.MAC}) {
		t.Error("got an answer to a machine that does not boot, want none")
	}
	r.want("GET", "/i/boot", "192.0.2.12", "", 200, "/i/discover?uuid=${uuid}&serial=${serial:uristring}&")
	r.want("GET", "/i/discover?serial=A%201&mac0="+c.MAC+"&secret=x", "192.0.2.12", "", 200, "sanboot")
	found, err := r.client.Feed(t.Context(), 0)
	testkit.Must(t, err)
	is := found.Entries[len(found.Entries)-1].Machine
	if is == nil || is.What != siteagent.Discovered || is.ID != 0 || is.MAC != c.MAC || len(is.Facts) != 2 || is.Facts["serial"] != "A 1" {
		t.Errorf("got %+v, want the discovery of %s with its serial number", is, c.MAC)
	}
	r.agent.Machines().Declined(c, netip.MustParseAddr("192.0.2.12"))
	if lease, ok := r.agent.Machines().Offered(c); ok {
		t.Errorf("got the offer %v of a declined address, want none", lease)
	}
}

// Who repeats himself in ever other words does not push out of the feed what others have to say, nor that his own machine is installed.
func TestFloodOfReports(t *testing.T) {
	t.Parallel()
	settings := boots
	settings.Discover = true
	r := startWith(t, t.TempDir(), settings)
	r.name(web1())
	const flood = 1500
	address := netip.MustParseAddr("192.0.2.0")
	for range flood {
		address = address.Next()
		r.switchOn(machine.Client{MAC: mac}, address.String())
	}
	stranger := machine.Client{MAC: "52:54:00:00:00:01", Boots: true}
	if !r.agent.Machines().Leased(stranger, netip.MustParseAddr("198.51.100.1")) {
		t.Fatal("got no lease for an unknown machine, want one")
	}
	for n := range flood {
		r.want("GET", fmt.Sprintf("/i/discover?serial=%d", n), "198.51.100.1", "", 200, "sanboot")
	}
	r.want("POST", "/i/"+token+"/done", address.String(), "", 200, "noted")
	all := r.reported()
	if n := len(all); n < 1100 || n > 2*flood-300 {
		t.Errorf("got %d reports, want 1100 to %d", n, 2*flood-300)
	}
	if last := all[len(all)-1]; !strings.Contains(last, " done: ") {
		t.Errorf("got %s as the last report, want that it is done", last)
	}
}

// What is wrong with a machine is said with its member.
func TestMachineIsRefused(t *testing.T) {
	t.Parallel()
	r := startWith(t, t.TempDir(), boots)
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
		if status, text := r.do(
			"PUT",
			"/v1/machine/7",
			key,
			strings.NewReader(body),
		); status != http.StatusUnprocessableEntity ||
			!strings.Contains(text, want) {
			t.Errorf("%s: got %d %s, want %d with %s", body, status, text, http.StatusUnprocessableEntity, want)
		}
	}
	if status, _ := r.do("PUT", "/v1/machine/7", key, io.LimitReader(neverEnding{}, 64<<20)); status != http.StatusBadRequest {
		t.Errorf("got %d for a large body, want %d", status, http.StatusBadRequest)
	}
	if h, err := r.client.Health(t.Context()); err != nil || h.MachinesURL != boots.URL {
		t.Errorf("got %+v (%v), want the machines URL %s", h, err, boots.URL)
	}
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) {
	return copy(p, bytes.Repeat([]byte(" "), len(p))), nil
}

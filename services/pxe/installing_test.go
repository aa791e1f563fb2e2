package pxe_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/services/pxe/siteagent/agenttest"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/neighbours"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
)

const agentKey = "what the agent asks of its callers"

// bootSite is the service with a site that boots machines.
type bootSite struct {
	*testing.T
	*testkit.RunningService
	*neighbours.All
	agent                                    *agenttest.BootAgent
	group, dhcp, fileServer, profile, client int64
	macs                                     int
}

func newBoot(t *testing.T) *bootSite { return newBootWith(t, service.Tuning{}) }

func newBootWith(t *testing.T, tuning service.Tuning) *bootSite {
	settings := service.Settings{AllowedNetworks: "127.0.0.1 " + allowedHost, Store: t.TempDir(), Tuning: tuning}
	s, all := neighbours.Run(t, pxe.Definition, testkit.ServiceOptions{Settings: settings})
	b := &bootSite{T: t, RunningService: s, All: all, agent: agenttest.NewBootAgent(t, agentKey), group: 1, client: 5}
	all.Network.SetGroup(b.group, "Berlin")
	all.System.SetEmailTemplate(1, "install-finished")
	all.Clients.Set(credentials.Account{ID: b.client, Name: "Ben Miller", First: "Ben", Last: "Miller", Email: "ben@example.org"})
	all.Clients.Set(credentials.Account{ID: 6, Name: "Jo Doe", Email: "jo@example.org"})
	host, port, _ := strings.Cut(strings.TrimPrefix(b.agent.URL, "http://"), ":")
	b.dhcp = b.create("/pxe/dhcp", map[string]any{"name": "Berlin", "host": host, "port": port, "api_key": agentKey})
	b.fileServer = b.create("/pxe/file", map[string]any{"name": "files", "install_max_concurrent": 20, "group": b.group,
		"host": host, "port": port, "api_key": agentKey, "public_key": hostKey})
	script := b.create("/pxe/boot-script", map[string]any{
		"name": "boot", "body": "#!ipxe\nkernel {{.URL.Files}}/linux token {{.URL.Preseed}}\n",
	})
	preseed := b.create("/pxe/preseed", map[string]any{
		"name": "seed", "body": "{{quote .Password}} {{.Host.IPv4.Address}} {{.Client.Email}}",
	})
	shell := b.create("/pxe/shell", map[string]any{"name": "after", "body": "#!/bin/bash\necho {{.Host.Name}}"})
	b.profile = b.create("/pxe/profile", map[string]any{"name": "mine", "boot_script": script, "preseed": preseed,
		"shell": map[string]any{"after": []int64{shell}}, "email": map[string]any{"template": 1}})
	testkit.AwaitAgents(t, b.Client, path("/pxe/dhcp/%d", b.dhcp), path("/pxe/file/%d", b.fileServer))
	return b
}

func (b *bootSite) create(path string, body any) int64 {
	b.Helper()
	return b.Do("POST", path, body).Want(200).ID()
}

// target is a machine to install.
type target struct {
	id, entity   int64
	mac, address string
}

// entity returns the IP entity of a machine as the network service has it.
func (b *bootSite) entity(m target, owner int64) neighbours.Machine {
	return neighbours.Machine{Entity: m.entity, Address: m.address, Gateway: "10.1.0.254",
		Group: b.group, GroupName: "Berlin", DHCPServer: b.dhcp, Owner: owner}
}

// install creates an install of a new machine.
func (b *bootSite) install(more string) target {
	b.Helper()
	return b.forcedInstall("", more)
}

// forcedInstall creates an install of a new machine, and passes over reasons against it.
func (b *bootSite) forcedInstall(force, more string) target {
	b.Helper()
	b.macs++
	m := target{mac: fmt.Sprintf("52:54:00:00:00:%02x", b.macs), address: fmt.Sprintf("10.1.0.%d", b.macs+1), entity: int64(b.macs)}
	owner := int64(0)
	if strings.Contains(more, `"client"`) {
		owner = b.client
	}
	b.Network.SetMachine(b.entity(m, owner))
	m.id = b.create("/pxe/install?force="+force, fmt.Sprintf(
		`{"profile": %d, "host": {"macs": [%q], "entity": %d, "hostname": "web%d.example.com"}, "password": "a long walk in the rain"%s}`,
		b.profile, m.mac, m.entity, b.macs, more))
	return m
}

func (b *bootSite) view(m target) install.Install {
	b.Helper()
	return testkit.Decode[install.Install](b.Do("GET", path("/pxe/install/%d", m.id), nil).Want(200))
}

// awaitStatus waits until an install has a status.
func (b *bootSite) awaitStatus(m target, status string) (i install.Install) {
	b.Helper()
	testkit.Eventually(b.T, fmt.Sprintf("install %d is %s", m.id, status), func() bool {
		i = b.view(m)
		return i.Status == status
	})
	return i
}

// bootUntil boots a machine repeatedly, until it gets a script that contains text.
func (b *bootSite) bootUntil(m target, text string) (script string) {
	b.Helper()
	testkit.Eventually(b.T, fmt.Sprintf("machine %d gets a script with %s", m.id, text), func() (ok bool) {
		script, ok = b.agent.TryBoot(m.id, m.mac, m.address, text)
		return ok
	})
	return script
}

// bootToken boots a machine until it gets its boot script, and returns the script's token.
func (b *bootSite) bootToken(m target) (token string) {
	b.Helper()
	return agenttest.Token(b.bootUntil(m, "kernel"))
}

func (b *bootSite) secrets(m target) (n int) {
	b.Helper()
	if err := b.DB.QueryRow(b.Context(), "SELECT count(password) + count(token) FROM install WHERE id = $1", m.id).
		Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// used asks whether an item may be deleted, as its owner does, and returns the reason why not.
func (b *bootSite) used(owner, kind string, id int64) string {
	b.Helper()
	var user struct {
		Usage string `json:"uses"`
	}
	query := url.Values{"items": {fmt.Sprintf(`[{"ID": %d, "Token": 1}]`, id)}}
	testkit.Must(b, b.Peers(owner).Ask(b.Context(), pxe.Name, "/internal/close/"+kind+"?"+query.Encode(), &user))
	return user.Usage
}

// changes returns the changes of a kind that a reader receives, each with the resulting status and error.
func (b *bootSite) changes(reader, kind string) (all []string) {
	b.Helper()
	var page struct{ Events []events.Event }
	testkit.Must(b, b.Peers(reader).Ask(b.Context(), pxe.Name, "/internal/events?after=0&kind="+kind, &page))
	for _, e := range page.Events {
		after := map[string]any{}
		if e.After != nil {
			testkit.Must(b, json.Unmarshal(e.After, &after))
		}
		all = append(all, fmt.Sprint(e.Type, " ", after["status"], " ", after["error"]))
	}
	return all
}

// A machine boots from a site's agent, is installed, and is installed again after a retry. Its client is notified, and
// secrets are deleted when an install ends.
func TestInstalls(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	m := b.install(fmt.Sprintf(`, "client": %d`, b.client))
	token := b.bootToken(m)
	if i := b.awaitStatus(m, "booting"); i.StartedAt == nil || i.FileServer == nil || i.FileServer.ID != b.fileServer || b.secrets(m) != 2 {
		t.Errorf("got %+v with %d secrets, want a file server and two secrets", i, b.secrets(m))
	}
	preseed := b.agent.MustRequest("GET", "/i/"+token+"/preseed", m.address, "")
	if want := "'a long walk in the rain' " + m.address + " ben@example.org"; preseed != want {
		t.Errorf("got the preseed %q, want %q", preseed, want)
	}
	after := b.agent.MustRequest("GET", "/i/"+token+"/after", m.address, "")
	if !strings.Contains(after, "echo web1\n") || !strings.Contains(after, `/bin/bash "$script"`) {
		t.Errorf("got the script %q, want echo web1 run by bash", after)
	}
	b.agent.PostEvent(token, "progress", m.address, "step=partitions&progress=10")
	if i := b.awaitStatus(m, "installing"); *i.Step != "partitions" || i.Progress != 10 {
		t.Errorf("got step %s and progress %d, want partitions and 10", *i.Step, i.Progress)
	}
	b.refusesDeletions(m)

	// Reports made while the control plane cannot reach the agent arrive later, once and in order.
	b.agent.IsDown.Store(true)
	b.agent.PostEvent(token, "progress", m.address, "step=packages&progress=60")
	b.agent.Stop()
	b.agent.Start()
	b.agent.PostEvent(token, "done", m.address, "")
	b.agent.IsDown.Store(false)
	i := b.awaitStatus(m, "installed")
	if i.Progress != 100 || *i.Step != "packages" || i.FinishedAt == nil || b.secrets(m) != 0 {
		t.Errorf("got %+v with %d secrets, want it finished without secrets", i, b.secrets(m))
	}
	var story []string
	for _, r := range i.Requests {
		story = append(story, r.Kind)
	}
	if got, want := strings.Join(story, " "), "done progress progress read read boot lease"; !strings.HasPrefix(got, want) {
		t.Errorf("got the requests %q, want %q and what it asked for before it got its script", got, want)
	}
	testkit.Eventually(t, "the client is notified", func() bool { return len(b.Clients.Received()) == 1 })
	var message mail.ClientInstalled
	testkit.Must(t, json.Unmarshal(b.Clients.Received()[0].Content, &message))
	if message.Client != b.client || message.Template != "install-finished" || message.Content.Status != "installed" {
		t.Errorf("got the message %+v, want install-finished for client %d", message, b.client)
	}
	if got := message.Content; got.User != "root" || !slices.Equal(got.Addresses, []string{m.address}) || got.Address != m.address {
		t.Errorf("got the mail %+v, want the user root and the address %s", got, m.address)
	}
	b.bootUntil(m, "sanboot")

	// A retry has a new token.
	b.Do("POST", path("/pxe/install/%d/retry", m.id), `{"password": "another walk"}`).Want(200)
	token2 := b.bootToken(m)
	if token2 == token {
		t.Error("got the token of the attempt before, want another one")
	}
	b.awaitStatus(m, "booting")
	b.agent.PostEvent(token2, "failed", m.address, "error=no+disk")
	if i := b.awaitStatus(m, "failed"); *i.Error != "no disk" || i.Attempt != 2 {
		t.Errorf("got error %q in attempt %d, want no disk in attempt 2", *i.Error, i.Attempt)
	}
	b.Do("DELETE", path("/pxe/install/%d", m.id), nil).Want(200)
	want := []string{
		"pxe.install.created waiting <nil>", "pxe.install.booted booting <nil>", "pxe.install.began installing <nil>",
		"pxe.install.installed installed <nil>", "pxe.install.retried waiting <nil>", "pxe.install.booted booting <nil>",
		"pxe.install.failed failed no disk", "pxe.install.deleted <nil> <nil>",
	}
	heard := func() []string { return b.changes("system", "pxe.install") }
	testkit.Await(t, "the other services get all changes", heard, func(got []string) bool { return slices.Equal(got, want) })
	testkit.Eventually(t, "the agent has deleted the machine", func() bool { return len(b.agent.Agent.Machines().Revisions()) == 0 })
	if usage := b.used("network", "entity", m.entity); usage != "" {
		t.Errorf("got that the IP entity %s, want no use", usage)
	}
}

// refusesDeletions checks that the items which an unfinished install needs cannot be deleted.
func (b *bootSite) refusesDeletions(m target) {
	b.Helper()
	want := fmt.Sprintf("is used by install %d (web1.example.com) that has not ended", m.id)
	for _, of := range []struct {
		owner, kind string
		id          int64
	}{{"network", "entity", m.entity}, {"clients", "client", b.client}} {
		if got := b.used(of.owner, of.kind, of.id); got != want {
			b.Errorf("got that %s %d %q, want %q", of.kind, of.id, got, want)
		}
	}
	for at, noun := range map[string]string{path("/pxe/profile/%d", b.profile): "Profile", path("/pxe/dhcp/%d", b.dhcp): "DHCP server",
		path("/pxe/file/%d", b.fileServer): "File server"} {
		b.Do("DELETE", at, nil).WantDetail(problem.Conflict, fmt.Sprintf("%s %s %s.", noun, at[strings.LastIndex(at, "/")+1:], want))
	}
	var installed []struct {
		ID    int64
		Usage string `json:"uses"`
	}
	testkit.Must(b, b.Peers("network").Ask(b.Context(), pxe.Name, "/internal/installed-entities", &installed))
	if len(installed) != 1 || installed[0].ID != m.entity || installed[0].Usage != want {
		b.Errorf("got the used IP entities %+v, want entity %d, which %q", installed, m.entity, want)
	}
}

// Each stage has a time limit, which does not apply while the agent cannot be reached.
func TestInstallTimeouts(t *testing.T) {
	t.Parallel()
	b := newBootWith(t, service.Tuning{PollInterval: time.Second}) // nothing wakes the task when an install expires
	db := b.DB
	late := func(m target, column string, minutes int) {
		testkit.Execute(t, db, fmt.Sprintf("UPDATE install SET %s = now() - make_interval(mins => %d) WHERE id = %d", column, minutes, m.id))
	}
	b.System.SetSetting("pxe.install_wait", "50")
	b.System.SetSetting("pxe.install_boot", "20")
	b.System.SetSetting("pxe.install_time", "30")
	waits, boots, runs := b.install(""), b.install(""), b.install("")
	b.bootToken(boots)
	token := b.bootToken(runs)
	b.agent.PostEvent(token, "progress", runs.address, "step=x")
	b.awaitStatus(runs, "installing")
	b.awaitStatus(boots, "booting")
	b.agent.IsDown.Store(true)
	testkit.Eventually(t, "the agent cannot be reached", func() bool {
		return strings.Contains(b.Do("GET", path("/pxe/dhcp/%d?include=health", b.dhcp), nil).Text, "failing")
	})
	testkit.Execute(t, db, "UPDATE site_agent SET heard_at = now() - interval '1 day'")
	late(waits, "stage_at", 51)
	late(boots, "stage_at", 21)
	late(runs, "stage_at", 31)
	if err := b.DB.QueryRow(t.Context(), "SELECT pg_sleep(2.5)::text").Scan(new(string)); err != nil {
		t.Fatal(err)
	}
	for _, m := range []target{waits, boots, runs} {
		if i := b.view(m); i.FinishedAt != nil {
			t.Errorf("got %+v, want it unfinished", i)
		}
	}
	b.agent.IsDown.Store(false)
	for m, want := range map[target]string{
		waits: `The machine did not request a boot script within 50 minutes\. The agent has not heard of the machine at all\. ` +
			`Look whether its MAC addresses are right, and whether it is set to boot over the network\.`,
		boots: `The installer did not report within 20 minutes after the machine got its boot script\. ` +
			`The machine last got its boot script, at 2\d{3}-\d\d-\d\d \d\d:\d\d UTC\. Look at its screen, whether the installer starts and finds its files\.`,
		runs: `The install did not finish within 30 minutes after the installer's first report\. ` +
			`The machine last reported progress, at 2\d{3}-\d\d-\d\d \d\d:\d\d UTC\. Look at its screen, and at the installer's log on it\.`,
	} {
		if i := b.awaitStatus(m, "failed"); !regexp.MustCompile("^"+want+"$").MatchString(*i.Error) || b.secrets(m) != 0 {
			t.Errorf("got %+v with %d secrets, want the error %q and no secrets", i, b.secrets(m), want)
		}
	}
	b.Do("PATCH", path("/pxe/profile/%d", b.profile), `{"time_until_marked_failed": 90}`).Want(200)
	own := b.install("")
	b.bootToken(own)
	b.awaitStatus(own, "booting")
	late(own, "started_at", 91)
	if i := b.awaitStatus(own, "failed"); !strings.HasPrefix(*i.Error,
		"The install did not finish within the 90 minutes that its profile allows. The machine last ") {
		t.Errorf("got %+v, want the error that its profile allows 90 minutes", i)
	}
}

// A machine without an install is listed as discovered until an install names it.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	const mac, address = "52:54:00:00:00:01", "10.1.0.100"
	of := machine.Client{MAC: mac, IsBooting: true}
	if _, ok := b.agent.Agent.Machines().
		FindLease(of); !ok || !b.agent.Agent.Machines().Admit(of) ||
		!b.agent.Agent.Machines().ConfirmLease(of, netip.MustParseAddr(address)) {
		t.Fatalf("got no offer or lease for %s, want %s", mac, address)
	}
	b.agent.MustRequest("GET", "/i/discover?uuid=u&serial=S1&manufacturer=Dell+%3Cb%3E&firmware=efi&mac0=52:54:00:00:00:01", address, "")
	var found []pxe.Discovery
	testkit.Eventually(t, "it is discovered", func() bool {
		found = testkit.Decode[[]pxe.Discovery](b.Do("GET", "/pxe/discovery?mac="+mac, nil).Want(200))
		return len(found) == 1
	})
	if d := found[0]; d.Facts["serial"] != "S1" || d.Facts["firmware"] != "efi" || d.Address != address || d.DHCPServer.ID != b.dhcp {
		t.Errorf("got %+v, want the facts of S1 by EFI at %s of DHCP server %d", d, address, b.dhcp)
	}
	b.install("")
	if left := b.Do("GET", "/pxe/discovery", nil).Want(200).Text; left != "[]\n" {
		t.Errorf("got the discoveries %s, want none", left)
	}
}

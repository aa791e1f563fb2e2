package pxe_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
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
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
)

const agentKey = "what the agent asks of its callers"

// boot is the service with a site that boots machines.
type boot struct {
	*testing.T
	*testkit.RunningService
	*neighbours.All
	agent                                    *agenttest.BootAgent
	group, dhcp, fileServer, profile, client int64
	macs                                     int
}

func newBoot(t *testing.T) *boot {
	s, all := neighbours.Run(t, pxe.Definition, testkit.ServiceOptions{Settings: service.Settings{AllowedNetworks: "127.0.0.1"}})
	b := &boot{T: t, RunningService: s, All: all, agent: agenttest.NewBootAgent(t, agentKey), group: 1, client: 5}
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
	return b
}

func (b *boot) create(path string, body any) int64 {
	b.Helper()
	return b.Do("POST", path, body).Want(200).ID()
}

// target is a machine that is to be installed.
type target struct {
	id, entity   int64
	mac, address string
}

// entity is the IP entity of a machine as network has it.
func (b *boot) entity(m target, owner int64) neighbours.Machine {
	return neighbours.Machine{Entity: m.entity, Address: m.address, Gateway: "10.1.0.254",
		Group: b.group, GroupName: "Berlin", DHCPServer: b.dhcp, Owner: owner}
}

// install asks for a machine's installation.
func (b *boot) install(more string) target {
	b.Helper()
	b.macs++
	m := target{mac: fmt.Sprintf("52:54:00:00:00:%02x", b.macs), address: fmt.Sprintf("10.1.0.%d", b.macs+1), entity: int64(b.macs)}
	b.Network.SetMachine(b.entity(m, 0))
	m.id = b.create("/pxe/install", fmt.Sprintf(
		`{"profile": %d, "host": {"macs": [%q], "entity": %d, "hostname": "web%d.example.com"}, "password": "a long walk in the rain"%s}`,
		b.profile, m.mac, m.entity, b.macs, more))
	return m
}

func (b *boot) view(m target) install.Install {
	b.Helper()
	return testkit.Decode[install.Install](b.Do("GET", path("/pxe/install/%d", m.id), nil).Want(200))
}

// until waits for an install to have a status.
func (b *boot) until(m target, status string) (i install.Install) {
	b.Helper()
	testkit.Eventually(b.T, fmt.Sprintf("install %d is %s", m.id, status), func() bool {
		i = b.view(m)
		return i.Status == status
	})
	return i
}

// gets has a machine boot again and again until the agent, which was told of it, gives it a script that has a text in it.
func (b *boot) gets(m target, text string) (script string) {
	b.Helper()
	testkit.Eventually(b.T, fmt.Sprintf("machine %d gets a script with %s", m.id, text), func() bool {
		if !slices.ContainsFunc(b.agent.Agent.Machines().Held(), func(h siteagent.Held) bool { return h.ID == m.id }) {
			return false
		}
		script = b.agent.Boots(m.mac, m.address)
		return strings.Contains(script, text)
	})
	return script
}

// starts has a machine boot until it gets its boot script, and answers its token.
func (b *boot) starts(m target) (token string) {
	b.Helper()
	return tokenIn(b.gets(m, "kernel"))
}

// tokenIn is the token in a boot script.
func tokenIn(script string) string { return inScript.FindStringSubmatch(script)[1] }

var inScript = regexp.MustCompile(`/i/([A-Z0-9]+)/preseed`)

func (b *boot) secrets(m target) (n int) {
	b.Helper()
	if err := b.DB.QueryRow(b.Context(), "SELECT count(password) + count(token) FROM install WHERE id = $1", m.id).
		Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// used asks whether an item may be deleted, as its owner does before it deletes it, and returns why not.
func (b *boot) used(owner, kind string, id int64) string {
	b.Helper()
	var user struct{ Uses string }
	query := url.Values{"items": {fmt.Sprintf(`[{"ID": %d, "Token": 1}]`, id)}}
	testkit.Must(b, b.Peers(owner).Ask(b.Context(), pxe.Name, "/internal/close/"+kind+"?"+query.Encode(), &user))
	return user.Uses
}

// told returns the changes of installs that other services have heard of, each with the status and the error that it led to.
func (b *boot) told() (all []string) {
	b.Helper()
	var page struct{ Events []events.Event }
	testkit.Must(b, b.Peers("system").Ask(b.Context(), pxe.Name, "/internal/events?after=0&kind=pxe.install", &page))
	for _, e := range page.Events {
		after := map[string]any{}
		if e.After != nil {
			testkit.Must(b, json.Unmarshal(e.After, &after))
		}
		all = append(all, fmt.Sprint(e.Type, " ", after["status"], " ", after["error"]))
	}
	return all
}

// A machine boots from a site's agent, is installed, and comes back; who owns it is told; what was needed for that alone is gone.
func TestInstalls(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	m := b.install(fmt.Sprintf(`, "client": %d`, b.client))
	token := b.starts(m)
	if i := b.until(m, "booting"); i.StartedAt == nil || i.FileServer == nil || i.FileServer.ID != b.fileServer || b.secrets(m) != 2 {
		t.Errorf("got %+v with %d secrets, want a file server and two secrets", i, b.secrets(m))
	}
	preseed := b.agent.Asks("GET", "/i/"+token+"/preseed", m.address, "")
	if want := "'a long walk in the rain' " + m.address + " ben@example.org"; preseed != want {
		t.Errorf("got the preseed %q, want %q", preseed, want)
	}
	after := b.agent.Asks("GET", "/i/"+token+"/after", m.address, "")
	if !strings.Contains(after, "echo web1\n") || !strings.Contains(after, `/bin/bash "$script"`) {
		t.Errorf("got the script %q, want echo web1 run by bash", after)
	}
	b.agent.Says(token, "progress", m.address, "step=partitions&progress=10")
	if i := b.until(m, "installing"); *i.Step != "partitions" || i.Progress != 10 {
		t.Errorf("got step %s and progress %d, want partitions and 10", *i.Step, i.Progress)
	}
	b.refusesDeletions(m)

	// What the machine says while the control plane does not hear it arrives later, once, and in order.
	b.agent.Away.Store(true)
	b.agent.Says(token, "progress", m.address, "step=packages&progress=60")
	b.agent.Stop()
	b.agent.Start()
	b.agent.Says(token, "done", m.address, "")
	b.agent.Away.Store(false)
	i := b.until(m, "installed")
	if i.Progress != 100 || *i.Step != "packages" || i.FinishedAt == nil || b.secrets(m) != 0 {
		t.Errorf("got %+v with %d secrets, want it finished without secrets", i, b.secrets(m))
	}
	var story []string
	for _, r := range i.Requests {
		story = append(story, r.What)
	}
	if got, want := strings.Join(story, " "), "done progress progress read read boot lease"; !strings.HasPrefix(got, want) {
		t.Errorf("got the requests %q, want %q and what it asked for before it got its script", got, want)
	}
	testkit.Eventually(t, "the client is told", func() bool { return len(b.Clients.Received()) == 1 })
	var message mail.ClientInstalled
	testkit.Must(t, json.Unmarshal(b.Clients.Received()[0].Content, &message))
	if message.Client != b.client || message.Template != "install-finished" || message.Content.Status != "installed" {
		t.Errorf("got the message %+v, want install-finished for client %d", message, b.client)
	}
	b.gets(m, "sanboot")

	// Once more: what was said of the attempt before means nothing.
	b.Do("POST", path("/pxe/install/%d/retry", m.id), `{"password": "another walk"}`).Want(200)
	again := b.starts(m)
	if again == token {
		t.Error("got the token of the attempt before, want another one")
	}
	b.until(m, "booting")
	b.agent.Says(again, "failed", m.address, "error=no+disk")
	if i := b.until(m, "failed"); *i.Error != "no disk" || i.Attempt != 2 {
		t.Errorf("got error %q in attempt %d, want no disk in attempt 2", *i.Error, i.Attempt)
	}
	b.Do("DELETE", path("/pxe/install/%d", m.id), nil).Want(200)
	want := []string{
		"pxe.install.created waiting <nil>", "pxe.install.booted booting <nil>", "pxe.install.began installing <nil>",
		"pxe.install.installed installed <nil>", "pxe.install.retried waiting <nil>", "pxe.install.booted booting <nil>",
		"pxe.install.failed failed no disk", "pxe.install.deleted <nil> <nil>",
	}
	testkit.Await(t, "others have heard of all changes", b.told, func(got []string) bool { return slices.Equal(got, want) })
	testkit.Eventually(t, "the agent has forgotten it", func() bool { return len(b.agent.Agent.Machines().Held()) == 0 })
	if uses := b.used("network", "entity", m.entity); uses != "" {
		t.Errorf("got that the IP entity %s, want no use", uses)
	}
}

// refusesDeletions checks that what an install that is under way needs cannot be deleted.
func (b *boot) refusesDeletions(m target) {
	b.Helper()
	want := fmt.Sprintf("is used by install %d (web1.example.com), which has not ended", m.id)
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
		ID   int64
		Uses string
	}
	testkit.Must(b, b.Peers("network").Ask(b.Context(), pxe.Name, "/internal/installed-entities", &installed))
	if len(installed) != 1 || installed[0].ID != m.entity || installed[0].Uses != want {
		b.Errorf("got the used IP entities %+v, want entity %d, which %q", installed, m.entity, want)
	}
}

// Each stage has a time, which does not run out while the agent cannot be asked.
func TestInstallsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	db := b.DB
	late := func(m target, column string, minutes int) {
		testkit.Execute(t, db, fmt.Sprintf("UPDATE install SET %s = now() - make_interval(mins => %d) WHERE id = %d", column, minutes, m.id))
	}
	b.System.SetSetting("pxe.install_wait", "50")
	b.System.SetSetting("pxe.install_boot", "20")
	b.System.SetSetting("pxe.install_time", "30")
	waits, boots, runs := b.install(""), b.install(""), b.install("")
	b.starts(boots)
	token := b.starts(runs)
	b.agent.Says(token, "progress", runs.address, "step=x")
	b.until(runs, "installing")
	b.until(boots, "booting")
	b.agent.Away.Store(true)
	testkit.Eventually(t, "nobody hears the agent", func() bool {
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
			t.Errorf("it is %+v", i)
		}
	}
	b.agent.Away.Store(false)
	for m, want := range map[target]string{waits: "Its machine has asked for no boot script within 50 minutes.", boots: "Its installer has not reported within 20 minutes since the machine was given its boot script.",
		runs: "It was not done within 30 minutes since its installer reported."} {
		if i := b.until(m, "failed"); *i.Error != want || b.secrets(m) != 0 {
			t.Errorf("it is %+v, with %d secrets", i, b.secrets(m))
		}
	}
	b.Do("PATCH", path("/pxe/profile/%d", b.profile), `{"time_until_marked_failed": 90}`).Want(200)
	own := b.install("")
	b.starts(own)
	b.until(own, "booting")
	late(own, "started_at", 91)
	if i := b.until(own, "failed"); *i.Error != "It was not done within the 90 minutes that its profile gives it." {
		t.Errorf("it is %+v", i)
	}
}

// So many installs read from a file server at a time as it takes; a machine that asks comes before one that does not.
func TestInstallsAtATime(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	b.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 1}`).Want(200)
	first, second, third := b.install(""), b.install(""), b.install("")
	if i := b.view(third); i.Status != "waiting" || i.Reason == nil || !strings.Contains(*i.Reason, "is full: 1 install from it at a time") {
		t.Errorf("it is %+v", i)
	}
	b.gets(third, "full")
	token := b.starts(third) // as it asked, and the first did not
	b.until(third, "booting")
	b.gets(second, "full")
	b.agent.Says(token, "done", third.address, "")
	b.until(third, "installed")
	b.starts(second)
	b.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 2}`).Want(200)
	b.starts(first)
	testkit.Execute(
		t,
		b.DB,
		fmt.Sprintf("UPDATE install SET password = '\\x00', revision = nextval('install_revision') WHERE id = %d", first.id),
	)
	if i := b.until(first, "failed"); *i.Error != "Its password cannot be unsealed." {
		t.Errorf("it is %+v", i)
	}
}

// A machine that is given its boot script in the very moment in which its place is taken from it goes on, and who was to have the place
// waits.
func TestPlaceOfAMachineThatBoots(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	b.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 1}`).Want(200)
	first, second := b.install(""), b.install("")
	scripts := make(chan string, 1)
	boots := sync.OnceFunc(func() { scripts <- b.agent.Boots(first.mac, first.address) })
	b.agent.Before(func(r *http.Request, body string) {
		if r.Method == "PUT" && r.URL.Path == path("/v1/machine/%d", first.id) && strings.Contains(body, "is full") {
			boots()
		}
	})
	b.gets(second, "full")
	token := tokenIn(<-scripts)
	reads := func() {
		t.Helper()
		if preseed := b.agent.Asks("GET", "/i/"+token+"/preseed", first.address, ""); !strings.Contains(preseed, first.address) {
			t.Errorf("it is given %s", preseed)
		}
	}
	reads()
	b.until(first, "booting")
	reads()
	for range 3 {
		b.gets(second, "full")
		if i := b.view(second); i.Reason == nil || !strings.Contains(*i.Reason, "is full: 1 install from it at a time") {
			t.Errorf("the second is %+v", i)
		}
		time.Sleep(time.Second) // in which others look for room
	}
	b.agent.Says(token, "done", first.address, "")
	b.until(first, "installed")
	b.starts(second)
}

// A machine whose agent cannot be asked holds no place, where it was never told that it has one.
func TestPlaceBehindAnAgentThatIsAway(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	b.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 1, "name": "`+strings.Repeat("\u0436", 250)+`"}`).Want(200)
	away := b.Do("POST", "/pxe/dhcp", map[string]any{"name": "away", "host": "127.0.0.1", "port": 1, "api_key": agentKey}).Want(200).ID()
	b.install(fmt.Sprintf(`, "dhcp_server": %d`, away))
	second := b.install("")
	b.gets(second, "File server")
	b.starts(second)
}

// A machine that asked for its script and is not heard of for five minutes loses its place to one that asks.
func TestPlaceOfASilentMachine(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	b.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 1}`).Want(200)
	first, second := b.install(""), b.install("")
	hasPlace := func(m target) bool { return b.view(m).Reason == nil }
	b.gets(second, "full")
	testkit.Eventually(t, "it has the place, as the first did not ask", func() bool { return hasPlace(second) })
	silent := func(minutes int) {
		testkit.Execute(
			t,
			b.DB,
			fmt.Sprintf("UPDATE install SET seen_at = now() - interval '%d minutes' WHERE id = %d", minutes, second.id),
		)
	}
	silent(4)
	testkit.Eventually(t, "the agent knows that the first has it no more", func() bool {
		var revision int64
		if err := b.DB.QueryRow(t.Context(), "SELECT revision FROM install WHERE id = $1", first.id).
			Scan(&revision); err != nil {
			t.Fatal(err)
		}
		return slices.Contains(b.agent.Agent.Machines().Held(), siteagent.Held{ID: first.id, Revision: revision})
	})
	b.gets(first, "full")
	testkit.Eventually(t, "the first is heard of", func() bool { return b.view(first).SeenAt != nil })
	third := b.install("") // which looks for room again
	if !hasPlace(second) || hasPlace(first) || hasPlace(third) {
		t.Error("it loses its place within four minutes")
	}
	silent(6)
	b.starts(first)
	if text := *b.view(second).Reason; !strings.Contains(text, "is full: 1 install from it at a time") {
		t.Errorf("it waits as %s", text)
	}
}

// Twenty machines at once: each gets its own address and script, and what is another's is nothing to it. Where the file server takes
// five, the rest waits, and says why.
func TestTwentyInstalls(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	const all = 20
	ask := func() (machines []target) {
		for range all {
			machines = append(machines, b.install(""))
		}
		return machines
	}
	end := func(m target, token string) {
		b.agent.Says(token, "progress", m.address, "step=disk&progress=50")
		b.agent.Says(token, "done", m.address, "")
	}
	machines, tokens := ask(), make([]string, all)
	for n, m := range machines {
		tokens[n] = b.starts(m)
	}
	for n, m := range machines {
		if preseed := b.agent.Asks("GET", "/i/"+tokens[n]+"/preseed", m.address, ""); !strings.Contains(preseed, " "+m.address+" ") {
			t.Errorf("machine %d is given %s", n, preseed)
		}
		if status := b.agent.Ask("GET", "/i/"+tokens[(n+1)%all]+"/preseed", m.address, "").Code; status != http.StatusNotFound {
			t.Errorf("machine %d is answered %d for what is another's", n, status)
		}
		end(m, tokens[n])
	}
	for _, m := range machines {
		b.until(m, "installed")
	}

	b.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 5}`).Want(200)
	machines = ask()
	for installed := 0; installed < all; installed += 5 {
		var waiting, granted []target
		for _, i := range testkit.Decode[[]install.Install](b.Do("GET", "/pxe/install?status=waiting", nil).Want(200)) {
			m := machines[slices.IndexFunc(machines, func(m target) bool { return m.id == i.ID })]
			if i.Reason == nil {
				granted = append(granted, m)
			} else if waiting = append(waiting, m); !strings.Contains(*i.Reason, "is full: 5 install from it at a time") {
				t.Errorf("it waits as %s", *i.Reason)
			}
		}
		if len(granted) != 5 || len(waiting) != all-installed-5 {
			t.Fatalf("%d may be installed, and %d wait", len(granted), len(waiting))
		}
		for _, m := range waiting[:min(1, len(waiting))] {
			b.gets(m, "full")
		}
		for _, m := range granted {
			end(m, b.starts(m))
		}
		for _, m := range granted {
			b.until(m, "installed")
		}
		testkit.Eventually(t, "others may be installed", func() bool {
			still := testkit.Decode[[]install.Install](b.Do("GET", "/pxe/install?status=waiting", nil).Want(200))
			return len(slices.DeleteFunc(still, func(i install.Install) bool { return i.Reason != nil })) == min(5, len(waiting))
		})
	}
}

// Machines that nobody named are known until somebody names them.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	const mac, address = "52:54:00:00:00:01", "10.1.0.100"
	of := machine.Client{MAC: mac, Boots: true}
	if _, ok := b.agent.Agent.Machines().
		Offered(of); !ok || !b.agent.Agent.Machines().Known(of) ||
		!b.agent.Agent.Machines().Leased(of, netip.MustParseAddr(address)) {
		t.Fatal("it gets no address")
	}
	b.agent.Asks("GET", "/i/discover?uuid=u&serial=S1&manufacturer=Dell+%3Cb%3E&firmware=efi&mac0=52:54:00:00:00:01", address, "")
	var found []pxe.Discovery
	testkit.Eventually(t, "it is discovered", func() bool {
		found = testkit.Decode[[]pxe.Discovery](b.Do("GET", "/pxe/discovery?mac="+mac, nil).Want(200))
		return len(found) == 1
	})
	if d := found[0]; d.Facts["serial"] != "S1" || d.Facts["firmware"] != "efi" || d.Address != address || d.DHCPServer.ID != b.dhcp {
		t.Errorf("it is %+v", d)
	}
	b.install("")
	if left := b.Do("GET", "/pxe/discovery", nil).Want(200).Text; left != "[]\n" {
		t.Errorf("there is %s", left)
	}
}

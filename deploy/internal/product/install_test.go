package product_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
	"github.com/ironplane/ironplane/pkg/testkit/receiver"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
	"github.com/ironplane/ironplane/services/system/webhook"
)

// boot is a product with a site that boots machines.
type boot struct {
	*testing.T
	product                                  *product.Product
	c                                        *testkit.Client
	agent                                    *producttest.BootAgent
	group, dhcp, fileServer, profile, client int64
	box                                      *mailbox.Server
	macs                                     int
}

func newBoot(t *testing.T) *boot {
	box := mailbox.Start(t, mailbox.Options{})
	settings := service.Settings{AllowedNetworks: "127.0.0.1", SMTP: "smtp+plain://" + box.Addr, MailFrom: "noreply@example.com"}
	p, c := producttest.StartWith(t, testkit.Redis(t), settings)
	b := &boot{T: t, product: p, c: c, agent: producttest.NewBootAgent(t, agentKey), box: box}
	b.set()
	return b
}

func (b *boot) set() {
	host, port, _ := strings.Cut(strings.TrimPrefix(b.agent.URL, "http://"), ":")
	b.dhcp = b.c.Do("POST", "/pxe/dhcp", map[string]any{"name": "Berlin", "host": host, "port": port, "api_key": agentKey}).Want(200).ID()
	b.group = b.c.Do("POST", "/group", map[string]any{"name": "Berlin", "pxe_dhcp_server": b.dhcp}).Want(200).ID()
	b.fileServer = b.c.Do("POST", "/pxe/file", map[string]any{"name": "files", "install_max_concurrent": 20, "group": b.group, "host": host, "port": port, "api_key": agentKey, "public_key": hostKey}).
		Want(200).
		ID()
	script := b.c.Do("POST", "/pxe/boot-script", map[string]any{"name": "boot", "body": "#!ipxe\nkernel {{.URL.Files}}/linux token {{.URL.Preseed}}\n"}).
		Want(200).
		ID()
	preseed := b.c.Do("POST", "/pxe/preseed", map[string]any{"name": "seed", "body": "{{quote .Password}} {{.Host.IPv4.Address}} {{.Client.Email}}"}).
		Want(200).
		ID()
	shell := b.c.Do("POST", "/pxe/shell", map[string]any{"name": "after", "body": "#!/bin/bash\necho {{.Host.Name}}"}).Want(200).ID()
	template := testkit.Decode[[]struct{ ID int64 }](b.c.Do("GET", "/email/template?name=install-finished", nil).Want(200))[0].ID
	b.profile = b.c.Do("POST", "/pxe/profile", map[string]any{"name": "mine", "boot_script": script, "preseed": preseed, "shell": map[string]any{"after": []int64{shell}}, "email": map[string]any{"template": template}}).
		Want(200).
		ID()
	b.client = b.c.Do("POST", "/client", `{"first": "Ben", "last": "Miller", "email": "ben@example.org"}`).Want(200).ID()
}

// target is a machine that is to be installed.
type target struct {
	id, entity   int64
	mac, address string
}

// install asks for a machine's installation.
func (b *boot) install(more string) target {
	b.Helper()
	b.macs++
	m := target{mac: fmt.Sprintf("52:54:00:00:00:%02x", b.macs), address: fmt.Sprintf("10.1.0.%d", b.macs+1)}
	m.entity = b.c.Do("POST", "/entity", map[string]any{"group": b.group, "address": m.address, "subnet_mask": "255.255.255.0", "gateway": "10.1.0.254"}).
		Want(200).
		ID()
	m.id = b.c.Do("POST", "/pxe/install", fmt.Sprintf(`{"profile": %d, "host": {"macs": [%q], "entity": %d, "hostname": "web%d.example.com"}, "password": "a long walk in the rain"%s}`, b.profile, m.mac, m.entity, b.macs, more)).
		Want(200).
		ID()
	return m
}

func (b *boot) view(m target) install.Install {
	b.Helper()
	return testkit.Decode[install.Install](b.c.Do("GET", path("/pxe/install/%d", m.id), nil).Want(200))
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
	if err := b.product.Databases[pxe.Name].QueryRow(b.Context(), "SELECT count(password) + count(token) FROM install WHERE id = $1", m.id).
		Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// A machine boots from a site's agent, is installed, and comes back; who owns it is told; what was needed for that alone is gone.
func TestInstalls(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	billing := receiver.Start(t, nil)
	hook := testkit.Decode[webhook.Webhook](
		b.c.Do("POST", "/webhook", map[string]any{"url": billing.URL, "types": []string{"pxe.install.*"}}).Want(200),
	)
	billing.Trust(hook.Secret)
	m := b.install(fmt.Sprintf(`, "client": %d`, b.client))
	token := b.starts(m)
	if i := b.until(m, "booting"); i.StartedAt == nil || i.FileServer == nil || i.FileServer.ID != b.fileServer || b.secrets(m) != 2 {
		t.Errorf("it is %+v", i)
	}
	if preseed := b.agent.Asks(
		"GET",
		"/i/"+token+"/preseed",
		m.address,
		"",
	); preseed != "'a long walk in the rain' "+m.address+" ben@example.org" {
		t.Errorf("its preseed is %s", preseed)
	}
	if after := b.agent.Asks(
		"GET",
		"/i/"+token+"/after",
		m.address,
		"",
	); !strings.Contains(after, "echo web1\n") ||
		!strings.Contains(after, "/bin/bash \"$script\"") {
		t.Errorf("it runs %s", after)
	}
	b.agent.Says(token, "progress", m.address, "step=partitions&progress=10")
	if i := b.until(m, "installing"); *i.Step != "partitions" || i.Progress != 10 {
		t.Errorf("it is %+v", i)
	}
	for at, want := range map[string]string{path("/entity/%d", m.entity): "IP entity", path("/client/%d", b.client): "Client", path("/pxe/profile/%d", b.profile): "Profile",
		path("/pxe/dhcp/%d", b.dhcp): "DHCP server", path("/pxe/file/%d", b.fileServer): "File server"} {
		b.c.Do("DELETE", at, nil).
			WantDetail(problem.Conflict, fmt.Sprintf("%s %s is used by install %d (web1.example.com), which has not ended.", want, at[strings.LastIndex(at, "/")+1:], m.id))
	}
	b.c.Do("POST", path("/group/%d/entity/bulk-delete", b.group), map[string]any{"ids": []int64{m.entity}}).Want(409)

	// What it says while the control plane does not hear it arrives later, once, and in order.
	b.agent.Away.Store(true)
	b.agent.Says(token, "progress", m.address, "step=packages&progress=60")
	b.agent.Stop()
	b.agent.Start()
	b.agent.Says(token, "done", m.address, "")
	b.agent.Away.Store(false)
	i := b.until(m, "installed")
	if i.Progress != 100 || *i.Step != "packages" || i.FinishedAt == nil || b.secrets(m) != 0 {
		t.Errorf("it is %+v, with %d secrets", i, b.secrets(m))
	}
	var story []string
	for _, r := range i.Requests {
		story = append(story, r.What)
	}
	if got := strings.Join(story, " "); got != "done progress progress read read boot lease" {
		t.Errorf("it asked for %s", got)
	}
	testkit.Eventually(t, "the client is told", func() bool { return b.box.Taken() == 1 })
	if mail := b.box.Mails()[0]; !bytes.Contains(mail.Data, []byte("Subject: web1.example.com: installed")) ||
		mail.To[0] != "ben@example.org" {
		t.Errorf("it is told %s", mail.Data)
	}
	for _, slug := range []string{"hardware.server.install.add", "hardware.server.install.finish"} {
		testkit.Eventually(t, slug+" is completed", func() bool {
			return strings.Contains(b.c.Do("GET", "/todo?slug="+slug, nil).Want(200).Text, "completed_at")
		})
	}
	for _, action := range []string{"created", "booted", "began", "installed"} {
		testkit.Eventually(t, action+" is logged", func() bool {
			return strings.Contains(
				b.c.Do("GET", path("/log?target_type=pxe/install&target_id=%d", m.id), nil).Want(200).Text,
				"pxe.install."+action,
			)
		})
	}
	b.gets(m, "sanboot")

	// Once more: what was said of the attempt before means nothing.
	b.c.Do("POST", path("/pxe/install/%d/retry", m.id), `{"password": "another walk"}`).Want(200)
	again := b.starts(m)
	if again == token {
		t.Error("it has the token of before")
	}
	b.until(m, "booting")
	b.agent.Says(again, "failed", m.address, "error=no+disk")
	if i := b.until(m, "failed"); *i.Error != "no disk" || i.Attempt != 2 {
		t.Errorf("it is %+v", i)
	}
	testkit.Eventually(t, "it is logged", func() bool {
		text := b.c.Do("GET", path("/log?target_type=pxe/install&target_id=%d", m.id), nil).Want(200).Text
		return strings.Contains(text, "pxe.install.retried") && strings.Contains(text, "pxe.install.failed")
	})
	b.c.Do("DELETE", path("/pxe/install/%d", m.id), nil).Want(200)
	testkit.Eventually(t, "billing has heard of all of it", func() bool { return billing.Taken() == 8 })
	var heard []string
	for _, r := range billing.All() {
		e := r.Event(t)
		heard = append(heard, fmt.Sprint(e.Type, " ", e.Data.After["status"], " ", e.Data.After["error"]))
		if e.Data.Targets[0].ID != m.id || strings.Contains(string(r.Body), "a long walk") || strings.Contains(string(r.Body), token) {
			t.Errorf("billing hears %s", r.Body)
		}
	}
	if want := []string{
		"pxe.install.created waiting <nil>",
		"pxe.install.booted booting <nil>",
		"pxe.install.began installing <nil>",
		"pxe.install.installed installed <nil>",
		"pxe.install.retried waiting <nil>",
		"pxe.install.booted booting <nil>",
		"pxe.install.failed failed no disk",
		"pxe.install.deleted <nil> <nil>",
	}; !slices.Equal(
		heard,
		want,
	) {
		t.Errorf("billing hears %q", heard)
	}
	testkit.Eventually(t, "the agent has forgotten it", func() bool { return len(b.agent.Agent.Machines().Held()) == 0 })
	b.c.Do("DELETE", path("/entity/%d", m.entity), nil).Want(200)
}

// Each stage has a time, which does not run out while the agent cannot be asked.
func TestInstallsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	db := b.product.Databases[pxe.Name]
	late := func(m target, column string, minutes int) {
		testkit.Execute(t, db, fmt.Sprintf("UPDATE install SET %s = now() - make_interval(mins => %d) WHERE id = %d", column, minutes, m.id))
	}
	choose(t, b.c, "pxe.install_wait", 50)
	choose(t, b.c, "pxe.install_boot", 20)
	choose(t, b.c, "pxe.install_time", 30)
	waits, boots, runs := b.install(""), b.install(""), b.install("")
	b.starts(boots)
	token := b.starts(runs)
	b.agent.Says(token, "progress", runs.address, "step=x")
	b.until(runs, "installing")
	b.until(boots, "booting")
	b.agent.Away.Store(true)
	testkit.Eventually(t, "nobody hears the agent", func() bool {
		return strings.Contains(b.c.Do("GET", path("/pxe/dhcp/%d?include=health", b.dhcp), nil).Text, "failing")
	})
	testkit.Execute(t, db, "UPDATE site_agent SET heard_at = now() - interval '1 day'")
	late(waits, "stage_at", 51)
	late(boots, "stage_at", 21)
	late(runs, "stage_at", 31)
	if err := b.product.Databases[pxe.Name].QueryRow(t.Context(), "SELECT pg_sleep(2.5)::text").Scan(new(string)); err != nil {
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
	b.c.Do("PATCH", path("/pxe/profile/%d", b.profile), `{"time_until_marked_failed": 90}`).Want(200)
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
	b.c.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 1}`).Want(200)
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
	b.c.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 2}`).Want(200)
	b.starts(first)
	testkit.Execute(
		t,
		b.product.Databases[pxe.Name],
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
	b.c.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 1}`).Want(200)
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
	b.c.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 1, "name": "`+strings.Repeat("\u0436", 250)+`"}`).Want(200)
	away := b.c.Do("POST", "/pxe/dhcp", map[string]any{"name": "away", "host": "127.0.0.1", "port": 1, "api_key": agentKey}).Want(200).ID()
	b.install(fmt.Sprintf(`, "dhcp_server": %d`, away))
	second := b.install("")
	b.gets(second, "File server")
	b.starts(second)
}

// A machine that asked for its script and is not heard of for five minutes loses its place to one that asks.
func TestPlaceOfASilentMachine(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	b.c.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 1}`).Want(200)
	first, second := b.install(""), b.install("")
	hasPlace := func(m target) bool { return b.view(m).Reason == nil }
	b.gets(second, "full")
	testkit.Eventually(t, "it has the place, as the first did not ask", func() bool { return hasPlace(second) })
	silent := func(minutes int) {
		testkit.Execute(
			t,
			b.product.Databases[pxe.Name],
			fmt.Sprintf("UPDATE install SET seen_at = now() - interval '%d minutes' WHERE id = %d", minutes, second.id),
		)
	}
	silent(4)
	testkit.Eventually(t, "the agent knows that the first has it no more", func() bool {
		var revision int64
		if err := b.product.Databases[pxe.Name].QueryRow(t.Context(), "SELECT revision FROM install WHERE id = $1", first.id).
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

	b.c.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 5}`).Want(200)
	machines = ask()
	for installed := 0; installed < all; installed += 5 {
		var waiting, granted []target
		for _, i := range testkit.Decode[[]install.Install](b.c.Do("GET", "/pxe/install?status=waiting", nil).Want(200)) {
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
			still := testkit.Decode[[]install.Install](b.c.Do("GET", "/pxe/install?status=waiting", nil).Want(200))
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
		found = testkit.Decode[[]pxe.Discovery](b.c.Do("GET", "/pxe/discovery?mac="+mac, nil).Want(200))
		return len(found) == 1
	})
	if d := found[0]; d.Facts["serial"] != "S1" || d.Facts["firmware"] != "efi" || d.Address != address || d.DHCPServer.ID != b.dhcp {
		t.Errorf("it is %+v", d)
	}
	b.install("")
	if left := b.c.Do("GET", "/pxe/discovery", nil).Want(200).Text; left != "[]\n" {
		t.Errorf("there is %s", left)
	}
}

// What machines report is taken once, also where several processes ask and one of them ends.
func TestReportsAreTakenOnce(t *testing.T) {
	t.Parallel()
	all, c := producttest.Products(t, 2, testkit.Redis(t), service.Settings{AllowedNetworks: "127.0.0.1"})
	b := &boot{T: t, product: all[0], c: c, agent: producttest.NewBootAgent(t, agentKey)}
	b.set()
	m := b.install("")
	token := b.starts(m)
	for n := range 150 {
		b.agent.Agent.Machines().Known(machine.Client{MAC: m.mac, Boots: true})
		b.agent.Asks("GET", "/i/"+token+"/after?"+fmt.Sprint(n), m.address, "")
		if n == 75 {
			all[1].Close()
		}
	}
	b.agent.Says(token, "done", m.address, "")
	i := b.until(m, "installed")
	var requests int64
	if err := all[0].Databases[pxe.Name].QueryRow(t.Context(), "SELECT requests FROM install WHERE id = $1", m.id).
		Scan(&requests); err != nil {
		t.Fatal(err)
	}
	if said := len(
		b.agent.Reports(),
	); int64(said) != requests || len(i.Requests) != min(said, 100) ||
		i.Requests[0].What != siteagent.Finished {
		t.Errorf("the agent has %d reports, and %d were taken, of which %d are shown", said, requests, len(i.Requests))
	}
}

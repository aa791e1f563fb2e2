package product_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/services/pxe/siteagent/agenttest"

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

const (
	agentKey = "what the agent asks of its callers"
	// hostKey is the public key of no existing host.
	hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG"
)

// boot is a product with a site that boots machines.
type boot struct {
	*testing.T
	product                                  *product.Product
	c                                        *testkit.Client
	agent                                    *agenttest.BootAgent
	group, dhcp, fileServer, profile, client int64
	box                                      *mailbox.Server
	macs                                     int
}

func newBoot(t *testing.T) *boot {
	box := mailbox.Start(t, mailbox.Options{})
	settings := service.Settings{AllowedNetworks: "127.0.0.1", SMTP: "smtp+plain://" + box.Addr, MailFrom: "noreply@example.com"}
	p, c := producttest.StartWith(t, testkit.Redis(t), settings)
	b := &boot{T: t, product: p, c: c, agent: agenttest.NewBootAgent(t, agentKey), box: box}
	b.set()
	return b
}

func (b *boot) set() {
	host, port, _ := strings.Cut(strings.TrimPrefix(b.agent.URL, "http://"), ":")
	b.dhcp = b.c.Do("POST", "/pxe/dhcp", map[string]any{"name": "Berlin", "host": host, "port": port, "api_key": agentKey}).Want(200).ID()
	b.group = b.c.Do("POST", "/group", map[string]any{"name": "Berlin", "pxe_dhcp_server": b.dhcp}).Want(200).ID()
	b.fileServer = b.c.Do(
		"POST", "/pxe/file",
		map[string]any{
			"name": "files", "install_max_concurrent": 20, "group": b.group, "host": host, "port": port, "api_key": agentKey, "public_key": hostKey,
		},
	).
		Want(200).
		ID()
	script := b.c.Do("POST", "/pxe/boot-script", map[string]any{"name": "boot", "body": "#!ipxe\nkernel {{.URL.Files}}/linux token " +
		"{{.URL.Preseed}}\n"}).
		Want(200).
		ID()
	preseed := b.c.Do("POST", "/pxe/preseed", map[string]any{"name": "seed", "body": "{{quote .Password}} {{.Host.IPv4.Address}} " +
		"{{.Client.Email}}"}).
		Want(200).
		ID()
	shell := b.c.Do("POST", "/pxe/shell", map[string]any{"name": "after", "body": "#!/bin/bash\necho {{.Host.Name}}"}).Want(200).ID()
	template := testkit.Decode[[]struct{ ID int64 }](b.c.Do("GET", "/email/template?name=install-finished", nil).Want(200))[0].ID
	b.profile = b.c.Do(
		"POST", "/pxe/profile",
		map[string]any{
			"name": "mine", "boot_script": script, "preseed": preseed, "shell": map[string]any{"after": []int64{shell}},
			"email": map[string]any{"template": template},
		},
	).
		Want(200).
		ID()
	testkit.AwaitAgents(b.T, b.c, path("/pxe/dhcp/%d", b.dhcp), path("/pxe/file/%d", b.fileServer))
	b.client = b.c.Do("POST", "/client", `{"first": "Ben", "last": "Miller", "email": "ben@example.org"}`).Want(200).ID()
}

// target is a machine to install.
type target struct {
	id, entity   int64
	mac, address string
}

// install requests a machine's installation.
func (b *boot) install(more string) target {
	b.Helper()
	b.macs++
	m := target{mac: fmt.Sprintf("52:54:00:00:00:%02x", b.macs), address: fmt.Sprintf("10.1.0.%d", b.macs+1)}
	entity := map[string]any{"group": b.group, "address": m.address, "subnet_mask": "255.255.255.0", "gateway": "10.1.0.254"}
	if strings.Contains(more, `"client"`) {
		entity["owner"] = b.client
	}
	m.entity = b.c.Do("POST", "/entity", entity).Want(200).ID()
	m.id = b.c.Do("POST", "/pxe/install", fmt.Sprintf(`{"profile": %d, "host": {"macs": [%q], "entity": %d, "hostname": "web%d.example.com"}, "password": "a long walk in the rain"%s}`, b.profile, m.mac, m.entity, b.macs, more)).
		Want(200).
		ID()
	return m
}

func (b *boot) view(m target) install.Install {
	b.Helper()
	return testkit.Decode[install.Install](b.c.Do("GET", path("/pxe/install/%d", m.id), nil).Want(200))
}

// awaitStatus waits until an install has a status.
func (b *boot) awaitStatus(m target, status string) (i install.Install) {
	b.Helper()
	testkit.Eventually(b.T, fmt.Sprintf("install %d is %s", m.id, status), func() bool {
		i = b.view(m)
		return i.Status == status
	})
	return i
}

// bootToken boots a machine until it gets its boot script, and returns the script's token.
func (b *boot) bootToken(m target) (token string) {
	b.Helper()
	testkit.Eventually(b.T, fmt.Sprintf("machine %d gets its boot script", m.id), func() bool {
		script, ok := b.agent.TryBoot(m.id, m.mac, m.address, "kernel")
		if ok {
			token = agenttest.Token(script)
		}
		return ok
	})
	return token
}

// An install's progress reaches the other services. Network and clients keep the items that it needs, the log and the to-do
// list follow it, billing gets a webhook, and the client gets a mail. After its end, its address is free again.
func TestInstalls(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	billing := receiver.Start(t, nil)
	hook := testkit.Decode[webhook.Webhook](
		b.c.Do("POST", "/webhook", map[string]any{"url": billing.URL, "types": []string{"pxe.install.*"}}).Want(200),
	)
	billing.Trust(hook.Secret)
	m := b.install(fmt.Sprintf(`, "client": %d`, b.client))
	token := b.bootToken(m)
	preseed := b.agent.MustRequest("GET", "/i/"+token+"/preseed", m.address, "")
	if want := "'a long walk in the rain' " + m.address + " ben@example.org"; preseed != want {
		t.Errorf("got the preseed %q, want %q", preseed, want)
	}
	for at, want := range map[string]string{
		path("/entity/%d", m.entity): fmt.Sprintf("IP entity %d is used by install %d (web1.example.com) that has not ended.", m.entity, m.id),
		path("/client/%d", b.client): fmt.Sprintf("Client %d has IP entity %d (%s).", b.client, m.entity, m.address),
	} {
		b.c.Do("DELETE", at, nil).WantDetail(problem.Conflict, want)
	}
	b.c.Do("POST", path("/group/%d/entity/bulk-delete", b.group), map[string]any{"ids": []int64{m.entity}}).Want(409)
	b.agent.PostEvent(token, "progress", m.address, "step=packages&progress=60")
	b.agent.PostEvent(token, "done", m.address, "")
	b.awaitStatus(m, "installed")
	testkit.Eventually(t, "the client gets a mail", func() bool { return b.box.Accepted() == 1 })
	mail := b.box.Mails()[0]
	if !bytes.Contains(mail.Data, []byte("Subject: web1.example.com: installed")) || mail.To[0] != "ben@example.org" {
		t.Errorf("got a mail to %s: %s, want one to ben@example.org that says installed", mail.To[0], mail.Data)
	}
	for _, slug := range []string{"hardware.server.install.add", "hardware.server.install.finish"} {
		testkit.Eventually(t, slug+" is completed", func() bool {
			return strings.Contains(b.c.Do("GET", "/todo?slug="+slug, nil).Want(200).Text, "completed_at")
		})
	}
	for _, action := range []string{"created", "booted", "began", "installed"} {
		testkit.Eventually(t, action+" is logged", func() bool {
			at := path("/log?target_type=pxe/install&target_id=%d", m.id)
			return strings.Contains(b.c.Do("GET", at, nil).Want(200).Text, "pxe.install."+action)
		})
	}
	testkit.Eventually(t, "billing has received all events", func() bool { return billing.Accepted() == 4 })
	for _, r := range billing.All() {
		e := r.Event(t)
		if e.Data.Targets[0].ID != m.id || strings.Contains(string(r.Body), "a long walk") || strings.Contains(string(r.Body), token) {
			t.Errorf("got %s, want an event of install %d without its secrets", r.Body, m.id)
		}
	}
	has := func(address string) func() bool {
		return func() bool {
			lease, ok := b.agent.Agent.Machines().FindLease(machine.Client{MAC: m.mac})
			return address == "" && (!ok || !lease.Address.IsValid()) || ok && lease.Address.IsValid() && lease.Address.Addr().String() == address
		}
	}
	testkit.Eventually(t, "the machine has its address", has(m.address))
	b.c.Do("POST", path("/entity/%d/release", m.entity), nil).Want(200)
	testkit.Eventually(t, "the machine has no address", has(""))
}

// A machine's report is applied once, even if several processes fetch it and one of them ends.
func TestReportsAreAppliedOnce(t *testing.T) {
	t.Parallel()
	all, c := producttest.StartProducts(t, 2, testkit.Redis(t), service.Settings{AllowedNetworks: "127.0.0.1"})
	b := &boot{T: t, product: all[0], c: c, agent: agenttest.NewBootAgent(t, agentKey)}
	b.set()
	m := b.install("")
	token := b.bootToken(m)
	for n := range 150 {
		b.agent.Agent.Machines().Admit(machine.Client{MAC: m.mac, IsBooting: true})
		b.agent.MustRequest("GET", "/i/"+token+"/after?"+fmt.Sprint(n), m.address, "")
		if n == 75 {
			all[1].Close()
		}
	}
	b.agent.PostEvent(token, "done", m.address, "")
	i := b.awaitStatus(m, "installed")
	var requests int64
	if err := all[0].Databases[pxe.Name].QueryRow(t.Context(), "SELECT requests FROM install WHERE id = $1", m.id).
		Scan(&requests); err != nil {
		t.Fatal(err)
	}
	if mails := len(
		b.agent.Reports(),
	); int64(mails) != requests || len(i.Requests) != min(mails, 100) ||
		i.Requests[0].Kind != siteagent.EventDone {
		t.Errorf("got %d reports, %d taken and %+v shown, want all taken and the last 100 shown", mails, requests, i.Requests)
	}
}

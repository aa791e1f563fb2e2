package pxe_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/install"
)

const loginPassword = `, "password": "a long walk in the rain"`

// asClient returns a caller with a key of a client.
func (b *bootSite) asClient(id int64) *testkit.Client {
	return b.As(&principal.Principal{Owner: principal.Owner{Type: principal.Client, ID: id}, KeyID: 100 + id})
}

// installed installs a machine for a client.
func (b *bootSite) installed(more string) target {
	b.Helper()
	m := b.install(more)
	b.agent.PostEvent(b.bootToken(m), "done", m.address, "")
	b.awaitStatus(m, install.Installed)
	return m
}

// newReinstalls returns a site with an installed machine of a client, and the client.
func newReinstalls(t *testing.T) (*bootSite, target, *testkit.Client) {
	t.Helper()
	b := newBootWith(t, service.Tuning{PollInterval: time.Second}) // nothing wakes the task when an install expires
	b.Do("PATCH", path("/pxe/profile/%d", b.profile), `{"access_client": true}`).Want(200)
	return b, b.installed(fmt.Sprintf(`, "client": %d`, b.client)), b.asClient(b.client)
}

// reinstallBody returns the body with which a client installs a machine again.
func (b *bootSite) reinstallBody(m target, more string) string {
	return fmt.Sprintf(`{"entity": %d, "profile": %d, "confirm": true%s}`, m.entity, b.profile, more)
}

// A client installs its own machine again, follows the install, and reads nothing that concerns only operators.
func TestReinstall(t *testing.T) {
	t.Parallel()
	b, m, client := newReinstalls(t)
	retry := client.Do("POST", "/pxe/reinstall", b.reinstallBody(m, `, "hostname": "new.example.com"`+loginPassword)).Want(200)
	if !strings.Contains(retry.Text, `"message":"Restart new.example.com within an hour.`) || strings.Contains(retry.Text, `"variables"`) ||
		strings.Contains(retry.Text, `"forced"`) || !strings.Contains(retry.Text, m.mac) {
		t.Errorf("got %s, want the message and the MAC address, without variables and forced", retry.Text)
	}
	client.Do("POST", "/pxe/reinstall", b.reinstallBody(m, loginPassword)).WantErrors("/entity", "taken")
	second := target{id: retry.ID(), entity: m.entity, mac: m.mac, address: m.address}
	token := b.bootToken(second)
	b.agent.PostEvent(token, "progress", m.address, "step=partitions&progress=10")
	testkit.Eventually(t, "the client sees the progress", func() bool {
		i := testkit.Decode[install.Install](client.Do("GET", path("/pxe/install/%d", retry.ID()), nil).Want(200))
		return i.Status == install.Installing && i.Progress == 10 && i.Requests == nil
	})
	b.agent.PostEvent(token, "done", m.address, "")
	b.awaitStatus(second, install.Installed)
	client.Do("POST", "/pxe/reinstall", b.reinstallBody(m, loginPassword)).Want(200)
}

// A client cannot install what is not its own machine, nor with a profile that it does not see.
func TestReinstallOfOthers(t *testing.T) {
	t.Parallel()
	b, m, client := newReinstalls(t)
	refused := func(body string, want ...string) {
		t.Helper()
		client.Do("POST", "/pxe/reinstall", body).WantErrors(want...)
	}
	b.Do("POST", "/pxe/reinstall", b.reinstallBody(m, loginPassword)).Want(403)
	b.asClient(6).Do("POST", "/pxe/reinstall", b.reinstallBody(m, loginPassword)).WantErrors("/entity", "not_found")
	refused(`{}`, "/confirm", "required", "/entity", "required", "/profile", "required")
	refused(strings.Replace(b.reinstallBody(m, loginPassword), "true", "false", 1), "/confirm", "required")
	refused(b.reinstallBody(m, `, "macs": [], "password": "x"`), "/macs", "unknown")
	refused(b.reinstallBody(m, loginPassword+`, "hostname": "a b", "ssh_keys": "x"`), "/hostname", "invalid", "/ssh_keys", "invalid")
	refused(b.reinstallBody(m, ""), "/password", "no_login")

	hidden := b.create("/pxe/profile", map[string]any{"name": "hidden", "boot_script": b.create("/pxe/boot-script",
		map[string]any{"name": "hidden", "body": "#!ipxe\n"})})
	refused(fmt.Sprintf(`{"entity": %d, "profile": %d, "confirm": true%s}`, m.entity, hidden, loginPassword), "/profile", "not_found")

	// What is wrong at the site is said without its names.
	b.agent.RemoveFile("linux")
	missing := client.Do("POST", "/pxe/reinstall", b.reinstallBody(m, loginPassword))
	missing.WantErrors("/profile", "file_missing")
	if strings.Contains(missing.Text, "linux") || strings.Contains(missing.Text, "file server") {
		t.Errorf("got %s, want it without the name of the file and of the server", missing.Text)
	}
	b.agent.WriteFile("linux")

	// An address that was never installed, or installed for somebody else, or whose machine has another address now.
	never := target{entity: 99, address: "10.1.0.99"}
	b.Network.SetMachine(b.entity(never, b.client))
	refused(b.reinstallBody(never, loginPassword), "/entity", "not_installed")
	foreign := b.installed("")
	b.Network.SetMachine(b.entity(foreign, b.client))
	refused(b.reinstallBody(foreign, loginPassword), "/entity", "not_installed")
	other := target{entity: 98, address: "10.1.0.98"}
	b.Network.SetMachine(b.entity(other, 0))
	moved := fmt.Sprintf(`{"profile": %d, "host": {"macs": [%q], "entity": %d}%s}`, b.profile, m.mac, other.entity, loginPassword)
	id := b.Do("POST", "/pxe/install", moved).Want(200).ID()
	b.Do("POST", path("/pxe/install/%d/cancel", id), nil).Want(200)
	refused(b.reinstallBody(m, loginPassword), "/entity", "not_installed")
}

// A client's install ends when its address is released, when the client is disabled, and after an hour.
func TestReinstallLapses(t *testing.T) {
	t.Parallel()
	b, m, client := newReinstalls(t)
	begin := func() target {
		t.Helper()
		id := client.Do("POST", "/pxe/reinstall", b.reinstallBody(m, loginPassword)).Want(200).ID()
		return target{id: id, entity: m.entity, mac: m.mac, address: m.address}
	}
	one := begin()
	testkit.Execute(t, b.DB, "UPDATE install SET stage_at = now() - interval '61 minutes' WHERE id = $1", one.id)
	if i := b.awaitStatus(one, install.Failed); !strings.HasPrefix(*i.Error, "The machine did not request a boot script within 60 minutes.") {
		t.Errorf("got the error %q, want that it did not request a boot script within 60 minutes", *i.Error)
	}

	one = begin()
	account := credentials.Account{ID: b.client, Name: "Ben Miller", First: "Ben", Last: "Miller", Email: "ben@example.org", Disabled: true}
	b.Clients.Set(account)
	if i := b.awaitStatus(one, install.Cancelled); *i.Error != "The client was disabled." {
		t.Errorf("got the error %q, want that the client was disabled", *i.Error)
	}
	account.Disabled = false
	b.Clients.Set(account)

	one = begin()
	b.Network.SetMachine(b.entity(m, 0))
	if i := b.awaitStatus(one, install.Cancelled); *i.Error != "The IP entity was released." {
		t.Errorf("got the error %q, want that the IP entity was released", *i.Error)
	}
	b.Network.SetMachine(b.entity(m, b.client))
	client.Do("POST", "/pxe/reinstall", b.reinstallBody(m, loginPassword)).WantErrors("/entity", "not_installed")
}

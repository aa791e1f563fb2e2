package product_test

import (
	"fmt"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
)

// offered is the address that a machine gets by DHCP; empty: none.
func (b *boot) offered(mac string) string {
	lease, ok := b.agent.Agent.Machines().Offered(machine.Client{MAC: mac})
	if !ok || !lease.Address.IsValid() {
		return ""
	}
	return lease.Address.Addr().String()
}

// A machine that was installed keeps its address for as long as it is its own, and has it no longer from then on: of two machines one
// has it.
func TestAddressesOfInstalledMachines(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	installed := func(client string) target {
		t.Helper()
		m := b.install(client)
		b.agent.Says(b.starts(m), "done", m.address, "")
		b.until(m, "installed")
		return m
	}
	until := func(what string, m target, address string) {
		t.Helper()
		testkit.Eventually(t, what, func() bool { return b.offered(m.mac) == address })
	}
	own := fmt.Sprintf(`, "client": %d`, b.client)
	other := b.c.Do("POST", "/client", `{"first": "Jo", "last": "Doe", "email": "jo@example.org"}`).Want(200).ID()
	entity := func(m target) string { return path("/entity/%d", m.entity) }

	{ // installed with another machine
		one := installed(own)
		until("it has its address still", one, one.address)
		b.macs++
		two := target{mac: fmt.Sprintf("52:54:00:00:00:%02x", b.macs), address: one.address, entity: one.entity}
		two.id = b.c.Do("POST", "/pxe/install", fmt.Sprintf(`{"profile": %d, "host": {"macs": [%q], "entity": %d}%s}`, b.profile, two.mac, two.entity, own)).
			Want(200).
			ID()
		until("the new one has it", two, one.address)
		until("the old one has none", one, "")
		b.c.Do("POST", path("/pxe/install/%d/cancel", two.id), nil).Want(200)
		b.c.Do("POST", path("/pxe/install/%d/retry", one.id), `{}`).Want(200)
		until("the old one has it", one, one.address)
		until("the new one has none", two, "")
		b.c.Do("POST", path("/pxe/install/%d/cancel", one.id), nil).Want(200)
	}
	{ // released
		m := installed(own)
		b.c.Do("PATCH", entity(m), fmt.Sprintf(`{"owner": {"id": %d}}`, b.client)).Want(200)
		b.c.Do("PATCH", entity(m), `{"vlan": 7}`).Want(200)
		until("it has its address still", m, m.address)
		b.c.Do("POST", entity(m)+"/release", nil).Want(200)
		until("it has none", m, "")
		b.c.Do("DELETE", entity(m), nil).Want(200)
		b.c.Do("POST", path("/pxe/install/%d/retry", m.id), `{}`).Want(409)
	}
	{ // deleted
		m := installed("")
		b.c.Do("DELETE", entity(m), nil).Want(200)
		until("it has none", m, "")
	}
	{ // allocated
		m := installed("")
		for taken := int64(0); taken != m.entity; { // with others that are free
			taken = testkit.Decode[[]struct{ ID int64 }](b.c.Do("POST", path("/group/%d/allocate", b.group), fmt.Sprintf(`{"count": 1, "owner": {"id": %d}}`, other)).Want(200))[0].ID
		}
		until("it has none", m, "")
	}
	{ // assigned to somebody else
		m := installed(own)
		b.c.Do("PATCH", entity(m), fmt.Sprintf(`{"owner": {"id": %d}}`, b.client)).Want(200)
		b.c.Do("PATCH", entity(m), fmt.Sprintf(`{"owner": {"id": %d}}`, other)).Want(200)
		until("it has none", m, "")
	}
	{ // another address
		m := installed(own)
		b.c.Do("PATCH", entity(m), `{"address": "10.1.0.99"}`).Want(200)
		until("it has none", m, "")
		b.c.Do("POST", path("/pxe/install/%d/retry", m.id), `{}`).
			WantDetail(problem.Conflict, fmt.Sprintf("Install %d needs the addresses that the IP entity 10.1.0.99 had then.", m.id))
	}
}

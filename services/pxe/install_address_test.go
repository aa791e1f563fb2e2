package pxe_test

import (
	"fmt"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
)

// offered returns the address that a machine gets by DHCP, or "" if it gets none.
func (b *bootSite) offered(mac string) string {
	lease, ok := b.agent.Agent.Machines().FindLease(machine.Client{MAC: mac})
	if !ok || !lease.Address.IsValid() {
		return ""
	}
	return lease.Address.Addr().String()
}

// An installed machine keeps its address only as long as its IP entity is its own. Two machines never have the same
// address.
func TestAddressesOfInstalledMachines(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	installed := func(client string) target {
		t.Helper()
		m := b.install(client)
		b.agent.PostEvent(b.bootToken(m), "done", m.address, "")
		b.awaitStatus(m, "installed")
		return m
	}
	until := func(condition string, m target, address string) {
		t.Helper()
		testkit.Eventually(t, condition, func() bool { return b.offered(m.mac) == address })
	}
	own := fmt.Sprintf(`, "client": %d`, b.client)
	const other = 6
	set := func(m target, owner int64) { b.Network.SetMachine(b.entity(m, owner)) }

	{ // installed with another machine
		one := installed(own)
		until("it still has its address", one, one.address)
		b.macs++
		two := target{mac: fmt.Sprintf("52:54:00:00:00:%02x", b.macs), address: one.address, entity: one.entity}
		two.id = b.Do("POST", "/pxe/install", fmt.Sprintf(`{"profile": %d, "host": {"macs": [%q], "entity": %d}, "password": "a long walk"%s}`, b.profile, two.mac, two.entity, own)).
			Want(200).
			ID()
		until("the new one has it", two, one.address)
		until("the old one has none", one, "")
		b.Do("POST", path("/pxe/install/%d/cancel", two.id), nil).Want(200)
		b.Do("POST", path("/pxe/install/%d/retry", one.id), `{"password": "a long walk"}`).Want(200)
		until("the old one has it", one, one.address)
		until("the new one has none", two, "")
		b.Do("POST", path("/pxe/install/%d/cancel", one.id), nil).Want(200)
	}
	{ // released
		m := installed(own)
		set(m, b.client)
		set(m, b.client) // an edit of another member
		until("it still has its address", m, m.address)
		set(m, 0)
		until("it has none", m, "")
		b.Network.DeleteMachine(m.entity)
		b.Do("POST", path("/pxe/install/%d/retry", m.id), `{}`).
			WantDetail(problem.Conflict, fmt.Sprintf(
				"Install %d cannot be retried: the IP entity %s was deleted. Create a new install.", m.id, m.address))
	}
	{ // deleted
		m := installed("")
		b.Network.DeleteMachine(m.entity)
		until("it has none", m, "")
	}
	{ // allocated
		m := installed("")
		b.Network.AllocateMachine(b.entity(m, other))
		until("it has none", m, "")
	}
	{ // assigned to another client
		m := installed(own)
		set(m, b.client)
		set(m, other)
		until("it has none", m, "")
	}
	{ // another address
		m := installed(own)
		moved := m
		moved.address = "10.1.0.99"
		set(moved, 0)
		until("it has none", m, "")
		testkit.Eventually(t, "the new name of the IP entity is known", func() bool { return b.view(m).Host.Entity.Name == moved.address })
		b.Do("POST", path("/pxe/install/%d/retry", m.id), `{}`).
			WantDetail(problem.Conflict, fmt.Sprintf(
				"Install %d cannot be retried: the addresses of the IP entity 10.1.0.99 have changed. Create a new install.", m.id))
	}
}

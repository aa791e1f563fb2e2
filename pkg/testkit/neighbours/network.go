package neighbours

import (
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"testing"

	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// Network is a double of the network service.
type Network struct {
	*Double

	groups, entities *items
	machines         map[int64]Machine
	servers          map[int64]int64
}

const machinePath = "/internal/machine-address/"

// Machine is an IP entity for the installation of a machine: one IPv4 address in a /24.
type Machine struct {
	Entity     int64
	Address    string // 10.1.0.2
	Gateway    string
	Group      int64
	GroupName  string
	DHCPServer int64 // of the group; 0: none
	Owner      int64 // the client that it is assigned to; 0: none
}

// answer returns the response about the machine's address.
func (m Machine) answer() map[string]any {
	group := map[string]any{"id": m.Group, "name": m.GroupName, "dhcp_server": nil}
	if m.DHCPServer != 0 {
		group["dhcp_server"] = m.DHCPServer
	}
	v4 := map[string]any{"first": m.Address, "bits": nil, "mask": 24, "gateway": m.Gateway}
	return map[string]any{"v4": v4, "v6": nil, "vlan": nil, "owner": map[string]any{"id": m.Owner}, "group": group}
}

// shown returns the entity as records show it.
func (m Machine) shown() map[string]any {
	shown := map[string]any{"id": m.Entity, "name": m.Address, "full_ip": m.Address}
	if m.Owner != 0 {
		shown["owner"] = map[string]any{"id": m.Owner}
	}
	return shown
}

// SetMachine creates or edits the IP entity of a machine. Readers of its changes are notified.
func (n *Network) SetMachine(m Machine) {
	n.t.Helper()
	n.entities.set(m.Entity, m.Address, nil, n.keepMachine(m), m.shown())
}

// AllocateMachine assigns a free IP entity to the owner of the machine, as an allocation does. Readers of its changes are
// notified.
func (n *Network) AllocateMachine(m Machine) {
	n.t.Helper()
	before := n.keepMachine(m)
	n.Change("entity", "allocated", before, m.shown(),
		pg.Target{Type: "entity", Noun: "IP entity", ID: m.Entity, Name: m.Address, Version: 2})
}

// keepMachine stores a machine, and returns it as records showed it before.
func (n *Network) keepMachine(m Machine) (before any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if was, edited := n.machines[m.Entity]; edited {
		before = was.shown()
	}
	n.machines[m.Entity] = m
	return before
}

// DeleteMachine deletes the IP entity of a machine. Readers of its changes are notified.
func (n *Network) DeleteMachine(entity int64) {
	n.t.Helper()
	n.mu.Lock()
	before := n.machines[entity].shown()
	delete(n.machines, entity)
	n.mu.Unlock()
	n.entities.remove(entity, before)
}

// MachineContract tests the routes for pxe of a network service that has allocated a machine's IP entity to its owner.
func MachineContract(t *testing.T, handler http.Handler, m Machine) {
	t.Helper()
	a := asker{t, "network", handler}
	var want, got any
	if err := json.Unmarshal([]byte(testkit.JSON(m.answer())), &want); err != nil {
		t.Fatal(err)
	}
	a.ask("pxe", machinePath+decimal(m.Entity), &got)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("pxe asks for the address of IP entity %d: got %s, want %s", m.Entity, testkit.JSON(got), testkit.JSON(want))
	}
	wantAnswer[any](a, "pxe", machinePath+decimal(none), nil)
	a.wantRefused("clients", machinePath+decimal(m.Entity))
	a.wantRef("pxe", "entity", m.Entity, m.Address)
	a.wantRef("pxe", "group", m.Group, m.GroupName)
	a.eventually("pxe hears that the IP entity was allocated", func() bool {
		var got page
		a.ask("pxe", "/internal/events?after=0&kind=entity", &got)
		for _, e := range got.Events {
			var before, after struct {
				FullIP string `json:"full_ip"`
				Owner  struct{ ID int64 }
			}
			if e.Action != "allocated" || json.Unmarshal(e.Before, &before) != nil || json.Unmarshal(e.After, &after) != nil {
				continue
			}
			if before.Owner.ID == 0 && after.Owner.ID == m.Owner && before.FullIP == after.FullIP {
				return true
			}
		}
		return false
	})
}

const serversPath = "/internal/client-servers?clients="

func newNetwork(t testing.TB, o options) *Network {
	n := &Network{Double: newDouble(t, "network", o), servers: map[int64]int64{}, machines: map[int64]Machine{}}
	n.groups, n.entities = n.handleRefs("group", "IP group", "pxe"), n.handleRefs("entity", "IP entity", "pxe")
	n.handleClose("client", "clients")
	n.handle(machinePath+"{id}", []string{"pxe"}, func(r *http.Request) any {
		m, found := n.machines[id(r)]
		if !found {
			return nil
		}
		return m.answer()
	})
	n.handle(mail.ClientAddressesPath, []string{"clients", "system"}, func(*http.Request) any {
		return mail.ForClient{Addresses: []string{}, Servers: []string{}}
	})
	n.handle("/internal/client-servers", []string{"clients"}, func(r *http.Request) any {
		var clients []int64
		if err := json.Unmarshal([]byte(r.FormValue("clients")), &clients); err != nil {
			n.t.Errorf("network is asked about the clients %q: %v", r.FormValue("clients"), err)
		}
		counts := make([]int64, len(clients))
		for i, client := range clients {
			counts[i] = n.servers[client]
		}
		return counts
	})
	return n
}

// SetGroup creates or renames an IP group. Readers of its changes are notified.
func (n *Network) SetGroup(id int64, name string) {
	n.t.Helper()
	n.groups.set(id, name, nil, nil, map[string]any{"id": id, "name": name})
}

// DeleteGroup deletes an IP group. Readers of its changes are notified.
func (n *Network) DeleteGroup(id int64) {
	n.t.Helper()
	n.groups.remove(id, map[string]any{"id": id})
}

// SetEntity creates or renames an IP entity. Readers of its changes are notified.
func (n *Network) SetEntity(id int64, name string) {
	n.t.Helper()
	n.entities.set(id, name, nil, nil, map[string]any{"id": id, "name": name})
}

// SetServers sets the number of servers among a client's IP entities. Readers are notified of an assigned entity.
func (n *Network) SetServers(client, servers int64) {
	n.t.Helper()
	n.mu.Lock()
	n.servers[client] = servers
	n.mu.Unlock()
	n.Change("entity", pg.Edited, map[string]any{"id": 1}, map[string]any{"id": 1, "owner": map[string]any{"id": client}},
		pg.Target{Type: "entity", Noun: "IP entity", ID: 1, Name: "192.0.2.1", Version: 2})
}

// NetworkContract tests the internal routes of a network service. A client has an IP entity for each of its servers, described
// by usage. There is no other client.
func NetworkContract(t *testing.T, handler http.Handler, client, servers int64, usage string) {
	t.Helper()
	a := asker{t, "network", handler}
	asked := serversPath + url.QueryEscape(testkit.JSON([]int64{none, client}))
	wantAnswer(a, "clients", asked, []int64{0, servers})
	wantAnswer(a, "clients", serversPath+"[]", []int64{})
	a.wantRefused("pxe", asked)
	addresses := mail.ClientAddressesPath + "?client=" + decimal(none)
	for _, reader := range []string{"clients", "system"} {
		wantAnswer(a, reader, addresses, mail.ForClient{Addresses: []string{}, Servers: []string{}})
	}
	a.wantRefused("pxe", addresses)
	a.wantUsed("clients", "client", client, usage)
	a.wantUnused("clients", "client", none)
	a.wantRefused("pxe", closePath("client", client))
	for _, kind := range []string{"group", "entity"} {
		a.wantNoRef("pxe", kind, none)
		a.wantRefused("clients", refPath(kind, 1))
	}
	a.eventually("clients hears of the owner of an IP entity", func() bool {
		var got page
		a.ask("clients", "/internal/events?after=0&kind=entity", &got)
		for _, e := range got.Events {
			var after struct{ Owner struct{ ID int64 } }
			if err := json.Unmarshal(e.After, &after); err == nil && e.Kind == "entity" && after.Owner.ID == client {
				return true
			}
		}
		return false
	})
}

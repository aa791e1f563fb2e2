package neighbours

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// Network is a double of the network service.
type Network struct {
	*Double

	groups, entities *items
	servers          map[int64]int64
}

const serversPath = "/internal/client-servers?clients="

func newNetwork(t testing.TB, o options) *Network {
	n := &Network{Double: newDouble(t, "network", o), servers: map[int64]int64{}}
	n.groups, n.entities = n.refers("group", "IP group", "pxe"), n.refers("entity", "IP entity", "pxe")
	n.closes("client", "clients")
	n.answer("/internal/client-servers", []string{"clients"}, func(r *http.Request) any {
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

// SetGroup makes an IP group, or renames it. Its readers hear of it.
func (n *Network) SetGroup(id int64, name string) {
	n.t.Helper()
	n.groups.set(id, name, nil, nil, map[string]any{"id": id, "name": name})
}

// SetEntity makes an IP entity, or renames it. Its readers hear of it.
func (n *Network) SetEntity(id int64, name string) {
	n.t.Helper()
	n.entities.set(id, name, nil, nil, map[string]any{"id": id, "name": name})
}

// SetServers says of how many servers the IP entities of a client are. Its readers hear that an entity was assigned to it.
func (n *Network) SetServers(client, servers int64) {
	n.t.Helper()
	n.mu.Lock()
	n.servers[client] = servers
	n.mu.Unlock()
	n.Change("entity", pg.Edited, map[string]any{"id": 1}, map[string]any{"id": 1, "owner": map[string]any{"id": client}},
		pg.Target{Type: "entity", Noun: "IP entity", ID: 1, Name: "192.0.2.1", Version: 2})
}

// NetworkContract asks a network service, in which a client has an IP entity of each of so many servers, what its neighbours
// ask. The entity is used in the words of uses, and no one heard of any other client.
func NetworkContract(t *testing.T, handler http.Handler, client, servers int64, uses string) {
	t.Helper()
	a := asker{t, "network", handler}
	asked := serversPath + url.QueryEscape(testkit.JSON([]int64{none, client}))
	wantAnswer(a, "clients", asked, []int64{0, servers})
	wantAnswer(a, "clients", serversPath+"[]", []int64{})
	a.wantRefused("pxe", asked)
	a.wantUsed("clients", "client", client, uses)
	a.wantUnused("clients", "client", none)
	a.wantRefused("pxe", closePath("client", client))
	for _, kind := range []string{"group", "entity"} {
		a.wantNoRef("pxe", kind, none)
		a.wantRefused("clients", refPath(kind, 1))
	}
	a.eventually("clients hears whose an IP entity is", func() bool {
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

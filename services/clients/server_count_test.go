package clients_test

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
)

// A client's servers are those that network counts, wherever the client is shown.
func TestServersOfClients(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	ids, as := c.createClients("parent", "child")
	parent, child := path("/client/%d", ids["parent"]), path("/client/%d", ids["child"])
	c.Do("POST", parent+"/sub", map[string]any{"client_id": ids["child"]}).Want(200)
	shows := func(want int64) {
		t.Helper()
		testkit.Eventually(t, "the servers are counted", func() bool {
			seen := testkit.Decode[clients.ViewedClient](c.Do("GET", child, nil).Want(200)).Servers
			listed := testkit.Decode[[]clients.ListedClient](as["parent"].Do("GET", "/client", nil).Want(200))[0].Servers
			linked := testkit.Decode[[]clients.SubLink](as["parent"].Do("GET", parent+"/sub", nil).Want(200))[0].Child.Servers
			return seen == want && listed == want && linked == want
		})
	}
	tag := c.Do("GET", child, nil).Header.Get("ETag")
	for _, servers := range []int64{1, 2, 0} {
		c.Network.SetServers(ids["child"], servers)
		shows(servers)
	}
	if now := c.Do("GET", child, nil).Header.Get("ETag"); now != tag {
		t.Errorf("after the servers changed: got the ETag %s, want %s", now, tag)
	}

	// Counts wait while network is away. Clients without an event are counted, too: from before servers were counted, or after a
	// restore of network.
	c.Network.SetServers(ids["parent"], 1)
	c.Network.SetAway(true)
	testkit.Execute(t, c.DB, "DELETE FROM client_server_count")
	testkit.Execute(
		t,
		c.DB,
		"INSERT INTO client_recount SELECT id FROM client UNION SELECT * FROM generate_series(9999999999001, 9999999999999) "+
			"ON CONFLICT DO NOTHING",
	)
	c.Network.SetAway(false)
	testkit.Eventually(t, "all are counted again", func() bool {
		return testkit.Decode[clients.ViewedClient](c.Do("GET", parent, nil).Want(200)).Servers == 1
	})
}

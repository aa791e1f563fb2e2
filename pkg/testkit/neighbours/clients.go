package neighbours

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// Clients is a double of the clients service.
type Clients struct {
	*Double

	refs     *items
	accounts map[int64]credentials.Account
	reaches  map[string]credentials.Reach // by both ids
	links    *items
	lastLink int64
}

func newClients(t testing.TB, o options) *Clients {
	c := &Clients{Double: newDouble(t, "clients", o), accounts: map[int64]credentials.Account{}, reaches: map[string]credentials.Reach{}}
	c.refs = c.handleRefs("client", "client", "identity", "network", "pxe")
	c.links = c.handleRefs("client/sub", "sub link", "network")
	c.handle(credentials.Path, []string{"identity"}, func(r *http.Request) any {
		for _, m := range c.receive() {
			c.apply(m)
		}
		wanted, _ := strconv.ParseInt(r.FormValue("id"), 10, 64)
		for _, a := range c.accounts {
			if a.ID == wanted || wanted == 0 && strings.EqualFold(a.Email, r.FormValue("email")) {
				return a
			}
		}
		return credentials.Account{}
	})
	c.handle(credentials.ReachPath, []string{"identity", "network", "pxe", "system"}, func(r *http.Request) any {
		return c.reaches[r.FormValue("above")+" "+r.FormValue("client")]
	})
	c.handleClose("integration", "system")
	c.handle("/internal/email/{id}", []string{"pxe"}, func(r *http.Request) any { return c.accounts[id(r)].Email })
	c.handle("/internal/integration-servers", []string{"system"}, func(*http.Request) any { return []any{} })
	c.handle("/internal/suspended", []string{"pxe"}, func(r *http.Request) any {
		var clients []int64
		if err := json.Unmarshal([]byte(r.FormValue("clients")), &clients); err != nil {
			t.Errorf("clients is asked about %q: %v", r.FormValue("clients"), err)
		}
		return slices.DeleteFunc(clients, func(id int64) bool { return !c.accounts[id].Disabled })
	})
	return c
}

// Set creates or edits a client. Readers of its changes are notified.
func (c *Clients) Set(a credentials.Account) {
	c.t.Helper()
	c.mu.Lock()
	var before any
	if was, edited := c.accounts[a.ID]; edited {
		before = shownClient(was)
	}
	c.accounts[a.ID] = a
	c.mu.Unlock()
	c.refs.set(a.ID, a.Name, map[string]any{"integration": nil}, before, shownClient(a))
}

// Account returns a client after all messages of identity were received.
func (c *Clients) Account(id int64) credentials.Account {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.receive() {
		c.apply(m)
	}
	return c.accounts[id]
}

// SetReach says how a client reaches another one.
func (c *Clients) SetReach(above, client int64, reach credentials.Reach) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reaches[decimal(above)+" "+decimal(client)] = reach
}

// SetSub links a client to another one, which becomes its sub client. Readers of its changes are notified.
func (c *Clients) SetSub(above, client int64) (link int64) {
	c.t.Helper()
	c.mu.Lock()
	c.lastLink++
	link = c.lastLink
	c.mu.Unlock()
	c.links.below("client", above).set(link, c.accounts[client].Name, nil, nil, map[string]any{"id": link})
	c.SetReach(above, client, credentials.Reach{Whole: true, Link: link})
	return link
}

// EndSub deletes the link from a client to its sub client. Readers of its changes are notified.
func (c *Clients) EndSub(above, client int64) {
	c.t.Helper()
	link := c.reaches[decimal(above)+" "+decimal(client)].Link
	c.SetReach(above, client, credentials.Reach{})
	c.links.below("client", above).remove(link, map[string]any{"id": link})
}

// Delete deletes a client. Readers of its changes are notified.
func (c *Clients) Delete(id int64) {
	c.t.Helper()
	c.mu.Lock()
	before := shownClient(c.accounts[id])
	delete(c.accounts, id)
	c.mu.Unlock()
	c.refs.remove(id, before)
}

// shownClient returns a client as records show it.
func shownClient(a credentials.Account) map[string]any {
	return map[string]any{"id": a.ID, "name": a.Name, "email": a.Email, "first": a.First, "last": a.Last, "disabled": a.Disabled}
}

// apply makes a change to a client's credentials that identity reports, unless they have changed since.
func (c *Clients) apply(m events.Message) {
	var change credentials.Change
	if m.Kind != credentials.ChangeKind {
		return
	}
	if err := json.Unmarshal(m.Content, &change); err != nil {
		c.t.Errorf("a message of identity: %v", err)
	}
	a, exists := c.accounts[change.Client]
	if !exists || a.Version != change.Version {
		return
	}
	switch change.Action {
	case credentials.Rehashed:
		a.Hash = m.Secret.Reveal()
		c.accounts[a.ID] = a
		return
	case credentials.Password:
		a.Hash = m.Secret.Reveal()
		a.Version++
	}
	a.SignedIn = a.SignedIn || change.Action == credentials.SignedIn || change.Proven
	a.Unproven = a.Unproven && !change.Proven
	a.Claimed = true
	c.accounts[a.ID] = a
}

// ClientsContract tests the internal routes of a clients service that has this account and sends no messages. It is a sub client of
// above by a link. identity is the double that sends messages to it.
func ClientsContract(t *testing.T, handler http.Handler, identity *Double, has credentials.Account, above, link int64) {
	t.Helper()
	a := asker{t, "clients", handler}
	own := credentials.Path + "?id=" + decimal(has.ID)
	wantAnswer(a, "identity", own, has)
	wantAnswer(a, "identity", credentials.Path+"?email="+strings.ToUpper(has.Email), has)
	wantAnswer(a, "identity", credentials.Path+"?id="+decimal(none), credentials.Account{})
	wantAnswer(a, "identity", credentials.Path+"?email=nobody@example.net", credentials.Account{})
	a.wantRefused("network", own)
	wantAnswer(a, "pxe", "/internal/email/"+decimal(has.ID), has.Email)
	wantAnswer(a, "pxe", "/internal/email/"+decimal(none), "")
	a.wantRefused("identity", "/internal/email/1")
	wantAnswer(a, "system", "/internal/integration-servers", []int64{})
	a.wantRefused("network", "/internal/integration-servers")
	suspended := "/internal/suspended?clients=[" + decimal(has.ID) + "]"
	wantAnswer(a, "pxe", suspended, []int64{})
	a.wantRefused("network", suspended)
	wantAnswer(a, "identity", credentials.ReachPath+"?above="+decimal(has.ID)+"&client="+decimal(none), credentials.Reach{})
	a.wantRefused("clients", credentials.ReachPath+"?above=1&client=2")
	for _, reader := range []string{"identity", "network", "pxe"} {
		a.wantRef(reader, "client", has.ID, has.Name)
		a.wantNoRef(reader, "client", none)
		a.wantChange(reader, "client", pg.Created, "client", has.ID)
	}

	reach := credentials.ReachPath + "?above=" + decimal(above) + "&client=" + decimal(has.ID)
	wantAnswer(a, "network", reach, credentials.Reach{Whole: true, Link: link})
	a.wantRef("network", "client/sub", link, has.Name)
	a.wantNoRef("network", "client/sub", none)
	a.wantChange("network", "client.sub", pg.Created, "client/"+decimal(above)+"/sub", link)

	a.wantChange("system", "client", pg.Created, "client", has.ID)
	a.wantUnused("system", "integration", none)
	a.wantDetached("system", "integration", none)
	a.wantRefused("network", closePath("integration", none))

	// What identity says was done is done while the version is still the same.
	is := func() (is credentials.Account) {
		a.ask("identity", own, &is)
		return is
	}
	identity.sendChange(credentials.Change{Client: has.ID, Version: has.Version, Action: credentials.Rehashed}, "hash 1")
	a.eventually("the password is hashed anew", func() bool { return is().Hash == "hash 1" })
	identity.sendChange(credentials.Change{Client: has.ID, Version: has.Version, Action: credentials.SignedIn}, "")
	a.eventually("the account is claimed", func() bool { return is().SignedIn && is().Claimed })
	if got := is().Version; got != has.Version {
		t.Errorf("version of the credentials: got %d, want %d", got, has.Version)
	}
	identity.sendChange(credentials.Change{Client: has.ID, Version: has.Version, Action: credentials.Password, Proven: true}, "hash 2")
	a.eventually("the password is another one", func() bool { return is().Hash == "hash 2" })
	if got := is().Version; got <= has.Version {
		t.Errorf("version of the credentials: got %d, want a higher one than %d", got, has.Version)
	}
	identity.sendChange(credentials.Change{Client: has.ID, Version: has.Version, Action: credentials.Password}, "hash 3")
	identity.sendChange(credentials.Change{Client: has.ID, Version: is().Version, Action: credentials.Rehashed}, "hash 4")
	a.eventually("the last message is taken", func() bool { return is().Hash == "hash 4" })
}

package clients_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/clients/clientstest"
)

// createClients creates clients with these first names. It returns their ids, and callers with their keys.
func (s *testService) createClients(names ...string) (ids map[string]int64, as map[string]*testkit.Client) {
	s.t.Helper()
	ids, as = map[string]int64{}, map[string]*testkit.Client{}
	for _, name := range names {
		ids[name], _ = s.createClient(name+"@example.com", "first", name)
		as[name] = s.asClient(ids[name])
	}
	return ids, as
}

// listNames returns the first names in a client's list.
func listNames(t *testing.T, c *testkit.Client) string {
	t.Helper()
	var names []string
	for _, client := range testkit.Decode[[]clients.ListedClient](c.Do("GET", "/client", nil).Want(200)) {
		names = append(names, client.First)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// A client reads all clients below it along sub links. By a super link it also reads what the granter reads.
func TestLinks(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	ids, as := c.createClients("top", "middle", "leaf", "grantee", "second", "unlinked")
	at := func(name string) string { return path("/client/%d", ids[name]) }
	to := func(name string) map[string]any { return map[string]any{"client_id": ids[name]} }
	first := c.Do("POST", at("top")+"/sub", to("middle")).Want(200)
	lower := c.Do("POST", at("middle")+"/sub", to("leaf")).Want(200)
	superLink := c.Do("POST", at("top")+"/super", map[string]any{"client_email": "GRANTEE@example.com"}).Want(200)
	c.Do("POST", at("grantee")+"/super", to("second")).Want(200)
	if repeated := c.Do("POST", at("top")+"/sub", to("middle")).Want(200); repeated.Text != first.Text {
		t.Errorf("a link that is made again: got %s, want %s", repeated.Text, first.Text)
	}
	for name, want := range map[string]string{
		"top": "leaf middle", "middle": "leaf", "leaf": "", "grantee": "leaf middle", "second": "", "unlinked": "",
	} {
		if got := listNames(t, as[name]); got != want {
			t.Errorf("%s's list: got %q, want %q", name, got, want)
		}
	}
	reads := map[string][]string{
		"top":      {"top", "middle", "leaf"},
		"middle":   {"middle", "leaf"},
		"leaf":     {"leaf"},
		"grantee":  {"grantee", "top", "middle", "leaf"},
		"second":   {"second", "grantee"},
		"unlinked": {"unlinked"},
	}
	for caller, reached := range reads {
		for name := range ids {
			status := 404
			if slices.Contains(reached, name) {
				status = 200
			}
			for _, below := range []string{"", "/sub", "/super", "/parent", "/granter"} {
				as[caller].Do("GET", at(name)+below, nil).Want(status)
			}
		}
	}
	for path, want := range map[string]string{
		at("middle") + "/parent":   fmt.Sprintf(`[{"id":%d,"parent":{"id":%d,"name":"top Miller"}}]`, first.ID(), ids["top"]),
		at("grantee") + "/granter": fmt.Sprintf(`[{"id":%d,"granter":{"id":%d,"name":"top Miller"}}]`, superLink.ID(), ids["top"]),
		at("top") + "/super":       fmt.Sprintf(`[{"id":%d,"grantee":{"id":%d,"name":"grantee Miller"}}]`, superLink.ID(), ids["grantee"]),
	} {
		if got := c.Do("GET", path, nil).Want(200).Text; strings.TrimSpace(got) != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}

	// Invalid links are refused.
	c.Do("POST", at("leaf")+"/sub", to("top")).WantErrors("/client_id", "cycle")
	c.Do("POST", at("top")+"/sub", to("top")).WantErrors("/client_id", "invalid")
	c.Do("POST", at("top")+"/super", to("top")).WantErrors("/client_id", "invalid")
	c.Do("POST", at("top")+"/sub", `{"client_id": 999999}`).WantErrors("/client_id", "not_found")
	c.Do("POST", at("top")+"/sub", `{}`).WantErrors("/client_id", "required")
	c.Do("POST", at("top")+"/sub", `{"client_id": 1, "client_email": "a@example.com"}`).WantErrors("/client_email", "conflict")
	for _, other := range []map[string]any{to("unlinked"), {"client_id": 999999}} {
		for _, relation := range []string{"/sub", "/super"} {
			as["top"].Do("POST", at("top")+relation, other).WantErrors("/client_id", "not_found")
		}
	}
	as["top"].Do("POST", at("top")+"/super", to("leaf")).WantErrors("/client_id", "not_found") // top has no link of its own to leaf
	as["grantee"].Do("POST", at("top")+"/super", to("middle")).Want(403)
	as["grantee"].Do("DELETE", fmt.Sprint(at("top"), "/sub/", first.ID()), nil).Want(403)
	as["unlinked"].Do("DELETE", fmt.Sprint(at("top"), "/sub/", first.ID()), nil).Want(404)
	as["top"].Do("DELETE", at("middle"), nil).Want(403)

	// Two clients can be linked both ways, and either end can delete a link.
	both := as["top"].Do("POST", at("top")+"/super", to("middle")).Want(200)
	if got := listNames(t, as["middle"]); got != "leaf" {
		t.Errorf("the granter's list: got %q, want leaf", got)
	}
	as["middle"].Do("GET", at("top"), nil).Want(200)
	as["middle"].Do("DELETE", fmt.Sprint(at("middle"), "/granter/", both.ID()), nil).Want(200)
	as["middle"].Do("GET", at("top"), nil).Want(404)
	as["leaf"].Do("DELETE", fmt.Sprint(at("leaf"), "/parent/", lower.ID()), nil).Want(200)
	if got := listNames(t, as["top"]) + "|" + listNames(t, as["grantee"]); got != "middle|middle" {
		t.Errorf("the lists without the lower link: got %q, want middle|middle", got)
	}
	as["top"].Do("DELETE", fmt.Sprint(at("top"), "/super/", superLink.ID()), nil).Want(200)
	as["grantee"].Do("GET", at("top"), nil).Want(404)
	c.Do("DELETE", at("middle"), nil).Want(200)
	if got := c.Do("GET", at("top")+"/sub", nil).Want(200).Text + listNames(t, as["top"]); got != "[]\n" {
		t.Errorf("of a deleted client: got %s, want no links and no clients", got)
	}
}

// Whatever links are created and deleted, and accounts renamed, at the same time: there is no cycle, and the stored pairs agree
// with the links and accounts.
func TestSubLinksMakeNoCycle(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	const accounts, callers, rounds = 8, 32, 12
	for i := range accounts {
		c.Do("POST", "/client", orderBody(fmt.Sprintf("c%d@example.com", i))).Want(200)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	created, refused := 0, 0
	for range callers {
		all.Go(func() {
			for range rounds {
				from, to := 1+rand.IntN(accounts), 1+rand.IntN(accounts)
				if from == to {
					c.Do("PATCH", path("/client/%d", int64(to)), map[string]any{"last": fmt.Sprint(rand.Uint64())}).Want(200)
					continue
				}
				response := c.Do("POST", path("/client/%d/sub", int64(from)), map[string]any{"client_id": to})
				mu.Lock()
				if response.Status == 200 {
					created++
				} else {
					response.WantErrors("/client_id", "cycle")
					refused++
				}
				mu.Unlock()
				if response.Status == 200 && rand.IntN(3) == 0 {
					if deleted := c.Do("DELETE", fmt.Sprint(path("/client/%d/sub/", int64(from)), response.ID()), nil); deleted.Status != 404 {
						deleted.Want(200)
					}
				}
			}
		})
	}
	all.Wait()
	if created == 0 || refused == 0 {
		t.Errorf("got %d links made and %d refused, want at least one of each", created, refused)
	}
	clientstest.CheckReach(t, c.DB)
	c.Do("DELETE", "/client/3,4,5", nil).Want(200)
	clientstest.CheckReach(t, c.DB)

	for _, name := range []string{"above", "tree"} {
		c.Do("POST", "/client", orderBody(name+"@example.com")).Want(200)
	}
	testkit.Execute(t, c.DB, "INSERT INTO client_reach SELECT 10, n, 1, '', '' FROM generate_series(1000001, 1200000) n")
	c.Do("POST", "/client/9/sub", `{"client_id": 10}`).WantErrors("/client_id", "too_many")
	testkit.Execute(t, c.DB, "DELETE FROM client_reach WHERE ancestor = 10 AND descendant = 1000001")
	c.Do("POST", "/client/9/sub", `{"client_id": 10}`).Want(200)
}

// A reseller works a day with nothing but its own key. Each order is sent ten times, and the test checks what each of three
// clients sees.
func TestResellerJourney(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	ids, as := c.createClients("reseller", "known", "unlinked")
	own := path("/client/%d", ids["reseller"])
	reseller, known := as["reseller"], as["known"]

	// An order with a new address creates one account, however often it is sent.
	var created clients.ViewedClient
	for i := range 10 {
		response := reseller.Do("POST", "/client", orderBody("new@example.com", "billing_id", 7, "password", "secret", "disabled", true)).
			Want(200)
		if i == 0 {
			created = testkit.Decode[clients.ViewedClient](response)
		} else if repeated := testkit.Decode[clients.ViewedClient](response); testkit.JSON(repeated) != testkit.JSON(created) {
			t.Errorf("the same order again: got %+v, want %+v", repeated, created)
		}
	}
	if created.BillingID != nil || created.Disabled || created.Name != "Ben Miller" {
		t.Errorf("got %+v, want an enabled Ben Miller without a billing id", created)
	}
	at := path("/client/%d", created.ID)

	// An order with a known address neither shows nor changes that account, and the response has the same members.
	before := c.Do("GET", path("/client/%d", ids["known"]), nil).Want(200).Text
	for range 10 {
		named := testkit.Decode[clients.ViewedClient](reseller.Do("POST", "/client", orderBody("KNOWN@example.com")).Want(200))
		if named.ID != ids["known"] || named.Name != "Ben Miller" || named.Email != "KNOWN@example.com" || named.ClaimedAt != nil {
			t.Errorf("an order for a known address: got %+v, want client %d as it was ordered", named, ids["known"])
		}
	}
	if after := c.Do("GET", path("/client/%d", ids["known"]), nil).Want(200).Text; after != before {
		t.Errorf("the known account: got %s, want %s", after, before)
	}
	knownPath := path("/client/%d", ids["known"])
	if shown := testkit.Decode[clients.ViewedClient](
		reseller.Do("GET", knownPath, nil).Want(200),
	); shown.First != "Ben" ||
		shown.Email != "KNOWN@example.com" {
		t.Errorf("what the reseller sees of the known account: got %+v, want Ben and KNOWN@example.com", shown)
	}
	if list := reseller.Do("GET", "/client?sort=name", nil).
		Want(200).
		Text; strings.Count(list, `"name":"Ben Miller"`) != 2 ||
		strings.Contains(list, "known Miller") {
		t.Errorf("the reseller's list: got %s, want Ben Miller twice and no known Miller", list)
	}
	for _, nested := range []string{"/sub", "/super", "/parent", "/granter"} {
		reseller.Do("GET", knownPath+nested, nil).Want(404)
	}
	reseller.Do("PATCH", knownPath, `{"first": "Ben"}`).Want(403)
	reseller.Do("PATCH", knownPath, `{"first": "known"}`).Want(403) // a 200 would confirm a guess
	reseller.Do("POST", "/client", orderBody("reseller@example.com")).WantErrors("/email", "invalid")
	known.Do("POST", "/client", orderBody("reseller@example.com")).WantErrors("/email", "cycle")
	wantKnownMails := func(want ...mail.ClientLinked) {
		t.Helper()
		var got []mail.ClientLinked
		for _, m := range c.System.Mails("known@example.com") {
			got = append(got, m.Opened.(mail.ClientLinked))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got the mails %+v, want %+v", got, want)
		}
	}
	wantKnownMails(mail.ClientLinked{By: "reseller Miller", Relation: "sub"}) // one mail, however often the order was sent
	if mails := c.System.Mails("new@example.com"); len(mails) > 0 {
		t.Errorf("got the mails %s to the new account, want none, since its creator writes to it", testkit.JSON(mails))
	}

	// It can send one kind of mail, to accounts that it has created and that are not claimed.
	for to, want := range map[string]int{knownPath: 403, own: 403, path("/client/%d", ids["unlinked"]): 404, "/client/999999": 404} {
		for _, kind := range []string{"client-account-created", "CLIENT-account-created.tpl", "welcome"} {
			reseller.Do("POST", to+"/email", map[string]any{"type": kind}).Want(want)
		}
	}
	c.System.SetSetting(settings.ClientURL.Slug, "https://panel.example.com")
	testkit.Eventually(t, "the address of the panel is known", func() bool {
		return c.Do("POST", at+"/email", `{"type": "client-account-created"}`).Status == 200
	})
	reseller.Do("POST", at+"/email", `{"type": "client-account-created"}`).Want(200)
	reseller.Do("POST", at+"/email", `{"type": "welcome"}`).Want(422)
	reseller.Do("POST", at+"/email", `{"type": "welcome"}`).WantErrors("/type", "not_found")
	known.Do("POST", at+"/email", `{"type": "client-account-created"}`).Want(404)

	// It can change its own name, and names and addresses of accounts that it has created, until an admin has edited them.
	reseller.Do("PATCH", own, `{"last": "Hosting"}`).Want(200)
	reseller.Do("PATCH", at, `{"first": "Bob", "email": "bob@example.com"}`).Want(200)
	for _, body := range []string{`{"password": "a long walk in the rain"}`, `{"billing_id": 9}`, `{"verify": {"require": true}}`, `{"disabled": true}`} { // nor of itself what is not its own
		reseller.Do("PATCH", at, body).Want(403)
	}
	reseller.Do("PATCH", at, `{"email": "unlinked@example.com"}`).WantErrors("/email", "taken")
	links := testkit.Decode[[]clients.SubLink](reseller.Do("GET", own+"/sub", nil).Want(200))
	if len(links) != 2 || links[0].Child.Email != "bob@example.com" || links[1].Child.Name != "Ben Miller" {
		t.Fatalf("the reseller's links: got %+v, want bob@example.com and Ben Miller", links)
	}
	reseller.Do("PATCH", fmt.Sprint(own, "/sub/", links[0].ID), `{"last": "Baker"}`).Want(200)
	reseller.Do("PATCH", fmt.Sprint(own, "/sub/", links[1].ID), `{"last": "Baker"}`).Want(403)
	c.Do("PATCH", at, `{"last": "Brown"}`).Want(200)
	reseller.Do("PATCH", at, `{"email": "mine@example.com"}`).Want(403)
	reseller.Do("POST", at+"/email", `{"type": "client-account-created"}`).Want(403)
	reseller.Do("PATCH", at, `{"last": "Black"}`).Want(200)
	for _, other := range []string{path("/client/%d", ids["unlinked"]), "/client/999999"} {
		reseller.Do("GET", other, nil).Want(404)
		reseller.Do("PATCH", other, `{"first": "x"}`).Want(404)
		reseller.Do("DELETE", other, nil).Want(403)
	}
	reseller.Do("DELETE", at, nil).Want(403)

	// It grants a super link by address. The grantee sees accounts that the reseller has created, not those that it has named.
	granted := reseller.Do("POST", own+"/super", `{"client_email": "known@example.com"}`).Want(200)
	if !strings.Contains(granted.Text, `"name":"Ben Miller"`) {
		t.Errorf("got %s, want the grantee Ben Miller", granted.Text)
	}
	wantKnownMails(mail.ClientLinked{By: "reseller Miller", Relation: "sub"}, mail.ClientLinked{By: "reseller Hosting", Relation: "super"})
	if mails := c.System.Mails(
		"reseller@example.com",
	); len(mails) != 1 ||
		!strings.Contains(testkit.JSON(mails[0].Opened), "Ben Miller may read the account") {
		t.Errorf("the granter: got the mails %s, want that another client may read the account", testkit.JSON(mails))
	}
	if repeated := reseller.Do("POST", own+"/super", `{"client_email": "known@example.com"}`).Want(200); repeated.Text != granted.Text {
		t.Errorf("a link that is made again: got %s, want %s", repeated.Text, granted.Text)
	}
	known.Do("GET", at, nil).Want(200)
	known.Do("GET", own, nil).Want(200)
	as["unlinked"].Do("GET", own, nil).Want(404)
	known.Do("PATCH", at, `{"first": "x"}`).Want(403)
	if got := listNames(t, known); got != "Bob" {
		t.Errorf("the grantee's list: got %q, want Bob", got)
	}
	known.Do("DELETE", fmt.Sprint(knownPath, "/granter/", granted.ID()), nil).Want(200)
	known.Do("GET", at, nil).Want(404)
	parent := testkit.Decode[[]clients.ParentLink](known.Do("GET", knownPath+"/parent", nil).Want(200))
	known.Do("DELETE", fmt.Sprint(knownPath, "/parent/", parent[0].ID), nil).Want(200)
	reseller.Do("GET", knownPath, nil).Want(404)
	reseller.Do("DELETE", fmt.Sprint(own, "/sub/", links[0].ID), nil).Want(200)
	reseller.Do("GET", at, nil).Want(404)
	if named := testkit.Decode[clients.ViewedClient](
		reseller.Do("POST", "/client", orderBody("bob@example.com")).Want(200),
	); named.ID != created.ID ||
		named.First != "Ben" {
		t.Errorf("linked again: got %+v, want client %d with the first name Ben", named, created.ID)
	}
	reseller.Do("PATCH", at, `{"first": "Bob"}`).Want(403)

	// Many simultaneous orders with the same address create one account.
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { reseller.Do("POST", "/client", orderBody("rush@example.com")).Want(200) })
	}
	all.Wait()
	if list := testkit.Decode[[]clients.ListedClient](c.Do("GET", "/client?email=rush@example.com", nil).Want(200)); len(list) != 1 {
		t.Errorf("got the clients %+v, want one", list)
	}
	clientstest.CheckReach(t, c.DB)
}

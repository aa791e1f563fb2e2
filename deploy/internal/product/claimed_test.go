package product_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/clients/clientstest"
)

// day has the clients of the test: a reseller, and two other ones.
type day struct {
	t   *testing.T
	ids map[string]int64
	as  map[string]*testkit.Client
}

func (d day) path(name string) string { return path("/client/%d", d.ids[name]) }

// sees compares what a client can read: the names in its list, the three clients, and the other ends of its links.
func (d day) sees(when, name, want string) {
	d.t.Helper()
	c := d.as[name]
	var list, reads, links []string
	for _, client := range testkit.Decode[[]clients.ListedClient](c.Do("GET", "/client?sort=name", nil).Want(200)) {
		list = append(list, client.Name)
	}
	for _, other := range []string{"reseller", "ordered", "known"} {
		switch response := c.Do("GET", d.path(other), nil); response.Status {
		case 200:
			seen := testkit.Decode[clients.ViewedClient](response)
			reads = append(reads, fmt.Sprintf("%s as %s <%s>", other, seen.Name, seen.Email))
		case 404:
		default:
			d.t.Errorf("%s: %s asks for %s: got %d %s, want 200 or 404", when, name, other, response.Status, response.Text)
		}
	}
	own := d.path(name)
	for _, link := range testkit.Decode[[]clients.SubLink](c.Do("GET", own+"/sub", nil).Want(200)) {
		links = append(links, "sub "+link.Child.Name)
	}
	for _, link := range testkit.Decode[[]clients.SuperLink](c.Do("GET", own+"/super", nil).Want(200)) {
		links = append(links, "super "+link.Grantee.Name)
	}
	for _, link := range testkit.Decode[[]clients.ParentLink](c.Do("GET", own+"/parent", nil).Want(200)) {
		links = append(links, "parent "+link.Parent.Name)
	}
	for _, link := range testkit.Decode[[]clients.GranterLink](c.Do("GET", own+"/granter", nil).Want(200)) {
		links = append(links, "granter "+link.Granter.Name)
	}
	if got := strings.Join(list, ", ") + "; " + strings.Join(reads, ", ") + "; " + strings.Join(links, ", "); got != want {
		d.t.Errorf("%s, %s: got\n%s\nwant\n%s", when, name, got, want)
	}
}

// A reseller orders claimed accounts and loses them. An account is claimed once it has chosen its password by the link in its
// mail, or has signed in.
func TestResellerOfClaimedAccounts(t *testing.T) {
	t.Parallel()
	p, c, box := withPanels(t)
	d := day{t, map[string]int64{}, map[string]*testkit.Client{}}
	for _, name := range []string{"reseller", "known"} {
		email := name + "@example.com"
		d.ids[name] = c.Do("POST", "/client", order(email, "first", name)).Want(200).ID()
		d.as[name] = claim(t, box, c, d.ids[name], email)
	}
	reseller := d.as["reseller"]
	ordered := func(email string, want clients.ViewedClient) (id int64) {
		t.Helper()
		for range 10 {
			response := reseller.Do("POST", "/client", order(email, "billing_id", 7))
			got := testkit.Decode[clients.ViewedClient](response.Want(200))
			if got.Name != want.Name || got.Email != want.Email || (got.ClaimedAt != nil) != (want.ClaimedAt != nil) || id != 0 && got.ID != id {
				t.Errorf("an order for %s: got %s, want the name, the email and the claim of %+v and one id", email, response.Text, want)
			}
			id = got.ID
		}
		return id
	}
	as := func(name, email string) clients.ViewedClient {
		return clients.ViewedClient{ListedClient: clients.ListedClient{Name: name, Email: email}}
	}

	// An order for a new address creates an account. Later orders of the reseller return the same account, and once it is claimed,
	// with its own data.
	d.ids["ordered"] = ordered("ordered@example.com", as("Ben Miller", "ordered@example.com"))
	d.as["ordered"] = claim(t, box, reseller, d.ids["ordered"], "ordered@example.com")
	ordering := d.as["ordered"]
	ordering.Do("PATCH", d.path("ordered"), map[string]any{"first": "Nina", "email": "nina@example.com", "current_password": password}).
		Want(200)
	claimed := testkit.Decode[clients.ViewedClient](ordering.Do("GET", d.path("ordered"), nil).Want(200))
	if claimed.ClaimedAt == nil {
		t.Fatalf("got %+v after a link and a sign-in, want a claimed account", claimed)
	}
	if id := ordered("NINA@example.com", claimed); id != d.ids["ordered"] {
		t.Errorf("got client %d from the order, want %d", id, d.ids["ordered"])
	}
	for _, body := range []string{`{"email": "mine@example.com"}`, `{"password": "nine blue kettles in a barn"}`, `{"verify": {"require": true}}`, disable} {
		reseller.Do("PATCH", d.path("ordered"), body).Want(403)
	}
	reseller.Do("POST", d.path("ordered")+"/email", `{"type": "client-account-created"}`).Want(403)
	reseller.Do("PATCH", d.path("ordered"), `{"last": "Brown"}`).Want(200)
	d.sees(
		"after the claim",
		"reseller",
		"Nina Brown; reseller as reseller Miller <reseller@example.com>, ordered as Nina Brown <nina@example.com>; sub Nina Brown",
	)
	d.sees("after the claim", "ordered", "; ordered as Nina Brown <nina@example.com>; parent reseller Miller")
	d.sees("before its order", "known", "; known as known Miller <known@example.com>; ")

	// An order for a known address links the account, which gets one mail about it.
	if id := ordered("Known@example.com", as("Ben Miller", "Known@example.com")); id != d.ids["known"] {
		t.Errorf("got client %d from the order, want %d", id, d.ids["known"])
	}
	d.sees(
		"after the order of a known client",
		"reseller",
		"Ben Miller, Nina Brown; reseller as reseller Miller <reseller@example.com>, ordered as Nina Brown <nina@example.com>, known as Ben "+
			"Miller <Known@example.com>; sub Nina Brown, sub Ben Miller",
	)
	d.sees("after its order", "known", "; known as known Miller <known@example.com>; parent reseller Miller")
	countMails := func(email, text string) (times int) {
		for _, m := range box.Mails() {
			if m.To[0] == email && strings.Contains(textOf(t, m), text) {
				times++
			}
		}
		return times
	}
	testkit.Eventually(t, "the known client gets a mail", func() bool { return countMails("known@example.com", "linked your account") == 1 })
	reseller.Do("POST", d.path("known")+"/email", `{"type": "client-account-created"}`).Want(403)
	reseller.Do("PATCH", d.path("known"), `{"first": "Ben"}`).Want(403)

	// The known client becomes a super client of the reseller. It reads the reseller's clients, and cannot change them.
	granted := reseller.Do("POST", d.path("reseller")+"/super", `{"client_email": "known@example.com"}`).Want(200).ID()
	d.sees(
		"with access to the reseller",
		"known",
		"Nina Brown; reseller as reseller Miller <reseller@example.com>, ordered as Nina Brown <nina@example.com>, known as known Miller "+
			"<known@example.com>; parent reseller Miller, granter reseller Miller",
	)
	d.sees("while another client has access to the reseller", "ordered", "; ordered as Nina Brown <nina@example.com>; parent reseller Miller")
	d.as["known"].Do("PATCH", d.path("ordered"), `{"first": "x"}`).Want(403)
	d.as["known"].Do("POST", d.path("ordered")+"/email", `{"type": "client-account-created"}`).Want(403)
	testkit.Eventually(t, "both clients get a mail", func() bool {
		return countMails("known@example.com", "lets your account") == 1 && countMails("reseller@example.com", "may read the account") == 1
	})

	// The ordered client deletes its link. A new order links it again, but the reseller then sees only its own data about it.
	leave := func(name string) {
		t.Helper()
		parents := testkit.Decode[[]clients.ParentLink](d.as[name].Do("GET", d.path(name)+"/parent", nil).Want(200))
		if len(parents) != 1 {
			t.Fatalf("%s: got the parents %+v, want 1", name, parents)
		}
		d.as[name].Do("DELETE", fmt.Sprint(d.path(name), "/parent/", parents[0].ID), nil).Want(200)
	}
	leave("ordered")
	d.sees(
		"after the ordered client has left",
		"reseller",
		"Ben Miller; reseller as reseller Miller <reseller@example.com>, known as Ben Miller <Known@example.com>; sub Ben Miller, "+
			"super Ben Miller",
	)
	d.sees(
		"after the ordered client has left",
		"known",
		"; reseller as reseller Miller <reseller@example.com>, known as known Miller <known@example.com>; parent reseller Miller, granter "+
			"reseller Miller",
	)
	d.sees("after it has left", "ordered", "; ordered as Nina Brown <nina@example.com>; ")
	if id := ordered("nina@example.com", as("Ben Miller", "nina@example.com")); id != d.ids["ordered"] {
		t.Errorf("got client %d from the order, want %d", id, d.ids["ordered"])
	}
	reseller.Do("PATCH", d.path("ordered"), `{"last": "Black"}`).Want(403)
	d.sees(
		"after the second order",
		"reseller",
		"Ben Miller, Ben Miller; reseller as reseller Miller <reseller@example.com>, ordered as Ben Miller <nina@example.com>, known as Ben "+
			"Miller <Known@example.com>; sub Ben Miller, sub Ben Miller, super Ben Miller",
	)
	d.sees(
		"after the second order",
		"known",
		"; reseller as reseller Miller <reseller@example.com>, known as known Miller <known@example.com>; parent reseller Miller, granter "+
			"reseller Miller",
	)
	d.sees("after the second order", "ordered", "; ordered as Nina Brown <nina@example.com>; parent reseller Miller")

	// Either end can delete a link.
	leave("known")
	d.sees(
		"after the known client has left",
		"reseller",
		"Ben Miller; reseller as reseller Miller <reseller@example.com>, ordered as Ben Miller <nina@example.com>; sub Ben Miller, "+
			"super Ben Miller",
	)
	d.sees(
		"after it has left",
		"known",
		"; reseller as reseller Miller <reseller@example.com>, known as known Miller <known@example.com>; granter reseller Miller",
	)
	reseller.Do("DELETE", fmt.Sprint(d.path("reseller"), "/super/", granted), nil).Want(200)
	d.sees("without access to the reseller", "known", "; known as known Miller <known@example.com>; ")
	reseller.Do("POST", d.path("reseller")+"/super", `{"client_email": "known@example.com"}`).WantErrors("/client_email", "not_found")
	links := testkit.Decode[[]clients.SubLink](reseller.Do("GET", d.path("reseller")+"/sub", nil).Want(200))
	reseller.Do("DELETE", fmt.Sprint(d.path("reseller"), "/sub/", links[0].ID), nil).Want(200)
	d.sees("at the end", "reseller", "; reseller as reseller Miller <reseller@example.com>; ")
	d.sees("at the end", "ordered", "; ordered as Nina Brown <nina@example.com>; ")

	// The accounts have the data that they chose, and can sign in.
	for email, name := range map[string]string{"nina@example.com": "Nina Brown", "known@example.com": "known Miller"} {
		key, session := signIn(t, c, loginOf("client", email, password))
		own := testkit.Decode[clients.ViewedClient](session.Do("GET", key.Owner.URL, nil).Want(200))
		if own.Name != name || own.BillingID != nil || own.Disabled {
			t.Errorf("got %+v, want %s enabled and without a billing id", own, name)
		}
	}
	clientstest.CheckReach(t, p.Databases[clients.Name])
}

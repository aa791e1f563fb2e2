package product_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
	"github.com/ironplane/ironplane/services/identity/keys"
)

const accessPage = "../../../docs/reference/client-access.md"

var update = flag.Bool("update", false, "write "+accessPage)

// What is sent.
const (
	nothing    = ""
	newAddress = "a new address"
	itsFirst   = "`first`"
	itsEmail   = "`email`, of itself with the password"
	aWelcome   = "`client-account-created`"
	aTemplate  = "a template of the operator's"
	itsSub     = "an account that the target has a sub link to"
	itsGrantee = "one that it has a super link to, and a sub link"
	itself     = "`owner`: the target, to act for it"
)

// accessOperations are the operations on clients. LINK stands for the id of a link of the target.
var accessOperations = []struct{ path, sent string }{
	{"GET /client", nothing},
	{"POST /client", newAddress},
	{"GET /client/ID", nothing},
	{"PATCH /client/ID", itsFirst},
	{"PATCH /client/ID", itsEmail},
	{"DELETE /client/ID", nothing},
	{"POST /client/ID/email", aWelcome},
	{"POST /client/ID/email", aTemplate},
	{
		"GET /client/ID/sub",
		nothing,
	},
	{"POST /client/ID/sub", itsSub},
	{"GET /client/ID/sub/LINK", nothing},
	{"PATCH /client/ID/sub/LINK", itsFirst},
	{
		"GET /client/ID/super",
		nothing,
	},
	{"POST /client/ID/super", itsGrantee},
	{"GET /client/ID/super/LINK", nothing},
	{"PATCH /client/ID/super/LINK", itsFirst},
	{"DELETE /client/ID/super/LINK", nothing},
	{"POST /client/ID/unsuspend", nothing},
	{"POST /auth/key", itself},
}

// accessTable has the expected status of each operation, in their order, for each caller and target. claimed has the
// statuses for claimed accounts, if they differ.
var accessTable = []struct{ caller, target, want, claimed string }{
	{
		"customer",
		"customer",
		"200 200 200 200 422 403 403 403 200 200 200 200 200 200 200 403 200 403 200",
		"200 200 200 200 200 403 403 403 200 200 200 200 200 200 200 403 200 403 200",
	},
	{
		"customer",
		"kid",
		"- - 200 200 200 403 200 422 200 403 200 403 200 403 200 404 403 200 200",
		"- - 200 200 403 403 403 403 200 403 200 403 200 403 200 404 403 200 200",
	},
	{"customer", "reseller", unknown, ""},
	{"customer", "nobody", unknown, ""},
	{"reseller", "customer", "200 200 200 200 403 403 403 403 200 403 200 403 200 403 200 404 403 200 200", ""},
	{"reseller", "kid", "- - 200 403 403 403 403 403 200 403 200 403 200 403 200 404 403 200 200", ""},
	{
		"reseller",
		"reseller",
		"- - 200 200 422 403 403 403 200 200 200 200 200 200 200 403 200 403 200",
		"- - 200 200 200 403 403 403 200 200 200 200 200 200 200 403 200 403 200",
	},
	{"reseller", "nobody", unknown, ""},
	{"partner", "customer", "200 200 200 403 403 403 403 403 404 404 404 404 404 404 404 404 404 403 403", ""},
	{"partner", "kid", unknown, ""},
	{"partner", "reseller", unknown, ""},
	{"partner", "nobody", unknown, ""},
	{
		"grandkid",
		"customer",
		"200 200" + unknown[3:],
		"",
	},
	{"grandkid", "kid", unknown, ""},
	{"grandkid", "reseller", unknown, ""},
	{"grandkid", "nobody", unknown, ""},
	{"grantee", "customer", "200 200 200 403 403 403 403 403 200 403 200 403 200 403 200 200 403 403 403", ""},
	{"grantee", "kid", "- - 200 403 403 403 403 403 200 403 200 403 200 403 200 404 403 403 403", ""},
	{"grantee", "reseller", unknown, ""},
	{"grantee", "nobody", unknown, ""},
	{
		"second",
		"customer",
		"200 200" + unknown[3:],
		"",
	},
	{"second", "kid", unknown, ""},
	{"second", "reseller", unknown, ""},
	{"second", "nobody", unknown, ""},
	{
		"unlinked",
		"customer",
		"200 200" + unknown[3:],
		"",
	},
	{"unlinked", "kid", unknown, ""},
	{"unlinked", "reseller", unknown, ""},
	{"unlinked", "nobody", unknown, ""},
	{
		"admin",
		"customer",
		"200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200",
		"200 200 200 200 200 200 422 200 200 200 200 200 200 200 200 200 200 200 200",
	},
	{
		"admin",
		"kid",
		"- - 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200",
		"- - 200 200 200 200 422 200 200 200 200 200 200 200 200 200 200 200 200",
	},
	{
		"admin",
		"reseller",
		"- - 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200",
		"- - 200 200 200 200 422 200 200 200 200 200 200 200 200 200 200 200 200",
	},
	{"admin", "nobody", unknownToHolder, ""},
	{
		"shop",
		"customer",
		"200 200 200 200 200 200 200 200 200 403 200 403 200 403 200 403 200 200 200",
		"200 200 200 200 200 200 422 200 200 403 200 403 200 403 200 403 200 200 200",
	},
	{"shop", "kid", "- - " + readOnly, ""},
	{"shop", "reseller", "- - 200 403 403 403 403 403 200 403 200 200 200 403 200 403 403 403 403", ""},
	{"shop", "nobody", unknownToHolder, ""},
	{"hub", "customer", "200 200 " + readOnly, ""},
	{"hub", "kid", "- - " + readOnly, ""},
	{"hub", "reseller", "- - " + readOnly, ""},
	{"hub", "nobody", unknownToHolder, ""},
	{
		"monitoring",
		"customer",
		"403 403" + forbidden[3:],
		"",
	},
	{"monitoring", "kid", forbidden, ""},
	{"monitoring", "reseller", forbidden, ""},
	{"monitoring", "nobody", forbidden, ""},
}

const (
	unknown         = "- - 404 404 404 403 404 404 404 404 404 404 404 404 404 404 404 404 403"
	unknownToHolder = "- - 404 404 404 404 404 404 404 404 404 404 404 404 404 404 404 404 422"
	readOnly        = "200 403 403 403 403 403 200 403 200 403 200 403 200 403 403 403 403"
	forbidden       = "- - 403 403 403 403 403 403 403 403 403 403 403 403 403 403 403 403 403"
)

// accessParties describes the callers and the targets.
var accessParties = []struct{ name, is string }{
	{
		"admin",
		"an account with `users.clients`",
	},
	{"customer", "a client, which belongs to the integration shop; an admin made the shop adopt it"},
	{
		"reseller",
		"the client that made the account of the customer",
	},
	{"partner", "a client that ordered with the customer's address, which linked it"},
	{"kid", "an account that the customer made"},
	{"grandkid", "an account that the kid made: the customer's sub client's sub client"},
	{"grantee", "a client that the customer lets read what it reaches, by a super link"},
	{"second", "a client that the grantee lets read what it reaches"},
	{
		"shop",
		"the customer's integration, with `users.clients`",
	},
	{"hub", "another integration, with `users.clients`"},
	{"monitoring", "an integration without it"},
	{"unlinked", "a client with no link to any of them"},
	{"nobody", "an account that does not exist"},
}

// TestClientAccess tries each operation on clients as each caller, and compares the statuses with
// docs/reference/client-access.md. It does so for accounts that are not claimed, and for accounts that chose their password
// by the link in their mail.
func TestClientAccess(t *testing.T) {
	t.Parallel()
	t.Run("not claimed", func(t *testing.T) {
		shared(t, func(t *testing.T, _ *product.Product, c *testkit.Client) {
			newAccess(t, c, nil).compare(func(want, _ string) string { return want })
		})
	})
	t.Run("claimed", func(t *testing.T) {
		t.Parallel()
		_, c, box := withPanels(t)
		newAccess(t, c, box).compare(func(want, claimed string) string { return cmp.Or(claimed, want) })
	})
	page := accessMarkdown()
	if *update {
		if err := os.WriteFile(accessPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(accessPage); err != nil || string(is) != page {
		t.Errorf("got %s out of step (%v), want it current: run this test with -update", accessPage, err)
	}
}

// compare tries every row of accessTable.
func (a *access) compare(choose func(want, claimed string) string) {
	a.t.Helper()
	for _, row := range accessTable {
		wants := strings.Fields(choose(row.want, row.claimed))
		if len(wants) != len(accessOperations) {
			a.t.Fatalf("%s of %s: got %d statuses, want %d", row.caller, row.target, len(wants), len(accessOperations))
		}
		for i, want := range wants {
			if want == "-" {
				continue
			}
			if response := a.ask(
				row.caller,
				row.target,
				accessOperations[i].path,
				accessOperations[i].sent,
				want,
			); fmt.Sprint(
				response.Status,
			) != want {
				a.t.Errorf(
					"%s, %s with %s of %s: got %d, want %s: %s",
					row.caller,
					accessOperations[i].path,
					accessOperations[i].sent,
					row.target,
					response.Status,
					want,
					response.Text,
				)
			}
		}
	}
}

// access holds the callers and the targets.
type access struct {
	t     *testing.T
	ids   map[string]int64
	as    map[string]*testkit.Client
	count int
}

// newAccess creates the accounts. With a mailbox, each account chooses its password by the link in its mail, signs in, and
// gets a key of its own.
func newAccess(t *testing.T, c *testkit.Client, box *mailbox.Server) *access {
	t.Helper()
	c.Do("POST", "/email/template", `{"name": "welcome", "subject": "Hi", "body": "{{.To.Name}}"}`).Want(200)
	a := &access{t: t, ids: map[string]int64{"nobody": 999999}, as: map[string]*testkit.Client{"admin": c}}
	for name, permissions := range map[string]string{"shop": mayWriteClients, "hub": mayWriteClients, "monitoring": `{}`} {
		a.ids["integration "+name], a.as[name] = newIntegration(t, c, "access "+name, permissions)
	}
	for _, account := range []struct{ name, maker string }{{"reseller", "admin"}, {"partner", "admin"}, {"grantee", "admin"},
		{"second", "admin"}, {"unlinked", "admin"}, {"aide", "admin"}, {"helper", "admin"},
		{"customer", "reseller"}, {"kid", "customer"}, {"grandkid", "kid"}} {
		email, maker := account.name+"@example.com", a.as[account.maker]
		id := maker.Do("POST", "/client", order(email)).Want(200).ID()
		if a.ids[account.name] = id; box == nil {
			a.as[account.name] = c.WithKey(keyOf(t, c, path("/client/%d", id)))
		} else {
			a.as[account.name] = claim(t, box, maker, id, email)
		}
	}
	adoption := map[string]any{"billing_id": 7, "integration": a.ids["integration shop"]}
	c.Do("POST", path("/client/%d/adopt", a.ids["customer"]), adoption).Want(200)
	a.as["partner"].Do("POST", "/client", order("customer@example.com")).Want(200)
	for granter, grantee := range grantees {
		a.as[granter].Do("POST", "/client", order(grantee+"@example.com")).Want(200) // so that it has the permission to grant
		a.grant(granter)
	}
	return a
}

// claim lets maker send an account its link, chooses the password by that link, signs in, and returns a client with a key of
// the account.
func claim(t *testing.T, box *mailbox.Server, maker *testkit.Client, id int64, email string) *testkit.Client {
	t.Helper()
	maker.Do("POST", path("/client/%d/email", id), `{"type": "client-account-created"}`).Want(200)
	link := nextLink(t, box, email, 0)
	maker.WithKey("").Do("PATCH", link.Path, map[string]any{"token": tokenOf(t, link), "password": password}).Want(200)
	_, session := signIn(t, maker, loginOf("client", email, password))
	return maker.WithKey(testkit.Decode[keys.APIKey](session.Do("POST", "/auth/key", `{"name": "own"}`).Want(200)).Key)
}

// grantees are the clients that accounts grant access to, by super links.
var grantees = map[string]string{"customer": "grantee", "grantee": "second", "kid": "aide", "reseller": "helper"}

// grant returns the id of the account's super link. The account creates it if it does not exist.
func (a *access) grant(granter string) int64 {
	a.t.Helper()
	return a.as[granter].Do("POST", path("/client/%d/super", a.ids[granter]), map[string]any{"client_id": a.ids[grantees[granter]]}).
		Want(200).
		ID()
}

// children are the clients at the other ends of sub links.
var children = map[string]string{"reseller": "customer", "customer": "kid", "kid": "grandkid"}

// ask sends an operation. It first restores the links that earlier operations may have deleted.
func (a *access) ask(caller, target, operation, sent, want string) *testkit.Response {
	a.t.Helper()
	a.count++
	method, to, _ := strings.Cut(operation, " ")
	id, link := a.ids[target], int64(1)
	admin := a.as["admin"]
	if exists := target != "nobody"; exists && strings.HasSuffix(to, "super/LINK") {
		link = a.grant(target)
	} else if exists && strings.HasSuffix(to, "sub/LINK") {
		link = admin.Do("POST", path("/client/%d/sub", id), map[string]any{"client_id": a.ids[children[target]]}).Want(200).ID()
	}
	var body any
	switch sent {
	case newAddress:
		body = order(fmt.Sprintf("new-%d@example.com", a.count))
	case itsFirst:
		body = map[string]any{"first": fmt.Sprint("Ben ", a.count)}
	case itsEmail:
		body = map[string]any{"email": fmt.Sprintf("%s-%d@example.com", target, a.count), "current_password": password}
	case aWelcome:
		body = map[string]any{"type": "client-account-created"}
	case aTemplate:
		body = map[string]any{"type": "welcome"}
	case itsSub:
		body = map[string]any{"client_id": a.ids[children[target]]}
	case itself:
		body = map[string]any{"owner": map[string]any{"url": path("/client/%d", id)}}
	case itsGrantee:
		body = map[string]any{"client_id": a.ids[grantees[target]]}
	}
	switch operation {
	case "DELETE /client/ID":
		if want == "200" { // another one of the kind goes
			maker := admin
			if caller != "admin" {
				maker = a.as[caller]
			}
			id = maker.Do("POST", "/client", order(fmt.Sprintf("double-%d@example.com", a.count))).Want(200).ID()
		}
	}
	to = strings.NewReplacer("ID", fmt.Sprint(id), "LINK", fmt.Sprint(link)).Replace(to)
	return a.as[caller].Do(method, to, body)
}

// accessMarkdown returns docs/reference/client-access.md.
func accessMarkdown() string {
	var b strings.Builder
	b.WriteString(
		"# Who reaches which clients\n\nThis page shows by examples which answer each caller gets, as " +
			"[the reference](api.md#sub-and-super-clients) explains. `TestClientAccess` asks all of it, and keeps the page in step.\n\n" +
			"| | is |\n|---|---|\n",
	)
	for _, party := range accessParties {
		fmt.Fprintf(&b, "| %s | %s |\n", party.name, party.is)
	}
	b.WriteString("\n| | operation | what is sent |\n|---|---|---|\n")
	for i, o := range accessOperations {
		path := strings.Replace(o.path, "ID", "{client_id}", 1)
		path = strings.Replace(strings.Replace(path, "sub/LINK", "sub/{sub_id}", 1), "super/LINK", "super/{super_id}", 1)
		fmt.Fprintf(&b, "| %d | `%s` | %s |\n", i+1, path, o.sent)
	}
	heading := func() {
		b.WriteString("\n| caller | target |")
		for i := range accessOperations {
			fmt.Fprintf(&b, " %d |", i+1)
		}
		b.WriteString("\n|---|---|" + strings.Repeat("---|", len(accessOperations)) + "\n")
	}
	row := func(caller, target, want string) {
		if target == caller {
			target = "itself"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", caller, target, strings.ReplaceAll(strings.ReplaceAll(want, "-", ""), " ", " | "))
	}
	b.WriteString(
		"\n## Accounts that nobody has signed in to\n\nAn edit with `users.clients` claims an account, too. So the order of the rows " +
			"matters.\n",
	)
	heading()
	for _, r := range accessTable {
		row(r.caller, r.target, r.want)
	}
	b.WriteString(
		"\n## Claimed accounts\n\nEach has chosen its password by the link in its mail, and signed in. Rows that are not here are " +
			"as above.\n",
	)
	heading()
	for _, r := range accessTable {
		if r.claimed != "" {
			row(r.caller, r.target, r.claimed)
		}
	}
	return b.String()
}

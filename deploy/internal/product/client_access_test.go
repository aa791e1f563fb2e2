package product_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/testkit"
)

const accessPage = "../../../docs/reference/client-access.md"

var update = flag.Bool("update", false, "write "+accessPage)

// accessOperations are those of clients. LINK stands for the id of a link of the target's.
var accessOperations = []struct{ name, path string }{
	{"list", "GET /client"}, {"make", "POST /client"},
	{"view", "GET /client/ID"}, {"edit", "PATCH /client/ID"}, {"delete", "DELETE /client/ID"}, {"mail", "POST /client/ID/email"},
	{"sub links", "GET /client/ID/sub"}, {"link", "POST /client/ID/sub"}, {"sub link", "GET /client/ID/sub/LINK"}, {"edit by it", "PATCH /client/ID/sub/LINK"},
	{"super links", "GET /client/ID/super"}, {"grant", "POST /client/ID/super"}, {"super link", "GET /client/ID/super/LINK"}, {"edit by it", "PATCH /client/ID/super/LINK"}, {"revoke", "DELETE /client/ID/super/LINK"},
}

// accessTable is what each caller is answered, of which target: the statuses in the order of the operations.
var accessTable = []struct{ caller, target, want string }{
	{"customer", "customer", "200 200 200 200 403 403 200 200 200 200 200 200 200 403 200"},
	{"customer", "kid", "- - 200 200 403 200 200 403 200 403 200 403 200 404 403"},
	{"customer", "reseller", unknown}, {"customer", "nobody", unknown},
	{"admin", "customer", "200 200 200 200 200 200 200 200 200 200 200 200 200 200 200"},
	{"admin", "kid", "- - 200 200 200 200 200 200 200 200 200 200 200 200 200"},
	{"admin", "reseller", "- - 200 200 200 200 200 200 200 200 200 200 200 200 200"},
	{"admin", "nobody", "- - 404 404 404 404 404 404 404 404 404 404 404 404 404"},
	{"reseller", "customer", "200 200 200 200 403 403 200 403 200 403 200 403 200 404 403"},
	{"reseller", "kid", "- - 200 403 403 403 200 403 200 403 200 403 200 404 403"},
	{"reseller", "reseller", "- - 200 200 403 403 200 200 200 200 200 200 200 403 200"},
	{"reseller", "nobody", unknown},
	{"partner", "customer", "200 200 200 403 403 403 404 404 404 404 404 404 404 404 404"},
	{"partner", "kid", unknown}, {"partner", "reseller", unknown}, {"partner", "nobody", unknown},
	{"grandkid", "customer", "200 200" + unknown[3:]}, {"grandkid", "kid", unknown}, {"grandkid", "reseller", unknown}, {"grandkid", "nobody", unknown},
	{"grantee", "customer", "200 200 200 403 403 403 200 403 200 403 200 403 200 200 403"},
	{"grantee", "kid", "- - 200 403 403 403 200 403 200 403 200 403 200 404 403"},
	{"grantee", "reseller", unknown}, {"grantee", "nobody", unknown},
	{"second", "customer", "200 200" + unknown[3:]}, {"second", "kid", unknown}, {"second", "reseller", unknown}, {"second", "nobody", unknown},
	{"shop", "customer", "200 200 200 200 200 200 200 200 200 200 200 200 200 200 200"},
	{"shop", "kid", "- - 200 200 403 200 200 200 200 200 200 200 200 200 200"},
	{"shop", "reseller", "- - 200 200 403 200 200 200 200 200 200 200 200 200 200"},
	{"shop", "nobody", "- - 404 404 404 404 404 404 404 404 404 404 404 404 404"},
	{"hub", "customer", "200 200 200 200 403 200 200 200 200 200 200 200 200 200 200"},
	{"hub", "kid", "- - 200 200 403 200 200 200 200 200 200 200 200 200 200"},
	{"hub", "reseller", "- - 200 200 403 200 200 200 200 200 200 200 200 200 200"},
	{"hub", "nobody", "- - 404 404 404 404 404 404 404 404 404 404 404 404 404"},
	{"monitoring", "customer", "403 403" + forbidden[3:]}, {"monitoring", "kid", forbidden}, {"monitoring", "reseller", forbidden}, {"monitoring", "nobody", forbidden},
	{"stranger", "customer", "200 200" + unknown[3:]}, {"stranger", "kid", unknown}, {"stranger", "reseller", unknown}, {"stranger", "nobody", unknown},
}

const (
	unknown   = "- - 404 404 404 404 404 404 404 404 404 404 404 404 404"
	forbidden = "- - 403 403 403 403 403 403 403 403 403 403 403 403 403"
)

// accessWho says who the callers and the targets are.
var accessWho = []struct{ name, is string }{
	{"admin", "who holds `users.clients`"}, {"customer", "a client, which belongs to the integration shop"},
	{"reseller", "the client that made the account of the customer"}, {"partner", "a client that ordered with the customer's address, and so is linked to it"},
	{"kid", "an account that the customer made"}, {"grandkid", "an account that the kid made: the customer's sub client's sub client"},
	{"grantee", "whom the customer lets read what it reaches, by a super link"}, {"second", "whom the grantee lets read what it reaches"},
	{"shop", "the customer's integration, with `users.clients`"}, {"hub", "another integration, with `users.clients`"}, {"monitoring", "an integration without it"},
	{"stranger", "a client with no link to any of them"}, {"nobody", "an account that there is not"},
}

// TestClientAccess asks each operation on clients of each caller, and compares the answers with docs/reference/client-access.md.
func TestClientAccess(t *testing.T) { producttest.Together(t, testClientAccess) }

func testClientAccess(t *testing.T, _ *product.Product, c *testkit.Client) {
	a := newAccess(t, c)
	for _, row := range accessTable {
		for i, want := range strings.Fields(row.want) {
			if want == "-" {
				continue
			}
			if answer := a.ask(row.caller, row.target, accessOperations[i].path, want); fmt.Sprint(answer.Status) != want {
				t.Errorf("%s, %s of %s: %d, want %s: %s", row.caller, accessOperations[i].path, row.target, answer.Status, want, answer.Text)
			}
		}
	}
	page := accessMarkdown()
	if *update {
		if err := os.WriteFile(accessPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(accessPage); err != nil || string(is) != page {
		t.Errorf("%s is out of step: run this test with -update (%v)", accessPage, err)
	}
}

// access is the cast.
type access struct {
	t    *testing.T
	ids  map[string]int64
	as   map[string]*testkit.Client
	made int
}

func newAccess(t *testing.T, c *testkit.Client) *access {
	t.Helper()
	c.Do("POST", "/email/template", `{"name": "welcome", "subject": "Hi", "body": "{{.To.Name}}"}`).Want(200)
	a := &access{t: t}
	a.ids, a.as = newClients(t, c, "reseller", "partner", "grantee", "second", "stranger", "aide", "helper")
	a.as["admin"], a.ids["nobody"] = c, 999999
	for name, permissions := range map[string]string{"shop": mayWriteClients, "hub": mayWriteClients, "monitoring": `{}`} {
		_, a.as[name] = newIntegration(t, c, name, permissions)
	}
	for _, account := range []struct{ name, maker string }{{"customer", "reseller"}, {"kid", "customer"}, {"grandkid", "kid"}} {
		a.ids[account.name] = a.as[account.maker].Do("POST", "/client", order(account.name+"@example.com")).Want(200).ID()
		a.as[account.name] = c.With(keyOf(t, c, path("/client/%d", a.ids[account.name])))
	}
	a.as["shop"].Do("PATCH", path("/client/%d", a.ids["customer"]), `{"billing_id": 7}`).Want(200) // which makes the customer its client
	a.as["partner"].Do("POST", "/client", order("customer@example.com")).Want(200)
	for granter, grantee := range grantees {
		a.as[granter].Do("POST", "/client", order(grantee+"@example.com")).Want(200) // and so it may grant
		a.grant(granter)
	}
	return a
}

// grantees are whom accounts let read what they reach.
var grantees = map[string]string{"customer": "grantee", "grantee": "second", "kid": "aide", "reseller": "helper"}

// grant is the super link of an account, made by itself if it is not there.
func (a *access) grant(granter string) int64 {
	a.t.Helper()
	return a.as[granter].Do("POST", path("/client/%d/super", a.ids[granter]), map[string]any{"client_id": a.ids[grantees[granter]]}).Want(200).ID()
}

// children are at the other ends of sub links.
var children = map[string]string{"reseller": "customer", "customer": "kid", "kid": "grandkid"}

// ask does an operation of which everything else is as before, whatever comes of it.
func (a *access) ask(caller, target, operation, want string) *testkit.Answer {
	a.t.Helper()
	a.made++
	method, to, _ := strings.Cut(operation, " ")
	id, link := a.ids[target], int64(1)
	admin := a.as["admin"]
	if there := target != "nobody"; there && strings.HasSuffix(to, "super/LINK") {
		link = a.grant(target)
	} else if there && strings.HasSuffix(to, "sub/LINK") {
		link = admin.Do("POST", path("/client/%d/sub", id), map[string]any{"client_id": a.ids[children[target]]}).Want(200).ID()
	}
	var body any
	switch operation {
	case "POST /client":
		body = order(fmt.Sprintf("new-%d@example.com", a.made))
	case "PATCH /client/ID", "PATCH /client/ID/sub/LINK", "PATCH /client/ID/super/LINK":
		body = map[string]any{"first": fmt.Sprint("Ben ", a.made)}
	case "POST /client/ID/email":
		body = map[string]any{"type": map[bool]string{true: "welcome", false: "client-account-created"}[slices.Contains([]string{"admin", "shop", "hub"}, caller)]}
	case "POST /client/ID/sub":
		body = map[string]any{"client_id": a.ids[children[target]]}
	case "POST /client/ID/super":
		body = map[string]any{"client_id": a.ids[grantees[target]]}
	case "DELETE /client/ID":
		if want == "200" { // another one of the kind goes
			maker := admin
			if caller != "admin" {
				maker = a.as[caller]
			}
			id = maker.Do("POST", "/client", order(fmt.Sprintf("double-%d@example.com", a.made))).Want(200).ID()
		}
	}
	to = strings.NewReplacer("ID", fmt.Sprint(id), "LINK", fmt.Sprint(link)).Replace(to)
	return a.as[caller].Do(method, to, body)
}

func accessMarkdown() string {
	var b strings.Builder
	b.WriteString("# Who reaches which clients\n\n`TestClientAccess` asks all of this, and keeps this page in step. It shows by examples what " +
		"[the reference](api.md#sub-and-super-clients) says of sub and super clients.\n\n| | is |\n|---|---|\n")
	for _, who := range accessWho {
		fmt.Fprintf(&b, "| %s | %s |\n", who.name, who.is)
	}
	b.WriteString("\n| | operation | what is sent |\n|---|---|---|\n")
	sent := map[string]string{"POST /client/ID/sub": "an account that the target has a sub link to", "POST /client/ID/super": "one that it has a super link to, and a sub link",
		"POST /client": "a new address", "PATCH /client/ID": "`first`", "PATCH /client/ID/sub/LINK": "`first`", "PATCH /client/ID/super/LINK": "`first`",
		"POST /client/ID/email": "by clients `client-account-created`; by others a template of theirs"}
	for i, o := range accessOperations {
		path := strings.Replace(o.path, "ID", "{client_id}", 1)
		path = strings.Replace(strings.Replace(path, "sub/LINK", "sub/{sub_id}", 1), "super/LINK", "super/{super_id}", 1)
		fmt.Fprintf(&b, "| %d | `%s` | %s |\n", i+1, path, sent[o.path])
	}
	b.WriteString("\n| caller | target |")
	for i := range accessOperations {
		fmt.Fprintf(&b, " %d |", i+1)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(accessOperations)) + "\n")
	for _, row := range accessTable {
		target := row.target
		if target == row.caller {
			target = "itself"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.caller, target, strings.ReplaceAll(strings.ReplaceAll(row.want, "-", ""), " ", " | "))
	}
	return b.String()
}

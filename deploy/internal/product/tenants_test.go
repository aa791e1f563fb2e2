package product_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
)

// tenant is a client with one item of each collection that clients have.
type tenant struct {
	by     *testkit.Client
	client int64
	ids    map[string]int64 // by collection, with {client_id} in place of the client's id
	marks  []string         // that occur in its items alone
}

// newTenant creates a client with an address, a sub client, a grantee, a key, a second factor, a mail and log items.
func newTenant(t *testing.T, p *product.Product, c *testkit.Client, name string, group int64, address string) *tenant {
	t.Helper()
	email := strings.ToLower(name) + "@tenants.example"
	body := order(email)
	body["first"] = name
	a := &tenant{client: c.Do("POST", "/client", body).Want(200).ID(), ids: map[string]int64{}, marks: []string{name, email, address}}
	a.by = c.WithKey(lastingKeyOf(t, c, a.client))
	sub := a.by.Do("POST", "/client", order("sub-of-"+email)).Want(200).ID()
	a.ids["/client"] = a.client
	for link, other := range map[string]string{"sub": "parent", "super": "granter"} {
		at := fmt.Sprintf("/client/%d/%s", a.client, link)
		a.ids["/client/{client_id}/"+link] = c.Do("POST", at, map[string]any{"client_id": sub}).Want(200).ID()
		links := testkit.Decode[[]struct{ ID int64 }](c.Do("GET", fmt.Sprintf("/client/%d/%s", sub, other), nil).Want(200))
		a.ids["/client/{client_id}/"+other] = links[0].ID // of the sub client
	}
	owner := map[string]any{"id": a.client, "server": map[string]any{"id": a.client, "name": "srv-" + name}}
	entity := map[string]any{"group": group, "address": address, "owner": owner}
	a.ids["/entity"] = c.Do("POST", "/entity", entity).Want(200).ID()
	a.ids["/auth/key"] = a.by.Do("POST", "/auth/key", map[string]any{"name": "key of " + name}).Want(200).ID()
	a.ids["/auth/verify/auth"] = a.by.Do("POST", "/auth/verify/auth", `{"method": 1}`).Want(200).ID()
	acting := map[string]any{"owner": map[string]any{"url": path("/client/%d", a.client)}}
	a.ids["/auth/session"] = c.Do("POST", "/auth/key", acting).Want(200).ID()
	var mail, item int64
	const sql = "INSERT INTO email_message (template, account, to_name, to_email, subject, secret, status) " +
		"VALUES ('welcome', $1, $2, $3, 'Hello', false, 'failed') RETURNING id"
	testkit.Must(t, p.Databases[system.Name].QueryRow(t.Context(), sql, path("/client/%d", a.client), name, email).Scan(&mail))
	testkit.Eventually(t, "the log has the client", func() bool {
		about := c.Do("GET", path("/log?target_type=client&target_id=%d&sort=id", a.client), nil).Want(200)
		found := testkit.Decode[[]struct{ ID int64 }](about)
		if len(found) > 0 {
			item = found[0].ID
		}
		return item != 0
	})
	a.ids["/email/message"], a.ids["/log"] = mail, item
	return a
}

// fill puts ids into a path: those of the tenant, and at one position that of another one.
func (a *tenant) fill(at string, position int, other *tenant) string {
	whole, filled := at, ""
	for i := 0; ; i++ {
		found := parameter.FindStringIndex(whole)
		if found == nil {
			return filled + whole
		}
		collection := strings.TrimSuffix(at[:strings.Index(at, whole)+found[0]], "/")
		of := a
		if i == position {
			of = other
		}
		id := of.ids[collection]
		if id == 0 {
			id = 999999999
		}
		filled += whole[:found[0]] + fmt.Sprint(id)
		whole = whole[found[1]:]
	}
}

// A tenant sees and changes nothing of another one: by no operation, with the other's id at any place of the path, or beside its own
// one, and in no list.
func TestTenantsAreApart(t *testing.T) {
	shared(t, func(t *testing.T, p *product.Product, c *testkit.Client) {
		group := c.Do("POST", "/group", `{"name": "Tenants"}`).Want(200).ID()
		a := newTenant(t, p, c, "Tenantalpha", group, "10.77.0.1")
		b := newTenant(t, p, c, "Tenantbravo", group, "10.77.0.2")
		rows, tried := policyRows(), 0
		for _, routes := range p.Routes {
			for _, o := range rest.Operations(routes) {
				name := o.Method + " " + o.Path
				row := rows[name]
				if guard.IsInternal(o.Guard) || row[0] != "" || row[2] == "" || o.Guard == guard.EveryKey || o.Name == "getPackage" {
					continue // not for clients, or the same for all of them
				}
				var body any = o.Example
				if own := bodyOf[o.Name]; own != "" {
					body = own
				}
				check := func(at string) {
					t.Helper()
					tried++
					response := a.by.Do(o.Method, at, body)
					if response.Status != http.StatusNotFound {
						t.Errorf("%s %s: got %d %s, want 404", o.Method, at, response.Status, response.Text)
					}
					a.leaksNothing(t, name, response, b)
				}
				for i := range parameter.FindAllString(o.Path, -1) {
					at := a.fill(o.Path, i, b)
					check(at)
					if o.Several && i == strings.Count(o.Path, "{")-1 {
						own := a.fill(o.Path, -1, b)
						last, foreign := own[strings.LastIndex(own, "/")+1:], at[strings.LastIndex(at, "/")+1:]
						if last != foreign { // the tenants have items of this kind
							check(at + "," + last)
							check(own + "," + foreign)
						}
					}
				}
				if o.Method == http.MethodGet && !strings.Contains(o.Path, "{") {
					for _, query := range []string{"", "?q=tenantbravo", "?q=10.77.0.2"} {
						a.leaksNothing(t, name, a.by.Do("GET", o.Path+query, nil), b)
					}
				}
			}
		}
		if tried < 30 {
			t.Errorf("got %d requests with another tenant's id, want at least 30", tried)
		}
		for at, want := range map[string]int{path("/client/%d", b.client): 200, path("/entity/%d", b.ids["/entity"]): 200} {
			b.by.Do("GET", at, nil).Want(want)
			a.by.Do("GET", at, nil).Want(404)
		}
		got := b.by.Do("GET", path("/entity/%d", b.ids["/entity"]), nil).Text
		if !strings.Contains(got, `"name":"10.77.0.2"`) {
			t.Errorf("got the other tenant's entity %s, want it without a name", got)
		}
	})
}

// leaksNothing fails if a response to this tenant has something of another one.
func (a *tenant) leaksNothing(t *testing.T, name string, response *testkit.Response, other *tenant) {
	t.Helper()
	for _, mark := range other.marks {
		if strings.Contains(response.Text, mark) {
			t.Errorf("%s: got %s, want nothing of the other tenant in it", name, response.Text)
		}
	}
}

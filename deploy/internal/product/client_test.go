package product_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/system/integration"
	"github.com/ironplane/ironplane/services/system/mail"
)

const mayWriteClients = `{"users": {"clients": {"read": true, "write": true}}}`

// order is what a billing system or a reseller sends for a customer.
func order(email string, more ...any) map[string]any {
	body := map[string]any{"email": email, "first": "Ben", "last": "Miller"}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return body
}

func TestClients(t *testing.T) { both(t, testClients) }

func testClients(t *testing.T, p *product.Product, c *testkit.Client) {
	made := testkit.Decode[clients.ViewedClient](
		c.Do("POST", "/client", order("Ben@example.com", "password", "a long walk in the rain", "billing", map[string]any{"id": "7"})).Want(200),
	)
	if made.Name != "Ben Miller" || made.BillingID == nil || *made.BillingID != 7 || *made.Billing.ID != 7 || made.Integration != nil ||
		len(made.Verify) != 1 {
		t.Errorf("made was %+v", made)
	}
	at := path("/client/%d", made.ID)
	for text, want := range map[string][]string{
		`{"email": "BEN@example.com", "first": "a", "last": "b"}`:                                      {"/email", "taken"},
		`{"email": "no address", "first": "a", "last": "b"}`:                                           {"/email", "invalid"},
		`{"email": "b@example.com", "first": "a", "last": "b", "password": "short"}`:                   {"/password", "too_short"},
		`{"email": "b@example.com", "first": "a", "last": "b", "password": "passwordpassword"}`:        {"/password", "too_weak"},
		`{"email": "b@example.com", "first": "a", "last": "b", "billing_id": 7}`:                       {"/billing_id", "taken"},
		`{"email": "b@example.com", "first": "a", "last": "b", "billing": {"id": 7}}`:                  {"/billing/id", "taken"},
		`{"email": "b@example.com", "first": "a", "last": "b", "billing": {"integration": 999}}`:       {"/billing/integration", "not_found"},
		`{"email": "b@example.com", "first": "a", "last": "b", "billing_id": 8, "billing": {"id": 9}}`: {"/billing/id", "disagrees"},
		`{"email": "b@example.com"}`: {"/first", "required", "/last", "required"},
	} {
		if answer := c.Do("POST", "/client", text); answer.Status != 422 {
			t.Errorf("%s makes %s", text, answer.Text)
		} else {
			answer.WantErrors(want...)
		}
	}
	for _, twin := range []map[string]any{order("ben@example.com"), order("twin@example.com", "billing_id", 7)} {
		taken := testkit.Decode[problem.Problem](c.Do("POST", "/client", twin).Want(422)).Errors[0]
		if taken.Message != fmt.Sprintf("is client %d's (Ben Miller)", made.ID) || taken.Existing == nil ||
			*taken.Existing != (problem.Ref{ID: made.ID, Name: "Ben Miller"}) {
			t.Errorf("what is taken is refused with %+v", taken)
		}
	}
	var hash string
	if err := p.Databases["clients"].QueryRow(t.Context(), "SELECT password_hash FROM client WHERE id = $1", made.ID).
		Scan(&hash); err != nil ||
		!strings.HasPrefix(hash, "$argon2id$") {
		t.Errorf("of the password is kept %q %v", hash, err)
	}
	c.Do("PATCH", at, `{"first": "Benjamin", "verify": [{"require": true}]}`).Want(200)
	viewed := c.Do("GET", at, nil).Want(200).Text
	if !strings.Contains(viewed, `"name":"Benjamin Miller"`) || !strings.Contains(viewed, `"verify":[{"require":true}]`) ||
		strings.Contains(viewed, "argon2id") {
		t.Errorf("it is %s", viewed)
	}
	if list := c.Do("GET", "/client?q=jamin&email=ben@EXAMPLE.com", nil).
		Want(200).
		Text; !strings.Contains(list, `"Benjamin Miller"`) ||
		strings.Contains(list, "verify") {
		t.Errorf("listed is %s", list)
	}
	for _, none := range []string{"email=", "billing_id=", "billing_id=8", "integration_id="} {
		if text := c.Do("GET", "/client?"+none, nil).Want(200).Text; text != "[]\n" {
			t.Errorf("with %s is found %s", none, text)
		}
	}
	c.Do("GET", "/client?integration_id=me", nil).Want(400)

	// Its key: the own record, and nothing else.
	other := c.Do("POST", "/client", order("other@example.com")).Want(200).ID()
	own := c.With(keyOf(t, c, at))
	if key := testkit.Decode[keys.APIKey](
		own.Do("GET", "/auth/key/current", nil).Want(200),
	); key.Owner.URL != at ||
		*key.Owner.Name != "Benjamin Miller" {
		t.Errorf("the key is %+v", key)
	}
	own.Do("GET", at, nil).Want(200)
	own.Do("GET", at+"/permission", nil).Want(404)
	own.Do("PATCH", at, `{"first": "Benjamin"}`).Want(200)
	own.Do("PATCH", at, `{"billing_id": 9}`).Want(403)
	own.Do("GET", path("/client/%d", other), nil).Want(404)
	own.Do("DELETE", at, nil).Want(403)
	own.Do("GET", "/group", nil).Want(403)
	for range 2 {
		c.Do("PATCH", at, disable).Want(200)
		time.Sleep(100 * time.Millisecond)
		own.Do("GET", at, nil).Want(401)
		c.Do("PATCH", at, enable).Want(200)
		time.Sleep(100 * time.Millisecond)
		own.Do("GET", at, nil).Want(200)
	}
	c.Do("DELETE", at, nil).Want(200)
	time.Sleep(100 * time.Millisecond)
	own.Do("GET", at, nil).Want(401)
	testkit.Eventually(t, "its keys are gone", func() bool { return c.Do("GET", "/auth/key?owner="+at, nil).Want(200).Text == "[]\n" })
	c.Do("POST", "/auth/key", map[string]any{"name": "late", "owner": map[string]any{"url": at}}).WantErrors("/owner/url", "not_found")
}

// What a billing system does with its clients, and cannot do with another one's.
func TestClientsOfIntegrations(t *testing.T) { both(t, testClientsOfIntegrations) }

func testClientsOfIntegrations(t *testing.T, p *product.Product, c *testkit.Client) {
	shopID, shop := newIntegration(t, c, "Shop", mayWriteClients)
	_, hub := newIntegration(t, c, "Hub", mayWriteClients)
	_, powerless := newIntegration(t, c, "Monitoring", `{}`)

	// The same billing id many times at once: one client, and 422 for all others, who are told whose it is. Another
	// integration has numbers of its own, at the same time.
	var made, refused atomic.Int64
	var second clients.ViewedClient
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range 8 {
		all.Go(func() {
			<-begin
			answer := shop.Do("POST", "/client", order(fmt.Sprintf("twin-%d@example.com", i), "billing_id", 7))
			if answer.Status == 200 {
				made.Store(answer.ID())
			} else if taken := testkit.Decode[problem.Problem](answer.Want(422)).Errors[0]; taken.Pointer == "/billing_id" && taken.Code == "taken" && taken.Existing != nil {
				refused.Add(taken.Existing.ID)
			}
		})
	}
	all.Go(func() {
		<-begin
		second = testkit.Decode[clients.ViewedClient](hub.Do("POST", "/client", order("hub@example.com", "billing_id", 7)).Want(200))
	})
	close(begin)
	all.Wait()
	if refused.Load() != 7*made.Load() {
		t.Errorf("the same billing id at once made client %d, and the refusals name others: %d", made.Load(), refused.Load())
	}
	first := testkit.Decode[[]clients.Client](shop.Do("GET", "/client?billing_id=7", nil).Want(200))
	if len(first) != 1 || first[0].Integration == nil || first[0].Integration.Name != "Shop" || second.Integration == nil ||
		second.Integration.Name != "Hub" {
		t.Fatalf("shop's is %+v, hub's %+v", first, second)
	}
	if found := testkit.Decode[[]clients.Client](
		hub.Do("GET", "/client?billing_id=7", nil).Want(200),
	); len(found) != 1 ||
		found[0].ID != second.ID {
		t.Errorf("hub finds as its own %+v", found)
	}
	if found := testkit.Decode[[]clients.Client](
		shop.Do("GET", "/client?integration_id=me", nil).Want(200),
	); len(found) != 1 ||
		found[0].ID != first[0].ID {
		t.Errorf("shop's clients are %+v", found)
	}

	nobodys := c.Do("POST", "/client", order("nobody@example.com")).Want(200).ID()
	its, others, free := path("/client/%d", first[0].ID), path("/client/%d", second.ID), path("/client/%d", nobodys)
	for _, try := range []struct {
		method, path, body string
		status             int
	}{
		{"PATCH", its, `{"email": "twin@example.com", "password": "a long walk in the rain", "verify": {"require": true}}`, 200},
		{"PATCH", others, `{"first": "Bob"}`, 200},
		{"PATCH", others, `{"email": "taken-over@example.com"}`, 403},
		{"PATCH", others, `{"password": "a long walk in the rain"}`, 403},
		{"PATCH", others, `{"verify": {"require": true}}`, 403},
		{"PATCH", others, disable, 403},
		{"PATCH", others, `{"billing_id": 70}`, 403},
		{"PATCH", others, fmt.Sprintf(`{"integration": %d}`, shopID), 403},
		{"DELETE", others, ``, 403},
		{"PATCH", free, `{"email": "taken-over@example.com"}`, 403},
		{"PATCH", free, `{"billing_id": 8}`, 200}, // and so it is the shop's
		{"PATCH", free, `{"email": "now-mine@example.com"}`, 200},
		{"PATCH", its, fmt.Sprintf(`{"integration": %d}`, second.Integration.ID), 403},
	} {
		shop.Do(try.method, try.path, try.body).Want(try.status)
	}
	testkit.Eventually(t, "the shop's clients are counted", func() bool {
		return testkit.Decode[integration.Integration](c.Do("GET", path("/integration/%d", shopID), nil).Want(200)).Clients == 2
	})
	key := func(account string) map[string]any {
		return map[string]any{"name": "session", "owner": map[string]any{"url": account}}
	}
	shop.Do("POST", "/auth/key", key(its)).Want(200)
	shop.Do("POST", "/auth/key", key(others)).WantDetail(http.StatusForbidden, "An integration writes to its own clients alone.")
	for _, try := range []string{"GET /client", "POST /client", "PATCH " + its, "DELETE " + its} {
		method, path, _ := strings.Cut(try, " ")
		powerless.Do(method, path, order("x@example.com")).Want(403)
	}

	// An integration with clients stays; its new name follows.
	c.Do("DELETE", path("/integration/%d", shopID), nil).WantDetail(http.StatusConflict, fmt.Sprintf("Integration %d has 2 clients.", shopID))
	c.Do("PATCH", path("/integration/%d", shopID), `{"name": "Store"}`).Want(200)
	testkit.Eventually(t, "the name follows", func() bool { return strings.Contains(c.Do("GET", its, nil).Want(200).Text, `"name":"Store"`) })
	for _, one := range []string{its, free} {
		shop.Do("DELETE", one, nil).Want(200)
	}
	testkit.Eventually(t, "the integration can go", func() bool { return c.Do("DELETE", path("/integration/%d", shopID), nil).Status == 200 })
}

// mailsTo are the templates by which somebody was written to, and what was said, in the order of the mails, but for those
// that say something which is of no interest; empty: all are.
func mailsTo(t *testing.T, c *testkit.Client, address, but string) (templates string, said string) {
	t.Helper()
	all := testkit.Decode[[]mail.EmailMessage](c.Do("GET", "/email/message?email="+address, nil).Want(200))
	all = slices.DeleteFunc(all, func(m mail.EmailMessage) bool { return but != "" && strings.Contains(m.Text, but) })
	slices.SortFunc(all, func(a, b mail.EmailMessage) int { return int(a.ID - b.ID) })
	var names []string
	for _, m := range all {
		names, said = append(names, m.Template+" "+m.Status), said+m.Text
	}
	return strings.Join(names, ", "), said
}

// What a client writes of itself takes its password, is tried a few times only, and is told to it.
func TestClientWritesItsOwnAccount(t *testing.T) {
	producttest.Together(t, testClientWritesItsOwnAccount)
}

func testClientWritesItsOwnAccount(t *testing.T, p *product.Product, c *testkit.Client) {
	id := c.Do("POST", "/client", order("ben@example.com", "password", "a long walk in the rain")).Want(200).ID()
	at := path("/client/%d", id)
	own, sister := c.With(keyOf(t, c, at)), c.With(keyOf(t, c, at))
	const twice = "account-changed held, account-changed held"
	testkit.Eventually(t, "it is told of its keys", func() bool {
		templates, said := mailsTo(t, c, "ben@example.com", "")
		return templates == twice && strings.Count(said, "An API key was made") == 2
	})
	for _, body := range []string{`{"email": "new@example.com"}`, `{"password": "a long walk in the snow"}`,
		`{"email": "new@example.com", "current_password": "a long walk"}`, `{"password": "a long walk in the snow", "current_password": ""}`} {
		own.Do("PATCH", at, body).WantErrors("/current_password", "wrong")
	}
	own.Do("PATCH", at, `{"email": "ben@example.com", "first": "Benjamin"}`).Want(200) // which changes no address
	if templates, _ := mailsTo(t, c, "ben@example.com", ""); templates != twice {
		t.Errorf("without a change it was sent %s", templates)
	}
	own.Do("PATCH", at, `{"password": "short", "current_password": "a long walk in the rain"}`).WantErrors("/password", "too_short")
	own.Do("PATCH", at, `{"password": "a long walk in the snow", "current_password": "a long walk in the rain"}`).Want(200)
	own.Do("PATCH", at, `{"email": "new@example.com", "current_password": "a long walk in the rain"}`).WantErrors("/current_password", "wrong")
	own.Do("PATCH", at, `{"email": "new@example.com", "current_password": "a long walk in the snow"}`).Want(200)
	own.Do("PATCH", at, `{"verify": {"require": true}}`).Want(200)
	if text := own.Do("PATCH", at, `{"verify": {"require": false}}`).Want(403).Text; !strings.Contains(text, "second factor") {
		t.Error(text)
	}
	testkit.Eventually(t, "the mails have come", func() bool {
		old, _ := mailsTo(t, c, "ben@example.com", "")
		now, said := mailsTo(t, c, "new@example.com", "")
		return old == twice+", "+twice && now == twice && strings.Contains(said, "from ben@example.com to new@example.com") &&
			strings.Contains(said, "By: Benjamin Miller")
	})
	for range lockout.OfKey - 1 { // one of the wrong ones is from before the last right one
		own.Do("PATCH", at, `{"password": "a long walk by night", "current_password": "who knows"}`)
	}
	for _, caller := range []*testkit.Client{own, sister} {
		if wait := caller.Do(
			"PATCH",
			at,
			`{"password": "a long walk by night", "current_password": "who knows"}`,
		); wait.Status != 422 &&
			wait.Status != 429 {
			t.Error(wait.Text)
		}
		if wait := caller.Do("PATCH", at, `{"password": "a long walk by night", "current_password": "a long walk in the snow"}`).
			Want(429).
			Header.Get(
			"Retry-After",
		); wait == "" ||
			wait == "1" {
			t.Errorf("locked for %q seconds", wait)
		}
	}
	producttest.Drain(t, p)
	if text := c.Do("GET", path("/log?type=client.password.refused&target_type=client&target_id=%d", id), nil).
		Want(200).
		Text; !strings.Contains(text, "Password of client Ben") ||
		strings.Contains(text, "who knows") {
		t.Errorf("the log has %s", text)
	}

	// However much is changed, an account is written to ten times an hour.
	for n := range 12 {
		c.Do("PATCH", at, fmt.Sprintf(`{"verify": {"require": %v}}`, n%2 == 1)).Want(200)
	}
	testkit.Eventually(t, "no more than ten mails are sent", func() bool {
		now, _ := mailsTo(t, c, "new@example.com", "")
		return strings.Count(now, " held") == 6 && strings.Count(now, " failed") == 8 // four went to the old address
	})
}

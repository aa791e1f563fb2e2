package clients_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
)

func TestClients(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	created := testkit.Decode[clients.ViewedClient](
		c.Do("POST", "/client", orderBody("Ben@example.com", "password", "a long walk in the rain", "billing", map[string]any{"id": "7"})).
			Want(200),
	)
	if created.Name != "Ben Miller" || created.BillingID == nil || *created.BillingID != 7 || *created.Billing.ID != 7 ||
		created.Integration != nil ||
		len(created.Verify) != 1 {
		t.Errorf("got %+v, want Ben Miller with the billing id 7 and no integration", created)
	}
	at := path("/client/%d", created.ID)
	for text, want := range map[string][]string{
		`{"email": "BEN@example.com", "first": "a", "last": "b"}`:                                      {"/email", "taken"},
		`{"email": "no address", "first": "a", "last": "b"}`:                                           {"/email", "invalid"},
		`{"email": "b@example.com", "first": "a", "last": "b", "password": "short"}`:                   {"/password", "too_short"},
		`{"email": "b@example.com", "first": "a", "last": "b", "password": "passwordpassword"}`:        {"/password", "too_weak"},
		`{"email": "b@example.com", "first": "Anna", "last": "Berg", "password": "AnnaBerg2026"}`:      {"/password", "too_weak"},
		`{"email": "b@example.com", "first": "a", "last": "b", "billing_id": 7}`:                       {"/billing_id", "taken"},
		`{"email": "b@example.com", "first": "a", "last": "b", "billing": {"id": 7}}`:                  {"/billing/id", "taken"},
		`{"email": "b@example.com", "first": "a", "last": "b", "billing": {"integration": 999}}`:       {"/billing/integration", "not_found"},
		`{"email": "b@example.com", "first": "a", "last": "b", "billing_id": 8, "billing": {"id": 9}}`: {"/billing/id", "disagrees"},
		`{"email": "b@example.com"}`: {"/first", "required", "/last", "required"},
	} {
		if response := c.Do("POST", "/client", text); response.Status != 422 {
			t.Errorf("%s: got %d %s, want 422", text, response.Status, response.Text)
		} else {
			response.WantErrors(want...)
		}
	}
	for _, duplicate := range []map[string]any{orderBody("ben@example.com"), orderBody("twin@example.com", "billing_id", 7)} {
		conflict := testkit.Decode[problem.Problem](c.Do("POST", "/client", duplicate).Want(422)).Errors[0]
		if conflict.Message != fmt.Sprintf("is already used by client %d (Ben Miller)", created.ID) || conflict.Existing == nil ||
			*conflict.Existing != (problem.Ref{ID: created.ID, Name: "Ben Miller"}) {
			t.Errorf("got the refusal %+v, want one that names client %d, Ben Miller", conflict, created.ID)
		}
	}
	var hash string
	if err := c.DB.QueryRow(t.Context(), "SELECT password_hash FROM client WHERE id = $1", created.ID).
		Scan(&hash); err != nil ||
		!strings.HasPrefix(hash, "$argon2id$") {
		t.Errorf("got the stored password %q and the error %v, want an argon2id hash", hash, err)
	}
	c.Do("PATCH", at, `{"first": "Benjamin", "verify": [{"require": true}]}`).Want(200)
	viewed := c.Do("GET", at, nil).Want(200).Text
	if !strings.Contains(viewed, `"name":"Benjamin Miller"`) || !strings.Contains(viewed, `"verify":[{"require":true}]`) ||
		strings.Contains(viewed, "argon2id") {
		t.Errorf("got %s, want Benjamin Miller, who requires a second factor, without a hash", viewed)
	}
	if list := c.Do("GET", "/client?q=jamin&email=ben@EXAMPLE.com", nil).
		Want(200).
		Text; !strings.Contains(list, `"Benjamin Miller"`) ||
		strings.Contains(list, "verify") {
		t.Errorf("got the list %s, want Benjamin Miller without verify", list)
	}
	for _, none := range []string{"email=", "billing_id=", "billing_id=8", "integration_id="} {
		if text := c.Do("GET", "/client?"+none, nil).Want(200).Text; text != "[]\n" {
			t.Errorf("%s: got %s, want an empty list", none, text)
		}
	}
	c.Do("GET", "/client?integration_id=me", nil).Want(400)

	// A client sees its own account, and nothing else.
	other := c.Do("POST", "/client", orderBody("other@example.com")).Want(200).ID()
	own := c.asClient(created.ID)
	own.Do("GET", at, nil).Want(200)
	own.Do("GET", at+"/permission", nil).Want(404)
	own.Do("PATCH", at, `{"first": "Benjamin"}`).Want(200)
	own.Do("PATCH", at, `{"billing_id": 9}`).Want(403)
	own.Do("GET", path("/client/%d", other), nil).Want(404)
	own.Do("DELETE", at, nil).Want(403)
	c.Do("DELETE", at, nil).Want(200)
	own.Do("GET", at, nil).Want(404)
}

// Lists are sorted and filtered by what operators look for. CSV has the same rows.
func TestListOfClients(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	c.createClients("anna", "bert", "carl")
	for query, want := range map[string]string{
		"?sort=name": "anna bert carl", "?sort=-name": "carl bert anna", "?sort=-email&per_page=1": "carl", "?sort=created_at&q=ert": "bert",
		"?name=anna+Miller": "anna", "?disabled=true": "", "?q=MILLER&per_page=2&sort=name": "anna bert", "?email=CARL@example.com": "carl",
	} {
		var got []string
		for _, client := range testkit.Decode[[]clients.ListedClient](c.Do("GET", "/client"+query, nil).Want(200)) {
			got = append(got, client.First)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("/client%s: got %q, want %q", query, got, want)
		}
	}
	if rows := strings.Count(c.Do("GET", "/client", nil, "Accept", "text/csv").Want(200).Text, "\n"); rows != 4 {
		t.Errorf("the table: got %d rows, want 4", rows)
	}
	c.As(testkit.AdminWith(0)).Do("GET", "/client", nil).Want(403)
	c.As(nil).Do("GET", "/client", nil).Want(401)
}

// A billing system manages its own clients, and cannot change another one's.
func TestClientsOfIntegrations(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	const shopID, hubID = 4, 5
	c.System.SetIntegration(shopID, "Shop")
	c.System.SetIntegration(hubID, "Hub")
	shop, hub := c.asIntegration(shopID), c.asIntegration(hubID)
	powerless := c.As(&principal.Principal{KeyID: 9, Owner: principal.Owner{Type: principal.Integration, ID: 6}, Name: "Monitoring"})

	// Of many simultaneous requests with the same billing id, one creates a client, and all others get a 422 that names
	// it. Another integration can use the same id at the same time.
	var mu sync.Mutex
	var created, refused []int64
	var second clients.ViewedClient
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range 8 {
		all.Go(func() {
			<-begin
			response := shop.Do("POST", "/client", orderBody(fmt.Sprintf("twin-%d@example.com", i), "billing_id", 7))
			mu.Lock()
			defer mu.Unlock()
			if response.Status == 200 {
				created = append(created, response.ID())
				return
			}
			response.WantErrors("/billing_id", "taken")
			if conflict := testkit.Decode[problem.Problem](response).Errors[0]; conflict.Existing != nil {
				refused = append(refused, conflict.Existing.ID)
			}
		})
	}
	all.Go(func() {
		<-begin
		second = testkit.Decode[clients.ViewedClient](hub.Do("POST", "/client", orderBody("hub@example.com", "billing_id", 7)).Want(200))
	})
	close(begin)
	all.Wait()
	if len(created) != 1 || !slices.Equal(refused, slices.Repeat(created, 7)) {
		t.Fatalf("got the clients %v created, and refusals that name %v, want one client, and 7 that name it", created, refused)
	}
	first := testkit.Decode[[]clients.ListedClient](shop.Do("GET", "/client?billing_id=7", nil).Want(200))
	if len(first) != 1 || first[0].Integration == nil || first[0].Integration.Name != "Shop" || second.Integration == nil ||
		second.Integration.Name != "Hub" {
		t.Fatalf("got %+v and %+v, want one client of Shop and one of Hub", first, second)
	}
	if found := testkit.Decode[[]clients.ListedClient](
		hub.Do("GET", "/client?billing_id=7", nil).Want(200),
	); len(found) != 1 ||
		found[0].ID != second.ID {
		t.Errorf("got Hub's clients %+v, want only client %d", found, second.ID)
	}
	if found := testkit.Decode[[]clients.ListedClient](
		shop.Do("GET", "/client?integration_id=me", nil).Want(200),
	); len(found) != 1 ||
		found[0].ID != first[0].ID {
		t.Errorf("got Shop's clients %+v, want only client %d", found, first[0].ID)
	}

	unownedID := c.Do("POST", "/client", orderBody("nobody@example.com")).Want(200).ID()
	shopClient, hubClient, unowned := path("/client/%d", first[0].ID), path("/client/%d", second.ID), path("/client/%d", unownedID)
	for _, attempt := range []struct {
		method, path, body string
		status             int
	}{
		{"PATCH", shopClient, `{"email": "twin@example.com", "password": "a long walk in the rain", "verify": {"require": true}}`, 200},
		{"PATCH", hubClient, `{"first": "Bob"}`, 403},
		{"PATCH", hubClient, `{}`, 200},
		{"POST", hubClient + "/email", `{"type": "client-account-created"}`, 403},
		{"POST", hubClient + "/sub", fmt.Sprintf(`{"client_id": %d}`, first[0].ID), 403},
		{"POST", shopClient + "/sub", fmt.Sprintf(`{"client_id": %d}`, second.ID), 403},
		{"POST", shopClient + "/super", fmt.Sprintf(`{"client_id": %d}`, second.ID), 403},
		{"POST", path("/client/%d/sub", int64(999)), fmt.Sprintf(`{"client_id": %d}`, first[0].ID), 404},
		{"PATCH", hubClient, `{"email": "taken-over@example.com"}`, 403},
		{"PATCH", hubClient, `{"password": "a long walk in the rain"}`, 403},
		{"PATCH", hubClient, `{"verify": {"require": true}}`, 403},
		{"PATCH", hubClient, `{"disabled": true}`, 403},
		{"PATCH", hubClient, `{"billing_id": 70}`, 403},
		{"PATCH", hubClient, fmt.Sprintf(`{"integration": %d}`, shopID), 403},
		{"DELETE", hubClient, ``, 403},
		{"PATCH", unowned, `{"email": "taken-over@example.com"}`, 403},
		{"PATCH", unowned, `{"billing_id": 8}`, 403},
		{"PATCH", unowned, fmt.Sprintf(`{"integration": %d}`, shopID), 403},
		{"PATCH", unowned, `{"billing": {"ignoreAutoSuspend": true}}`, 403},
		{"POST", unowned + "/adopt", `{"billing_id": 7}`, 422}, // another client of the shop has it
		{"POST", hubClient + "/adopt", `{"billing_id": 70}`, 403},
		{"POST", unowned + "/adopt", fmt.Sprintf(`{"billing_id": 8, "integration": %d}`, second.Integration.ID), 403},
		{"POST", shopClient + "/adopt", `{"billing_id": 7}`, 200}, // its own already
		{"POST", path("/client/%d/adopt", int64(999)), `{"billing_id": 8}`, 404},
		{"PATCH", shopClient, fmt.Sprintf(`{"integration": %d}`, second.Integration.ID), 403},
	} {
		shop.Do(attempt.method, attempt.path, attempt.body).Want(attempt.status)
	}
	c.Do("POST", unowned+"/adopt", `{"billing_id": 8}`).WantErrors("/billing/integration", "required")
	c.Do("POST", unowned+"/adopt", fmt.Sprintf(`{"billing_id": 7, "integration": %d}`, shopID)).WantErrors("/billing_id", "taken")
	c.Do("POST", unowned+"/adopt", fmt.Sprintf(`{"billing_id": 8, "integration": %d}`, shopID)).Want(200)
	shop.Do("PATCH", unowned, `{"email": "now-mine@example.com"}`).Want(200)
	var claimed bool
	testkit.Must(t, c.DB.QueryRow(t.Context(), "SELECT claimed_at IS NOT NULL FROM client WHERE id = $1", second.ID).Scan(&claimed))
	if claimed {
		t.Error("got another integration's client claimed by an edit without changes, want it unclaimed")
	}
	for _, attempt := range []string{"GET /client", "POST /client", "PATCH " + shopClient, "DELETE " + shopClient} {
		method, path, _ := strings.Cut(attempt, " ")
		powerless.Do(method, path, orderBody("x@example.com")).Want(403)
	}
	c.System.SetIntegration(shopID, "Store")
	testkit.Eventually(
		t,
		"the name follows",
		func() bool { return strings.Contains(c.Do("GET", shopClient, nil).Want(200).Text, `"name":"Store"`) },
	)

	// An integration with clients cannot be deleted unless they are detached from it.
	askLease := func(path string) (response struct {
		ID, Detached int64
		Usage        string `json:"uses"`
	}) {
		t.Helper()
		testkit.Must(t, c.Peers("system").Ask(t.Context(), clients.Name, "/internal/close/integration?items="+path, &response))
		return response
	}
	const shopLease = "%5B%7B%22ID%22%3A4%2C%22Token%22%3A7%7D%5D" // [{"ID":4,"Token":7}]
	if got := askLease(shopLease); got.ID != shopID || got.Usage != "has 2 clients" {
		t.Errorf("whether the integration can go: got %+v, want that it has 2 clients", got)
	}
	shop.Do("DELETE", unowned, nil).Want(200)
	if got := askLease(shopLease); got.Usage != "has 1 client" {
		t.Errorf("whether the integration can go: got %+v, want that it has 1 client", got)
	}
	if got := askLease(shopLease + "&detach=now"); got.Detached != 1 {
		t.Errorf("got %d clients detached, want 1", got.Detached)
	}
	if got := askLease(shopLease + "&detach=now"); got.Detached != 0 {
		t.Errorf("got %d clients detached, want 0", got.Detached)
	}
	c.Do("PATCH", shopClient, `{"integration": 5, "billing_id": 11}`).Want(200)
	c.System.DeleteIntegration(hubID)
	testkit.Eventually(t, "the deleted integration has no clients", func() bool {
		got := testkit.Decode[clients.ViewedClient](c.Do("GET", shopClient, nil).Want(200))
		return got.Integration == nil && got.BillingID == nil
	})
}

// A client that another service uses cannot be deleted.
func TestClientInUse(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	id, at := c.createClient("ben@example.com")
	second, secondPath := c.createClient("ann@example.com")
	c.Network.Use("client", id, "has 2 IP entities")
	c.Do("DELETE", at, nil).WantDetail(http.StatusConflict, fmt.Sprintf("Client %d has 2 IP entities.", id))
	c.Do("DELETE", path("/client/%d,%d", id, second), nil).Want(409)
	c.Do("GET", secondPath, nil).Want(200)
	c.PXE.SetAway(true)
	c.Do("DELETE", secondPath, nil).Want(503)
	c.PXE.SetAway(false)
	c.Do("DELETE", secondPath, nil).Want(200)
	c.Network.Use("client", id, "")
	c.Do("DELETE", at, nil).Want(200)
}

// A client needs its password to change its own account. It can guess only a few times, and gets a mail about each change.
func TestClientWritesItsOwnAccount(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	id, at := c.createClient("ben@example.com", "password", "a long walk in the rain")
	own, sister := c.asClient(id), c.As(&principal.Principal{KeyID: 77, Owner: principal.Owner{Type: principal.Client, ID: id}, Name: "Ben"})
	listChanges := func(address string) (changes []string) {
		t.Helper()
		for _, m := range c.System.Mails(address) {
			changes = append(changes, m.Opened.(mail.AccountChanged).Changes...)
		}
		return changes
	}
	for _, body := range []string{`{"email": "new@example.com"}`, `{"password": "a long walk in the snow"}`,
		`{"email": "new@example.com", "current_password": "a long walk"}`, `{"password": "a long walk in the snow", "current_password": ""}`} {
		own.Do("PATCH", at, body).WantErrors("/current_password", "wrong")
	}
	own.Do("PATCH", at, `{"email": "ben@example.com", "first": "Benjamin"}`).Want(200) // the same address
	if got := listChanges("ben@example.com"); got != nil {
		t.Errorf("without a change: got mails about %q, want none", got)
	}
	own.Do("PATCH", at, `{"password": "short", "current_password": "a long walk in the rain"}`).WantErrors("/password", "too_short")
	own.Do("PATCH", at, `{"password": "a long walk in the snow", "current_password": "a long walk in the rain"}`).Want(200)
	own.Do("PATCH", at, `{"email": "new@example.com", "current_password": "a long walk in the rain"}`).
		WantErrors("/current_password", "wrong")
	own.Do("PATCH", at, `{"email": "new@example.com", "current_password": "a long walk in the snow"}`).Want(200)
	own.Do("PATCH", at, `{"verify": {"require": true}}`).Want(200)
	if text := own.Do("PATCH", at, `{"verify": {"require": false}}`).Want(403).Text; !strings.Contains(text, "second factor") {
		t.Errorf("got %s, want it to name the second factor", text)
	}
	password, moved := "The password was changed.", "The email address was changed from ben@example.com to new@example.com."
	if got, want := listChanges("ben@example.com"), []string{password, moved}; !slices.Equal(got, want) {
		t.Errorf("at the old address: got mails about %q, want %q", got, want)
	}
	required := "A second factor is now required to sign in."
	if got, want := listChanges("new@example.com"), []string{moved, required}; !slices.Equal(got, want) {
		t.Errorf("at the new address: got mails about %q, want %q", got, want)
	}
	for range lockout.MaxPerKey - 1 { // one failed attempt was before the last valid one
		own.Do("PATCH", at, `{"password": "a long walk by night", "current_password": "who knows"}`)
	}
	for _, caller := range []*testkit.Client{own, sister} {
		invalid := caller.Do("PATCH", at, `{"password": "a long walk by night", "current_password": "who knows"}`)
		if invalid.Status != 422 && invalid.Status != 429 {
			t.Errorf("a wrong password: got %d, want 422 or 429", invalid.Status)
		}
		valid := caller.Do("PATCH", at, `{"password": "a long walk by night", "current_password": "a long walk in the snow"}`).Want(429)
		if wait := valid.Header.Get("Retry-After"); wait == "" || wait == "1" {
			t.Errorf("got the Retry-After %q, want more than 1 second", wait)
		}
	}
	if _, after := c.records("client.password", "refused"); len(after) == 0 || strings.Contains(testkit.JSON(after), "who knows") {
		t.Errorf("got the records %v of wrong passwords, want some without the password", after)
	}
}

// A client that has just signed in, or confirmed a code a few minutes ago, need not send its password.
func TestFreshClient(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	id, at := c.createClient("ben@example.com", "password", "a long walk in the rain", "verify", map[string]any{"require": true})
	session := func(key int64, began time.Time, acting bool) *testkit.Client {
		return c.As(&principal.Principal{
			KeyID: key, Owner: principal.Owner{Type: principal.Client, ID: id}, Name: "Ben", SignedIn: began, Acting: acting,
		})
	}
	old, fresh, acting := session(31, time.Now().Add(-time.Hour), false), session(32, time.Now(), false), session(33, time.Time{}, true)
	old.Do("PATCH", at, `{"password": "a long walk in the snow"}`).WantErrors("/current_password", "wrong")
	fresh.Do("PATCH", at, `{"password": "a long walk in the snow"}`).Want(200)
	fresh.Do("PATCH", at, `{"email": "benjamin@example.com"}`).Want(200)
	acting.Do("PATCH", at, `{"email": "thief@example.com"}`).Want(403)
	acting.Do("PATCH", at, `{"first": "Bob"}`).Want(200)
	acting.Do("POST", at+"/super", map[string]any{"client_id": id}).Want(403)
	fresh.Do("PATCH", at, `{"verify": {"require": false}}`).Want(403)
	c.Identity.SetAway(true)
	fresh.Do("PATCH", at, `{"verify": {"require": false}}`).Want(503)
	c.Identity.SetAway(false)
	c.Identity.Confirm(32)
	fresh.Do("PATCH", at, `{"verify": {"require": false}}`).Want(200)
	if got := c.Do("GET", at, nil).Want(200).Text; !strings.Contains(got, `"require":false`) {
		t.Errorf("got %s, want no second factor", got)
	}
}

// Gateways learn whether a client may call, and its name.
func TestOwnerEntry(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	id, at := c.createClient("ben@example.com")
	entry := func() (owner struct {
		Active bool
		Name   string
	}) {
		t.Helper()
		testkit.Must(t, c.Peers(principal.Gateway).Ask(t.Context(), clients.Name, path("/internal/owner/client/%d", id), &owner))
		return owner
	}
	if got := entry(); !got.Active || got.Name != "Ben Miller" {
		t.Errorf("got %+v, want an active Ben Miller", got)
	}
	c.As(testkit.AdminWith(principal.Grant(permission.UsersClients, permission.Write))).Do("PATCH", at, `{"disabled": true, "last": "Baker"}`).
		Want(200)
	if got := entry(); got.Active || got.Name != "Ben Baker" {
		t.Errorf("got %+v, want a disabled Ben Baker", got)
	}
	c.Do("DELETE", at, nil).Want(200)
	if got := entry(); got.Active || got.Name != "" {
		t.Errorf("got %+v, want nobody", got)
	}
}

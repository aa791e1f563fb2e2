package clients_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
)

// adoptionMail returns the content of the last mail to an address, and the body that confirms.
func (s *testService) adoptionMail(address string) (content mail.ClientAdoption, confirmation string) {
	s.t.Helper()
	mails := s.System.Mails(address)
	if len(mails) == 0 {
		s.t.Fatalf("got no mail to %s, want one", address)
	}
	content, isAdoption := mails[len(mails)-1].Opened.(mail.ClientAdoption)
	link, err := url.Parse(content.Link.Reveal())
	if !isAdoption || err != nil {
		s.t.Fatalf("got the mail %+v (%v), want one with a link", mails[len(mails)-1], err)
	}
	values, err := url.ParseQuery(link.Fragment)
	if err != nil || values.Get("code") == "" || link.RawQuery != "" {
		s.t.Fatalf("got a link with the values %d (%v), want a code behind the #", len(values), err)
	}
	return content, fmt.Sprintf(`{"code": %q}`, values.Get("code"))
}

// A client decides whether an integration adopts it, by a link that only it gets.
func TestAdoption(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	c.System.SetIntegration(4, "Shop")
	c.System.SetIntegration(5, "Hub")
	shop, hub, anonymous := c.asIntegration(4), c.asIntegration(5), c.As(nil)
	id, at := c.createClient("ben@example.org")
	_, other := c.createClient("ann@example.org")
	const ask = `{"billing_id": 8}`

	// Without an address for the link nobody is asked.
	shop.Do("POST", at+"/adopt", ask).Want(422)
	c.System.SetSetting(settings.ClientURL.Slug, "https://panel.example.com/")
	testkit.Eventually(t, "the panel's address is known", func() bool { return hub.Do("POST", other+"/adopt", ask).Status == http.StatusOK })

	// The integration learns nothing about the address, and asks once a day.
	asked := shop.Do("POST", at+"/adopt", ask).Want(200)
	if a := testkit.Decode[clients.Adoption](asked); a.Status != "asked" || a.ExpiresAt == nil || strings.Contains(asked.Text, "example.org") {
		t.Errorf("got %s, want that the client was asked, and no address", asked.Text)
	}
	content, confirmation := c.adoptionMail("ben@example.org")
	if content.By != "an integration" || !strings.HasPrefix(content.Link.Reveal(), "https://panel.example.com/client/adopt#") ||
		time.Until(content.Expires) > 72*time.Hour {
		t.Errorf("got the mail %+v, want one of an integration with a link to the panel, for three days", content)
	}
	if refused := shop.Do("POST", at+"/adopt", `{"billing_id": 9}`).Want(429); refused.Header.Get("Retry-After") == "" {
		t.Error("got no Retry-After, want one")
	}
	if got := len(c.System.Mails("ben@example.org")); got != 1 {
		t.Errorf("got %d mails, want 1", got)
	}
	shop.Do("PATCH", at, `{"disabled": true}`).Want(403)
	hub.Do("POST", at+"/adopt", ask).Want(200)
	_, hubConfirmation := c.adoptionMail("ben@example.org")

	// Nobody adopts without the code, and a code is for one client.
	c.asClient(id).Do("POST", at+"/adopt", ask).Want(403)
	anonymous.Do("POST", at+"/adopt", ask).Want(401)
	anonymous.Do("PATCH", at+"/adopt", `{}`).WantErrors("/code", "required")
	for _, invalid := range []string{`{"code": "x"}`, `{"code": ""}`} {
		if status := anonymous.Do("PATCH", at+"/adopt", invalid).Status; status != 404 && status != 422 {
			t.Errorf("%s: got %d, want a refusal", invalid, status)
		}
	}
	anonymous.Do("PATCH", other+"/adopt", confirmation).Want(404)
	anonymous.Do("PATCH", "/client/999/adopt", confirmation).Want(404)

	// The code works once, however many confirm at the same time.
	var confirmed atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			switch response := anonymous.Do("PATCH", at+"/adopt", confirmation); response.Status {
			case 200:
				confirmed.Add(1)
			case 404:
			default:
				t.Errorf("got %d: %s, want 200 or 404", response.Status, response.Text)
			}
		})
	}
	all.Wait()
	got := testkit.Decode[clients.ViewedClient](shop.Do("GET", at, nil).Want(200))
	if confirmed.Load() != 1 || got.Integration == nil || got.Integration.ID != 4 || got.BillingID == nil || *got.BillingID != 8 {
		t.Errorf("got %d confirmations and %+v, want 1 and a client of Shop with the billing id 8", confirmed.Load(), got)
	}
	if got.ClaimedAt != nil {
		t.Error("got the account claimed by a confirmation, want it unclaimed")
	}
	shop.Do("PATCH", at, `{"disabled": true}`).Want(200)
	shop.Do("PATCH", at, `{"disabled": false}`).Want(200)
	if before, after := c.records("client", "edited"); len(after) < 3 || before[2]["billing_id"] != nil || after[2]["billing_id"] != 8.0 {
		t.Errorf("got the records %v, want the adoption third", after)
	}

	// By now the client belongs to the shop, so the other integration's code does not move it.
	anonymous.Do("PATCH", at+"/adopt", hubConfirmation).Want(409)
	hub.Do("POST", at+"/adopt", ask).Want(403)
}

// A new link replaces the last one. A link ends when the client's address changes, when the client is disabled, and by itself.
func TestAdoptionLinksEnd(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	c.System.SetIntegration(4, "Shop")
	shop, anonymous := c.asIntegration(4), c.As(nil)
	c.System.SetSetting(settings.APIURL.Slug, "https://api.example.com")
	_, first := c.createClient("first@example.org")
	testkit.Eventually(
		t,
		"the address is known",
		func() bool { return shop.Do("POST", first+"/adopt", `{"billing_id": 1}`).Status == http.StatusOK },
	)
	content, _ := c.adoptionMail("first@example.org")
	if !strings.HasPrefix(content.Link.Reveal(), "https://api.example.com/-/adopt#") {
		t.Error("got a link elsewhere, want one to the gateway's page")
	}
	for i, end := range []func(at string){
		func(at string) {
			testkit.Execute(t, c.DB, "UPDATE adoption SET asked_at = now() - interval '25 hours'")
			shop.Do("POST", at+"/adopt", `{"billing_id": 90}`).Want(200)
		},
		func(at string) { c.Do("PATCH", at, `{"email": "else@example.org"}`).Want(200) },
		func(at string) { c.Do("PATCH", at, `{"disabled": true}`).Want(200) },
		func(string) { testkit.Execute(t, c.DB, "UPDATE adoption SET expires_at = now()") },
	} {
		address := fmt.Sprintf("ben-%d@example.org", i)
		_, at := c.createClient(address)
		shop.Do("POST", at+"/adopt", fmt.Sprintf(`{"billing_id": %d}`, 10+i)).Want(200)
		_, confirmation := c.adoptionMail(address)
		end(at)
		anonymous.Do("PATCH", at+"/adopt", confirmation).Want(404)
	}
	_, disabled := c.createClient("disabled@example.org")
	c.Do("PATCH", disabled, `{"disabled": true}`).Want(200)
	shop.Do("POST", disabled+"/adopt", `{"billing_id": 50}`).Want(403)
}

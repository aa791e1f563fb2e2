package product_test

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/url"
	"regexp"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
	"github.com/ironplane/ironplane/pkg/testkit/secondfactor"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/mfa"
)

const newPassword = "seven grey herons at dusk"

// withPanels runs the product with panels and a mailbox.
func withPanels(t *testing.T) (*product.Product, *testkit.Client, *mailbox.Server) {
	t.Helper()
	box := mailbox.Start(t, mailbox.Options{})
	p, c := producttest.StartWith(t, testkit.Redis(t), service.Settings{SMTP: "smtp+plain://" + box.Addr, MailFrom: "noreply@example.com",
		APIURL: "https://api.example.com", ClientURL: "https://panel.example.com/", AdminURL: "https://admin.example.com",
		PasskeyDomain: secondfactor.Settings.PasskeyDomain, PasskeyOrigins: secondfactor.Settings.PasskeyOrigins})
	testkit.Eventually(t, "identity has applied the settings of the panels", func() bool {
		link := c.Do("GET", "/auth/sso", nil)
		return link.Status == 200
	})
	return p, c, box
}

// textOf returns a mail's plain text.
func textOf(t *testing.T, m mailbox.Mail) string {
	t.Helper()
	read, err := mail.ReadMessage(bytes.NewReader(m.Data))
	if err != nil {
		t.Fatal(err)
	}
	_, parameters, err := mime.ParseMediaType(read.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	body := read.Body
	if boundary := parameters["boundary"]; boundary != "" {
		part, err := multipart.NewReader(body, boundary).NextRawPart()
		if err != nil {
			t.Fatal(err)
		}
		body = part
	}
	text, err := io.ReadAll(quotedprintable.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var mailedLink = regexp.MustCompile(`https://\S+#\S+`)

// linksTo returns the links in the mails to an address, in their order.
func linksTo(t *testing.T, box *mailbox.Server, address string) (links []string) {
	t.Helper()
	for _, m := range box.Mails() {
		if m.To[0] == address {
			links = append(links, mailedLink.FindAllString(textOf(t, m), -1)...)
		}
	}
	return links
}

// nextLink waits until an address has more than before links in its mails, and returns the newest.
func nextLink(t *testing.T, box *mailbox.Server, address string, before int) *url.URL {
	t.Helper()
	var links []string
	testkit.Eventually(t, "a link is mailed to "+address, func() bool {
		links = linksTo(t, box, address)
		return len(links) > before
	})
	link, err := url.Parse(links[len(links)-1])
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func tokenOf(t *testing.T, link *url.URL) string {
	t.Helper()
	values, err := url.ParseQuery(link.Fragment)
	if err != nil || values.Get("token") == "" {
		t.Fatalf("got the link %s, want a token in it", link)
	}
	return values.Get("token")
}

// The creator of an account lets Ironplane mail it a link. By the link, the account becomes claimed, and the creator cannot
// change it any more.
func TestWelcome(t *testing.T) {
	t.Parallel()
	box := mailbox.Start(t, mailbox.Options{})
	p, c := producttest.StartWith(
		t,
		testkit.Redis(t),
		service.Settings{SMTP: "smtp+plain://" + box.Addr, MailFrom: "noreply@example.com", APIURL: "https://api.example.com"},
	)
	anonymous := c.WithKey("")
	welcome := func(c *testkit.Client, id int64) *testkit.Response {
		return c.Do("POST", path("/client/%d/email", id), `{"type": "client-account-created"}`)
	}
	claimed := func(id int64) bool {
		return testkit.Decode[clients.ListedClient](c.Do("GET", path("/client/%d", id), nil).Want(200)).ClaimedAt != nil
	}
	newPerson(t, c, "client", "reseller@example.com")
	_, reseller := signIn(t, c, loginOf("client", "reseller@example.com", password))
	id := reseller.Do("POST", "/client", order("new@example.com")).Want(200).ID()
	self := path("/client/%d", id)
	testkit.Eventually(t, "clients has applied the setting of the API", func() bool { return welcome(reseller, id).Status == 200 })
	first := nextLink(t, box, "new@example.com", 0)
	values, err := url.ParseQuery(first.Fragment)
	if err != nil || first.Host+first.Path != "api.example.com/-/password" || claimed(id) {
		t.Fatalf("got the link %s and claimed %t, want api.example.com/-/password and an unclaimed account", first, claimed(id))
	}
	c.Do("GET", first.Path, nil).Want(200)

	// A link that was sent to an earlier address is invalid.
	reseller.Do("PATCH", self, `{"email": "newer@example.com"}`).Want(200)
	choose := func(values url.Values) *testkit.Response {
		return anonymous.Do("PATCH", "/auth/password-reset/"+values.Get("id"), map[string]any{"token": values.Get("token"), "password": password})
	}
	choose(values).Want(404)
	welcome(c, id).Want(200)
	second := nextLink(t, box, "newer@example.com", 0)
	if values, err = url.ParseQuery(second.Fragment); err != nil {
		t.Fatal(err)
	}
	early := testkit.Decode[keys.APIKey](
		c.Do("POST", "/auth/key", map[string]any{"name": "early", "owner": map[string]any{"url": self}}).Want(200),
	)
	secondfactor.NewVerifiedApp(t, p.Databases[identity.Name], c.WithKey(early.Key).WithT(t))
	choose(values).Want(200)
	if !claimed(id) {
		t.Error("got an unclaimed account after the use of its link, want it claimed")
	}
	if left := testkit.Decode[[]mfa.Authenticator](c.Do("GET", "/auth/verify/auth?owner="+self, nil).Want(200)); len(left) > 0 {
		t.Errorf("got %+v from before the account was claimed, want none left", left)
	}
	reseller.Do("PATCH", self, `{"email": "mine@example.com"}`).Want(403)
	welcome(reseller, id).Want(403)
	welcome(c, id).WantErrors("/type", "unavailable")
	_, session := signIn(t, c, loginOf("client", "newer@example.com", password))

	// The first proof of an address that the account chose itself ends the keys and links that the account created before. Those of
	// operators stay.
	own := testkit.Decode[keys.APIKey](session.Do("POST", "/auth/key", `{"name": "own"}`).Want(200))
	operatorKey := testkit.Decode[keys.APIKey](
		c.Do("POST", "/auth/key", map[string]any{"name": "operator", "owner": map[string]any{"url": self}}).Want(200),
	)
	other := session.Do("POST", "/client", order("other@example.com")).Want(200).ID()
	link := session.Do("POST", self+"/super", map[string]any{"client_id": other}).Want(200).ID()
	kept := c.Do("POST", self+"/super", map[string]any{"client_id": 1}).Want(200).ID()
	session.Do("PATCH", self, map[string]any{"email": "newest@example.com", "current_password": password}).Want(200)
	anonymous.Do("POST", "/auth/password-reset", `{"type": "client", "email": "newest@example.com"}`).Want(200)
	if values, err = url.ParseQuery(nextLink(t, box, "newest@example.com", 0).Fragment); err != nil {
		t.Fatal(err)
	}
	choose(values).Want(200)
	forgotten()
	c.WithKey(own.Key).Do("GET", self, nil).Want(401)
	c.WithKey(operatorKey.Key).Do("GET", self, nil).Want(200)
	c.Do("GET", path("%s/super/%d", self, link), nil).Want(404)
	c.Do("GET", path("%s/super/%d", self, kept), nil).Want(200)

	// A first sign-in claims an account, too.
	byPassword := newPerson(t, c, "client", "password@example.com")
	if claimed(byPassword) {
		t.Error("got a claimed account before its first use, want it unclaimed")
	}
	signIn(t, c, loginOf("client", "password@example.com", password))
	if !claimed(byPassword) {
		t.Error("got an unclaimed account after a sign-in, want it claimed")
	}
}

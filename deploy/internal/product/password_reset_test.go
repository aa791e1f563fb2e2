package product_test

import (
	"bytes"
	"context"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/testkit"
	"github.com/ironplane/ironplane/testkit/mailbox"
)

const newPassword = "seven grey herons at dusk"

// withPanels runs the product with panels and a mailbox.
func withPanels(t *testing.T) (*product.Product, *testkit.Client, *mailbox.Server) {
	t.Helper()
	box := mailbox.Start(t, mailbox.Options{})
	p, c := producttest.StartWith(t, testkit.Redis(t), service.Settings{SMTP: "smtp+plain://" + box.Addr, MailFrom: "noreply@example.com",
		APIURL: "https://api.example.com", ClientURL: "https://panel.example.com/", AdminURL: "https://admin.example.com"})
	eventually(t, "identity knows where the panels are", func() bool {
		link := c.Do("GET", "/auth/sso", nil)
		return link.Status == 200
	})
	return p, c, box
}

// textOf is a mail's part of plain text.
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

// linksTo are the links in the mails to an address, as they came.
func linksTo(t *testing.T, box *mailbox.Server, address string) (links []string) {
	t.Helper()
	for _, m := range box.Mails() {
		if m.To[0] == address {
			links = append(links, mailedLink.FindAllString(textOf(t, m), -1)...)
		}
	}
	return links
}

// nextLink waits for the mail with one more link than there were.
func nextLink(t *testing.T, box *mailbox.Server, address string, before int) *url.URL {
	t.Helper()
	var links []string
	eventually(t, "a link is mailed to "+address, func() bool {
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
		t.Fatalf("the link is %s", link)
	}
	return values.Get("token")
}

// Who has forgotten his password chooses another one by a mailed link, once; what began before ends.
func TestPasswordReset(t *testing.T) {
	t.Parallel()
	p, c, box := withPanels(t)
	nobody := c.With("")
	for kind, panel := range map[string]string{"admin": "admin.example.com", "client": "panel.example.com"} {
		t.Run(kind, func(t *testing.T) {
			c, nobody := c.For(t), nobody.For(t)
			email := "one@" + kind + ".example.com"
			id := newPerson(t, c, kind, email)
			self := path("/%s/%d", kind, id)
			_, session := signIn(t, c, loginOf(kind, email, password))
			lasting := testkit.Decode[identity.APIKey](session.Do("POST", "/auth/key", `{"name": "lasting"}`).Want(200))

			ask := map[string]any{"type": kind, "email": strings.ToUpper(email)}
			if answer := nobody.Do("POST", "/auth/password-reset", ask).Want(200).Text; strings.TrimSpace(answer) != `{"user":{"email":"`+strings.ToUpper(email)+`"}}` {
				t.Errorf("a stranger is told %s", answer)
			}
			link := nextLink(t, box, email, 0)
			if link.Host != panel || !strings.HasPrefix(link.Path, "/auth/password-reset/") {
				t.Errorf("the link is %s", link)
			}
			for _, caller := range []*testkit.Client{c, session} {
				shown := testkit.Decode[identity.PasswordReset](caller.Do("POST", "/auth/password-reset", ask).Want(200)).User
				if shown.ID == nil || *shown.ID != id || shown.Name == nil || (shown.Username != nil) != (kind == "admin") {
					t.Errorf("who may read the account is told %+v", shown)
				}
			}
			second := nextLink(t, box, email, 2)

			at, token := link.Path, tokenOf(t, link)
			choose := func(token, password string) *testkit.Answer {
				return nobody.Do("PATCH", at, map[string]any{"token": token, "password": password})
			}
			choose(tokenOf(t, second), newPassword).WantErrors("/token", "wrong")
			choose(token, "short").WantErrors("/password", "too_short")
			choose(token, "passwordpassword").WantErrors("/password", "too_weak")
			choose(token, "").WantErrors("/password", "too_short")
			var done atomic.Int32
			var all sync.WaitGroup
			for range 32 {
				all.Go(func() {
					switch answer := choose(token, newPassword); answer.Status {
					case 200:
						done.Add(1)
					case 404:
					default:
						t.Errorf("answered %d: %s", answer.Status, answer.Text)
					}
				})
			}
			all.Wait()
			if done.Load() != 1 {
				t.Errorf("the link worked %d times", done.Load())
			}
			forgotten()
			session.Do("GET", self, nil).Want(401)
			c.With(lasting.Key).For(t).Do("GET", self, nil).Want(200)
			nobody.Do("POST", "/auth/key", loginOf(kind, email, password)).Want(401)
			signIn(t, c, loginOf(kind, email, newPassword))
			at = second.Path
			choose(tokenOf(t, second), password).Want(404) // it ended with the first
			eventually(t, "the account is told", func() bool {
				for _, m := range box.Mails() {
					if m.To[0] == email && strings.Contains(textOf(t, m), "all sessions ended") {
						return true
					}
				}
				return false
			})

			// With keys: all.
			before := len(linksTo(t, box, email))
			nobody.Do("POST", "/auth/password-reset", ask).Want(200)
			third := nextLink(t, box, email, before)
			nobody.Do("PATCH", third.Path, map[string]any{"token": tokenOf(t, third), "password": password, "keys": true}).Want(200)
			forgotten()
			c.With(lasting.Key).For(t).Do("GET", self, nil).Want(401)

			// A change of what one signs in with ends it, and so does disabling.
			for _, change := range []string{`{"password": "another long walk"}`, `{"disabled": true}`} {
				before := len(linksTo(t, box, email))
				nobody.Do("POST", "/auth/password-reset", ask).Want(200)
				link := nextLink(t, box, email, before)
				c.Do("PATCH", self, change).Want(200)
				nobody.Do("PATCH", link.Path, map[string]any{"token": tokenOf(t, link), "password": newPassword}).Want(404)
			}
		})
	}
	nobody.Do("POST", "/auth/password-reset", `{}`).WantErrors("/email", "required", "/type", "required")
	nobody.Do("POST", "/auth/password-reset", `{"email": "x@example.com", "type": "integration"}`).WantErrors("/type", "invalid")
	producttest.Drain(t, p)
	for kind, want := range map[string]int{"admin.password-reset.used": 2, "client.password-reset.used": 2, "client.edited": 2, "client.password-reset.asked": 4} {
		log := c.Do("GET", "/log?type="+kind, nil).Want(200)
		if items := testkit.Decode[[]struct{ ID int64 }](log); len(items) < want || strings.Contains(log.Text, newPassword) || strings.Contains(log.Text, "argon2") {
			t.Errorf("the log has of %s: %s", kind, log.Text)
		}
	}
}

// Whether anybody has a name, who asks for a reset is answered the same, after as many statements, hashes and jobs.
func TestResetTellsNothing(t *testing.T) { producttest.Together(t, testResetTellsNothing) }

func testResetTellsNothing(t *testing.T, p *product.Product, c *testkit.Client) {
	for _, kind := range []string{"admin", "client"} {
		newPerson(t, c, kind, "right@"+kind)
		newPerson(t, c, kind, "off@"+kind)
		off := newPerson(t, c, kind, "disabled@"+kind)
		c.Do("PATCH", path("/%s/%d", kind, off), `{"disabled": true}`).Want(200)
		c.Do("POST", "/"+kind, map[string]any{"email": "none@" + kind, "password": "", "first": "A", "last": "B"}).Want(200)
		var texts []string
		jobs := func() (n int) {
			t.Helper()
			if err := p.Databases[identity.Name].QueryRow(context.Background(), "SELECT count(*) FROM river_job WHERE kind = 'password-reset'").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		for _, name := range []string{"right", "disabled", "none", "unknown"} {
			before := jobs()
			answer := c.With("").Do("POST", "/auth/password-reset", map[string]any{"type": kind, "email": name + "@" + kind}, "X-Request-Id", "one").Want(200)
			texts = append(texts, strings.ReplaceAll(answer.Text, name, ""))
			if n := jobs() - before; n != 1 {
				t.Errorf("%s: %d jobs", name, n)
			}
		}
		for _, text := range texts {
			if text != texts[0] {
				t.Errorf("answered %s and %s", text, texts[0])
			}
		}
	}
}

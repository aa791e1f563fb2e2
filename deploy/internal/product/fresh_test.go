package product_test

import (
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/secondfactor"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// For ten minutes, a session may change how its account signs in. After that, or with another key, the change needs the
// password. With a second factor, it also needs a code that the same session confirmed.
func TestFreshAndStale(t *testing.T) { shared(t, testFreshAndStale) }

func testFreshAndStale(t *testing.T, p *product.Product, c *testkit.Client) {
	const first, second, third = password, newPassword, "nine blue kettles in a barn"
	for name, leaf := range map[string]string{"client": "", "admin": "{}", "lead": usersAdmins} {
		t.Run(name, func(t *testing.T) {
			c, kind := c.WithT(t), "admin"
			if leaf == "" {
				kind = "client"
			}
			email := name + "@example.com"
			self := path("/%s/%d", kind, newPerson(t, c, kind, email))
			if leaf != "" {
				c.Do("PATCH", self+"/permission", leaf).Want(200)
			}
			writesEmail := name != "admin"
			_, fresh := signIn(t, c, loginOf(kind, email, first))
			lasting := c.WithKey(testkit.Decode[keys.APIKey](fresh.Do("POST", "/auth/key", `{"name": "lasting"}`).Want(200)).Key)
			acting := lasting
			if kind == "client" {
				acting = c.WithKey(
					testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", map[string]any{"owner": map[string]any{"url": self}}).Want(200)).Key,
				)
			}
			for _, body := range []map[string]any{{"password": second}, {"password": second, "current_password": "who knows"}} {
				lasting.Do("PATCH", self, body).WantErrors("/current_password", "wrong")
			}
			if writesEmail {
				lasting.Do("PATCH", self, map[string]any{"email": "other-" + email}).WantErrors("/current_password", "wrong")
			}
			if kind == "client" {
				acting.Do("PATCH", self, map[string]any{"password": second, "current_password": first}).Want(403)
				acting.Do("PATCH", self, map[string]any{"email": "other-" + email, "current_password": first}).Want(403)
			}
			fresh.Do("PATCH", self, map[string]any{"password": second}).Want(200)
			if writesEmail {
				email = "new-" + email
				fresh.Do("PATCH", self, map[string]any{"email": email}).Want(200)
			}
			c.WithKey("").Do("POST", "/auth/key", loginOf(kind, email, first)).Want(401)

			// A session that is eleven minutes old is stale. Its renewal does not change that.
			key, stale := signIn(t, c, loginOf(kind, email, second))
			testkit.Execute(
				t,
				p.Databases[identity.Name],
				path("UPDATE api_key SET created_at = created_at - interval '11 minutes' WHERE id = %d", key.ID),
			)
			stale.Do("PATCH", self, map[string]any{"password": third}).WantErrors("/current_password", "wrong")
			stale = c.WithKey(testkit.Decode[keys.APIKey](stale.Do("POST", "/auth/key", `{}`).Want(200)).Key)
			if writesEmail {
				stale.Do("PATCH", self, map[string]any{"email": "other-" + email}).WantErrors("/current_password", "wrong")
				stale.Do("PATCH", self, map[string]any{"email": "other-" + email, "current_password": second}).Want(200)
				email = "other-" + email
			}
			stale.Do("PATCH", self, map[string]any{"password": third, "current_password": second}).Want(200)
			forgotten()
			fresh.Do("GET", self, nil).Want(401)
			_, fresh = signIn(t, c, loginOf(kind, email, third))

			// Only the session that requested a code can confirm it, whether that session is fresh or not.
			app, _ := secondfactor.NewVerifiedApp(t, p.Databases[identity.Name], fresh)
			_, other := secondfactor.BeginLogin(t, c, loginOf(kind, email, third)).Complete(t, c, app.Code())
			testkit.Execute(t, p.Databases[identity.Name], "UPDATE verify_code SET confirmed_at = confirmed_at - interval '11 minutes'")
			opened := path("%s/code/%d", app.Path(), fresh.Do("POST", app.Path()+"/code", `{}`).Want(200).ID())
			for _, caller := range []*testkit.Client{other, lasting, stale} {
				caller.Do("GET", opened, nil).Want(404)
				caller.Do("PATCH", opened, map[string]any{"token": app.Code()}).Want(404)
			}
			removeFactors := func(c *testkit.Client) (responses []*testkit.Response) {
				if kind == "client" {
					responses = append(responses, c.Do("PATCH", self, `{"verify": {"require": false}}`))
				}
				return append(responses, c.Do("DELETE", app.Path(), nil))
			}
			if kind == "client" {
				stale.Do("PATCH", self, `{"verify": {"require": true}}`).Want(200)
			}
			for _, caller := range []*testkit.Client{fresh, other, lasting, stale} { // none has confirmed a code recently
				for _, response := range removeFactors(caller) {
					response.Want(403)
				}
			}
			fresh.Do("PATCH", opened, map[string]any{"token": app.Code()}).Want(200)
			for _, caller := range []*testkit.Client{other, lasting, stale} {
				for _, response := range removeFactors(caller) {
					response.Want(403)
				}
			}
			for _, response := range removeFactors(fresh) {
				response.Want(200)
			}
			signIn(t, c, loginOf(kind, email, third))
		})
	}
}

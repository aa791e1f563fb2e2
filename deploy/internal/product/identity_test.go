package product_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/identity/keys"
)

func path(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func TestAdmin(t *testing.T) { producttest.Together(t, testAdmin) }

func testAdmin(t *testing.T, p *product.Product, c *testkit.Client) {
	anna := testkit.Decode[admin.Admin](
		c.Do("POST", "/admin", `{"email": "Anna@example.com", "password": "a long walk home", "receive_copies": true}`).Want(200),
	)
	if anna.Username != "Anna" || anna.Name != "Anna" || anna.Email != "Anna@example.com" || !anna.ReceiveCopies ||
		time.Since(anna.CreatedAt.Time) > time.Hour {
		t.Fatalf("made %+v", anna)
	}
	if second := testkit.Decode[admin.Admin](
		c.Do("POST", "/admin", `{"email": "anna@example.net", "password": ""}`).Want(200),
	); second.Username != "anna2" {
		t.Fatalf("made %+v", second)
	}
	for _, filter := range []string{"email=ANNA@example.COM", "username=anna", "username=ANNA&email=anna@example.com"} {
		if found := testkit.Decode[[]admin.Admin](c.Do("GET", "/admin?"+filter, nil).Want(200)); len(found) != 1 || found[0].ID != anna.ID {
			t.Errorf("%s found %+v", filter, found)
		}
	}
	c.Do("POST", "/admin", `{"email": "anna@EXAMPLE.com", "password": ""}`).WantErrors("/email", "taken")
	c.Do("POST", "/admin", `{"email": "x@example.com", "username": "ANNA", "password": ""}`).WantErrors("/username", "taken")
	c.Do("POST", "/admin", `{}`).WantErrors("/email", "required", "/password", "required")
	c.Do("POST", "/admin", `{"email": "Anna <a@example.com>", "username": "a b", "password": "short"}`).
		WantErrors("/email", "invalid", "/password", "too_short", "/username", "invalid")
	c.Do("POST", "/admin", map[string]any{"email": "x@example.com", "password": strings.Repeat("é", 513)}).WantErrors("/password", "too_long")

	var hash string
	stored := func() string {
		if err := p.Databases[identity.Name].QueryRow(t.Context(), "SELECT password_hash FROM admin WHERE id = $1", anna.ID).
			Scan(&hash); err != nil {
			t.Fatal(err)
		}
		return hash
	}
	before := stored()
	if !strings.HasPrefix(before, "$argon2id$v=19$m=") {
		t.Fatalf("the password is stored as %q", before)
	}
	edited := testkit.Decode[admin.Admin](c.Do("PATCH", path("/admin/%d", anna.ID), `{"password": "", "receive_copies": false}`).Want(200))
	if edited.ReceiveCopies || edited.Email != "Anna@example.com" || stored() != before {
		t.Fatalf("edited %+v", edited)
	}
	c.Do("PATCH", path("/admin/%d", anna.ID), `{"username": ""}`).WantErrors("/username", "required")
	c.Do("PATCH", path("/admin/%d", anna.ID), `{"password": "another long walk"}`).Want(200)
	if stored() == before {
		t.Fatal("the password did not change")
	}
	if list := testkit.Decode[[]admin.Admin](
		c.Do("GET", "/admin", nil).Want(200),
	); len(list) != 3 || list[0].Username != "admin" ||
		list[1] != edited {
		t.Fatalf("listed %+v", list)
	}
	c.Do("DELETE", path("/admin/%d", anna.ID), nil).Want(200)
	c.Do("GET", path("/admin/%d", anna.ID), nil).Want(404)
}

// A new password is hard to guess, also for who knows whose it is, and the answer says what is wrong without repeating it.
func TestWeakPasswords(t *testing.T) { producttest.Together(t, testWeakPasswords) }

func testWeakPasswords(t *testing.T, _ *product.Product, c *testkit.Client) {
	weak := func(r *testkit.Answer, password, says string) {
		t.Helper()
		r.WantErrors("/password", "too_weak")
		if text := r.Text; !strings.Contains(text, says) || !strings.Contains(text, "of 4, and has to score 3") ||
			strings.Contains(text, password) {
			t.Errorf("%q: %s", password, text)
		}
	}
	for password, says := range map[string]string{
		"administrator": "common word", "Contortionist": "common", "111111111111": "repeats itself", "ääääääääääää": "repeats itself", "passwordpassword": "repeats itself",
		"qwertyuiop12": "many have", "ertyuiopoiuy": "keyboard", "bcdefghijklm": "sequence", "P@ssw0rd1234": "many have", "ironplane2026": "installation",
		"zq12.05.1998": "date", "Schottenstein-1": "account", "niethcsam262": "account", "hosters99999": "account",
	} {
		weak(
			c.Do("POST", "/admin", map[string]any{"email": "schottenstein@hosters.example.com", "username": "maschtein", "password": password}),
			password,
			says,
		)
	}
	made := testkit.Decode[admin.Admin](
		c.Do("POST", "/admin", `{"email": "schottenstein@hosters.example.com", "password": "xK9#vTq2LpW8"}`).Want(200),
	)
	weak(c.Do("PATCH", path("/admin/%d", made.ID), `{"password": "Schottenstein-1"}`), "Schottenstein-1", "account")
	for _, password := range []string{"a long walk home", "correct horse battery staple", "wurst käse brot ü", "4f1c9a7e03b2d85c6f7a", strings.Repeat("a long walk in the rain ", 40)} {
		c.Do("PATCH", path("/admin/%d", made.ID), map[string]any{"password": password}).Want(200)
	}
	none, key := newAdmin(t, c, "none", `{}`)
	weak(c.Do("PATCH", path("/admin/%d", none), `{"password": "administrator"}`), "administrator", "common word")
	key.Do("PATCH", path("/admin/%d", none), `{"password": "administrator"}`).WantErrors("/current_password", "wrong")
}

func TestOwnPassword(t *testing.T) { both(t, testOwnPassword) }

func testOwnPassword(t *testing.T, _ *product.Product, c *testkit.Client) {
	id, own := newAdmin(t, c, "bob", `{}`)
	c.Do("PATCH", path("/admin/%d", id), `{"password": "a long walk home"}`).Want(200)
	self := path("/admin/%d", id)

	read := own.Do("GET", self, nil).Want(200)
	if back := own.Do("PATCH", self, read.Text).Want(200); back.Text != read.Text || back.Header.Get("ETag") != read.Header.Get("ETag") {
		t.Errorf("what was read and sent back makes %s", back.Text)
	}
	own.Do("GET", self+"/permission", nil).Want(200)
	own.Do("GET", "/admin/1", nil).WantDetail(problem.Forbidden, "The key lacks users.admins read.")
	own.Do("PATCH", "/admin/1", `{"password": "x"}`).WantDetail(problem.Forbidden, "The key lacks users.admins write.")
	own.Do("PATCH", self+"/permission", `{}`).WantDetail(problem.Forbidden, "The key lacks users.admins write.")
	own.Do("PATCH", self, `{"password": "a longer walk home"}`).WantErrors("/current_password", "wrong")
	own.Do("PATCH", self, `{"password": "a longer walk home", "current_password": "a long walk"}`).WantErrors("/current_password", "wrong")
	own.Do("PATCH", self, `{"email": "new@example.com", "current_password": "a long walk home"}`).Want(403)
	own.Do("PATCH", self, `{"password": "a longer walk home", "current_password": "a long walk home"}`).Want(200)
	own.Do("PATCH", self, `{"password": "a longer walk home", "current_password": "a long walk home"}`).
		WantErrors("/current_password", "wrong")
	own.Do("DELETE", self, nil).WantDetail(problem.Forbidden, "The key lacks users.admins write.")

	// Who may set it anyway need not know it, and what he sends of it means nothing.
	c.Do("PATCH", self, `{"password": "a walk by night", "current_password": "who knows"}`).Want(200)
	// Of several who know it at the same time, one changes it.
	var changed atomic.Int32
	var changing sync.WaitGroup
	for n := range 4 {
		changing.Go(func() {
			if own.Do("PATCH", self, fmt.Sprintf(`{"password": "a walk by night %d", "current_password": "a walk by night"}`, n)).Status == 200 {
				changed.Add(1)
			}
		})
	}
	changing.Wait()
	if n := changed.Load(); n != 1 {
		t.Errorf("%d changed the same password", n)
	}
}

const usersAdmins = `{"users": {"admins": {"read": true, "write": true}}}`

func TestNobodyLiftsHimself(t *testing.T) { both(t, testNobodyLiftsHimself) }

func testNobodyLiftsHimself(t *testing.T, _ *product.Product, c *testkit.Client) {
	few, fewKey := newAdmin(t, c, "few", `{"users": {"admins": {"read": true, "write": true}}, "network": {"groups": {"read": true}}}`)
	more, moreKey := newAdmin(t, c, "more", `{"network": {"groups": {"read": true, "write": true}}}`)
	less, _ := newAdmin(t, c, "less", `{"network": {"groups": {"read": true}}}`)

	lacks := "The account holds what the key lacks: network.groups write."
	fewKey.Do("PATCH", path("/admin/%d", more), `{"email": "mine@example.com"}`).WantDetail(problem.Forbidden, lacks)
	fewKey.Do("PATCH", path("/admin/%d", more), `{"password": "granite sparrow quiver"}`).WantDetail(problem.Forbidden, lacks)
	fewKey.Do("PATCH", path("/admin/%d/permission", more), `{"network": {"groups": {"write": false}}}`).WantDetail(problem.Forbidden, lacks)
	fewKey.Do("DELETE", path("/admin/%d", more), nil).WantDetail(problem.Forbidden, lacks)
	fewKey.Do("POST", "/auth/key", map[string]any{"name": "x", "owner": map[string]any{"url": path("/admin/%d", more)}}).
		WantDetail(problem.Forbidden, lacks)
	fewKey.Do("POST", "/auth/key", map[string]any{"name": "x", "owner": map[string]any{"url": "/admin", "id": more}}).
		WantDetail(problem.Forbidden, lacks)
	key := testkit.Decode[keys.APIKey](moreKey.Do("GET", "/auth/key/current", nil).Want(200)).ID
	fewKey.Do("GET", path("/auth/key/%d", key), nil).Want(200)
	fewKey.Do("PATCH", path("/auth/key/%d", key), `{"name": "x"}`).WantDetail(problem.Forbidden, lacks)
	fewKey.Do("DELETE", path("/auth/key/%d", key), nil).WantDetail(problem.Forbidden, lacks)
	own := testkit.Decode[keys.APIKey](fewKey.Do("GET", "/auth/key/current", nil).Want(200)).ID
	fewKey.Do("PATCH", path("/auth/key/%d", own), map[string]any{"name": "x", "owner": map[string]any{"url": path("/admin/%d", more)}}).
		WantDetail(problem.Forbidden, lacks)

	grants := "The set grants what the key lacks: network.groups write, system.logs read."
	grant := `{"network": {"groups": {"write": true}}, "system": {"logs": {"read": true}}}`
	fewKey.Do("PATCH", path("/admin/%d/permission", few), grant).WantDetail(problem.Forbidden, grants)
	fewKey.Do("PATCH", path("/admin/%d/permission", less), grant).WantDetail(problem.Forbidden, grants)
	fewKey.Do("PATCH", path("/admin/%d/permission", less), usersAdmins).Want(200)
	set := testkit.Decode[principal.PermissionSet](fewKey.Do("GET", path("/admin/%d/permission", less), nil).Want(200))
	if !set.Users.Admins.Write || !set.Network.Groups.Read || set.Network.Groups.Write {
		t.Fatalf("%+v", set)
	}
}

func TestLastAdmin(t *testing.T) { producttest.Together(t, testLastAdmin) }

func testLastAdmin(t *testing.T, _ *product.Product, c *testkit.Client) {
	last := "Admin 1 is the last one who holds users.admins write."
	c.Do("DELETE", "/admin/1", nil).WantDetail(problem.Conflict, last)
	c.Do("PATCH", "/admin/1/permission", `{"users": {"admins": {"write": false}}}`).WantErrors("/users/admins/write", "last_admin")

	// Two who strip or delete each other at the same time: one stays.
	id, holder := newAdmin(t, c, "holder", usersAdmins)
	c.Do("PATCH", "/admin/1/permission", `{"users": {"admins": {"write": false}}}`).Want(200)
	for round := range 10 {
		otherID, other := newAdmin(t, holder, fmt.Sprint("other", round), usersAdmins)
		var deleted, stripped *testkit.Answer
		var both sync.WaitGroup
		both.Go(func() { deleted = holder.Do("DELETE", path("/admin/%d", otherID), nil) })
		both.Go(func() {
			stripped = other.Do("PATCH", path("/admin/%d/permission", id), `{"users": {"admins": {"write": false}}}`)
		})
		both.Wait()
		switch {
		case deleted.Status == 200 && stripped.Status != 200:
		case deleted.Status != 200 && stripped.Status == 200:
			id, holder = otherID, other
		default:
			t.Fatalf("deleted: %d %s; stripped: %d %s", deleted.Status, deleted.Text, stripped.Status, stripped.Text)
		}
	}
}

// Accounts and their keys change at the same time, without anybody waiting in a circle.
func TestAccountsChangeAtOnce(t *testing.T) { producttest.Together(t, testAccountsChangeAtOnce) }

func testAccountsChangeAtOnce(t *testing.T, p *product.Product, c *testkit.Client) {
	id, _ := newAdmin(t, c, "busy", `{}`)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10 {
				c.Do("PATCH", path("/admin/%d", id), `{"receive_copies": true}`).Want(200)
				c.Do("PATCH", path("/admin/%d/permission", id), `{"system": {"logs": {"read": true}}}`).Want(200)
			}
		})
		all.Go(func() {
			for range 10 {
				key := c.Do("POST", "/auth/key", map[string]any{"name": "x", "owner": map[string]any{"url": path("/admin/%d", id)}}).Want(200).ID()
				c.Do("PATCH", path("/auth/key/%d", key), map[string]any{"name": "y", "owner": map[string]any{"url": "/admin/1"}}).Want(200)
				c.Do("DELETE", path("/auth/key/%d", key), nil).Want(200)
			}
		})
	}
	all.Wait()
	var deadlocks int
	err := p.Databases[identity.Name].QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").
		Scan(&deadlocks)
	if err != nil || deadlocks > 0 {
		t.Errorf("%d deadlocks, %v", deadlocks, err)
	}
}

func TestAPIKey(t *testing.T) { both(t, testAPIKey) }

func testAPIKey(t *testing.T, p *product.Product, c *testkit.Client) {
	made := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "billing"}`).Want(200))
	if apikey.FormatOf(made.Key) != apikey.Issued || made.Owner.URL != "/admin/1" || *made.Owner.Name != "admin" || made.ExpiresAt != nil {
		t.Fatalf("made %+v", made)
	}
	var hash []byte
	if err := p.Databases[identity.Name].QueryRow(t.Context(), "SELECT hash FROM api_key WHERE id = $1", made.ID).Scan(&hash); err != nil {
		t.Fatal(err)
	}
	if want := apikey.Hash(made.Key); string(hash) != string(want[:]) {
		t.Fatal("the key is not stored as its hash")
	}
	for _, answer := range []*testkit.Answer{c.Do("GET", path("/auth/key/%d", made.ID), nil), c.Do("GET", "/auth/key", nil),
		c.Do("PATCH", path("/auth/key/%d", made.ID), `{"name": "renamed"}`)} {
		if strings.Contains(answer.Want(200).Text, made.Key) || strings.Contains(answer.Text, `"key"`) {
			t.Fatalf("the key is shown again: %s", answer.Text)
		}
	}
	if current := testkit.Decode[keys.APIKey](c.With(made.Key).Do("GET", "/auth/key/current", nil).Want(200)); current.Name != "renamed" {
		t.Fatalf("current %+v", current)
	}

	c.Do("POST", "/auth/key", `{}`).WantErrors("/name", "required")
	c.Do("PATCH", path("/auth/key/%d", made.ID), `{}`).WantErrors("/name", "required")
	c.Do("POST", "/auth/key", `{"name": "x", "key": "short", "owner": {"url": "/server/3"}, "expires_at": {"iso_8601": "2020-01-01T00:00:00Z", "unix": 1577836800}}`).
		WantErrors("/expires_at", "out_of_range", "/key", "too_short", "/owner/url", "invalid")
	c.Do("POST", "/auth/key", `{"name": "x", "expires_at": {"iso_8601": "2030-01-01T00:00:00Z", "unix": 1}}`).
		WantErrors("/expires_at", "disagrees")
	c.Do("POST", "/auth/key", `{"name": "x", "expires_at": {"unix": "soon"}}`).WantErrors("/expires_at", "type")
	c.Do("POST", "/auth/key", `{"name": "x", "owner": {"url": "/admin/99"}}`).WantErrors("/owner/url", "not_found")
	c.Do("POST", "/auth/key", `{"name": "x", "owner": {"url": "/admin/3", "id": 4}}`).WantErrors("/owner/id", "disagrees")
	for owner, wrong := range map[string][]string{`"owner": {"type": "admin", "id": 1}`: nil, `"owner_type": "admin", "owner_id": "1"`: nil, `"type": "admin", "owner_id": 1, "owner": {"url": "/admin/1"}`: nil,
		`"owner_type": "server", "owner_id": 1`:          {"/owner_type", "invalid"},
		`"type": "client", "owner": {"url": "/admin/1"}`: {"/type", "disagrees"},
		`"owner_id": 1`: {"/owner/url", "invalid"}} {
		answer := c.Do("POST", "/auth/key", `{"name": "x", `+owner+`}`)
		if wrong != nil {
			answer.WantErrors(wrong...)
		} else if key := testkit.Decode[keys.APIKey](answer.Want(200)); key.Owner.URL != "/admin/1" {
			t.Errorf("%s: %+v", owner, key)
		}
	}
	whole := c.Do("GET", path("/auth/key/%d", made.ID), nil).Want(200)
	for _, same := range []string{`"owner_type": "admin", "owner_id": 1`, `"owner_id": 1`, `"owner": {"url": "/admin", "id": 1}`} {
		if back := c.Do("PATCH", path("/auth/key/%d", made.ID), `{"name": "renamed", `+same+`}`).
			Want(200); back.Header.Get(
			"ETag",
		) != whole.Header.Get(
			"ETag",
		) {
			t.Errorf("%s changes the key's version", same)
		}
	}
	c.Do("POST", "/auth/key", map[string]any{"name": "x", "key": made.Key[:len(made.Key)-1] + "!"}).WantErrors("/key", "checksum")
	c.Do("POST", "/auth/key", map[string]any{"name": "x", "key": made.Key}).WantErrors("/key", "taken")

	c.Do("DELETE", path("/auth/key/%d", made.ID), nil).Want(200)
	time.Sleep(100 * time.Millisecond)
	c.With(made.Key).Do("GET", "/auth/key/current", nil).Want(401)
}

// A list has the keys that its caller may know of, and no other.
func TestKeysListed(t *testing.T) { producttest.Together(t, testKeysListed) }

func testKeysListed(t *testing.T, _ *product.Product, c *testkit.Client) {
	_, nobody := newAdmin(t, c, "nobody", `{}`)
	_, reader := newAdmin(t, c, "reader", `{"users": {"admins": {"read": true}}}`)
	for caller, want := range map[*testkit.Client][]string{c: {"/admin/1", "/admin/2", "/admin/3"}, reader: {"/admin/1", "/admin/2", "/admin/3"}, nobody: {"/admin/2"}} {
		var got []string
		for _, key := range testkit.Decode[[]keys.APIKey](caller.Do("GET", "/auth/key", nil).Want(200)) {
			got = append(got, key.Owner.URL)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the keys of %v are listed, want %v", got, want)
		}
		if found := testkit.Decode[[]keys.APIKey](caller.Do("GET", "/auth/key?owner=/admin/2&sort=-name", nil).Want(200)); len(found) != 1 {
			t.Errorf("found %+v", found)
		}
	}
}

func TestImportedKey(t *testing.T) { producttest.Together(t, testImportedKey) }

func testImportedKey(t *testing.T, _ *product.Product, c *testkit.Client) {
	const value = "a-key-that-another-panel-made-0001"
	c.With(value).Do("GET", "/auth/key/current", nil).Want(401)

	made := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", map[string]any{"name": "old", "key": value}).Want(200))
	if made.Key != value {
		t.Fatalf("made %+v", made)
	}
	time.Sleep(100 * time.Millisecond)
	c.With(value).Do("GET", "/auth/key/current", nil).Want(200)

	_, few := newAdmin(t, c, "few", `{}`)
	few.Do("POST", "/auth/key", map[string]any{"name": "x", "key": value + "x"}).Want(403)
	mine := testkit.Decode[keys.APIKey](few.Do("GET", "/auth/key/current", nil)).ID
	few.Do("PATCH", path("/auth/key/%d", mine), map[string]any{"name": "x", "key": value + "x"}).Want(403)

	const next = "a-key-that-another-panel-made-0002"
	c.With(next).Do("GET", "/auth/key/current", nil).Want(401)
	if edited := testkit.Decode[keys.APIKey](
		c.Do("PATCH", path("/auth/key/%d", made.ID), map[string]any{"name": "old", "key": next}).Want(200),
	); edited.Key != next {
		t.Fatalf("edited %+v", edited)
	}
	time.Sleep(100 * time.Millisecond)
	c.With(value).Do("GET", "/auth/key/current", nil).Want(401)
	c.With(next).Do("GET", "/auth/key/current", nil).Want(200)
}

// soonExpiring makes a key that expires as soon as there was time to make it, and answers when.
func soonExpiring(c *testkit.Client, body map[string]any, headers ...string) (at time.Time, made *testkit.Answer) {
	for life := 2 * time.Second; ; life *= 2 {
		at = time.Now().Add(life)
		body["expires_at"] = rest.Timestamp{Time: at}
		made = c.Do("POST", "/auth/key", body, headers...)
		if made.Status == 200 || life > time.Minute {
			return at, made.Want(200)
		}
		made.WantErrors("/expires_at", "out_of_range") // it took longer than that
	}
}

func TestKeyExpires(t *testing.T) { both(t, testKeyExpires) }

func testKeyExpires(t *testing.T, _ *product.Product, c *testkit.Client) {
	_, made := soonExpiring(c, map[string]any{"name": "brief"})
	key := testkit.Decode[keys.APIKey](made)
	brief := c.With(key.Key)
	if answer := brief.Do("GET", "/auth/key/current", nil); answer.Status != 200 && time.Now().Before(key.ExpiresAt.Time) {
		t.Fatalf("answered %d before the key's end", answer.Status)
	}
	time.Sleep(time.Until(key.ExpiresAt.Time))
	brief.Do("GET", "/auth/key/current", nil).Want(401)
}

// What is revoked stays revoked, and what is granted works: a moment after the answer.
func TestRevocation(t *testing.T) { both(t, testRevocation) }

func testRevocation(t *testing.T, _ *product.Product, c *testkit.Client) {
	id, own := newAdmin(t, c, "eve", `{"network": {"switches": {"read": true}}}`)
	own.Do("GET", "/port-speed", nil).Want(200)
	own.Do("GET", "/group", nil).Want(403)

	c.Do("PATCH", path("/admin/%d/permission", id), `{"network": {"switches": {"read": false}, "groups": {"read": true}}}`).Want(200)
	time.Sleep(100 * time.Millisecond)
	own.Do("GET", "/port-speed", nil).Want(403)
	own.Do("GET", "/group", nil).Want(200)

	c.Do("DELETE", path("/admin/%d", id), nil).Want(200)
	time.Sleep(100 * time.Millisecond)
	own.Do("GET", "/group", nil).Want(401)
}

func TestBrowserDetails(t *testing.T) { both(t, testBrowserDetails) }

func testBrowserDetails(t *testing.T, _ *product.Product, c *testkit.Client) {
	if got := c.With("").Do("GET", "/browser-details", nil, "X-Forwarded-For", "192.0.2.1").Want(200).Text; got != `{"ip":"127.0.0.1"}`+"\n" {
		t.Fatal(got)
	}
}

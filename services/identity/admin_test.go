package identity_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/identity/keys"
)

func TestAdmin(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	anna := testkit.Decode[admin.Admin](
		c.Do("POST", "/admin", `{"email": "Anna@example.com", "password": "a long walk home", "receive_copies": true}`).Want(200),
	)
	if anna.Username != "Anna" || anna.Name != "Anna" || anna.Email != "Anna@example.com" || !anna.ReceiveCopies ||
		time.Since(anna.CreatedAt.Time) > time.Hour {
		t.Fatalf("got %+v, want the admin Anna, created just now", anna)
	}
	if second := testkit.Decode[admin.Admin](
		c.Do("POST", "/admin", `{"email": "anna@example.net", "password": ""}`).Want(200),
	); second.Username != "anna2" {
		t.Fatalf("got %+v, want the username anna2", second)
	}
	for _, filter := range []string{"email=ANNA@example.COM", "username=anna", "username=ANNA&email=anna@example.com"} {
		if found := testkit.Decode[[]admin.Admin](c.Do("GET", "/admin?"+filter, nil).Want(200)); len(found) != 1 || found[0].ID != anna.ID {
			t.Errorf("%s: got %+v, want only admin %d", filter, found, anna.ID)
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
		if err := s.DB.QueryRow(t.Context(), "SELECT password_hash FROM admin WHERE id = $1", anna.ID).
			Scan(&hash); err != nil {
			t.Fatal(err)
		}
		return hash
	}
	before := stored()
	if !strings.HasPrefix(before, "$argon2id$v=19$m=") {
		t.Fatalf("got the stored password %q, want an argon2id hash", before)
	}
	edited := testkit.Decode[admin.Admin](c.Do("PATCH", path("/admin/%d", anna.ID), `{"password": "", "receive_copies": false}`).Want(200))
	if edited.ReceiveCopies || edited.Email != "Anna@example.com" || stored() != before {
		t.Fatalf("got %+v, want no copies, the same address and the same password", edited)
	}
	c.Do("PATCH", path("/admin/%d", anna.ID), `{"username": ""}`).WantErrors("/username", "required")
	c.Do("PATCH", path("/admin/%d", anna.ID), `{"password": "another long walk"}`).Want(200)
	if stored() == before {
		t.Fatal("got the hash of the old password, want a new hash")
	}
	if list := testkit.Decode[[]admin.Admin](
		c.Do("GET", "/admin", nil).Want(200),
	); len(list) != 3 || list[0].Username != "admin" ||
		list[1] != edited {
		t.Fatalf("got the list %+v, want admin first, then %+v, and three in all", list, edited)
	}
	c.Do("DELETE", path("/admin/%d", anna.ID), nil).Want(200)
	c.Do("GET", path("/admin/%d", anna.ID), nil).Want(404)
}

// A new password must be hard to guess, also for people who know the account. The error says what is wrong without repeating the
// password.
func TestWeakPasswords(t *testing.T) {
	t.Parallel()
	_, c := newFixture(t)
	weak := func(r *testkit.Response, password, says string) {
		t.Helper()
		r.WantErrors("/password", "too_weak")
		if text := r.Text; !strings.Contains(text, says) || !strings.Contains(text, "Use a few uncommon words with spaces between them") ||
			strings.Contains(text, password) {
			t.Errorf("%q: got %s, want %q and the way out, without the password", password, text, says)
		}
	}
	for password, says := range map[string]string{
		"administrator": "common word", "Contortionist": "common", "111111111111": "repeats itself",
		"ääääääääääää": "repeats itself", "passwordpassword": "repeats itself",
		"qwertyuiop12": "common password", "ertyuiopoiuy": "keyboard", "bcdefghijklm": "sequence", "P@ssw0rd1234": "common password",
		"ironplane2026": "installation",
		"Winter2025!!":  "one word", "Bundesliga2026": "one word", "correcthorsebatterystaple": "well-known example",
		"zq12.05.1998": "date", "Schottenstein-1": "account", "niethcsam262": "account", "hosters99999": "account",
	} {
		weak(
			c.Do("POST", "/admin", map[string]any{"email": "schottenstein@hosters.example.com", "username": "maschtein", "password": password}),
			password,
			says,
		)
	}
	created := testkit.Decode[admin.Admin](
		c.Do("POST", "/admin", `{"email": "schottenstein@hosters.example.com", "password": "xK9#vTq2LpW8"}`).Want(200),
	)
	weak(c.Do("PATCH", path("/admin/%d", created.ID), `{"password": "Schottenstein-1"}`), "Schottenstein-1", "account")
	for _, password := range []string{
		"a long walk home", "granite sparrow quiver", "wurst käse brot ü", "4f1c9a7e03b2d85c6f7a",
		strings.Repeat("a long walk in the rain ", 40),
	} {
		c.Do("PATCH", path("/admin/%d", created.ID), map[string]any{"password": password}).Want(200)
	}
	none, key := newAdmin(t, c, "none", `{}`)
	weak(c.Do("PATCH", path("/admin/%d", none), `{"password": "administrator"}`), "administrator", "common word")
	key.Do("PATCH", path("/admin/%d", none), `{"password": "administrator"}`).WantErrors("/current_password", "wrong")
}

func TestOwnPassword(t *testing.T) {
	t.Parallel()
	_, c := newFixture(t)
	id, own := newAdmin(t, c, "bob", `{}`)
	c.Do("PATCH", path("/admin/%d", id), `{"password": "a long walk home"}`).Want(200)
	self := path("/admin/%d", id)

	read := own.Do("GET", self, nil).Want(200)
	if back := own.Do("PATCH", self, read.Text).Want(200); back.Text != read.Text || back.Header.Get("ETag") != read.Header.Get("ETag") {
		t.Errorf("after an edit without changes: got %s, want %s with the same ETag", back.Text, read.Text)
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

	// An admin that may write the account need not know its password: what it sends as current_password is ignored.
	c.Do("PATCH", self, `{"password": "a walk by night", "current_password": "a guess"}`).Want(200)
	// Of several concurrent changes with the same current password, one succeeds.
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
		t.Errorf("changes of the same password: got %d accepted, want 1", n)
	}
}

const usersAdmins = `{"users": {"admins": {"read": true, "write": true}}}`

func TestNoPrivilegeEscalation(t *testing.T) {
	t.Parallel()
	_, c := newFixture(t)
	few, fewKey := newAdmin(t, c, "few", `{"users": {"admins": {"read": true, "write": true}}, "network": {"groups": {"read": true}}}`)
	more, moreKey := newAdmin(t, c, "more", `{"network": {"groups": {"read": true, "write": true}}}`)
	less, _ := newAdmin(t, c, "less", `{"network": {"groups": {"read": true}}}`)

	lacks := "The account holds permissions that the key lacks: network.groups write."
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

	grants := "The set grants permissions that the key lacks: network.groups write, system.logs read."
	grant := `{"network": {"groups": {"write": true}}, "system": {"logs": {"read": true}}}`
	fewKey.Do("PATCH", path("/admin/%d/permission", few), grant).WantDetail(problem.Forbidden, grants)
	fewKey.Do("PATCH", path("/admin/%d/permission", less), grant).WantDetail(problem.Forbidden, grants)
	fewKey.Do("PATCH", path("/admin/%d/permission", less), usersAdmins).Want(200)
	set := testkit.Decode[principal.PermissionSet](fewKey.Do("GET", path("/admin/%d/permission", less), nil).Want(200))
	if !set.Users.Admins.Write || !set.Network.Groups.Read || set.Network.Groups.Write {
		t.Fatalf("got %+v, want users.admins write and network.groups read, not network.groups write", set)
	}
}

func TestLastAdmin(t *testing.T) {
	t.Parallel()
	_, c := newFixture(t)
	last := "Admin 1 is the last one with users.admins write."
	c.Do("DELETE", "/admin/1", nil).WantDetail(problem.Conflict, last)
	c.Do("PATCH", "/admin/1/permission", `{"users": {"admins": {"write": false}}}`).WantErrors("/users/admins/write", "last_admin")

	// Two admins delete and strip each other at the same time: one of them stays.
	id, holder := newAdmin(t, c, "holder", usersAdmins)
	c.Do("PATCH", "/admin/1/permission", `{"users": {"admins": {"write": false}}}`).Want(200)
	for round := range 10 {
		otherID, other := newAdmin(t, holder, fmt.Sprint("other", round), usersAdmins)
		var deleted, stripped *testkit.Response
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
			t.Fatalf("got delete %d %s and strip %d %s, want only one to succeed",
				deleted.Status, deleted.Text, stripped.Status, stripped.Text)
		}
	}
}

// Concurrent changes of accounts and keys cause no deadlock.
func TestAccountsChangeAtOnce(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
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
	err := s.DB.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").
		Scan(&deadlocks)
	if err != nil || deadlocks > 0 {
		t.Errorf("got %d deadlocks and the error %v, want none", deadlocks, err)
	}
}

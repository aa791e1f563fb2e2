package identity_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/identity/keys"
)

const disable, enable = `{"disabled": true}`, `{"disabled": false}`

// A disabled admin is refused like a deleted one, and nothing else changes: the same keys work again once it is enabled.
func TestDisabled(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	id, own := newAdmin(t, c, "eve", `{"network": {"groups": {"read": true}}}`)
	account := path("/admin/%d", id)
	read := own.Do("GET", account, nil).Want(200)
	if !strings.Contains(read.Text, `"disabled":false`) {
		t.Errorf(`got %s, want "disabled":false for an account that is not disabled`, read.Text)
	}
	for range 2 {
		own.Do("GET", "/-/holds/network.groups", nil).Want(200)
		c.Do("PATCH", account, disable).Want(200)
		own.Do("GET", "/-/holds/network.groups", nil).Want(401)
		if found := testkit.Decode[[]admin.Admin](
			c.Do("GET", "/admin?disabled=true", nil).Want(200),
		); len(found) != 1 || found[0].ID != id ||
			!found[0].Disabled {
			t.Errorf("got the disabled accounts %+v, want only account %d", found, id)
		}
		c.Do("PATCH", account, enable).Want(200)
		own.Do("GET", "/-/holds/network.groups", nil).Want(200)
	}
	if found := testkit.Decode[[]admin.Admin](c.Do("GET", "/admin?disabled=1", nil).Want(200)); len(found) != 0 {
		t.Errorf("got the disabled accounts %+v, want none", found)
	}

	// An admin can be created disabled, and keys for it that work later.
	other := testkit.Decode[admin.Admin](
		c.Do("POST", "/admin", `{"email": "later@example.com", "password": "", "disabled": true}`).Want(200),
	)
	key := testkit.Decode[keys.APIKey](
		c.Do("POST", "/auth/key", map[string]any{"name": "later", "owner": map[string]any{"url": path("/admin/%d", other.ID)}}).Want(200),
	)
	c.WithKey(key.Key).Do("GET", "/auth/key/current", nil).Want(401)
	c.Do("PATCH", path("/admin/%d", other.ID), enable).Want(200)
	c.WithKey(key.Key).Do("GET", "/auth/key/current", nil).Want(200)

	if got := s.countRecords("admin.edited"); got != 5 {
		t.Errorf("records of admin.edited: got %d, want 5", got)
	}
}

// Only a caller that may write to an account can disable it.
func TestWritersDisable(t *testing.T) {
	t.Parallel()
	_, c := newFixture(t)
	_, few := newAdmin(t, c, "few", usersAdmins)
	more, own := newAdmin(t, c, "more", `{"network": {"groups": {"read": true}}}`)
	account := path("/admin/%d", more)
	few.Do("PATCH", account, disable).WantDetail(problem.Forbidden, "The account holds permissions that the key lacks: network.groups read.")
	own.Do("PATCH", account, disable).Want(403)
	own.Do("PATCH", account, enable).Want(200) // it is enabled already
	own.Do("GET", "/-/holds/network.groups", nil).Want(200)
}

// There is always an enabled admin with users.admins write.
func TestLastAdminIsNotDisabled(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	c.Do("PATCH", "/admin/1", disable).WantErrors("/disabled", "last_admin")
	id, own := newAdmin(t, c, "holder", usersAdmins)
	c.Do("PATCH", path("/admin/%d", id), disable).Want(200)
	c.Do("PATCH", "/admin/1", disable).WantErrors("/disabled", "last_admin")
	c.Do("PATCH", "/admin/1/permission", `{"users": {"admins": {"write": false}}}`).WantErrors("/users/admins/write", "last_admin")
	c.Do("DELETE", "/admin/1", nil).Want(http.StatusConflict)
	c.Do("PATCH", path("/admin/%d/permission", id), `{"users": {"admins": {"write": false}}}`).
		Want(200)
		// it is disabled, and does not count as the last one
	c.Do("PATCH", path("/admin/%d/permission", id), usersAdmins).Want(200)
	c.Do("PATCH", path("/admin/%d", id), enable).Want(200)
	c.Do("PATCH", "/admin/1", disable).Want(200)
	// The command line creates no key for an admin that is disabled or lacks a permission.
	key, name, err := admin.CreateKey(t.Context(), s.DB)
	if err != nil || name != "recovery" {
		t.Fatalf("got a key of %q and %v, want one of recovery", name, err)
	}
	recovery := c.WithKey(key.Reveal())
	owner := testkit.Decode[keys.APIKey](recovery.Do("GET", "/auth/key/current", nil).Want(200)).Owner
	recovery.Do("DELETE", owner.URL, nil).Want(200)
	c = own
	// Several admins disable each other at the same time: one of them stays enabled.
	keys := map[int64]*testkit.Client{id: c}
	for _, name := range []string{"other", "third"} {
		other, own := newAdmin(t, c, name, usersAdmins)
		keys[other] = own
	}
	var all sync.WaitGroup
	for disabled := range keys {
		for by, own := range keys {
			if by != disabled {
				all.Go(func() { own.Do("PATCH", path("/admin/%d", disabled), disable) })
			}
		}
	}
	all.Wait()
	var left int
	err = s.DB.QueryRow(t.Context(), "SELECT count(*) FROM admin WHERE permissions @> '{users.admins write}' AND NOT disabled").
		Scan(&left)
	if err != nil || left == 0 {
		t.Errorf("got %d enabled admins and the error %v, want at least one", left, err)
	}
}

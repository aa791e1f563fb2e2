package identity_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/secondfactor"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/restore"
)

// lost returns a change that a restore has lost. after are the changed members, each followed by its new value.
func lost(kind string, id int64, after ...any) service.LostChange {
	changes := map[string]map[string]any{}
	for i := 0; i < len(after); i += 2 {
		changes[after[i].(string)] = map[string]any{"Before": nil, "After": after[i+1]}
	}
	l := service.LostChange{Type: kind, ID: id}
	if err := json.Unmarshal([]byte(testkit.JSON(changes)), &l.Changes); err != nil {
		panic(err)
	}
	return l
}

// reconcile finds and revokes what a restore has brought back. It returns the descriptions, and how many were left to the last
// admin.
func (s *fixture) reconcile(all ...service.LostChange) (labels []string, left int) {
	s.t.Helper()
	found, err := identity.Definition.FindRestored(s.t.Context(), s.DB, all)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range found {
		labels = append(labels, f.Description)
		var spared error
		err := s.DB.InTx(s.t.Context(), func(tx *pg.Tx) error {
			tx.Unrecorded("a test")
			if spared = f.Revoke(s.t.Context(), tx); errors.Is(spared, restore.ErrLastAdmin) {
				return nil
			}
			return spared
		})
		if err != nil {
			s.t.Fatalf("take %s away: %v", f.Description, err)
		}
		if spared != nil {
			left++
		}
	}
	return labels, left
}

// The keys, permissions and accounts that a restore has brought back are revoked again.
func TestRestoredAccounts(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	newKey := func(name string) keys.APIKey {
		return testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", map[string]any{"name": name}).Want(200))
	}
	deleted, replaced, moved, expired, bound, near, same, wide := newKey("deleted"), newKey("replaced"), newKey("moved"), newKey("expired"),
		newKey("bound"), newKey("near"), newKey("same"), newKey("wide")
	deletedAdmin, _ := newAdmin(t, c, "gone", `{}`)
	off, offKey := newAdmin(t, c, "off", `{}`)
	few, fewKey := newAdmin(t, c, "few", `{"network": {"groups": {"read": true, "write": true}}}`)
	passwordAdmin := s.newPerson("admin", "words@example.com")
	app, _ := secondfactor.NewVerifiedApp(t, s.DB, fewKey)
	other, _ := secondfactor.NewVerifiedApp(t, s.DB, offKey)
	provider := func(name string) int64 {
		return c.Do("POST", "/auth/provider", map[string]any{"name": name, "issuer": "https://" + name + ".example.com", "client_id": "x"}).
			Want(200).ID()
	}
	deletedProvider, editedProvider := provider("one"), provider("two")
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Second)

	labels, left := s.reconcile(
		lost("auth.key.deleted", deleted.ID),
		lost("auth.key.edited", replaced.ID, "key", "set"),
		lost("auth.key.edited", moved.ID, "owner.url", "/admin/7"),
		lost("auth.key.edited", expired.ID, "expires_at.iso_8601", soon),
		lost("auth.key.edited", bound.ID, "bound", []string{"network.groups read"}),
		lost("auth.key.edited", near.ID, "allowed_cidrs", []string{"192.0.2.0/24"}),
		lost("auth.key.edited", same.ID, "name", "same"),
		lost("auth.key.edited", wide.ID, "session_cidrs", []string{"198.51.100.0/24"}),
		lost("auth.key.deleted", 999),
		lost("admin.deleted", deletedAdmin),
		lost("admin.edited", off, "disabled", true),
		lost("admin.edited", passwordAdmin, "password", "set"),
		lost("admin.permission.edited", few, "network.groups.write", false),
		lost("auth.verify.auth.deleted", app.ID),
		lost("admin.authenticators.removed", off),
		lost("auth.provider.deleted", deletedProvider),
		lost("auth.provider.edited", editedProvider),
	)
	if len(labels) != 15 || left != 0 {
		t.Fatalf("found: got %d (%d left), want 15 (0): %s", len(labels), left, strings.Join(labels, "; "))
	}
	for _, id := range []int64{deleted.ID, replaced.ID, moved.ID} {
		c.Do("GET", path("/auth/key/%d", id), nil).Want(404)
	}
	shown := func(id int64) keys.APIKey {
		return testkit.Decode[keys.APIKey](c.Do("GET", path("/auth/key/%d", id), nil).Want(200))
	}
	if got := shown(expired.ID).ExpiresAt; got == nil || !got.Equal(soon) {
		t.Errorf("expiry: got %v, want %v", got, soon)
	}
	if got := shown(bound.ID).Bound; got == nil || !slices.Equal(*got, []string{"network.groups read"}) {
		t.Errorf("bound: got %v, want network.groups read", got)
	}
	if got := shown(near.ID).Networks; !slices.Equal(got, []string{"192.0.2.0/24"}) {
		t.Errorf("networks: got %v, want 192.0.2.0/24", got)
	}
	if got := shown(wide.ID).SessionNetworks; !slices.Equal(got, []string{"198.51.100.0/24"}) {
		t.Errorf("networks of sessions: got %v, want 198.51.100.0/24", got)
	}
	if got := shown(same.ID); got.Bound != nil || got.ExpiresAt != nil {
		t.Errorf("a key that lost nothing: got %+v, want it as it was", got)
	}
	c.Do("GET", path("/admin/%d", deletedAdmin), nil).Want(404)
	if !testkit.Decode[admin.Admin](c.Do("GET", path("/admin/%d", off), nil).Want(200)).Disabled {
		t.Error("a disabled admin: got enabled, want disabled")
	}
	c.WithKey("").Do("POST", "/auth/key", loginBody("admin", "words@example.com", password)).Want(401)
	set := testkit.Decode[principal.PermissionSet](c.Do("GET", path("/admin/%d/permission", few), nil).Want(200))
	if !set.Network.Groups.Read || set.Network.Groups.Write {
		t.Errorf("permissions: got %+v, want network.groups read alone", set.Network.Groups)
	}
	for _, a := range []int64{app.ID, other.ID} {
		c.Do("GET", path("/auth/verify/auth/%d", a), nil).Want(404)
	}
	c.Do("GET", path("/auth/provider/%d", deletedProvider), nil).Want(404)
	if text := c.Do("GET", path("/auth/provider/%d", editedProvider), nil).Want(200).Text; !strings.Contains(text, `"disabled":true`) {
		t.Errorf("an edited provider: got %s, want it disabled", text)
	}
}

// The last admin that can edit permissions keeps its account: nobody else could do the rest.
func TestRestoredLastAdmin(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	labels, left := s.reconcile(
		lost("admin.edited", 1, "disabled", true),
		lost("admin.permission.edited", 1, "users.admins.write", false, "network.groups.read", false),
		lost("admin.deleted", 999),
	)
	if len(labels) != 2 || left != 2 {
		t.Fatalf("found: got %d (%d left), want 2 (2 left): %v", len(labels), left, labels)
	}
	set := testkit.Decode[principal.PermissionSet](c.Do("GET", "/admin/1/permission", nil).Want(200))
	if !set.Users.Admins.Write || set.Network.Groups.Read {
		t.Errorf("permissions: got %+v, want users.admins write and no network.groups read", set)
	}
	if labels, left := s.reconcile(lost("admin.deleted", 1)); len(labels) != 1 || left != 1 {
		t.Errorf("the last admin's deletion: got %v (%d left), want it left", labels, left)
	}
	c.Do("GET", "/admin/1", nil).Want(200)
}

package product_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/system"
)

// keyedAccount is an account with a key.
type keyedAccount struct {
	id, keyID int64
	key       string
}

// makeAdmin creates an admin with a key.
func (i *installation) makeAdmin(name string) (m keyedAccount) {
	i.Helper()
	m.id = i.admin.Do(http.MethodPost, "/admin", map[string]any{"email": name + "@example.com", "password": "a long walk in the rain"}).
		Want(http.StatusOK).
		ID()
	i.admin.Do(http.MethodPatch, fmt.Sprintf("/admin/%d/permission", m.id), `{"network": {"groups": {"read": true, "write": true}}}`).
		Want(http.StatusOK)
	key := i.admin.Do(http.MethodPost, "/auth/key", map[string]any{"name": name, "owner": map[string]any{"id": m.id, "type": "admin"}}).
		Want(http.StatusOK)
	m.keyID, m.key = key.ID(), testkit.Decode[keys.APIKey](key).Key
	return m
}

// After a restore, reconciling lists the keys, permissions and accounts that were revoked after the backup, and does
// nothing. With the operator's decision it revokes them again.
func TestReconcileRevokedAccess(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	accounts := map[string]keyedAccount{}
	for _, name := range []string{
		"revoked", "replaced", "expired", "moved", "deleted", "stripped", "disabled", "given", "spared", "narrowed", "lost a factor", "lost all",
	} {
		accounts[name] = i.makeAdmin(strings.ReplaceAll(name, " ", "-"))
	}
	var factor int64
	for _, name := range []string{"spared", "lost all", "lost a factor"} {
		if err := i.product.Databases[identity.Name].QueryRow(t.Context(), "INSERT INTO authenticator (owner_type, owner_id, method_id, "+
			"value, verified) VALUES ('admin', $1, 2, 'x@example.com', false) RETURNING id", accounts[name].id).
			Scan(&factor); err != nil {
			t.Fatal(err)
		}
	}
	producttest.AwaitLog(t, i.product)
	dump := i.dump(identity.Name)

	do := func(method, path string, body any) { i.admin.Do(method, path, body).Want(http.StatusOK) }
	key, account := func(name string) string {
		return fmt.Sprintf(
			"/auth/key/%d", accounts[name].keyID,
		)
	}, func(name string) string { return fmt.Sprintf("/admin/%d", accounts[name].id) }
	do(http.MethodDelete, key("revoked"), nil)
	do(http.MethodPatch, key("replaced"), `{"name": "replaced", "key": "this-is-another-value-of-that-same-key"}`)
	do(http.MethodPatch, key("expired"), `{"name": "expired", "expires_at": {"iso_8601": "2031-01-01T00:00:00Z"}}`)
	do(http.MethodPatch, key("moved"), map[string]any{"name": "moved", "owner": map[string]any{"url": account("spared")}})
	do(http.MethodDelete, account("deleted"), nil)
	do(http.MethodPatch, account("stripped")+"/permission", `{"network": {"groups": {"write": false}}}`)
	do(http.MethodPatch, account("disabled"), `{"disabled": true}`)
	do(http.MethodPatch, account("disabled"), `{"password": "another walk in the long rain"}`)
	do(http.MethodPatch, account("given")+"/permission", `{"network": {"groups": {"write": false}}}`)
	do(http.MethodPatch, account("given")+"/permission", `{"network": {"groups": {"write": true}}}`)
	do(http.MethodPatch, key("narrowed"), `{"name": "narrowed", "allowed_cidrs": ["127.0.0.0/8"]}`)
	do(http.MethodDelete, fmt.Sprintf("/auth/verify/auth/%d", factor), nil)
	do(http.MethodDelete, account("lost all")+"/verify", nil)
	lost := i.makeAdmin("lost").key
	producttest.AwaitLog(t, i.product)
	i.admin.WithKey(lost).Do(http.MethodGet, "/auth/key/current", nil).Want(http.StatusOK) // so that Redis knows it
	i.stop()
	i.restore(identity.Name, dump)

	var screen strings.Builder
	err := product.Reconcile(t.Context(), i.urls, product.ReconcileConfig{}, &screen)
	if err == nil || !strings.Contains(err.Error(), "IRONPLANE_TAKE_BACK=yes") {
		t.Errorf("got %v, want an error that names IRONPLANE_TAKE_BACK=yes", err)
	}
	want := []string{
		"(revoked) was deleted",
		"(replaced) had a new value",
		"(expired) was set to expire at 2031-01-01T00:00:00Z",
		"(moved) was moved to " + account("spared"),
		"(deleted) was deleted",
		"(stripped) had lost network.groups write",
		"(disabled) was disabled",
		"(disabled) had a new password",
		"(narrowed) was limited to 127.0.0.0/8",
		fmt.Sprintf("authenticator %d (email) of %s was removed", factor, account("lost a factor")),
		"(email) of " + account("lost all") + " was removed",
	}
	for _, output := range want {
		if !strings.Contains(screen.String(), output) {
			t.Errorf("got %s, want %q in it", &screen, output)
		}
	}
	if n := strings.Count(screen.String(), "The restore undid this."); n != len(want) {
		t.Errorf("got %d items that are back as they were, want %d: %s", n, len(want), &screen)
	}
	if err := i.start(); err == nil {
		t.Fatal("got a start without a decision, want an error")
	}
	i.takeBack = "yes"
	if output := i.reconcile(); !strings.Contains(output, "11 of these were revoked again.") {
		t.Errorf("got %s, want 11 items revoked again", output)
	}
	i.restart()
	i.admin.WithKey(lost).Do(http.MethodGet, "/auth/key/current", nil).Want(http.StatusUnauthorized)
	as := func(name string) *testkit.Client { return i.admin.WithKey(accounts[name].key) }
	for _, name := range []string{"revoked", "replaced", "moved", "deleted", "disabled"} {
		as(name).Do(http.MethodGet, "/auth/key/current", nil).Want(http.StatusUnauthorized)
	}
	as("stripped").Do(http.MethodPost, "/group", `{"name": "forbidden"}`).Want(http.StatusForbidden)
	as("given").Do(http.MethodPost, "/group", `{"name": "allowed"}`).Want(http.StatusOK)
	if got := testkit.Decode[keys.APIKey](
		as("expired").Do(http.MethodGet, "/auth/key/current", nil).Want(http.StatusOK),
	); got.ExpiresAt == nil ||
		got.ExpiresAt.Year() != 2031 {
		t.Errorf("got the expiry %v, want the year 2031", got.ExpiresAt)
	}
	if n := i.count(identity.Name, "authenticator"); n != 1 {
		t.Errorf("got %d authenticators, want 1", n)
	}
	if n := i.count(identity.Name, "api_key WHERE name = 'narrowed' AND allowed_cidrs = '{127.0.0.0/8}'"); n != 1 {
		t.Errorf("got %d keys that are good from 127.0.0.0/8 alone, want 1", n)
	}
	if n := i.count(identity.Name, "admin WHERE password_hash IS NULL AND username = 'disabled'"); n != 1 {
		t.Errorf("got %d admins called disabled without a password, want 1", n)
	}
	producttest.AwaitLog(t, i.product)
	i.verify()
	if n := i.count(system.Name, "log WHERE request_id = 'restored' AND source = 'identity'"); n != 1+len(want) {
		t.Errorf("got %d log items of the restore, want %d", n, 1+len(want))
	}
}

// Reconciling does not revoke the permissions of the last admin that can edit permissions.
func TestLastAdminIsSpared(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	producttest.AwaitLog(t, i.product)
	dump := i.dump(identity.Name)
	other := i.makeAdmin("other")
	i.admin.Do(http.MethodPatch, fmt.Sprintf("/admin/%d/permission", other.id), `{"users": {"admins": {"write": true, "read": true}}}`).
		Want(http.StatusOK)
	i.admin.Do(
		http.MethodPatch, fmt.Sprintf("/admin/%d/permission", other.id),
		i.admin.Do(http.MethodGet, "/admin/1/permission", nil).Want(http.StatusOK).Text,
	).
		Want(http.StatusOK)
	i.admin.WithKey(other.key).Do(http.MethodDelete, "/admin/1", nil).Want(http.StatusOK)
	producttest.AwaitLog(t, i.product)
	i.stop()
	i.restore(identity.Name, dump)
	i.takeBack = "yes"
	if output := i.reconcile(); !strings.Contains(
		output,
		"admin 1 (admin) was deleted: only the last admin with users.admins write can do this.",
	) {
		t.Errorf("got %s, want admin 1 left to the last admin who holds users.admins write", output)
	}
	i.restart()
	i.admin.Do(http.MethodGet, "/admin/1", nil).Want(http.StatusOK)
}

// A change that was committed without a number at the time of the backup, and logged after it, is logged once.
func TestRestoredWithChangesInFlight(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	i.makeGroup("before", 0)
	producttest.AwaitLog(t, i.product)
	sequencer, err := pool.Connect(t.Context(), i.urls[network.Name].Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer sequencer.Close(t.Context())
	if _, err := sequencer.Exec(t.Context(), "BEGIN; SELECT FROM sequencer FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	i.makeGroup("in flight", 0)
	dump := i.dump(network.Name)
	if _, err := sequencer.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	i.makeGroup("lost", 0)
	producttest.AwaitLog(t, i.product)
	i.stop()
	i.restore(network.Name, dump)
	if output := i.reconcile(); !strings.Contains(output, "Lost changes that the log has: 1") || strings.Contains(output, "in flight") {
		t.Errorf("got %s, want 1 lost change and none in flight", output)
	}
	i.restart()
	i.makeGroup("after", 0)
	producttest.AwaitLog(t, i.product)
	for _, name := range []string{"before", "in flight", "lost", "after"} {
		if n := i.count(system.Name, "log WHERE description = 'IP group "+name+" was created.'"); n != 1 {
			t.Errorf("%s: got %d log items, want 1", name, n)
		}
	}
	if output := i.verify(); !strings.Contains(output, "It lost the logged changes 2 to 3, except 1 of them.") {
		t.Errorf("got %s, want changes 2 to 3 lost but for 1 of them", output)
	}
}

// makeOlder downgrades a schema to that of a release without histories.
func (i *installation) makeOlder(schema string) {
	i.Helper()
	i.run([]byte(`SET search_path = `+schema+`;
		DROP TABLE history;
		ALTER TABLE sequencer DROP relation;
		ALTER TABLE change DROP uuid, DROP traceparent;
		DROP VIEW change_cursor;
		ALTER TABLE consumer RENAME TO change_cursor;
		DELETE FROM change_cursor WHERE name <> '';
		ALTER TABLE change_cursor DROP name, ADD CONSTRAINT change_cursor_pkey PRIMARY KEY (source), DROP history, DROP change, DROP change_seq, DROP newest;
		DROP TABLE key_check, job_runner, maintenance, message, message_taken;
		DROP TABLE closing;
		DROP SEQUENCE closing_token;
		ALTER TABLE ref DROP detail, DROP closing;
		DELETE FROM migration_shared WHERE version_id >= 7;`), "psql", "-q", "-v", "ON_ERROR_STOP=1")
}

// A restored schema of an older release is noticed, too. A schema that was only migrated is not.
func TestRestoredSchemaOfOlderRelease(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	dump := i.dumpBetween(network.Name, "before", "lost")
	i.stop()
	i.makeOlder(pxe.Name)
	i.restore(network.Name, dump)
	i.makeOlder(network.Name)
	if err := i.start(); !errors.Is(err, events.ErrRestored) || !strings.Contains(err.Error(), network.Name) {
		t.Fatalf("got %v, want %v of %s", err, events.ErrRestored, network.Name)
	}
	if output := i.reconcile(); strings.Contains(output, "pxe is reconciled") || !strings.Contains(output, "network is reconciled") {
		t.Errorf("got %s, want network reconciled and pxe not", output)
	}
	i.restart()
	i.makeGroup("after", 0)
	producttest.AwaitLog(t, i.product)
	i.verify()
}

// Reconciling also lists and revokes clients that were deleted, disabled or got another password, and integrations that were
// deleted. If the log is restored, too, it does not know how an integration was edited, so the integration is disabled.
func TestReconcileAccounts(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	client := func(name string) int64 {
		return i.admin.Do(
			http.MethodPost, "/client",
			map[string]any{"email": name + "@example.com", "first": name, "last": "Miller", "password": "a long walk in the rain"},
		).
			Want(http.StatusOK).
			ID()
	}
	integration := func(name string) keyedAccount {
		m := keyedAccount{id: i.admin.Do(http.MethodPost, "/integration", map[string]any{"name": name}).Want(http.StatusOK).ID()}
		i.admin.Do(http.MethodPatch, fmt.Sprintf("/integration/%d/permission", m.id), `{"network": {"groups": {"read": true, "write": true}}}`).
			Want(http.StatusOK)
		key := i.admin.Do(http.MethodPost, "/auth/key", map[string]any{"name": name, "owner": map[string]any{"id": m.id, "type": "integration"}}).
			Want(http.StatusOK)
		m.keyID, m.key = key.ID(), testkit.Decode[keys.APIKey](key).Key
		return m
	}
	deleted, disabled, repassed := client("deleted"), client("disabled"), client("repassed")
	removed, stripped, kept := integration("gone"), integration("stripped"), integration("kept")
	producttest.AwaitLog(t, i.product)
	dumps := map[string][]byte{clients.Name: i.dump(clients.Name), system.Name: i.dump(system.Name)}

	do := func(method, path string, body any) { i.admin.Do(method, path, body).Want(http.StatusOK) }
	do(http.MethodDelete, fmt.Sprintf("/client/%d", deleted), nil)
	do(http.MethodPatch, fmt.Sprintf("/client/%d", disabled), `{"disabled": true}`)
	do(http.MethodPatch, fmt.Sprintf("/client/%d", repassed), `{"password": "another walk in the long rain"}`)
	do(http.MethodDelete, fmt.Sprintf("/integration/%d", removed.id), nil)
	do(http.MethodPatch, fmt.Sprintf("/integration/%d/permission", stripped.id), `{"network": {"groups": {"write": false}}}`)
	producttest.AwaitLog(t, i.product)
	producttest.AwaitConsumers(t, i.product)
	i.stop()
	for _, c := range []struct {
		schema string
		want   []string
	}{
		{clients.Name, []string{"(deleted Miller) was deleted", "(disabled Miller) was disabled", "(repassed Miller) had another password"}},
		{system.Name, []string{"(gone) was deleted", "(stripped) had unknown changes: revoking disables it"}},
	} {
		i.restore(c.schema, dumps[c.schema])
		var screen strings.Builder
		if err := product.Reconcile(
			t.Context(),
			i.urls,
			product.ReconcileConfig{},
			&screen,
		); err == nil ||
			!strings.Contains(err.Error(), "IRONPLANE_TAKE_BACK=yes") {
			t.Errorf("got %v, want an error that names IRONPLANE_TAKE_BACK=yes", err)
		}
		for _, output := range c.want {
			if !strings.Contains(screen.String(), output) {
				t.Errorf("got %s, want %q in it", &screen, output)
			}
		}
		if n := strings.Count(screen.String(), "The restore undid this."); n != len(c.want) {
			t.Errorf("got %d items that are back as they were, want %d: %s", n, len(c.want), &screen)
		}
		i.takeBack = "yes"
		if output := i.reconcile(); !strings.Contains(output, fmt.Sprintf("%d of these were revoked again.", len(c.want))) {
			t.Errorf("got %s, want %d items revoked again", output, len(c.want))
		}
	}
	i.restart()
	i.admin.Do(http.MethodGet, fmt.Sprintf("/client/%d", deleted), nil).Want(http.StatusNotFound)
	if got := testkit.Decode[clients.ListedClient](
		i.admin.Do(http.MethodGet, fmt.Sprintf("/client/%d", disabled), nil).Want(http.StatusOK),
	); !got.Disabled {
		t.Error("got an enabled client, want a disabled one")
	}
	if n := i.count(clients.Name, "client WHERE password_hash IS NULL"); n != 1 {
		t.Errorf("got %d clients without a password, want 1", n)
	}
	i.admin.Do(http.MethodGet, fmt.Sprintf("/integration/%d", removed.id), nil).Want(http.StatusNotFound)
	for a, status := range map[*keyedAccount]int{&removed: http.StatusUnauthorized, &stripped: http.StatusUnauthorized, &kept: http.StatusOK} {
		i.admin.WithKey(a.key).Do(http.MethodGet, "/auth/key/current", nil).Want(status)
	}
	producttest.AwaitLog(t, i.product)
	i.verify()
}

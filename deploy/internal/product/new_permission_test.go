package product_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/system"
)

// beforeSwitches leaves the schemas as a program does that knows neither the permission network.switches nor the table
// known_grant, once the table's migration has run. No set has the permission.
func (i *installation) beforeSwitches() {
	i.Helper()
	i.stop()
	for _, of := range []struct {
		definition service.Definition
		sets       []string
	}{{identity.Definition, []string{"admin.permissions", "api_key.bound"}}, {system.Definition, []string{"integration.permissions"}}} {
		db, err := pool.Open(i.Context(), i.urls[of.definition.Name].Reveal(), 1, pool.Options{})
		if err != nil {
			i.Fatal(err)
		}
		for _, set := range of.sets {
			table, column, _ := strings.Cut(set, ".")
			testkit.Execute(i, db.DB, fmt.Sprintf(
				"UPDATE %s SET %[2]s = array_remove(array_remove(%[2]s, 'network.switches read'), 'network.switches write')", table, column))
		}
		testkit.Execute(i, db.DB, "DROP TABLE known_grant")
		for _, sql := range knownGrantsMigration(i, of.definition.Migrations) {
			testkit.Execute(i, db.DB, sql)
		}
		testkit.Execute(i, db.DB, "DELETE FROM known_grant WHERE name LIKE 'network.switches %'")
		db.Close()
	}
}

// knownGrantsMigration returns the statements of the migration that creates the table known_grant.
func knownGrantsMigration(t testing.TB, migrations fs.FS) (statements []string) {
	t.Helper()
	files, err := fs.Glob(migrations, "migrations/*_known_grants.sql")
	if err != nil || len(files) != 1 {
		t.Fatalf("got the migrations %v and %v, want one", files, err)
	}
	text, err := fs.ReadFile(migrations, files[0])
	if err != nil {
		t.Fatal(err)
	}
	for sql := range strings.SplitAfterSeq(strings.TrimSpace(string(text)), ";") {
		if sql != "" {
			statements = append(statements, sql)
		}
	}
	return statements
}

// newHolder creates an admin with all permissions except without, and returns a client with its key.
func (i *installation) newHolder(name string, without ...string) (id int64, own *testkit.Client) {
	i.Helper()
	id = i.admin.Do(http.MethodPost, "/admin", map[string]any{"username": name, "email": name + "@example.com", "password": ""}).
		Want(http.StatusOK).
		ID()
	set := principal.SetOf(principal.All &^ principal.ParseGrants(without))
	i.admin.Do(http.MethodPatch, path("/admin/%d/permission", id), set).Want(http.StatusOK)
	return id, i.unbound(principal.Owner{Type: principal.Admin, ID: id})
}

// keyFor creates a key for an account. It is bound by its creator's permissions.
func keyFor(maker *testkit.Client, owner principal.Owner) *testkit.Client {
	body := map[string]any{"name": "bound", "owner": map[string]any{"url": owner.URL()}}
	return maker.WithKey(testkit.Decode[keys.APIKey](maker.Do(http.MethodPost, "/auth/key", body).Want(http.StatusOK)).Key)
}

// unbound creates a key for an account, without a bound.
func (i *installation) unbound(owner principal.Owner) *testkit.Client {
	i.Helper()
	key := keyFor(i.admin, owner)
	id := testkit.Decode[keys.APIKey](key.Do(http.MethodGet, "/auth/key/current", nil).Want(http.StatusOK)).ID
	testkit.Execute(i, i.product.Databases[identity.Name], "UPDATE api_key SET bound = NULL WHERE id = $1", id)
	return key
}

// awaitPermission waits until a key has network.switches read, or lacks it. Gateways may use an earlier result for a moment.
func awaitPermission(t *testing.T, label string, key *testkit.Client, want bool) {
	t.Helper()
	verb, status := "is refused", http.StatusForbidden
	if want {
		verb, status = "reads", http.StatusOK
	}
	testkit.Eventually(t, label+" "+verb+" port speeds", func() bool {
		return key.Do(http.MethodGet, "/port-speed", nil).Status == status
	})
}

// An upgrade with a new permission grants it to accounts that held every permission, adds it to bounds that covered every
// permission, and changes no others.
func TestUpgradeGrantsNewPermissions(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	anna, heldKey := i.newHolder("anna")
	bert, berts := i.newHolder("bert", "server.settings write")
	carlaID, carla := i.newHolder("carla", "server.settings write") // held everything by the time of the upgrade
	boundKey := keyFor(i.admin, principal.Owner{Type: principal.Admin, ID: anna})
	carlasBound := keyFor(berts, principal.Owner{Type: principal.Admin, ID: carlaID})
	i.admin.Do(http.MethodPatch, path("/admin/%d/permission", carlaID), principal.SetOf(principal.All)).Want(http.StatusOK)
	programs := map[string]*testkit.Client{}
	var shop int64
	some := principal.All &^ principal.ParseGrants([]string{"pxe.installs read"})
	for name, set := range map[string]principal.Grants{"shop": principal.All, "some": some} {
		id := i.admin.Do(http.MethodPost, "/integration", map[string]any{"name": name}).Want(http.StatusOK).ID()
		i.admin.Do(http.MethodPatch, path("/integration/%d/permission", id), principal.SetOf(set)).Want(http.StatusOK)
		programs[name] = keyFor(i.admin, principal.Owner{Type: principal.Integration, ID: id})
		if name == "shop" {
			shop = id
		}
	}
	producttest.AwaitConsumers(t, i.product)
	i.beforeSwitches()
	i.redis.FlushAll(t.Context()) // as if no key had been used for a while
	if err := i.start(); err != nil {
		t.Fatal(err)
	}

	for _, of := range []*testkit.Client{heldKey, berts, carla, boundKey, carlasBound, programs["shop"], programs["some"]} {
		*of = *i.admin.WithKey(of.Key)
	}
	awaitPermission(t, "the first admin", i.admin, true)
	awaitPermission(t, "an admin who held everything", heldKey, true)
	awaitPermission(t, "its key with a bound that covered everything", boundKey, true)
	awaitPermission(t, "an integration that held everything", programs["shop"], true)
	awaitPermission(t, "an admin who lacked a permission", berts, false)
	awaitPermission(t, "an admin who held everything last", carla, true)
	awaitPermission(t, "its key with a bound that lacked a permission", carlasBound, false)
	awaitPermission(t, "an integration that lacked a permission", programs["some"], false)

	// The other services know of the grant: an admin without the permission cannot create a key for an account that has it.
	producttest.AwaitConsumers(t, i.product)
	for _, owner := range []string{path("/admin/%d", anna), path("/integration/%d", shop)} {
		berts.Do(http.MethodPost, "/auth/key", map[string]any{"name": "escalation", "owner": map[string]any{"url": owner}}).
			Want(http.StatusForbidden)
	}
	producttest.AwaitLog(t, i.product)
	for kind, want := range map[string]int{"admin": 3, "integration": 1} {
		condition := "log WHERE type = '" + kind + ".permission.edited' AND user_url IS NULL AND changes::jsonb ? 'network.switches.read'"
		if got := i.count(system.Name, condition); got != want {
			t.Errorf("got %d log items of %ss that gained the permission, want %d", got, kind, want)
		}
	}

	// After the upgrade, the permission can be granted and revoked like all others, also across restarts.
	i.admin.Do(http.MethodPatch, path("/admin/%d/permission", bert), `{"network": {"switches": {"read": true}}}`).Want(http.StatusOK)
	const withoutSwitches = `{"network": {"switches": {"read": false, "write": false}}}`
	i.admin.Do(http.MethodPatch, path("/admin/%d/permission", anna), withoutSwitches).Want(http.StatusOK)
	i.restart()
	awaitPermission(t, "an admin who was granted it", i.admin.WithKey(berts.Key), true)
	awaitPermission(t, "an admin who lost it", i.admin.WithKey(heldKey.Key), false)
}

// A program that knows fewer permissions than were granted neither revokes the others nor fails on their names.
func TestOlderInstanceRetainsNewerPermissions(t *testing.T) {
	t.Parallel()
	p, c := producttest.Start(t)
	const newer = "network.racks read"
	anna, _ := newAdmin(t, c, "anna", `{"network": {"groups": {"read": true}}}`)
	key := c.Do(http.MethodPost, "/auth/key", ownedBy(anna)).Want(http.StatusOK).ID()
	shop := c.Do(http.MethodPost, "/integration", `{"name": "shop"}`).Want(http.StatusOK).ID()
	const login = `{"name": "x", "issuer": "https://login.example.com", "client_id": "x", "permissions": ["network.groups read"]}`
	provider := c.Do(http.MethodPost, "/auth/provider", login).Want(http.StatusOK).ID()
	db := p.Databases[identity.Name]
	for _, set := range []string{"known_grant SELECT $1", "admin permissions", "api_key bound", "openid_provider permissions"} {
		table, column, _ := strings.Cut(set, " ")
		sql := fmt.Sprintf("UPDATE %s SET %[2]s = %[2]s || $1::text WHERE %[2]s IS NOT NULL", table, column)
		if strings.HasPrefix(column, "SELECT") {
			sql = "INSERT INTO " + set
		}
		testkit.Execute(t, db, sql, newer)
	}
	testkit.Execute(t, p.Databases[system.Name], "UPDATE integration SET permissions = permissions || $1::text", newer)

	c.Do(http.MethodPatch, path("/admin/%d/permission", anna), `{"network": {"groups": {"write": true}}}`).Want(http.StatusOK)
	c.Do(http.MethodPatch, path("/auth/key/%d", key), `{"name": "other"}`).Want(http.StatusOK)
	c.Do(http.MethodPatch, path("/auth/provider/%d", provider), `{"name": "y"}`).Want(http.StatusOK)
	c.Do(http.MethodPatch, path("/auth/provider/%d", provider), `{"permissions": ["network.moons read"]}`).
		WantErrors("/permissions", "invalid")
	c.Do(http.MethodPatch, path("/integration/%d/permission", shop), `{"network": {"groups": {"write": true}}}`).Want(http.StatusOK)
	for _, set := range []struct {
		service, column, table string
		id                     int64
	}{
		{identity.Name, "permissions", "admin", anna},
		{identity.Name, "bound", "api_key", key},
		{identity.Name, "permissions", "openid_provider", provider},
		{system.Name, "permissions", "integration", shop},
	} {
		var names []string
		sql := "SELECT " + set.column + " FROM " + set.table + " WHERE id = $1"
		if err := p.Databases[set.service].QueryRow(t.Context(), sql, set.id).Scan(&names); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(names, newer) {
			t.Errorf("%s: got %v, want %s among them", set.table, names, newer)
		}
	}
}

// An account that was reduced after a backup does not gain a permission that is newer than the backup when it is restored.
func TestRestoreGrantsReducedAccountsNothingNew(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	_, whole := i.newHolder("whole")
	early, earlys := i.newHolder("early")
	late, lates := i.newHolder("late")
	producttest.AwaitLog(t, i.product)
	dump := i.dump(identity.Name)
	i.admin.Do(http.MethodPatch, path("/admin/%d/permission", early), `{"server": {"settings": {"write": false}}}`).Want(http.StatusOK)
	producttest.AwaitLog(t, i.product)
	i.beforeSwitches()
	if err := i.start(); err != nil {
		t.Fatal(err)
	}
	i.admin.Do(http.MethodPatch, path("/admin/%d/permission", late), `{"network": {"switches": {"read": false, "write": false}}}`).
		Want(http.StatusOK)
	producttest.AwaitLog(t, i.product)
	i.stop()
	i.restore(identity.Name, dump)
	i.beforeSwitches()
	i.takeBack = "yes"
	output := i.reconcile()
	for _, want := range []string{
		"(early) had lost server.settings write",
		"(late) had lost network.switches read, network.switches write",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("got %s, want %q in it", output, want)
		}
	}
	if err := i.start(); err != nil {
		t.Fatal(err)
	}
	awaitPermission(t, "the first admin", i.admin, true)
	awaitPermission(t, "an admin who was not reduced", i.admin.WithKey(whole.Key), true)
	awaitPermission(t, "an admin who was reduced before the upgrade", i.admin.WithKey(earlys.Key), false)
	awaitPermission(t, "an admin who was reduced after the upgrade", i.admin.WithKey(lates.Key), false)
	i.admin.WithKey(lates.Key).Do(http.MethodGet, "/group", nil).Want(http.StatusOK)
}

// A key from the command line can repair permissions even if no account has all of them. No account is extended for that.
func TestAdminKeyRepairsPermissions(t *testing.T) {
	t.Parallel()
	p, c := producttest.Start(t)
	c.Do(http.MethodPatch, "/admin/1/permission", `{"network": {"switches": {"read": false, "write": false}}}`).Want(http.StatusOK)
	adminKey := func(want string) *testkit.Client {
		t.Helper()
		key, username, err := admin.CreateKey(t.Context(), p.Databases[identity.Name])
		if err != nil || username != want {
			t.Fatalf("got a key of %q and %v, want one of %s", username, err, want)
		}
		return c.WithKey(key.Reveal())
	}
	repairs := adminKey("recovery")
	awaitPermission(t, "the first admin", c, false)
	awaitPermission(t, "the key", repairs, true)
	if got := adminKey("recovery"); got.Key == repairs.Key {
		t.Error("got the same key twice, want another")
	}
	repairs.Do(http.MethodPatch, "/admin/1/permission", `{"network": {"switches": {"read": true, "write": true}}}`).Want(http.StatusOK)
	awaitPermission(t, "the key that is made then", adminKey("admin"), true)
	producttest.AwaitLog(t, p)
	if got := c.Do(http.MethodGet, "/log?type=admin.created", nil).Want(http.StatusOK).Text; !strings.Contains(got, "recovery") {
		t.Errorf("got the log %s, want the admin recovery in it", got)
	}
}

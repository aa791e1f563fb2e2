package identity_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// keyBody returns a body that creates a key for an admin, or moves a key to an admin.
func keyBody(admin int64) map[string]any {
	return map[string]any{"name": "x", "owner": map[string]any{"url": path("/admin/%d", admin)}}
}

// A key can do no more than the account that created it could, also after the key's owner is granted more.
func TestKeyIsBoundByItsMaker(t *testing.T) {
	t.Parallel()
	_, c := newFixture(t)
	_, maker := newAdmin(t, c, "maker", `{"users": {"admins": {"read": true, "write": true}}, "network": {"switches": {"read": true}}}`)
	anna, annaClient := newAdmin(t, c, "anna", `{}`)
	key := testkit.Decode[keys.APIKey](maker.Do("POST", "/auth/key", keyBody(anna)).Want(200))
	bounded := c.WithKey(key.Key)
	own := testkit.Decode[keys.APIKey](annaClient.Do("POST", "/auth/key", `{"name": "own"}`).Want(200))
	c.Do("PATCH", path("/admin/%d/permission", anna), principal.SetOf(principal.All)).Want(200)

	bounded.Do("GET", "/-/holds/network.switches", nil).Want(200)
	bounded.Do("GET", "/-/holds/network.groups", nil).WantDetail(problem.Forbidden, "The key lacks network.groups read.")
	c.WithKey(own.Key).Do("GET", "/-/holds/network.groups", nil).Want(200)
	// The keys that a bounded key creates or edits get its bound.
	c.WithKey(testkit.Decode[keys.APIKey](bounded.Do("POST", "/auth/key", `{"name": "x"}`).Want(200)).Key).
		Do("GET", "/-/holds/network.groups", nil).
		Want(403)
	bounded.Do("PATCH", path("/auth/key/%d", own.ID), `{"name": "edited"}`).Want(200)
	c.WithKey(own.Key).Do("GET", "/-/holds/network.groups", nil).Want(403)
	// A bounded key can neither write to an account that holds more, nor grant what it lacks.
	bounded.Do("PATCH", path("/admin/%d", anna), `{"password": "a long walk home"}`).WantErrors("/current_password", "wrong")
	const lacks = "The account holds permissions that the key lacks: "
	for _, response := range []*testkit.Response{
		bounded.Do("PATCH", path("/admin/%d/permission", anna), `{"network": {"groups": {"read": false}}}`),
		bounded.Do("DELETE", path("/admin/%d", anna), nil),
	} {
		if detail := testkit.Decode[problem.Problem](response.Want(403)).Detail; !strings.HasPrefix(detail, lacks) {
			t.Errorf("got the detail %q, want one that begins with %q", detail, lacks)
		}
	}
	bounded.Do("PATCH", path("/admin/%d", anna), `{"email": "mine@example.com"}`).Want(403)
	// Keys that the owner creates with an unbounded key are unbounded.
	annaClient.Do("GET", "/-/holds/network.groups", nil).Want(200)
	free := testkit.Decode[keys.APIKey](annaClient.Do("POST", "/auth/key", `{"name": "free"}`).Want(200))
	c.WithKey(free.Key).Do("GET", "/-/holds/network.groups", nil).Want(200)
	// A key's bound is visible.
	if key := testkit.Decode[keys.APIKey](
		c.Do("GET", path("/auth/key/%d", key.ID), nil),
	); key.Bound == nil ||
		!slices.Contains(*key.Bound, "network.switches read") {
		t.Errorf("got a key with the bound %v, want network.switches read in it", key.Bound)
	}
}

// No sequence of creates, edits and grants lifts a key above its limit. The limit is what the account held that gave the key its
// value or its owner, unless the account is the owner. The bounds of the keys that it was created and edited with limit it, too.
func TestBoundsHold(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	base := principal.Grant(permission.UsersAdmins, permission.Read) | principal.Grant(permission.UsersAdmins, permission.Write)
	other := []principal.Grants{
		principal.Grant(permission.NetworkGroups, permission.Read),
		principal.Grant(permission.NetworkSwitches, permission.Read),
		principal.Grant(permission.SystemLogs, permission.Read),
	}
	type key struct {
		id, owner int64
		limit     principal.Grants // by all changes of the key so far
		client    *testkit.Client
	}
	clientFor := func(id, owner int64) *testkit.Client { // without a gateway, as if its knowledge were outdated
		return testkit.NewClient(
			t,
			testkit.As(
				s.Handler(),
				&principal.Principal{KeyID: id, Owner: principal.Owner{Type: principal.Admin, ID: owner}, Grants: principal.All},
			),
		)
	}
	owners := make([]int64, 3)
	for i := range owners {
		owners[i] = c.Do("POST", "/admin", map[string]any{"email": fmt.Sprintf("a%d@example.com", i), "password": ""}).Want(200).ID()
	}
	values := 0
	rapid.Check(t, func(rt *rapid.T) {
		held, keys := map[int64]principal.Grants{}, []*key{}
		grant := func(admin int64) {
			held[admin] = base
			for i, g := range other {
				if rapid.Bool().Draw(rt, fmt.Sprint("grant ", i)) {
					held[admin] |= g
				}
			}
			testkit.Execute(
				t,
				s.DB,
				path("UPDATE admin SET permissions = '{\"%s\"}' WHERE id = %d", strings.Join(held[admin].Names(), `","`), admin),
			)
		}
		addKey := func(a *testkit.Response, owner int64, limit principal.Grants) {
			keys = append(keys, &key{a.ID(), owner, limit, clientFor(a.ID(), owner)})
		}
		for i, admin := range owners { // each admin has a key, and some have one that another admin created
			grant(admin)
			addKey(c.Do("POST", "/auth/key", keyBody(admin)).Want(200), admin, principal.All)
			if before := owners[max(i-1, 0)]; i > 0 && held[before]&^held[admin] == 0 {
				addKey(keys[len(keys)-1].client.Do("POST", "/auth/key", keyBody(before)).Want(200), before, held[admin])
			}
		}
		for range 6 {
			by, admin := rapid.SampledFrom(keys).Draw(rt, "by"), rapid.SampledFrom(owners).Draw(rt, "admin")
			k := rapid.SampledFrom(keys).Draw(rt, "key")
			// narrow returns the new limit of a key that by gives to an account.
			narrow := func(limit principal.Grants, to int64) principal.Grants {
				if limit &= by.limit; to != by.owner {
					limit &= held[by.owner]
				}
				return limit
			}
			switch rapid.SampledFrom([]string{"grant", "create", "create", "name", "value", "owner"}).Draw(rt, "do") {
			case "grant":
				grant(admin)
			case "create":
				if a := by.client.Do("POST", "/auth/key", keyBody(admin)); a.Status == 200 {
					addKey(a, admin, narrow(principal.All, admin))
				}
			case "name":
				values++ // the name differs each time, because an edit without a change would keep the bound
				if by.client.Do("PATCH", path("/auth/key/%d", k.id), map[string]any{"name": fmt.Sprint("named ", values)}).Status == 200 {
					k.limit &= by.limit
				}
			case "value":
				values++
				if by.client.Do(
					"PATCH",
					path("/auth/key/%d", k.id),
					map[string]any{"name": "y", "key": fmt.Sprintf("a-value-that-was-made-elsewhere-%06d", values)},
				).Status == 200 {
					k.limit = narrow(k.limit, k.owner)
				}
			case "owner":
				moved := admin != k.owner
				values++
				body := keyBody(admin)
				body["name"] = fmt.Sprint("owned ", values)
				if by.client.Do("PATCH", path("/auth/key/%d", k.id), body).Status == 200 {
					if k.limit &= by.limit; moved {
						k.limit, k.owner, k.client = narrow(k.limit, admin), admin, clientFor(k.id, admin)
					}
				}
			}
			for _, k := range keys {
				var bound []string
				if err := s.DB.QueryRow(t.Context(), "SELECT coalesce(bound, $2) FROM api_key WHERE id = $1", k.id, principal.All.Names()).
					Scan(&bound); err != nil {
					rt.Fatal(err)
				}
				if beyond := held[k.owner] & principal.ParseGrants(bound) &^ k.limit; beyond != 0 {
					rt.Fatalf("key %d: got the permissions %v beyond its bound, want none", k.id, beyond.Names())
				}
			}
		}
	})
}

// The keys that an expiring key creates or edits do not outlive it.
func TestExpiringKeyHasNoLaterSuccessor(t *testing.T) {
	t.Parallel()
	_, c := newFixture(t)
	at := func(d time.Duration) rest.Timestamp {
		return rest.Timestamp{Time: time.Now().Add(d).Truncate(time.Second)}
	}
	end, later, sooner := at(2*time.Hour), at(3*time.Hour), at(time.Hour)
	lasting := c.Do("POST", "/auth/key", `{"name": "lasting"}`).Want(200).ID()
	shown := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", map[string]any{"name": "expiring", "expires_at": end}).Want(200))
	expiring, self := c.WithKey(shown.Key), path("/auth/key/%d", shown.ID)
	for _, absent := range []any{`{"name": "x"}`, `{"name": "x", "expires_at": null}`} {
		if successor := testkit.Decode[keys.APIKey](
			expiring.Do("POST", "/auth/key", absent).Want(200),
		); successor.ExpiresAt == nil ||
			!successor.ExpiresAt.Equal(end.Time) {
			t.Errorf("%s: got a key that expires at %v, want %v", absent, successor.ExpiresAt, end)
		}
	}
	expiring.Do("POST", "/auth/key", map[string]any{"name": "x", "expires_at": later}).
		WantDetail(problem.Invalid, "expires_at must be "+end.UTC().Format(time.RFC3339)+" at the latest, when the calling key expires.")
	successor := expiring.Do("POST", "/auth/key", map[string]any{"name": "x", "expires_at": sooner}).Want(200).ID()

	const value = "a-key-that-another-panel-made-0001"
	other, _ := newAdmin(t, c, "other", `{}`)
	for _, beyond := range []map[string]any{{"expires_at": later}, {"expires_at": nil}} {
		beyond["name"] = "x"
		expiring.Do("PATCH", self, beyond).WantErrors("/expires_at", "out_of_range")
		expiring.Do("PATCH", path("/auth/key/%d", successor), beyond).WantErrors("/expires_at", "out_of_range")
	}
	expiring.Do("PATCH", path("/auth/key/%d", lasting), map[string]any{"name": "x", "key": value}).WantErrors("/expires_at", "out_of_range")
	expiring.Do("PATCH", path("/auth/key/%d", lasting), keyBody(other)).WantErrors("/expires_at", "out_of_range")
	expiring.Do("PATCH", path("/auth/key/%d", lasting), `{"name": "renamed"}`).Want(200)
	expiring.Do("PATCH", path("/auth/key/%d", lasting), map[string]any{"name": "x", "key": value, "expires_at": end}).Want(200)
	c.Do("PATCH", self, map[string]any{"name": "x", "expires_at": later}).Want(200)
}

// An account never has more keys than it may have, however many requests create keys at the same time.
func TestKeysPerOwner(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	const free = 3
	id, own := newAdmin(t, c, "many", `{}`)
	testkit.Execute(
		t,
		s.DB,
		path("INSERT INTO api_key (name, hash, owner_type, owner_id) SELECT n, sha256(n::text::bytea), 'admin', %d FROM generate_series(1, %d) n",
			id, settings.KeysPerOwner.Default-1-free),
	)
	var created atomic.Int32
	var all sync.WaitGroup
	for range 4 * free {
		all.Go(func() {
			if response := own.Do("POST", "/auth/key", `{"name": "another"}`); response.Status == 200 {
				created.Add(1)
			} else {
				response.WantErrors("/owner", "too_many")
			}
		})
	}
	all.Wait()
	if n := created.Load(); n != free {
		t.Errorf("got %d keys made, want %d", n, free)
	}
	adminKey := c.Do("POST", "/auth/key", `{"name": "mine"}`).Want(200).ID()
	c.Do("PATCH", path("/auth/key/%d", adminKey), keyBody(id)).WantErrors("/owner", "too_many")
}

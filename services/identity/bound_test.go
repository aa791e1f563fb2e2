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

// ownedBy is a body that makes a key for an admin, or gives one to an admin.
func ownedBy(admin int64) map[string]any {
	return map[string]any{"name": "x", "owner": map[string]any{"url": path("/admin/%d", admin)}}
}

// A key that somebody else made can do no more than he could, also when its owner is lifted later.
func TestKeyIsBoundByItsMaker(t *testing.T) {
	t.Parallel()
	_, c := newStand(t)
	_, maker := newAdmin(t, c, "maker", `{"users": {"admins": {"read": true, "write": true}}, "network": {"switches": {"read": true}}}`)
	anna, annas := newAdmin(t, c, "anna", `{}`)
	made := testkit.Decode[keys.APIKey](maker.Do("POST", "/auth/key", ownedBy(anna)).Want(200))
	bounded := c.With(made.Key)
	own := testkit.Decode[keys.APIKey](annas.Do("POST", "/auth/key", `{"name": "own"}`).Want(200))
	c.Do("PATCH", path("/admin/%d/permission", anna), principal.SetOf(principal.All)).Want(200)

	bounded.Do("GET", "/-/holds/network.switches", nil).Want(200)
	bounded.Do("GET", "/-/holds/network.groups", nil).WantDetail(problem.Forbidden, "The key lacks network.groups read.")
	c.With(own.Key).Do("GET", "/-/holds/network.groups", nil).Want(200)
	// What it makes, and what it edits, is bound as it is.
	c.With(testkit.Decode[keys.APIKey](bounded.Do("POST", "/auth/key", `{"name": "x"}`).Want(200)).Key).
		Do("GET", "/-/holds/network.groups", nil).
		Want(403)
	bounded.Do("PATCH", path("/auth/key/%d", own.ID), `{"name": "edited"}`).Want(200)
	c.With(own.Key).Do("GET", "/-/holds/network.groups", nil).Want(403)
	// Nor does it write to the account, or grant, what only the account holds.
	lacks := "The account holds what the key lacks: "
	for _, answer := range []*testkit.Answer{
		bounded.Do("PATCH", path("/admin/%d", anna), `{"password": "a long walk home"}`),
		bounded.Do("PATCH", path("/admin/%d/permission", anna), `{"network": {"groups": {"read": false}}}`),
		bounded.Do("DELETE", path("/admin/%d", anna), nil),
	} {
		if detail := testkit.Decode[problem.Problem](answer).Detail; !strings.HasPrefix(detail, lacks) && answer.Status != 422 {
			t.Errorf("got %d: %s, want 422 or a detail that begins with %q", answer.Status, detail, lacks)
		}
	}
	bounded.Do("PATCH", path("/admin/%d", anna), `{"email": "mine@example.com"}`).Want(403)
	// What the owner made with a key that is not bound is not.
	annas.Do("GET", "/-/holds/network.groups", nil).Want(200)
	free := testkit.Decode[keys.APIKey](annas.Do("POST", "/auth/key", `{"name": "free"}`).Want(200))
	c.With(free.Key).Do("GET", "/-/holds/network.groups", nil).Want(200)
	// The key shows it.
	if key := testkit.Decode[keys.APIKey](
		c.Do("GET", path("/auth/key/%d", made.ID), nil),
	); key.Bound == nil ||
		!slices.Contains(*key.Bound, "network.switches read") {
		t.Errorf("got a key with the bound %v, want network.switches read in it", key.Bound)
	}
}

// No sequence of creates, edits and grants lets a key do what one of those did not hold at the time who gave the key its
// value or its owner, for an account that is not his, or what a key was bound to that it was made or edited with.
func TestBoundsHold(t *testing.T) {
	t.Parallel()
	s, c := newStand(t)
	base := principal.Grant(permission.UsersAdmins, permission.Read) | principal.Grant(permission.UsersAdmins, permission.Write)
	other := []principal.Grants{
		principal.Grant(permission.NetworkGroups, permission.Read),
		principal.Grant(permission.NetworkSwitches, permission.Read),
		principal.Grant(permission.SystemLogs, permission.Read),
	}
	type key struct {
		id, owner int64
		most      principal.Grants // by all that was done to it
		as        *testkit.Client
	}
	calling := func(id, owner int64) *testkit.Client { // past the gateway, whose knowledge is as stale as can be
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
		holds, keys := map[int64]principal.Grants{}, []*key{}
		grant := func(admin int64) {
			holds[admin] = base
			for i, g := range other {
				if rapid.Bool().Draw(rt, fmt.Sprint("grant ", i)) {
					holds[admin] |= g
				}
			}
			testkit.Execute(
				t,
				s.DB,
				path("UPDATE admin SET permissions = '{\"%s\"}' WHERE id = %d", strings.Join(holds[admin].Names(), `","`), admin),
			)
		}
		made := func(a *testkit.Answer, owner int64, most principal.Grants) {
			keys = append(keys, &key{a.ID(), owner, most, calling(a.ID(), owner)})
		}
		for i, admin := range owners { // each admin has a key, and some have one that another made
			grant(admin)
			made(c.Do("POST", "/auth/key", ownedBy(admin)).Want(200), admin, principal.All)
			if before := owners[max(i-1, 0)]; i > 0 && holds[before]&^holds[admin] == 0 {
				made(keys[len(keys)-1].as.Do("POST", "/auth/key", ownedBy(before)).Want(200), before, holds[admin])
			}
		}
		for range 6 {
			by, admin := rapid.SampledFrom(keys).Draw(rt, "by"), rapid.SampledFrom(owners).Draw(rt, "admin")
			k := rapid.SampledFrom(keys).Draw(rt, "key")
			// give is what becomes of a key that by gives to an account.
			give := func(most principal.Grants, to int64) principal.Grants {
				if most &= by.most; to != by.owner {
					most &= holds[by.owner]
				}
				return most
			}
			switch rapid.SampledFrom([]string{"grant", "create", "create", "name", "value", "owner"}).Draw(rt, "do") {
			case "grant":
				grant(admin)
			case "create":
				if a := by.as.Do("POST", "/auth/key", ownedBy(admin)); a.Status == 200 {
					made(a, admin, give(principal.All, admin))
				}
			case "name":
				values++ // an edit that changes nothing leaves the bound, too
				if by.as.Do("PATCH", path("/auth/key/%d", k.id), map[string]any{"name": fmt.Sprint("named ", values)}).Status == 200 {
					k.most &= by.most
				}
			case "value":
				values++
				if by.as.Do(
					"PATCH",
					path("/auth/key/%d", k.id),
					map[string]any{"name": "y", "key": fmt.Sprintf("a-value-that-was-made-elsewhere-%06d", values)},
				).Status == 200 {
					k.most = give(k.most, k.owner)
				}
			case "owner":
				moved := admin != k.owner
				values++
				body := ownedBy(admin)
				body["name"] = fmt.Sprint("owned ", values)
				if by.as.Do("PATCH", path("/auth/key/%d", k.id), body).Status == 200 {
					if k.most &= by.most; moved {
						k.most, k.owner, k.as = give(k.most, admin), admin, calling(k.id, admin)
					}
				}
			}
			for _, k := range keys {
				var bound []string
				if err := s.DB.QueryRow(t.Context(), "SELECT coalesce(bound, $2) FROM api_key WHERE id = $1", k.id, principal.All.Names()).
					Scan(&bound); err != nil {
					rt.Fatal(err)
				}
				if beyond := holds[k.owner] & principal.ParseGrants(bound) &^ k.most; beyond != 0 {
					rt.Fatalf("key %d: got the permissions %v beyond its bound, want none", k.id, beyond.Names())
				}
			}
		}
	})
}

// What an expiring key makes or edits does not outlive it.
func TestExpiringKeyHasNoLaterSuccessor(t *testing.T) {
	t.Parallel()
	_, c := newStand(t)
	at := func(d time.Duration) rest.Timestamp {
		return rest.Timestamp{Time: time.Now().Add(d).Truncate(time.Second)}
	}
	end, later, sooner := at(2*time.Hour), at(3*time.Hour), at(time.Hour)
	lasting := c.Do("POST", "/auth/key", `{"name": "lasting"}`).Want(200).ID()
	shown := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", map[string]any{"name": "expiring", "expires_at": end}).Want(200))
	expiring, self := c.With(shown.Key), path("/auth/key/%d", shown.ID)
	for _, absent := range []any{`{"name": "x"}`, `{"name": "x", "expires_at": null}`} {
		if made := testkit.Decode[keys.APIKey](
			expiring.Do("POST", "/auth/key", absent).Want(200),
		); made.ExpiresAt == nil ||
			!made.ExpiresAt.Equal(end.Time) {
			t.Errorf("%s: got a key that expires at %v, want %v", absent, made.ExpiresAt, end)
		}
	}
	expiring.Do("POST", "/auth/key", map[string]any{"name": "x", "expires_at": later}).
		WantDetail(problem.Invalid, "expires_at can be "+end.UTC().Format(time.RFC3339)+" at the latest, when the calling key expires.")
	made := expiring.Do("POST", "/auth/key", map[string]any{"name": "x", "expires_at": sooner}).Want(200).ID()

	const value = "a-key-that-another-panel-made-0001"
	other, _ := newAdmin(t, c, "other", `{}`)
	for _, beyond := range []map[string]any{{"expires_at": later}, {"expires_at": nil}} {
		beyond["name"] = "x"
		expiring.Do("PATCH", self, beyond).WantErrors("/expires_at", "out_of_range")
		expiring.Do("PATCH", path("/auth/key/%d", made), beyond).WantErrors("/expires_at", "out_of_range")
	}
	expiring.Do("PATCH", path("/auth/key/%d", lasting), map[string]any{"name": "x", "key": value}).WantErrors("/expires_at", "out_of_range")
	expiring.Do("PATCH", path("/auth/key/%d", lasting), ownedBy(other)).WantErrors("/expires_at", "out_of_range")
	expiring.Do("PATCH", path("/auth/key/%d", lasting), `{"name": "renamed"}`).Want(200)
	expiring.Do("PATCH", path("/auth/key/%d", lasting), map[string]any{"name": "x", "key": value, "expires_at": end}).Want(200)
	c.Do("PATCH", self, map[string]any{"name": "x", "expires_at": later}).Want(200)
}

// An account has no more keys than it may have, however many are made at once.
func TestKeysPerOwner(t *testing.T) {
	t.Parallel()
	s, c := newStand(t)
	const room = 3
	id, own := newAdmin(t, c, "many", `{}`)
	testkit.Execute(
		t,
		s.DB,
		path("INSERT INTO api_key (name, hash, owner_type, owner_id) SELECT n, sha256(n::text::bytea), 'admin', %d FROM generate_series(1, %d) n",
			id, settings.KeysPerOwner.Default-1-room),
	)
	var made atomic.Int32
	var all sync.WaitGroup
	for range 4 * room {
		all.Go(func() {
			if answer := own.Do("POST", "/auth/key", `{"name": "another"}`); answer.Status == 200 {
				made.Add(1)
			} else {
				answer.WantErrors("/owner", "too_many")
			}
		})
	}
	all.Wait()
	if n := made.Load(); n != room {
		t.Errorf("got %d keys made, want %d", n, room)
	}
	mine := c.Do("POST", "/auth/key", `{"name": "mine"}`).Want(200).ID()
	c.Do("PATCH", path("/auth/key/%d", mine), ownedBy(id)).WantErrors("/owner", "too_many")
}

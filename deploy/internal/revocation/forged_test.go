package revocation

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// TestForgedEntries tests what write access to Redis is good for. It authenticates nobody and grants nothing, and a
// copied entry of a revoked key works only while the copy is fresh.
func TestForgedEntries(t *testing.T) {
	t.Parallel()
	for _, topology := range []topology{split, together} {
		t.Run(string(topology), func(t *testing.T) {
			t.Parallel()
			s := newStand(t, topology, 1, nil)
			t.Run("an unknown key", s.testUnknownKey)
			t.Run("raised grants", s.testRaisedGrants)
			t.Run("another's entry", s.testCopiedEntry)
			t.Run("an old entry", s.testReplayedEntry)
		})
	}
}

// keyEntry returns the Redis key of an API key's entry.
func keyEntry(key string) string {
	hash := apikey.Hash(key)
	return "entry:" + keycache.KeyName(hex.EncodeToString(hash[:]))
}

// adminEntry returns the Redis key of an admin's entry.
func adminEntry(id int64) string {
	return "entry:" + keycache.OwnerName(principal.Owner{Type: principal.Admin, ID: id})
}

// statusOf returns the status of a request, sent after the gateway's own copy of the entry has expired.
func (s *stand) statusOf(key, path string) int {
	time.Sleep(maxDelay + 10*time.Millisecond)
	return s.gateways[0].WithKey(key).Do("GET", path, nil).Status
}

func (s *stand) wantStatus(t *testing.T, key, path string, status int) {
	t.Helper()
	if got := s.statusOf(key, path); got != status {
		t.Errorf("%s: got %d, want %d", path, got, status)
	}
}

func (s *stand) write(t *testing.T, entry string, fields ...any) {
	t.Helper()
	if err := s.redis.HSet(t.Context(), entry, fields...).Err(); err != nil {
		t.Fatal(err)
	}
}

// awaitEntry uses a key until Redis has its entry, and returns the entry. Under load, Redis may not have it after
// the first use.
func (s *stand) awaitEntry(t *testing.T, key, path, entry string) map[string]string {
	t.Helper()
	return testkit.Await(t, "Redis has the entry "+entry, func() map[string]string {
		s.wantStatus(t, key, path, http.StatusOK)
		return s.redis.HGetAll(t.Context(), entry).Val()
	}, func(fields map[string]string) bool { return fields["mac"] != "" })
}

// copyEntry overwrites the entry to with an entry of the first admin.
func (s *stand) copyEntry(t *testing.T, from, to string) {
	t.Helper()
	s.write(t, to, s.awaitEntry(t, s.admin.Key, "/admin", from))
}

func (s *stand) testUnknownKey(t *testing.T) {
	for _, mac := range []string{"", strings.Repeat("x", 36)} {
		key := apikey.New().Reveal()
		s.write(t, keyEntry(key), "at", time.Now().UnixMilli(), "body", `{"id":1,"owner":{"type":"admin","id":1}}`, "mac", mac)
		s.wantStatus(t, key, "/admin", http.StatusUnauthorized)
	}
}

func (s *stand) testRaisedGrants(t *testing.T) {
	admin, key := s.user("raised")
	s.wantStatus(t, key.Key, "/port-speed", http.StatusOK)
	s.write(
		t,
		adminEntry(admin),
		"at",
		time.Now().UnixMilli(),
		"body",
		`{"active":true,"name":"raised","grants":["users.admins read","network.switches read"]}`,
	)
	s.wantStatus(t, key.Key, "/admin", http.StatusForbidden)
	s.wantStatus(t, key.Key, "/port-speed", http.StatusOK)
}

func (s *stand) testCopiedEntry(t *testing.T) {
	admin, key := s.user("copied")
	s.wantStatus(t, key.Key, "/port-speed", http.StatusOK)
	s.copyEntry(t, adminEntry(1), adminEntry(admin))
	s.wantStatus(t, key.Key, "/admin", http.StatusForbidden)
	s.copyEntry(t, keyEntry(s.admin.Key), keyEntry(key.Key))
	s.wantStatus(t, key.Key, "/admin", http.StatusForbidden)
	unknown := apikey.New().Reveal()
	s.copyEntry(t, keyEntry(s.admin.Key), keyEntry(unknown))
	s.wantStatus(t, unknown, "/admin", http.StatusUnauthorized)
}

func (s *stand) testReplayedEntry(t *testing.T) {
	_, key := s.user("replayed")
	kept := s.awaitEntry(t, key.Key, "/port-speed", keyEntry(key.Key))
	s.admin.Do("DELETE", fmt.Sprintf("/auth/key/%d", key.ID), nil).Want(200)
	answered := time.Now()
	for time.Since(answered) < keycache.FreshTTL+time.Second {
		s.write(t, keyEntry(key.Key), kept)
		sent := time.Now()
		if status := s.statusOf(key.Key, "/port-speed"); status == http.StatusOK && sent.Sub(answered) > keycache.FreshTTL {
			t.Errorf("got an accepted request %v after the revocation, want none after %v", sent.Sub(answered), keycache.FreshTTL)
		}
	}
	s.write(t, keyEntry(key.Key), kept)
	s.wantStatus(t, key.Key, "/port-speed", http.StatusUnauthorized)
}

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
)

// Who can write to Redis, and nothing more, is nobody by it and may do no more than before; a revoked key lives on for
// as long as an entry is fresh, and no longer.
func TestForgedEntries(t *testing.T) {
	t.Parallel()
	for _, reached := range []way{split, together} {
		t.Run(string(reached), func(t *testing.T) {
			t.Parallel()
			s := newStand(t, reached, 1, nil)
			t.Run("an unknown key", s.testUnknownKey)
			t.Run("raised grants", s.testRaisedGrants)
			t.Run("another's entry", s.testCopiedEntry)
			t.Run("an old entry", s.testReplayedEntry)
		})
	}
}

func entryOf(key string) string {
	hash := apikey.Hash(key)
	return "entry:" + keycache.KeyName(hex.EncodeToString(hash[:]))
}

func entryOfAdmin(id int64) string {
	return "entry:" + keycache.OwnerName(principal.Owner{Type: principal.Admin, ID: id})
}

// asks uses a key once nobody goes any more by what was found of it before.
func (s *stand) asks(key, path string) int {
	time.Sleep(promise + 10*time.Millisecond)
	return s.doors[0].WithKey(key).Do("GET", path, nil).Status
}

func (s *stand) want(t *testing.T, key, path string, status int) {
	t.Helper()
	if got := s.asks(key, path); got != status {
		t.Errorf("%s: got %d, want %d", path, got, status)
	}
}

func (s *stand) write(t *testing.T, entry string, fields ...any) {
	t.Helper()
	if err := s.redis.HSet(t.Context(), entry, fields...).Err(); err != nil {
		t.Fatal(err)
	}
}

// filled is an entry, which the use of a key fills, and Redis has for a while.
func (s *stand) filled(t *testing.T, key, path, entry string) map[string]string {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		s.want(t, key, path, http.StatusOK)
		if fields := s.redis.HGetAll(t.Context(), entry).Val(); fields["mac"] != "" {
			return fields
		}
		if time.Now().After(deadline) {
			t.Fatalf("got an empty entry %s, want it filled", entry)
		}
	}
}

// copied puts an entry of the first admin's in the place of another one.
func (s *stand) copied(t *testing.T, from, to string) {
	t.Helper()
	s.write(t, to, s.filled(t, s.admin.Key, "/admin", from))
}

func (s *stand) testUnknownKey(t *testing.T) {
	for _, mac := range []string{"", strings.Repeat("x", 36)} {
		key := apikey.New().Reveal()
		s.write(t, entryOf(key), "at", time.Now().UnixMilli(), "body", `{"id":1,"owner":{"type":"admin","id":1}}`, "mac", mac)
		s.want(t, key, "/admin", http.StatusUnauthorized)
	}
}

func (s *stand) testRaisedGrants(t *testing.T) {
	admin, key := s.user("raised")
	s.want(t, key.Key, "/port-speed", http.StatusOK)
	s.write(
		t,
		entryOfAdmin(admin),
		"at",
		time.Now().UnixMilli(),
		"body",
		`{"active":true,"name":"raised","grants":["users.admins read","network.switches read"]}`,
	)
	s.want(t, key.Key, "/admin", http.StatusForbidden)
	s.want(t, key.Key, "/port-speed", http.StatusOK)
}

func (s *stand) testCopiedEntry(t *testing.T) {
	admin, key := s.user("copied")
	s.want(t, key.Key, "/port-speed", http.StatusOK)
	s.copied(t, entryOfAdmin(1), entryOfAdmin(admin))
	s.want(t, key.Key, "/admin", http.StatusForbidden)
	s.copied(t, entryOf(s.admin.Key), entryOf(key.Key))
	s.want(t, key.Key, "/admin", http.StatusForbidden)
	unknown := apikey.New().Reveal()
	s.copied(t, entryOf(s.admin.Key), entryOf(unknown))
	s.want(t, unknown, "/admin", http.StatusUnauthorized)
}

func (s *stand) testReplayedEntry(t *testing.T) {
	_, key := s.user("replayed")
	kept := s.filled(t, key.Key, "/port-speed", entryOf(key.Key))
	s.admin.Do("DELETE", fmt.Sprintf("/auth/key/%d", key.ID), nil).Want(200)
	answered := time.Now()
	for time.Since(answered) < keycache.FreshTTL+time.Second {
		s.write(t, entryOf(key.Key), kept)
		sent := time.Now()
		if status := s.asks(key.Key, "/port-speed"); status == http.StatusOK && sent.Sub(answered) > keycache.FreshTTL {
			t.Errorf("got a request let in %v after the end, want none after %v", sent.Sub(answered), keycache.FreshTTL)
		}
	}
	s.write(t, entryOf(key.Key), kept)
	s.want(t, key.Key, "/port-speed", http.StatusUnauthorized)
}

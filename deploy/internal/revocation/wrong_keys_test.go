package revocation

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/ironplane/ironplane/services/identity"
)

// Wrong keys, a hundred thousand of them where all is tried, reach neither Postgres nor Redis, and leave nothing in
// memory.
func TestWrongKeys(t *testing.T) { // by itself, for its memory is the process'
	s := newStand(t, together, 0, nil)
	attempts := 20_000
	if *full {
		attempts = 100_000
	}
	ask := func(n int) int {
		r := httptest.NewRequest("GET", "/port-speed", http.NoBody)
		r.Header.Set("X-Api-Key", fmt.Sprintf("ip_%049d", n))
		w := httptest.NewRecorder()
		s.product.Gateway.ServeHTTP(w, r)
		return w.Code
	}
	for n := range 1000 {
		ask(n)
	}
	queries, entries, memory := s.queries(), s.redis.DBSize(t.Context()).Val(), heap()
	for n := range attempts {
		if status := ask(n); status != http.StatusUnauthorized {
			t.Fatalf("got %d for a wrong key, want %d", status, http.StatusUnauthorized)
		}
	}
	if grown := heap() - memory; grown > 16<<20 {
		t.Errorf("got %d more bytes of memory, want %d at most", grown, 16<<20)
	}
	if n := s.redis.DBSize(t.Context()).Val(); n > entries+1 { // the count of the address
		t.Errorf("got %d keys in Redis, want %d at most", n, entries+1)
	}
	if n := s.queries() - queries; n > int64(attempts)/10 { // some: the services are at work, too
		t.Errorf("got %d transactions in Postgres, want %d at most", n, attempts/10)
	}
}

// queries is how many transactions Postgres has seen in the test's database.
func (s *stand) queries() (n int64) {
	s.t.Helper()
	time.Sleep(1500 * time.Millisecond) // connections report once a second, when they are used
	err := s.product.Databases[identity.Name].QueryRow(s.t.Context(),
		"SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&n)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

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

// TestInvalidKeys tests that malformed keys reach neither Postgres nor Redis, and leave nothing in memory. It does not run
// in parallel, because it measures the memory of the process.
func TestInvalidKeys(t *testing.T) {
	s := newStand(t, together, 0, nil)
	attempts := 20_000
	if *full {
		attempts = 100_000
	}
	statusOf := func(n int) int {
		r := httptest.NewRequest("GET", "/port-speed", http.NoBody)
		r.Header.Set("X-Api-Key", fmt.Sprintf("ip_%049d", n))
		w := httptest.NewRecorder()
		s.product.Gateway.ServeHTTP(w, r)
		return w.Code
	}
	for n := range 1000 {
		statusOf(n)
	}
	transactions, entries, memory := s.transactions(), s.redis.DBSize(t.Context()).Val(), heapSize()
	for n := range attempts {
		if status := statusOf(n); status != http.StatusUnauthorized {
			t.Fatalf("got %d for an invalid key, want %d", status, http.StatusUnauthorized)
		}
	}
	if grown := heapSize() - memory; grown > 16<<20 {
		t.Errorf("got %d more bytes of memory, want %d at most", grown, 16<<20)
	}
	if n := s.redis.DBSize(t.Context()).Val(); n > entries+1 { // one counts the requests of the address
		t.Errorf("got %d keys in Redis, want %d at most", n, entries+1)
	}
	if n := s.transactions() - transactions; n > int64(attempts)/10 { // the services have background work, too
		t.Errorf("got %d transactions in Postgres, want %d at most", n, attempts/10)
	}
}

// transactions returns the number of transactions that Postgres has counted in the test's database.
func (s *stand) transactions() (n int64) {
	s.t.Helper()
	time.Sleep(1500 * time.Millisecond) // connections report their transactions once a second
	err := s.product.Databases[identity.Name].QueryRow(s.t.Context(),
		"SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&n)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func heapSize() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

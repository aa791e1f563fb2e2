package producttest

import (
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/system"
)

// drainTime is how long the log may take to catch up.
const drainTime = 2 * time.Minute

// Drain waits until all that was changed, or tried with accounts, is logged.
func Drain(t testing.TB, p *product.Product) {
	t.Helper()
	for deadline := time.Now().Add(drainTime); ; time.Sleep(10 * time.Millisecond) {
		behind := 0
		if err := p.Databases[identity.Name].QueryRow(t.Context(), "SELECT count(*) FROM attempt").Scan(&behind); err != nil {
			t.Fatal(err)
		}
		for name, db := range p.Databases {
			var last, logged int64
			err := db.QueryRow(t.Context(), "SELECT last + (SELECT count(*) FROM change WHERE seq IS NULL) FROM sequencer").Scan(&last)
			if err != nil {
				t.Fatal(err)
			}
			err = p.Databases[system.Name].QueryRow(t.Context(), "SELECT coalesce(min(seq), 0) FROM consumer WHERE source = $1", name).Scan(&logged)
			if err != nil {
				t.Fatal(err)
			}
			if last != logged {
				behind++
			}
		}
		if behind == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log does not catch up with %d attempts and services", behind)
		}
	}
}

package producttest

import (
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/system"
)

// drainTimeout is how long the log and other readers of changes may take to catch up.
const drainTimeout = 5 * time.Minute

// lastChange selects the number of a service's last change, once every change has a number.
const lastChange = "SELECT last + (SELECT count(*) FROM change WHERE seq IS NULL) FROM sequencer"

// AwaitLog waits until all changes, and all attempts to sign in, are logged.
func AwaitLog(t testing.TB, p *product.Product) {
	t.Helper()
	for deadline := time.Now().Add(drainTimeout); ; time.Sleep(10 * time.Millisecond) {
		behind := 0
		if err := p.Databases[identity.Name].QueryRow(t.Context(), "SELECT count(*) FROM attempt").Scan(&behind); err != nil {
			t.Fatal(err)
		}
		for name, db := range p.Databases {
			var last, logged int64
			err := db.QueryRow(t.Context(), lastChange).Scan(&last)
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
			t.Fatalf("got a log that lacks %d attempts and the changes of services, want all after %v", behind, drainTimeout)
		}
	}
}

// AwaitConsumers waits until each service has applied all changes of the others. After that, names and counts of other services'
// items do not change by themselves.
func AwaitConsumers(t testing.TB, p *product.Product) {
	t.Helper()
	before := map[string]int64{}
	for deadline := time.Now().Add(drainTimeout); ; time.Sleep(5 * time.Millisecond) {
		lasts := map[string]int64{}
		for name, db := range p.Databases {
			var last int64
			if err := db.QueryRow(t.Context(), lastChange).Scan(&last); err != nil {
				t.Fatal(err)
			}
			lasts[name] = last
		}
		behind := ""
		for name, db := range p.Databases {
			rows, err := db.Query(t.Context(), "SELECT source, min(seq) FROM consumer GROUP BY source")
			if err != nil {
				t.Fatal(err)
			}
			var source string
			var applied int64
			_, err = pgx.ForEachRow(rows, []any{&source, &applied}, func() error {
				if applied < lasts[source] {
					behind = name + " lacks changes of " + source
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		var counted bool
		if err := p.Databases[clients.Name].QueryRow(t.Context(), "SELECT NOT EXISTS (SELECT FROM client_recount)").Scan(&counted); err != nil {
			t.Fatal(err)
		}
		if !counted {
			behind = "clients has servers to count"
		}
		if behind == "" && maps.Equal(lasts, before) { // a service that applies a change may make another one
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %s, want all changes applied after %v", behind, drainTimeout)
		}
		before = lasts
	}
}

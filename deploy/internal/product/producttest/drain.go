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

// drainTime is how long the log may take to catch up, and whoever else follows a service's changes.
const drainTime = 5 * time.Minute

// changed is the number of the last of a service's changes, with those that have none yet.
const changed = "SELECT last + (SELECT count(*) FROM change WHERE seq IS NULL) FROM sequencer"

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
			err := db.QueryRow(t.Context(), changed).Scan(&last)
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

// Followed waits until each service has heard of all that the others have changed: from then on the names and counts of others' items
// stay as they are, which would change by themselves else.
func Followed(t testing.TB, p *product.Product) {
	t.Helper()
	before := map[string]int64{}
	for deadline := time.Now().Add(drainTime); ; time.Sleep(5 * time.Millisecond) {
		lasts := map[string]int64{}
		for name, db := range p.Databases {
			var last int64
			if err := db.QueryRow(t.Context(), changed).Scan(&last); err != nil {
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
			var heard int64
			_, err = pgx.ForEachRow(rows, []any{&source, &heard}, func() error {
				if heard < lasts[source] {
					behind = name + " has not heard what " + source + " has changed"
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
			behind = "servers of clients are not counted"
		}
		if behind == "" && maps.Equal(lasts, before) { // who hears of a change may make one
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to rest: %s", behind)
		}
		before = lasts
	}
}

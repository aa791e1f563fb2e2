package testkit

import (
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/wake"
)

// Wakes returns a bus that reaches this process alone, by which a service's units of work wake those who wait.
func Wakes(service string, db *pg.DB) *wake.Bus {
	wakes := wake.New(nil)
	db.OnWake(func(kind string) { wakes.Wake(service, kind) })
	return wakes
}

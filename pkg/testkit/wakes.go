package testkit

import (
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/wake"
)

// Wakes returns a bus for this process alone. Transactions of the service wake its listeners.
func Wakes(service string, db *pg.DB) *wake.Bus {
	wakes := wake.New(nil)
	db.OnWake(func(kind string) { wakes.Wake(service, kind) })
	return wakes
}

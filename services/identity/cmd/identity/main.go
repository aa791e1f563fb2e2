// The identity service as a process of its own.
package main

import (
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/principal/entry"
	"github.com/ironplane/ironplane/pkg/process"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/identity"
)

func main() {
	process.Service{
		Name: identity.Name, Migrations: identity.Migrations,
		Routes: func(db *pg.DB, entries *entry.Store) []rest.Route { return identity.New(db, entries).Routes() },
	}.Main()
}

// The network service as a process of its own.
package main

import (
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/principal/entry"
	"github.com/ironplane/ironplane/pkg/process"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/network"
)

func main() {
	process.Service{
		Name: network.Name, Migrations: network.Migrations,
		Routes: func(db *pg.DB, _ *entry.Store) []rest.Route { return network.New(db).Routes() },
	}.Main()
}

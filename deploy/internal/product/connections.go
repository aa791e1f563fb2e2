package product

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/secret"
)

// otherConnections is how many connections an installation in one process needs besides the services' pools: for its claim,
// for migrations, and for a command that runs meanwhile.
const otherConnections = 6

// ConnectionShortage returns a sentence about each limit of the database that is below what an installation in one process may
// open. It is empty if the limits suffice.
func (c *Claim) ConnectionShortage(ctx context.Context) (shortage string, err error) {
	err = c.WithConnection(ctx, func(conn *pgx.Conn) error {
		shortage, err = budget(c.admin).Shortage(ctx, conn)
		return err
	})
	return shortage, err
}

// budget returns how many connections each service's role, and all of them together, may open.
func budget(admin secret.String) pool.Budget {
	b := pool.Budget{Roles: map[string]int{}, All: connections*len(Services) + otherConnections}
	for _, name := range Names() {
		b.Roles[rolePrefix(admin)+name] = connections
	}
	return b
}

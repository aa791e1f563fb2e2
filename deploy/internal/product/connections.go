package product

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/secret"
)

// otherConnections are those that an installation in one process opens besides those of the services' pools: its claim, what
// migrates, and a command that is run meanwhile.
const otherConnections = 6

// Shortage says, in a sentence, where a limit of the database is less than what an installation in one process may open; else
// nothing.
func (c *Claim) Short(ctx context.Context) (short string, err error) {
	err = c.Ask(ctx, func(conn *pgx.Conn) error {
		short, err = budget(c.admin).Shortage(ctx, conn)
		return err
	})
	return short, err
}

func budget(admin secret.String) pool.Budget {
	b := pool.Budget{Roles: map[string]int{}, All: connections*len(Services) + otherConnections}
	for _, name := range Names() {
		b.Roles[rolePrefix(admin)+name] = connections
	}
	return b
}

package rows

import (
	"context"
	"errors"
	"fmt"
)

// clients returns the number of clients.
func (l *loader) clients() int { return l.Entities/40 + 1 }

// fillClients writes the clients. Their ids are those of the owners of IP entities.
func fillClients(ctx context.Context, l *loader) error {
	maxID, err := l.maxID(ctx, "client")
	if err != nil {
		return err
	}
	if maxID > 0 {
		return errors.New("the database has clients: seed an empty one")
	}
	err = l.copy(ctx, "client", []string{"id", "email", "first", "last", "billing_id"}, l.clients(), func(i int) []any {
		id := int64(i + 1)
		return []any{id, fmt.Sprintf("%s.%d@example.org", word(id), id), title(word(id)), "GmbH", id}
	})
	if err != nil {
		return err
	}
	servers := make([]int64, l.clients())
	for i := 0; i < l.Entities; i += entitiesPerMachine {
		if c := l.drawCustomer(i); c.server > 0 {
			servers[c.owner-1]++
		}
	}
	err = l.copy(
		ctx,
		"client_server_count",
		[]string{"id", "servers"},
		l.clients(),
		func(i int) []any { return []any{int64(i + 1), servers[i]} },
	)
	if err != nil {
		return err
	}
	return l.setSequence(ctx, "client")
}

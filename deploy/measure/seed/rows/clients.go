package rows

import (
	"context"
	"errors"
	"fmt"
)

// clients is how many there are: see customerOf.
func (l *loader) clients() int { return l.Entities/40 + 1 }

// fillClients writes those whose numbers the owners of IP entities have.
func fillClients(ctx context.Context, l *loader) error {
	last, err := l.last(ctx, "client")
	if err != nil {
		return err
	}
	if last > 0 {
		return errors.New("there are clients already: seed an empty database")
	}
	err = l.copy(ctx, "client", []string{"id", "email", "first", "last", "billing_id"}, l.clients(), func(i int) []any {
		id := int64(i + 1)
		return []any{id, fmt.Sprintf("%s.%d@example.org", word(id), id), title(word(id)), "GmbH", id}
	})
	if err != nil {
		return err
	}
	servers := make([]int64, l.clients())
	for i := 0; i < l.Entities; i += entitiesOfMachine {
		if c := l.customerOf(i); c.server > 0 {
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
	return l.numbered(ctx, "client")
}

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
	return l.numbered(ctx, "client")
}

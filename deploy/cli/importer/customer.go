package importer

import (
	"context"
	"fmt"
	"slices"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
	"github.com/ironplane/ironplane/pkg/client"
)

// findClients looks for the owners of planned entities by email address.
func (t *transfer) findClients(ctx context.Context) error {
	for _, e := range t.plan.Entities {
		if e.Owner != (source.Customer{}) && !slices.Contains(t.owners, e.Owner) {
			t.owners = append(t.owners, e.Owner)
		}
	}
	t.progress.begin("looking for clients", len(t.owners))
	for _, owner := range t.owners {
		t.progress.step()
		for found, err := range t.api.Clients.List(ctx, client.ClientList{Email: owner.Email}) {
			if err != nil {
				return fmt.Errorf("look for client %s: %w", owner.Email, err)
			}
			t.clientIDs[owner.Email] = found.ID
		}
	}
	return nil
}

// createClients creates the missing owners.
func (t *transfer) createClients(ctx context.Context) error {
	t.progress.begin("creating clients", len(t.owners))
	for i, owner := range t.owners {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t.progress.step()
		if t.clientIDs[owner.Email] != 0 {
			continue
		}
		if t.isDryRun {
			t.clients++
			continue
		}
		body := client.ClientCreate{Email: owner.Email, First: owner.First, Last: owner.Last}
		created, err := t.api.Clients.Create(ctx, body, client.IdempotencyKey(t.idempotencyKey("client", i)))
		if err != nil {
			return fmt.Errorf("create client %s: %w", owner.Email, err)
		}
		t.clientIDs[owner.Email] = created.ID
		t.clients++
	}
	return nil
}

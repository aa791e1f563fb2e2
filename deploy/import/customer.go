package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	openapi_types "github.com/oapi-codegen/runtime/types"

	"github.com/ironplane/ironplane/deploy/import/source"
	ironplane "github.com/ironplane/ironplane/pkg/client"
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
		find := func(ctx context.Context) (*http.Response, error) {
			return t.api.api.ListClients(ctx, &ironplane.ListClientsParams{Email: &owner.Email})
		}
		err := list(ctx, t.api, find, func(c ironplane.Client) { t.clientIDs[owner.Email] = c.ID })
		if err != nil {
			return fmt.Errorf("look for client %s: %w", owner.Email, err)
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
		post := func(ctx context.Context) (*http.Response, error) {
			return t.api.api.CreateClient(
				ctx,
				&ironplane.CreateClientParams{IdempotencyKey: t.idempotencyKey("client", i)},
				ironplane.CreateClientBody{Email: openapi_types.Email(owner.Email), First: owner.First, Last: owner.Last},
			)
		}
		var created ironplane.ViewedClient
		if err := t.api.create(ctx, post, &created); err != nil {
			return fmt.Errorf("create client %s: %w", owner.Email, err)
		}
		t.clientIDs[owner.Email] = created.ID
		t.clients++
	}
	return nil
}

package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	openapi_types "github.com/oapi-codegen/runtime/types"

	ironplane "github.com/ironplane/ironplane/pkg/client"
)

// customer is the client to create for a tenant. The zero value means that the tenant becomes no client.
type customer struct{ Email, First, Last string }

// customerColumns are the columns of the file of --clients, in any order.
var customerColumns = []string{"tenant", "email", "first", "last"}

// loadCustomers reads the file of --clients into the dump.
func (d *dump) loadCustomers(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := d.readCustomers(f); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}

// readCustomers reads a CSV file, and reports all its invalid lines.
func (d *dump) readCustomers(from io.Reader) error {
	rows := csv.NewReader(from)
	header, err := rows.Read()
	if err != nil {
		return fmt.Errorf("read the first line, which must name the columns %s: %w", strings.Join(customerColumns, ", "), err)
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	var at [4]int
	for i, name := range customerColumns {
		if at[i] = slices.Index(header, name); at[i] < 0 {
			return fmt.Errorf("the first line has no column %s", name)
		}
	}
	byName := map[string][]int64{}
	for pk, t := range sorted(d.tenants) {
		byName[t.Name] = append(byName[t.Name], pk)
	}
	var errs errorList
	seen := map[string]bool{}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return errs.err()
		}
		if err != nil {
			return err
		}
		line, _ := rows.FieldPos(0)
		cell := func(i int) string { return strings.TrimSpace(row[at[i]]) }
		name, c := cell(0), customer{cell(1), cell(2), cell(3)}
		switch pks := byName[name]; {
		case c.Email == "" || c.First == "" || c.Last == "":
			errs.add("line %d: %s has no email, first or last", line, name)
		case seen[name]:
			errs.add("line %d: a second line for %s", line, name)
		case len(pks) == 0:
			errs.add("line %d: the export has no tenant %q", line, name)
		case len(pks) > 1:
			errs.add("line %d: the export has %d tenants %q; rename all but one in NetBox", line, len(pks), name)
		default:
			d.customers[pks[0]] = c
		}
		seen[name] = true
	}
}

// findClients looks for the owners of planned entities by email address, and creates the missing ones.
func (t *transfer) findClients(ctx context.Context) error {
	var owners []customer
	for _, e := range t.plan.Entities {
		if e.Owner != (customer{}) && !slices.Contains(owners, e.Owner) {
			owners = append(owners, e.Owner)
		}
	}
	t.progress.begin("creating clients", len(owners))
	for i, owner := range owners {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t.progress.step()
		find := func(ctx context.Context) (*http.Response, error) {
			return t.api.api.ListClients(ctx, &ironplane.ListClientsParams{Email: &owner.Email})
		}
		err := list(ctx, t.api, find, func(c ironplane.Client) { t.clientIDs[owner.Email] = c.ID })
		if err != nil {
			return fmt.Errorf("look for client %s: %w", owner.Email, err)
		}
		if t.clientIDs[owner.Email] != 0 {
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

package main

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestTour does the README's tour with the Go client, on a real product.
func TestTour(t *testing.T) {
	t.Parallel()
	_, admin := producttest.Start(t)
	c, ctx := producttest.API(t, admin, client.WithTransport(http.DefaultTransport)), t.Context()

	me, err := c.APIKeys.GetCurrent(ctx)
	check(t, err, "the key", me.Owner.Name, "admin")

	group, err := c.Groups.Create(ctx, client.GroupCreate{Name: "Frankfurt 1"})
	check(t, err, "the group", group.Name, "Frankfurt 1")
	entity, err := c.Entities.Create(ctx, client.EntityCreate{
		Group: group.ID, FullIP: "192.0.2.0/28", VLAN: 120, V4: &client.EntityCreateV4{Gateway: "192.0.2.1"},
	})
	check(t, err, "the entity", entity.V4.SubnetMask, "255.255.255.240")

	// The same address is refused a second time. The answer names what is in the way.
	_, err = c.Entities.Create(ctx, client.EntityCreate{Group: group.ID, FullIP: "192.0.2.5"})
	refusal, _ := errors.AsType[*client.Error](err)
	if !errors.Is(err, client.ErrInvalid) || len(refusal.Fields) != 1 || refusal.RequestID == "" {
		t.Fatalf("got %v, want one invalid member", err)
	}
	check(t, nil, "what is in the way", *refusal.Fields[0].Existing, client.Ref{ID: entity.ID, Name: "192.0.2.0/28"})

	ben, err := c.Clients.Create(ctx, client.ClientCreate{Email: "ben@example.com", First: "Ben", Last: "Miller"})
	check(t, err, "the client", ben.Name, "Ben Miller")
	owner := client.EntityUpdateOwner{
		ID:     client.Set(ben.ID),
		Server: client.Set(client.EntityUpdateOwnerServer{ID: client.Int(4), Name: client.Set("fra1-s4")}),
	}
	assigned, err := c.Entities.Update(ctx, entity.ID, client.EntityUpdate{Nickname: client.Set("rack 12"), Owner: client.Set(owner)},
		client.IfMatch(entity.ETag))
	check(t, err, "the owner's server", assigned.Owner.Server.Name, "fra1-s4")
	_, err = c.Entities.Update(ctx, entity.ID, client.EntityUpdate{Nickname: client.Set("rack 13")}, client.IfMatch(entity.ETag))
	checkKind(t, err, client.ErrStale)
	checkKind(t, c.Clients.Delete(ctx, ben.ID), client.ErrConflict)

	// Many addresses in one call, then the lowest free ones for a client.
	created, err := c.Groups.CreateEntities(ctx, group.ID, client.GroupCreateEntities{
		Prefix: "198.51.100.0/24", Gateway: "198.51.100.1", SubnetMask: "255.255.255.0",
	})
	check(t, err, "the number of entities", created.Count, 253)
	got, err := c.Groups.AllocateEntities(ctx, group.ID, client.GroupAllocateEntities{
		Count: 2, Owner: client.GroupAllocateEntitiesOwner{ID: ben.ID},
	})
	check(t, err, "the lowest free address", got[0].FullIP, "198.51.100.2")
	full, err := c.Groups.GetUtilization(ctx, group.ID)
	check(t, err, "used", full.Used, 3)

	_, err = c.PortSpeeds.Create(ctx, client.PortSpeedCreate{})
	checkKind(t, err, client.ErrInvalid)
	refusal, _ = errors.AsType[*client.Error](err)
	check(t, nil, "the code of /speed", refusal.Field("/speed").Code, "out_of_range")

	anna, err := c.Admins.Create(ctx, client.AdminCreate{Email: "anna@example.com", Password: "a long walk in the rain"})
	check(t, err, "the second admin", anna.Username, "anna")
	read := client.Set(client.ReadWriteUpdate{Read: client.Set(true)})
	_, err = c.Admins.UpdatePermissions(ctx, anna.ID, client.AdminUpdatePermissions{
		Network: client.Set(client.AdminUpdatePermissionsNetwork{Entities: read}),
	})
	check(t, err, "", 0, 0)
	key, err := c.APIKeys.Create(ctx, client.APIKeyCreate{
		Name: "read only", Owner: &client.APIKeyCreateOwner{URL: fmt.Sprintf("/admin/%d", anna.ID)},
	})
	check(t, err, "the key's name", key.Name, "read only")
	reader, err := client.New(admin.URL, client.WithKey(key.Key))
	check(t, err, "", 0, 0)
	names := 0
	for e, err := range reader.Entities.List(ctx, client.EntityList{GroupID: group.ID}) {
		if names++; err != nil || e.Group.ID != group.ID {
			t.Fatalf("got %+v, %v, want an entity of the group", e, err)
		}
	}
	check(t, nil, "the number of entities in three pages", names, 254)
	checkKind(t, reader.Entities.Delete(ctx, entity.ID), client.ErrForbidden)
}

func check[T comparable](t *testing.T, err error, name string, got, want T) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("got %s %v, want %v", name, got, want)
	}
}

func checkKind(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

package network_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// box seals the secrets of tests.
var box = func() *seal.Box {
	created, err := network.Definition.NewBox(seal.NewMasterKey())
	if err != nil {
		panic(err)
	}
	return created
}()

// agreeing is a double of other services that use no entity. The setting is that released entities are available at once.
type agreeing struct{}

func (agreeing) Ask(_ context.Context, _, path string, answer any) error {
	if values, ok := answer.(*settings.Values); ok && path == settings.Path {
		*values = settings.Values{settings.Quarantine.Slug: "0"}
	}
	return nil
}

func (agreeing) Limit(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, timeout)
}

// newClient returns a client with every permission for a network service on a database of its own.
func newClient(t *testing.T) *testkit.Client {
	t.Helper()
	c, _ := newService(t)
	return c
}

// newDatabase returns a database of the test's own, which knows the clients 1 to 100.
func newDatabase(t *testing.T) *pg.DB {
	t.Helper()
	db := testkit.Database(t, network.Name, network.Definition.Migrations)
	testkit.Execute(t, db, "INSERT INTO ref (type, id, name, version) SELECT 'client', n, 'Client ' || n, 1 FROM generate_series(1, 100) n")
	return db
}

// newService is newClient and returns the database, too.
func newService(t *testing.T) (*testkit.Client, *pg.DB) {
	t.Helper()
	db := newDatabase(t)
	service := network.New(db, box, agreeing{})
	testkit.Must(t, service.Settings.Ask(t.Context()))
	handler := rest.NewHandler(network.Name, db, slog.New(slog.NewTextHandler(t.Output(), nil)), service.Routes())
	return testkit.NewClient(t, testkit.As(handler, testkit.AdminWith(principal.All))), db
}

// rename changes the name of a client as the event from clients would.
func rename(t *testing.T, db *pg.DB, client int, name string) {
	t.Helper()
	testkit.Execute(t, db, "UPDATE ref SET name = $2 WHERE type = 'client' AND id = $1", client, name)
}

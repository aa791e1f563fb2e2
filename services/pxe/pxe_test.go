package pxe_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit/names"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/storage/storagetest"
)

func TestMain(m *testing.M) {
	names.ReplaceResolver()
	storagetest.SetCredentials()
	testkit.Main(m)
}

func path(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// newClient serves the pxe service on a database of its own, to a caller with all permissions.
func newClient(t *testing.T) (*testkit.Client, *pg.DB, *seal.Box) {
	t.Helper()
	db := testkit.Database(t, pxe.Name, pxe.Definition.Migrations)
	// The IP groups 1 to 10 exist.
	testkit.Execute(t, db, "INSERT INTO ref (type, id, name, version) SELECT 'group', n, 'Group ' || n, 1 FROM generate_series(1, 10) n")
	box, err := pxe.Definition.NewBox(seal.NewMasterKey())
	if err != nil {
		t.Fatal(err)
	}
	return testkit.NewClient(t, testkit.As(handler(t, db, box), testkit.AdminWith(principal.All))), db, box
}

func handler(t *testing.T, db *pg.DB, box *seal.Box) http.Handler {
	return rest.NewHandler(pxe.Name, db, slog.New(slog.NewTextHandler(t.Output(), nil)), newService(t, db, box).Routes())
}

// newService returns the service with a store of its own.
func newService(t *testing.T, db *pg.DB, box *seal.Box) *pxe.Service {
	return pxe.New(service.Deps{DB: db, Box: box, Settings: service.Settings{Store: t.TempDir()}})
}

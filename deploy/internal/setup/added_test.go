package setup

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/catalog"
	"github.com/ironplane/ironplane/pkg/postgres/provision"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/receiver"
)

type gadget struct {
	rest.Versioned
	ID   int64  `json:"id" db:"id"`
	Name string `json:"name" db:"name"`
}

type gadgetBody struct {
	Name string `json:"name" db:"name" required:"create,edit" example:"Label printer"`
}

// gadgets is the complete definition of a sixth service.
var gadgets = service.Definition{
	Name:   "gadgets",
	Paths:  []string{"gadget"},
	Topics: map[string][]permission.Permission{"gadget": {permission.ServerSettings}},
	Migrations: fstest.MapFS{"migrations/0001_gadget.sql": {Data: []byte(`-- +goose Up
		CREATE TABLE gadget (
			id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
			version bigint NOT NULL DEFAULT 1,
			name    text NOT NULL CONSTRAINT gadget__name UNIQUE
		);`)}},
	New: func(d service.Deps) service.Parts {
		return service.Parts{Routes: rest.Section{Name: "Gadgets", Doc: "Small devices."}.Routes(rest.Resource[gadget, gadgetBody]{
			Path:        "/gadget",
			ID:          "gadget_id",
			Noun:        "gadget",
			Guard:       guard.Has(permission.ServerSettings),
			Table:       "gadget",
			Retry:       rest.RetryRefused,
			EditExample: `{"name": "Laminator"}`,
		}.Routes())}
	},
}

// TestMain adds the service to the product before any test runs, as a line in product.Services and make services would.
func TestMain(m *testing.M) {
	product.Services = append(product.Services, gadgets)
	catalog.Services = append(catalog.Services, gadgets.Entry())
	testkit.Main(m)
}

// TestAddedService shows that the product serves an added service, logs its changes and sends them to webhooks, and that
// setup creates the secrets of its process.
func TestAddedService(t *testing.T) {
	t.Parallel()
	p, c := producttest.StartWith(t, testkit.Redis(t), service.Settings{AllowedNetworks: "127.0.0.1"})
	hook := receiver.Start(t, nil)
	response := c.Do(http.MethodPost, "/webhook", map[string]any{"url": hook.URL, "types": []string{"gadget.*"}}).Want(http.StatusOK)
	hook.Trust(testkit.Decode[struct{ Secret string }](response).Secret)

	id := c.Do(http.MethodPost, "/gadget", `{"name": "Label printer"}`).Want(http.StatusOK).ID()
	if got := testkit.Decode[[]gadget](c.Do(http.MethodGet, "/gadget", nil).Want(http.StatusOK)); len(got) != 1 || got[0].ID != id {
		t.Errorf("got the gadgets %+v, want one with the id %d", got, id)
	}
	c.WithKey("").Do(http.MethodGet, "/gadget", nil).Want(http.StatusUnauthorized)
	producttest.AwaitLog(t, p)
	if got := c.Do(http.MethodGet, "/log?type=gadget.created", nil).Want(http.StatusOK).Text; !strings.Contains(got, "Label printer") {
		t.Errorf("got the log %s, want the gadget in it", got)
	}
	testkit.Eventually(t, "the webhook receives the change of the gadget", func() bool {
		return hook.Accepted() > 0
	})
	c.Do(http.MethodGet, "/system/job?service=gadgets", nil).Want(http.StatusOK)

	setup := config{Secrets: t.TempDir(), Redis: "127.0.0.1:1", Postgres: "127.0.0.1:1"}
	if err := createSecrets(setup); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"redis-url", "database-url", "consul-token"} {
		if _, err := os.Stat(filepath.Join(setup.Secrets, "gadgets", name)); err != nil {
			t.Error(err)
		}
	}
	acl, err := os.ReadFile(filepath.Join(setup.Secrets, "redis", "users.acl"))
	if err != nil || !strings.Contains(string(acl), "user gadgets ") {
		t.Errorf("got the users of Redis %s and %v, want gadgets among them", acl, err)
	}
}

// TestAddedServiceIsProvisioned shows that setup creates the role and the schema of an added service.
func TestAddedServiceIsProvisioned(t *testing.T) {
	t.Parallel()
	c := config{Secrets: t.TempDir(), Redis: "127.0.0.1:1", Postgres: "127.0.0.1:1"}
	if err := createSecrets(c); err != nil {
		t.Fatal(err)
	}
	_, roles, err := c.postgres()
	if err != nil {
		t.Fatal(err)
	}
	admin := testkit.AdminURL(t, testkit.Databases(t, testkit.Service{Name: "other"})["other"])
	const prefix = "added_"
	added := map[string]provision.Role{gadgets.Name: roles[gadgets.Name]}
	if err := provision.Database(t.Context(), admin.Reveal(), prefix, added); err != nil {
		t.Fatal(err)
	}
	url, err := provision.ServiceURL(admin.Reveal(), prefix, gadgets.Name, roles[gadgets.Name].Password)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "CREATE TABLE gadget ()"); err != nil {
		t.Error(err)
	}
}

// TestHalfAService shows that an incomplete definition is refused with the missing part.
func TestHalfAService(t *testing.T) {
	t.Parallel()
	route := rest.Read[rest.None, gadget]{Path: "/gizmo", Guard: guard.Public, Name: "getGizmo", Summary: "View the gizmo"}
	bare := gadgets
	bare.Topics = nil
	other, renamed := gadgets, gadgets
	other.Name, renamed.Paths = "others", []string{"gadget", "gizmo"}
	for want, err := range map[string]error{
		`add "gizmo" to Paths of its Definition`:             gadgets.CheckRoutes([]rest.Route{route}),
		"add Topics to its Definition":                       bare.CheckRoutes(gadgets.New(service.Deps{}).Routes),
		"pkg/catalog lacks the service others":               other.Entry().Check(),
		"pkg/catalog has outdated paths of the service gadg": renamed.Entry().Check(),
		"pkg/catalog has outdated topics of the service gad": bare.Entry().Check(),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

package setup

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/postgres/provision"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
)

const (
	// forCommands is how many connections of a role are for commands, and forOthers how many of the server are for
	// superusers, and for the administrator of the database.
	forCommands, forOthers = 3, 3 + 7
	// defaultMax is max_connections of a PostgreSQL with default settings, and maxOfRoles how many of them all roles may
	// have together.
	defaultMax, maxOfRoles = 100, 90
)

// TestConnectionsFit shows that the table of the docs follows from the defaults, and that three instances of each service
// fit a PostgreSQL with default settings.
func TestConnectionsFit(t *testing.T) {
	t.Parallel()
	read := func(file string) string {
		text, err := os.ReadFile("../../../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	found := regexp.MustCompile("`IRONPLANE_CONNECTIONS` \\| `(\\d+)`").FindStringSubmatch(read("reference/variables.md"))
	field, _ := reflect.TypeFor[config]().FieldByName("Connections")
	standard, err := strconv.Atoi(field.Tag.Get("default"))
	if found == nil || err != nil {
		t.Fatalf("got %v and %v, want the defaults of both variables", found, err)
	}
	each, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	names := slices.DeleteFunc(product.Names(), func(name string) bool { return name == gadgets.Name }) // another test adds it
	services := len(names)
	if pools := 3*each + forCommands; pools > standard || services*standard > maxOfRoles {
		t.Errorf("three instances: got %d connections for a role with a limit of %d, and %d for all roles, want no more than the limit and %d",
			pools, standard, services*standard, maxOfRoles)
	}
	docs := read("operate/install.md")
	for _, instances := range []int{1, 2, 3, 4, 6, 10} {
		limit := max(standard, instances*each+forCommands)
		row := fmt.Sprintf("| %d | %d | %d | %d | %d |\n", instances, services*instances*each, limit, services*limit,
			max(defaultMax, services*limit+forOthers))
		if !strings.Contains(docs, row) {
			t.Errorf("docs/operate/install.md: got no row %q, want it in the table of connections", row)
		}
	}
}

// TestRoleLimits shows that bootstrap sets the limits of roles to the given ones, and leaves them alone without.
func TestRoleLimits(t *testing.T) {
	t.Parallel()
	admin := testkit.AdminURL(t, testkit.Databases(t, testkit.Service{Name: "limited"})["limited"])
	conn, err := pgx.Connect(t.Context(), admin.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, step := range []struct{ limit, want int }{{0, -1}, {18, 18}, {0, 18}, {23, 23}} {
		role := map[string]provision.Role{"limited": {Password: secret.New("for-tests-only"), Connections: step.limit}}
		if err := provision.Database(t.Context(), admin.Reveal(), "limits_", role); err != nil {
			t.Fatal(err)
		}
		var stored int
		if err := conn.QueryRow(t.Context(), "SELECT rolconnlimit FROM pg_roles WHERE rolname = 'limits_limited'").Scan(&stored); err != nil {
			t.Fatal(err)
		}
		if stored != step.want {
			t.Errorf("a limit of %d: got a limit of %d, want %d", step.limit, stored, step.want)
		}
	}
}

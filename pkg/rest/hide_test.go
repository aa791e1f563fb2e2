package rest_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// warehouse has crates and pieces. Clients see neither the place and the notes of a crate, nor the cost of a piece.
var warehouse = fstest.MapFS{"migrations/0001_warehouse.sql": {Data: []byte(`-- +goose Up
CREATE TABLE crate (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, version bigint NOT NULL DEFAULT 1, name text NOT NULL,
	place_row bigint NOT NULL DEFAULT 0, place_shelf text, notes text[] NOT NULL DEFAULT '{}', owner_id bigint NOT NULL DEFAULT 1);
CREATE TABLE piece (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, version bigint NOT NULL DEFAULT 1,
	crate_id bigint NOT NULL REFERENCES crate, name text NOT NULL, cost bigint);
`)}}

type crate struct {
	rest.Versioned
	ID       int64  `json:"id" db:"id"`
	Name     string `json:"name" db:"name"`
	Location struct {
		Row   int64   `json:"row" db:"row"`
		Shelf *string `json:"shelf,omitempty" db:"shelf"`
	} `json:"place" db:"place_"`
	Notes []string `json:"notes" db:"notes"`
}

type crateBody struct {
	Name     string `json:"name" db:"name" required:"create" example:"Rails"`
	Location struct {
		Row   int64   `json:"row" db:"row" example:"3"`
		Shelf *string `json:"shelf" db:"shelf" example:"B"`
	} `json:"place" db:"place_"`
	Notes []string `json:"notes" db:"notes"`
}

type piece struct {
	rest.Versioned
	ID    int64  `json:"id" db:"id"`
	Crate int64  `json:"-" db:"crate_id"`
	Name  string `json:"name" db:"name"`
	Cost  *int64 `json:"cost,omitempty" db:"cost"`
}

type pieceBody struct {
	Crate int64  `path:"crate_id" db:"crate_id"`
	Name  string `json:"name" db:"name" required:"create" example:"Rail"`
	Cost  *int64 `json:"cost" db:"cost" example:"12"`
}

func isClient(ctx context.Context) bool { return principal.FromContext(ctx).Client() != 0 }

func warehouseRoutes() []rest.Route {
	either := guard.HasOrClient(permission.NetworkGroups)
	return append(rest.Resource[crate, crateBody]{
		Path:        "/crate",
		ID:          "crate_id",
		Noun:        "crate",
		Guard:       either,
		Table:       "crate",
		Retry:       rest.RetryRepeats,
		EditExample: `{"name": "Rails and screws"}`,
		Scope: func(ctx context.Context) []pg.Condition {
			if !isClient(ctx) {
				return nil
			}
			return []pg.Condition{{SQL: "owner_id = $1", Args: []any{principal.FromContext(ctx).Client()}}}
		},
		Hide: rest.Hide{From: isClient, Members: []string{"place", "notes"}},
		List: rest.ListOptions{
			Sorts:   map[string]string{"name": "name", "row": "place_row"},
			Filters: map[string]string{"name": "name", "row": "place_row"},
		},
	}.Routes(), rest.Resource[piece, pieceBody]{
		Path:        "/crate/{crate_id}/piece",
		ID:          "piece_id",
		Noun:        "piece",
		Guard:       either,
		Table:       "piece",
		Retry:       rest.RetryRepeats,
		EditExample: `{"cost": 13}`,
		Parent:      func(context.Context, pg.Querier, int64, permission.Access) error { return nil },
		Hide:        rest.Hide{From: isClient, Members: []string{"cost"}},
		List:        rest.ListOptions{Sorts: map[string]string{"name": "name"}, Filters: map[string]string{"cost": "cost"}},
	}.Routes()...)
}

// newWarehouse returns an admin and a client of a warehouse.
func newWarehouse(t *testing.T) (admin, client *testkit.Client) {
	t.Helper()
	db := testkit.Database(t, "warehouse", warehouse)
	handler := rest.NewHandler("warehouse", db, slog.New(slog.NewTextHandler(t.Output(), nil)), warehouseRoutes())
	if err := rest.Check(t.Context(), db, warehouseRoutes()); err != nil {
		t.Fatal(err)
	}
	tenant := testkit.AdminWith(0)
	tenant.Owner = principal.Owner{Type: principal.Client, ID: 1}
	return testkit.NewClient(t, testkit.As(handler, testkit.AdminWith(principal.All))), testkit.NewClient(t, testkit.As(handler, tenant))
}

// Hidden members are in no response to the caller.
func TestHide(t *testing.T) {
	t.Parallel()
	admin, client := newWarehouse(t)
	admin.Do("POST", "/crate", `{"name": "Rails", "place": {"row": 7, "shelf": "B"}, "notes": ["dusty"]}`).Want(200)
	admin.Do("POST", "/crate", `{"name": "Screws", "place": {"row": 3}, "notes": []}`).Want(200)
	admin.Do("POST", "/crate/1/piece", `{"name": "Rail", "cost": 12}`).Want(200)

	const full, masked = `{"id":1,"name":"Rails","place":{"row":7,"shelf":"B"},"notes":["dusty"]}`, `{"id":1,"name":"Rails","place":{"row":0},"notes":[]}`
	for _, test := range []struct{ path, admin, client string }{
		{"/crate/1", full + "\n", masked + "\n"},
		{"/crate?name=Rails", "[" + full + "]\n", "[" + masked + "]\n"},
		{"/crate?name=Rails&per_page=1", "[" + full + "]\n", "[" + masked + "]\n"},
		{"/crate/1/piece/1", `{"id":1,"name":"Rail","cost":12}` + "\n", `{"id":1,"name":"Rail"}` + "\n"},
		{"/crate/1/piece", `[{"id":1,"name":"Rail","cost":12}]` + "\n", `[{"id":1,"name":"Rail"}]` + "\n"},
	} {
		if got := admin.Do("GET", test.path, nil).Want(200).Text; got != test.admin {
			t.Errorf("%s as an admin: got %s, want %s", test.path, got, test.admin)
		}
		if got := client.Do("GET", test.path, nil).Want(200).Text; got != test.client {
			t.Errorf("%s as a client: got %s, want %s", test.path, got, test.client)
		}
	}
	for path, want := range map[string][2]string{
		"/crate?name=Rails": {"id,name,place.row,place.shelf\n1,Rails,7,B\n", "id,name\n1,Rails\n"},
		"/crate/1/piece":    {"id,name,cost\n1,Rail,12\n", "id,name\n1,Rail\n"},
	} {
		for i, caller := range []*testkit.Client{admin, client} {
			if got := caller.Do("GET", path, nil, "Accept", "text/csv").Want(200).Text; got != want[i] {
				t.Errorf("%s as CSV: got %q, want %q", path, got, want[i])
			}
		}
	}
}

// A caller can neither filter nor sort by a hidden member, because the result would reveal the member.
func TestHideFromQueries(t *testing.T) {
	t.Parallel()
	admin, client := newWarehouse(t)
	admin.Do("POST", "/crate", `{"name": "Rails", "place": {"row": 7}, "notes": []}`).Want(200)
	admin.Do("GET", "/crate?row=7&sort=-row", nil).Want(200)
	for query, want := range map[string]string{
		"row=7":    "The query is invalid: row is unknown; there is count, cursor, name, page, per_page, sort.",
		"sort=row": "The query is invalid: sort must be one of id, name, optionally with - before it.",
	} {
		client.Do("GET", "/crate?"+query, nil).WantDetail(problem.BadRequest, want)
	}
	client.Do("GET", "/crate/1/piece?cost=12", nil).Want(400)
	if got := client.Do("GET", "/crate?sort=-name", nil).Want(200).Text; !strings.Contains(got, "Rails") {
		t.Errorf("got %s, want the crate", got)
	}
}

// The response to a change hides the same members as a view. A caller that sends back a view changes no hidden member.
func TestHideFromChanges(t *testing.T) {
	t.Parallel()
	admin, client := newWarehouse(t)
	admin.Do("POST", "/crate", `{"name": "Rails", "place": {"row": 7, "shelf": "B"}, "notes": ["dusty"]}`).Want(200)
	seen := client.Do("GET", "/crate/1", nil).Want(200).Text
	edited := client.Do("PATCH", "/crate/1", strings.Replace(seen, "Rails", "Long rails", 1)).Want(200).Text
	if want := `{"id":1,"name":"Long rails","place":{"row":0},"notes":[]}` + "\n"; edited != want {
		t.Errorf("the edited crate as a client: got %s, want %s", edited, want)
	}
	if got := client.Do("PATCH", "/crate/1", `{}`).Want(200).Text; got != edited {
		t.Errorf("the unchanged crate as a client: got %s, want %s", got, edited)
	}
	want := `{"id":1,"name":"Long rails","place":{"row":7,"shelf":"B"},"notes":["dusty"]}` + "\n"
	if got := admin.Do("GET", "/crate/1", nil).Want(200).Text; got != want {
		t.Errorf("the edited crate as an admin: got %s, want %s", got, want)
	}
	created := client.Do("POST", "/crate", `{"name": "Nuts", "place": {"row": 9}, "notes": []}`).Want(200).Text
	if want := `{"id":2,"name":"Nuts","place":{"row":0},"notes":[]}` + "\n"; created != want {
		t.Errorf("the created crate as a client: got %s, want %s", created, want)
	}
}

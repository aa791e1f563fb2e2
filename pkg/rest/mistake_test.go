package rest_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
)

type (
	shelves  = rest.Resource[shelf, shelfBody]
	nameless struct {
		rest.Versioned
		ID int64 `json:"id" db:"id"`
	}
	versionless struct {
		ID   int64  `json:"id" db:"id"`
		Name string `json:"name" db:"name"`
	}
	plainBody struct {
		Name string `json:"name" db:"name" example:"x"`
	}
	misspeltBody struct {
		Name string `json:"name" db:"name" requird:"create" example:"x"`
	}
	invalidTagBody struct {
		Name string `json:"name" db:"name" required:"creat" example:"x"`
	}
	strictBody struct {
		Name string `json:"name" db:"name" required:"create,edit" example:"x"`
		Note string `json:"note" db:"name"`
	}
	sizeBody struct {
		Size int64 `json:"size" db:"size" example:"3"`
	}
	sizedShelf struct {
		shelf
		Size int64 `json:"size" db:"size"`
	}
	exampleFreeBody struct {
		Name *string `json:"name" db:"name"`
	}
	mistypedPointerBody struct {
		Name string `json:"name" db:"name" example:"x"`
	}
	partsBody struct {
		Name  string     `json:"name" db:"name" example:"x"`
		Whole splitValue `json:"whole"`
	}
	splitValue string
)

func (splitValue) Parts() map[string]string { return map[string]string{"/nmae": ""} }

func (mistypedPointerBody) Resolve(invalid *problem.Fields) {
	invalid.Add("/nmae", "typo", "is misspelt")
}

// declare returns a function that declares a valid resource, once change has edited it. A nil change edits nothing.
func declare[V, B any](change func(*rest.Resource[V, B])) func() []rest.Route {
	return func() []rest.Route {
		r := rest.Resource[V, B]{
			Path:        "/shelf",
			ID:          "shelf_id",
			Noun:        "shelf",
			Guard:       guard.AnyKey,
			Table:       "shelf",
			Retry:       rest.RetryRepeats,
			EditExample: `{"name": "essays"}`,
		}
		if change != nil {
			change(&r)
		}
		return r.Routes()
	}
}

func anyShelf(context.Context, pg.Querier, int64, permission.Access) error { return nil }

// A mistake in a declaration stops the start. The error names the resource or the operation, and the field.
func TestMistakes(t *testing.T) {
	t.Parallel()
	type request struct{ Body rest.Body[shelfBody] }
	mutation := func(change func(*rest.Mutation[request, shelf])) func() []rest.Route {
		return func() []rest.Route {
			m := rest.Mutation[request, shelf]{
				Method: "POST",
				Path:   "/x",
				Guard:  guard.AnyKey,
				Name:   "doIt",
				Effect: rest.Effect{Logs: rest.LogsItem, Retry: rest.RetrySafe},
			}
			change(&m)
			return []rest.Route{m}
		}
	}
	const resource = "rest: resource /shelf: "
	for name, mistake := range map[string]struct {
		routes func() []rest.Route
		want   string
	}{
		"no path":  {declare(func(r *shelves) { r.Path = "" }), "rest: resource rest_test.shelf: Path is missing"},
		"no noun":  {declare(func(r *shelves) { r.Noun = "" }), resource + "Noun is missing"},
		"no id":    {declare(func(r *shelves) { r.ID = "" }), resource + "ID is missing"},
		"no table": {declare(func(r *shelves) { r.Table = "" }), resource + "Table is missing"},
		"no guard": {declare(func(r *shelves) { r.Guard = nil }), resource + "Guard is missing; public operations use guard.Public"},
		"no retry behaviour": {
			declare(func(r *shelves) { r.Retry = "" }),
			resource + "Retry is missing: say what a repeated create does",
		},
		"a filter on an unknown column": {
			declare(func(r *shelves) { r.List.Filters = map[string]string{"size": "lower(sise)"} }),
			`rest: GET /shelf: List.Filters["size"] is sise, which is no column of rest_test.shelf`,
		},
		"a sort by an unknown column": {
			declare(func(r *shelves) { r.List.Sorts = map[string]string{"size": "sise"} }),
			`rest: GET /shelf: List.Sorts["size"] is sise, which is no column of rest_test.shelf`,
		},
		"an unknown default sort": {
			declare(func(r *shelves) { r.List.Default = "-size" }),
			"rest: GET /shelf: List.Default is size, which is not in List.Sorts",
		},
		"a path that is declared twice": {
			func() []rest.Route { return slices.Repeat(declare[shelf, plainBody](nil)(), 2) },
			"rest: GET /shelf is declared twice",
		},
		"an invalid tag value": {
			declare[shelf, invalidTagBody](nil),
			resource + `rest_test.invalidTagBody.Name has the tag required:"creat", which must be create, edit or both with a comma between`,
		},
		"an unknown tag key": {
			declare[shelf, misspeltBody](nil),
			resource + "rest_test.misspeltBody.Name has the unknown tag requird; known tags are ",
		},
		"no version": {declare[versionless, plainBody](nil), resource + "rest_test.versionless has no member Version"},
		"no name":    {declare[nameless, plainBody](nil), resource + "rest_test.nameless has no member Name"},
		"nested without parent": {
			declare(func(r *shelves) { r.Path = "/room/{room_id}/shelf" }),
			"rest: resource /room/{room_id}/shelf: Parent is missing, and the path lies below an item of another resource",
		},
		"no member for the parent": {
			declare(func(r *shelves) { r.Path, r.Parent = "/room/{room_id}/shelf", anyShelf }),
			`rest: resource /room/{room_id}/shelf: rest_test.shelfBody has no member for the parent's id, with the tags path:"room_id" and db`,
		},
		"no EditExample": {declare(func(r *shelves) { r.EditExample = "" }), resource + "EditExample is missing"},
		"EditExample with an unknown member": {
			declare(func(r *shelves) { r.EditExample = `{"nmae": "essays"}` }),
			resource + "EditExample has the member /nmae, which rest_test.shelfBody does not have",
		},
		"EditExample without a required member": {
			declare(func(r *rest.Resource[shelf, strictBody]) { r.EditExample = `{"note": "x"}` }),
			resource + "EditExample lacks /name, which is required",
		},
		"EditExample with a member of a wrong type": {
			declare(func(r *shelves) { r.EditExample = `{"name": ["essays"]}` }),
			resource + "EditExample has /name, which must be a string",
		},
		"a body without examples": {
			declare[shelf, exampleFreeBody](nil),
			resource + "Example is missing, and no member of rest_test.exampleFreeBody has the tag example",
		},
		"an example without a required member": {
			declare(func(r *shelves) { r.Example = `{}` }),
			resource + "Example lacks /name, which is required",
		},
		"an example that is not JSON": {
			mutation(func(m *rest.Mutation[request, shelf]) { m.Example = "{" }),
			"rest: POST /x: Example is no JSON object: The body ends in the middle of its JSON.",
		},
		"no DB": {declare(func(*shelves) {}), "rest: GET /shelf: the database is missing"},
		"an unknown hidden member": {
			declare(func(r *shelves) {
				r.Hide = rest.Hide{From: func(context.Context) bool { return true }, Members: []string{"nmae"}}
			}),
			resource + "Hide.Members names nmae, which rest_test.shelf does not have",
		},
		"hidden members without From": {
			declare(func(r *shelves) { r.Hide.Members = []string{"name"} }),
			resource + "Hide has no From or no Members",
		},
		"an operation without a guard": {
			mutation(func(m *rest.Mutation[request, shelf]) { m.Guard = nil }),
			"rest: POST /x: Guard is missing; public operations use guard.Public",
		},
		"an operation without a name": {
			mutation(func(m *rest.Mutation[request, shelf]) { m.Name = "" }),
			`rest: POST /x: Name is "", and generated clients need one such as listPortSpeeds for their method`,
		},
		"an operation without an effect": {
			mutation(func(m *rest.Mutation[request, shelf]) { m.Effect = rest.Effect{} }),
			"rest: POST /x: Effect.Logs or Effect.Retry is missing: say what the change logs",
		},
		"an unknown ViewPath": {
			mutation(func(m *rest.Mutation[request, shelf]) { m.Effect.ViewPath = "/y" }),
			"rest: POST /x: Effect.ViewPath is /y, which no GET has",
		},
		"a mistyped pointer": {
			declare[shelf, mistypedPointerBody](nil),
			resource + "rest_test.mistypedPointerBody reports an error of /nmae, which it does not have",
		},
		"a part that is not a member": {
			declare[shelf, partsBody](nil),
			resource + "a part of /whole is /nmae, which rest_test.partsBody does not have",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := new(pg.DB)
			if name == "no DB" {
				db = nil
			}
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, mistake.want) {
					t.Errorf("got %s, want %s", got, mistake.want)
				}
			}()
			rest.NewHandler("library", db, slog.New(slog.DiscardHandler), mistake.routes())
		})
	}
}

// At the start of a service, its declarations are compared with the schema.
func TestMistakesAboutTheSchema(t *testing.T) {
	t.Parallel()
	db := testkit.Database(t, "library", library)
	for name, mistake := range map[string]struct {
		routes func() []rest.Route
		want   string
	}{
		"none": {declare(func(*shelves) {}), "<nil>"},
		"a missing table": {
			declare(func(r *shelves) { r.Table = "shelfs" }),
			`rest: resource /shelf: Table: ERROR: relation "shelfs" does not exist`,
		},
		"a missing view": {
			declare(func(r *shelves) { r.View = "shelf_view" }),
			`rest: resource /shelf: View: ERROR: relation "shelf_view" does not exist`,
		},
		"a misspelt search column": {
			declare(func(r *shelves) { r.List.Search = rest.SearchIn("serach") }),
			`rest: GET /shelf: List.Search: ERROR: column "serach" does not exist`,
		},
		"a column that the table lacks": {
			declare(func(r *rest.Resource[shelf, sizeBody]) { r.EditExample = `{"size": 4}` }),
			`rest: resource /shelf: Table: ERROR: column "size" of relation "shelf" does not exist`,
		},
		"a column that the view lacks": {
			declare[sizedShelf, plainBody](nil),
			`rest: resource /shelf: View: ERROR: column "size" does not exist`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := fmt.Sprint(rest.Check(t.Context(), db, mistake.routes())); !strings.HasPrefix(got, mistake.want) {
				t.Errorf("got %s, want %s", got, mistake.want)
			}
		})
	}
}

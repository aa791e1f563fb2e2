package rest_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// A library: shelves belong to who made them, books stand on a shelf, and a scan of a book is a file.
var library = fstest.MapFS{"migrations/0001_library.sql": {Data: []byte(`-- +goose Up
CREATE TABLE shelf (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, version bigint NOT NULL DEFAULT 1, name text NOT NULL, owner_id bigint NOT NULL);
CREATE TABLE book (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, version bigint NOT NULL DEFAULT 1,
	shelf_id bigint NOT NULL REFERENCES shelf ON DELETE CASCADE, name text NOT NULL, CONSTRAINT book__name UNIQUE (shelf_id, name));
CREATE TABLE scan (book_id bigint PRIMARY KEY REFERENCES book ON DELETE CASCADE, content bytea NOT NULL);
`)}}

type shelf struct {
	rest.Versioned
	ID      int64  `json:"id" db:"id"`
	Name    string `json:"name" db:"name"`
	OwnerID int64  `json:"owner_id" db:"owner_id"`
}

type shelfBody struct {
	Name    string `json:"name" db:"name" required:"create" example:"novels"`
	OwnerID int64  `db:"owner_id"`
}

type book struct {
	rest.Versioned
	ID      int64  `json:"id" db:"id"`
	ShelfID int64  `json:"shelf_id" db:"shelf_id"`
	Name    string `json:"name" db:"name"`
	More    string `json:"more,omitempty"`
}

type bookBody struct {
	ShelfID int64  `path:"shelf_id" db:"shelf_id"`
	Name    string `json:"name" db:"name" required:"create" example:"Emma"`
}

func ownShelves(ctx context.Context) []pg.Condition {
	return []pg.Condition{{SQL: "owner_id = $1", Args: []any{principal.From(ctx).Principal.Owner.ID}}}
}

func libraryRoutes(db *pg.DB) []rest.Route {
	shelfView := pg.NewView[shelf]("shelf")
	routes := rest.Resource[shelf, shelfBody]{
		Path: "/shelf", ID: "shelf_id", Noun: "shelf", Guard: guard.AnyKey, Table: "shelf",
		List:  rest.ListOptions{Sorts: map[string]string{"name": "name"}},
		Retry: rest.RetryRepeats, EditExample: `{"name": "essays"}`, Scope: ownShelves,
		Check: func(ctx context.Context, _ *pg.Tx, _ int64, _, b *shelfBody) error {
			b.OwnerID = principal.From(ctx).Principal.Owner.ID
			return nil
		},
	}.Routes()
	routes = append(routes, rest.Resource[book, bookBody]{
		Path: "/shelf/{shelf_id}/book", ID: "book_id", Noun: "book", Guard: guard.AnyKey, Table: "book",
		Retry: rest.RetryRefused, EditExample: `{"name": "Persuasion"}`, Without: rest.Deleting,
		Parent: func(ctx context.Context, q pg.Querier, id int64, _ permission.Access) error {
			_, err := shelfView.Get(ctx, q, id, ownShelves(ctx)...)
			return err
		},
		Includes: map[string]func(context.Context, pg.Querier, *book) error{"more": func(_ context.Context, _ pg.Querier, b *book) error {
			b.More = "more of " + b.Name
			return nil
		}},
	}.Routes()...)
	type scanOf struct {
		Book int64 `path:"book_id"`
	}
	return append(
		routes,
		rest.Raw[scanOf]{
			Method:  http.MethodPost,
			Path:    "/scan/{book_id}",
			Guard:   guard.Has(permission.NetworkGroups),
			Name:    "uploadScan",
			Summary: "Upload a scan",
			Effect: rest.Effect{
				Logs:  rest.LogsItem,
				Retry: rest.RetryRefused,
			},
			Accepts: []string{"application/pdf"},
			MaxBody: 1000,
			Returns: []string{"text/plain"},
			Do: func(ctx context.Context, c *rest.RawCall, req scanOf) error {
				content, err := io.ReadAll(c.Request.Body)
				if err != nil {
					return err
				}
				err = c.InTx(ctx, func(tx *pg.Tx) error {
					tx.Record(pg.Record{Kind: "scan", Action: pg.Created, Targets: []pg.Target{{Type: "scan", ID: req.Book}}})
					_, err := tx.Exec(ctx, "INSERT INTO scan (book_id, content) VALUES ($1, $2)", req.Book, content)
					return err
				})
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(c.Writer, len(content))
				return err
			},
		},
		rest.Raw[scanOf]{
			Method:  http.MethodGet,
			Path:    "/scan/{book_id}",
			Guard:   guard.Has(permission.NetworkGroups),
			Name:    "downloadScan",
			Summary: "Download a scan",
			Returns: []string{"application/pdf"},
			Ranges:  true,
			Do: func(ctx context.Context, c *rest.RawCall, req scanOf) error {
				var content []byte
				if err := db.QueryRow(ctx, "SELECT content FROM scan WHERE book_id = $1", req.Book).Scan(&content); err != nil {
					return err
				}
				c.Writer.Header().Set("Content-Type", "application/pdf")
				http.ServeContent(c.Writer, c.Request, "", time.Time{}, strings.NewReader(string(content)))
				return nil
			},
		},
	)
}

// inLibrary is two callers, and the database.
func inLibrary(t *testing.T) (anna, ben *testkit.Client, db *pg.DB) {
	t.Helper()
	db = testkit.Database(t, "library", library)
	handler := rest.NewHandler("library", db, slog.New(slog.NewTextHandler(t.Output(), nil)), libraryRoutes(db))
	as := func(id int64) *testkit.Client {
		p := testkit.AdminWith(principal.All)
		p.Owner.ID = id
		return testkit.NewClient(t, testkit.As(handler, p))
	}
	return as(1), as(2), db
}

// Which items there are is one condition, whatever is done with them and however they are asked for.
func TestScope(t *testing.T) {
	t.Parallel()
	anna, ben, _ := inLibrary(t)
	anna.Do("POST", "/shelf", `{"name": "novels"}`).Want(200)
	ben.Do("POST", "/shelf", `{"name": "plays"}`).Want(200)
	if got := anna.Do("GET", "/shelf?count=true", nil).
		Want(200); got.Text != `[{"id":1,"name":"novels","owner_id":1}]`+"\n" ||
		got.Header.Get("X-Total-Count") != "1" {
		t.Errorf("got %s with the count %s, want anna's shelf alone", got.Text, got.Header.Get("X-Total-Count"))
	}
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		var body any
		if method == "PATCH" {
			body = `{"name": "x"}`
		}
		ben.Do(method, "/shelf/1", body).WantDetail(problem.NotFound, "There is no such item.")
		ben.Do(method, "/shelf/1", body, "If-Match", `"99"`).Want(404) // not 412, which tells that there is one
	}
	anna.Do("PATCH", "/shelf/1", `{"name": "essays"}`).Want(200)
	anna.Do("DELETE", "/shelf/1", nil).Want(200)
}

// A collection below an item is there for who may know of the item, and holds its items alone.
func TestParent(t *testing.T) {
	t.Parallel()
	anna, ben, db := inLibrary(t)
	anna.Do("POST", "/shelf", `{"name": "novels"}`).Want(200)
	anna.Do("POST", "/shelf", `{"name": "plays"}`).Want(200)
	created := anna.Do("POST", "/shelf/1/book", `{"name": "Emma", "shelf_id": 2}`).Want(200)
	if want := `{"id":1,"shelf_id":1,"name":"Emma"}` + "\n"; created.Text != want || created.Header.Get("ETag") != `"1"` {
		t.Errorf("got %s with the ETag %s, want %s with \"1\"", created.Text, created.Header.Get("ETag"), want)
	}
	anna.Do("POST", "/shelf/1/book", `{"name": "Emma"}`).WantErrors("/name", "taken")
	anna.Do("POST", "/shelf/2/book", "name,shelf_id\nHamlet,1\nLear,1\n", "Content-Type", "text/csv").Want(200)
	if got := anna.Do("GET", "/shelf/2/book", nil).
		Want(200).
		Text; got != `[{"id":3,"shelf_id":2,"name":"Hamlet"},{"id":4,"shelf_id":2,"name":"Lear"}]`+"\n" {
		t.Errorf("got %s, want Hamlet and Lear on the second shelf", got)
	}
	anna.Do("PATCH", "/shelf/1/book/1", `{"name": "Persuasion"}`).Want(200)
	if got := anna.Do("GET", "/shelf/1/book/1?include=more", nil).Want(200).Text; !strings.Contains(got, `"more of Persuasion"`) {
		t.Errorf("got %s, want more of Persuasion in it", got)
	}
	for _, path := range []string{"/shelf/2/book/1", "/shelf/9/book/1", "/shelf/1/book/3"} { // of another shelf, or none
		anna.Do("GET", path, nil).Want(404)
		anna.Do("GET", path+"?include=more", nil).Want(404)
		anna.Do("PATCH", path, `{"name": "x"}`).Want(404)
	}
	for _, path := range []string{"/shelf/1/book", "/shelf/9/book"} { // nobody's business
		ben.Do("GET", path, nil).Want(404)
		ben.Do("POST", path, `{"name": "x"}`).Want(404)
		ben.Do("POST", path, "name\nx\n", "Content-Type", "text/csv").Want(404)
	}
	ben.Do("PATCH", "/shelf/1/book/1", `{"name": "x"}`).Want(404)
	if got := anna.Do("DELETE", "/shelf/1/book/1", nil).Want(405).Header.Get("Allow"); got != "GET, HEAD, PATCH" {
		t.Errorf("got Allow %q for a book without a deletion, want GET, HEAD, PATCH", got)
	}
	if got := strings.Join(records(t, db), " "); got != "shelf.created shelf/1 shelf.created shelf/2 shelf.book.created shelf/1/book/1 "+
		"shelf.book.created shelf/2/book/3 shelf.book.created shelf/2/book/4 shelf.book.edited shelf/1/book/1" {
		t.Errorf("got the records %s, want two shelves created, three books created and one edited", got)
	}
}

func records(t *testing.T, db *pg.DB) (all []string) {
	t.Helper()
	rows, err := db.Query(
		t.Context(),
		"SELECT kind || '.' || action || ' ' || (targets->0->>'type') || '/' || (targets->0->>'id') FROM change "+
			"WHERE kind <> 'request' ORDER BY id",
	)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// An operation that handles bodies itself has the guard, the unit of work, the record and the limits of all others.
func TestRaw(t *testing.T) {
	t.Parallel()
	anna, _, db := inLibrary(t)
	anna.Do("POST", "/shelf", `{"name": "novels"}`).Want(200)
	anna.Do("POST", "/shelf/1/book", `{"name": "Emma"}`).Want(200)
	scan := strings.Repeat("0123456789", 100)
	pdf := []string{"Content-Type", "application/pdf"}

	anna.Do("POST", "/scan/1", scan).Want(415)
	anna.Do("POST", "/scan/1", scan+"!", pdf...).WantDetail(problem.TooLarge, "The body is larger than 1000 bytes.")
	anna.Do("POST", "/scan/x", scan, pdf...).Want(404)
	anna.Do("POST", "/scan/9", scan, pdf...).Want(500) // the foreign key, which the library does not translate
	if got := anna.Do("POST", "/scan/1", scan, pdf...).Want(200).Text; got != "1000" {
		t.Errorf("got %s, want 1000", got)
	}
	chunked, err := http.NewRequestWithContext(
		t.Context(),
		"POST",
		anna.URL+"/scan/1",
		io.MultiReader(strings.NewReader(scan), strings.NewReader("!")),
	)
	if err != nil {
		t.Fatal(err)
	}
	chunked.Header.Set("Content-Type", "application/pdf")
	response, err := http.DefaultClient.Do(chunked)
	if err != nil {
		t.Fatal(err)
	}
	if response.Body.Close(); response.StatusCode != 413 {
		t.Errorf("got %d for a body that is too large and of unknown length, want 413", response.StatusCode)
	}
	if part := anna.Do("GET", "/scan/1", nil, "Range", "bytes=3-5"); part.Status != 206 || part.Text != "345" {
		t.Errorf("got %d %s, want 206 345", part.Status, part.Text)
	}
	anna.Do("GET", "/scan/1", nil, "Range", "bytes=1000-").WantDetail(problem.NoSuchRange, "The requested range lies outside of the content.")
	anna.Do("GET", "/scan/9", nil).Want(404)
	if got := strings.Join(records(t, db), " "); !strings.HasSuffix(got, " scan.created scan/1") || strings.Count(got, "scan.created") != 1 {
		t.Errorf("got the records %s, want scan.created scan/1 last and once", got)
	}
	powerless := testkit.NewClient(
		t,
		testkit.As(rest.NewHandler("library", db, slog.New(slog.DiscardHandler), libraryRoutes(db)), testkit.AdminWith(0)),
	)
	powerless.Do("POST", "/scan/1", scan, pdf...).Want(403)
	powerless.Do("GET", "/scan/1", nil).Want(403)
}

// An answer that breaks off does not look whole.
func TestRawPanic(t *testing.T) {
	t.Parallel()
	handler := rest.NewHandler("library", nil, slog.New(slog.DiscardHandler), []rest.Route{
		rest.Raw[rest.None]{
			Method:  http.MethodGet,
			Path:    "/broken",
			Guard:   guard.AnyKey,
			Name:    "breakOff",
			Summary: "Break off",
			Returns: []string{"text/plain"},
			Do: func(_ context.Context, c *rest.RawCall, _ rest.None) error {
				_, _ = c.Writer.Write([]byte(strings.Repeat("half", 10_000)))
				panic("the inside")
			},
		},
	})
	c := testkit.NewClient(t, testkit.As(handler, testkit.AdminWith(0)))
	if answer, err := c.Try("GET", "/broken", nil); err == nil {
		t.Errorf("got %d with %d bytes that look whole, want an error", answer.Status, len(answer.Text))
	}
}

// Several items are edited as each by itself: below the parent that the path names, none that the caller may not know of,
// all or nothing; nothing is required, and each is one record.
func TestSeveral(t *testing.T) {
	t.Parallel()
	anna, ben, db := inLibrary(t)
	for _, name := range []string{"novels", "plays", "poems"} {
		anna.Do("POST", "/shelf", `{"name": "`+name+`"}`).Want(200)
	}
	ben.Do("POST", "/shelf", `{"name": "his"}`).Want(200)
	anna.Do("POST", "/shelf/1/book", "name\nEmma\nPersuasion\n", "Content-Type", "text/csv").Want(200)
	anna.Do("POST", "/shelf/2/book", `{"name": "Hamlet"}`).Want(200)

	if got := anna.Do("PATCH", "/shelf/3,1", `{"name": "essays"}`).
		Want(200); got.Text != `[{"id":3,"name":"essays","owner_id":1},{"id":1,"name":"essays","owner_id":1}]`+"\n" ||
		got.Header.Get("ETag") != "" {
		t.Errorf("got %s with the ETag %q, want shelves 3 and 1 as essays without one", got.Text, got.Header.Get("ETag"))
	}
	anna.Do("PATCH", "/shelf/1,4", `{"name": "x"}`).WantDetail(problem.NotFound, "There is no such item.") // one of ben's
	anna.Do("DELETE", "/shelf/1,4", nil).Want(404)
	anna.Do("PATCH", "/shelf/1/book/1,3", `{"name": "x"}`).Want(404) // one of another shelf
	anna.Do("PATCH", "/shelf/2,1", `{"name": ["x"]}`).WantErrors("/1/name", "type", "/2/name", "type")
	anna.Do("PATCH", "/shelf/2,1", `{"name": null}`).WantErrors("/1/name", "required", "/2/name", "required")
	anna.Do("PATCH", "/shelf/1/book/1,2", `{"name": "Ivanhoe"}`).WantErrors("/2/name", "taken")
	anna.Do("POST", "/shelf/1/book", `{"name": "Rob Roy"}`).Want(200)
	anna.Do("PATCH", "/shelf/1/book/1,2", `{"name": "Rob Roy"}`).WantErrors("/1/name", "taken") // which is the end of it
	anna.Do("PATCH", "/shelf/1,2", `{}`).Want(200)
	anna.Do("PATCH", "/shelf/1,2", `{"name": "x"}`, "If-Match", `"1"`).
		WantDetail(problem.BadRequest, "If-Match is about one item, and the path names 2.")
	anna.Do("GET", "/shelf/1,2", nil).Want(404)
	if got := anna.Do("DELETE", "/shelf/3,2", nil).Want(200).Text; got != `{"message":"Shelfs 3, 2 deleted."}`+"\n" {
		t.Errorf("got %s, want shelfs 3 and 2 deleted", got)
	}
	if got := anna.Do("GET", "/shelf/1/book", nil).
		Want(200).
		Text; got != `[{"id":1,"shelf_id":1,"name":"Emma"},{"id":2,"shelf_id":1,"name":"Persuasion"},{"id":4,"shelf_id":1,"name":"Rob Roy"}]`+"\n" {
		t.Errorf("got %s, want Emma, Persuasion and Rob Roy on the first shelf", got)
	}
	if got := strings.Join(
		records(t, db)[7:],
		" ",
	); got != "shelf.edited shelf/1 shelf.edited shelf/3 shelf.book.created shelf/1/book/4 shelf.deleted shelf/2 shelf.deleted shelf/3" {
		t.Errorf("got the records %s, want shelves 1 and 3 edited, book 4 created, shelves 2 and 3 deleted", got)
	}
}

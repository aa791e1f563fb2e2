package rest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
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

// library has shelves, which belong to an owner, books on a shelf, and files with scans of books.
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
	return []pg.Condition{{SQL: "owner_id = $1", Args: []any{principal.FromContext(ctx).Principal.Owner.ID}}}
}

func libraryRoutes(db *pg.DB) []rest.Route {
	shelfView := pg.NewView[shelf]("shelf")
	routes := rest.Resource[shelf, shelfBody]{
		Path: "/shelf", ID: "shelf_id", Noun: "shelf", Guard: guard.AnyKey, Table: "shelf",
		List:  rest.ListOptions{Sorts: map[string]string{"name": "name"}},
		Retry: rest.RetryRepeats, EditExample: `{"name": "essays"}`, Scope: ownShelves,
		Check: func(ctx context.Context, _ *pg.Tx, _ int64, _, b *shelfBody) error {
			b.OwnerID = principal.FromContext(ctx).Principal.Owner.ID
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
	type scanRequest struct {
		Book int64 `path:"book_id"`
	}
	return append(
		routes,
		rest.Raw[scanRequest]{
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
			Do: func(ctx context.Context, c *rest.RawCall, req scanRequest) error {
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
		rest.Raw[scanRequest]{
			Method:  http.MethodGet,
			Path:    "/scan/{book_id}",
			Guard:   guard.Has(permission.NetworkGroups),
			Name:    "downloadScan",
			Summary: "Download a scan",
			Returns: []string{"application/pdf"},
			Ranges:  true,
			Do: func(ctx context.Context, c *rest.RawCall, req scanRequest) error {
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

// newLibrary returns two callers, with ids 1 and 2, and the database of a library.
func newLibrary(t *testing.T) (anna, ben *testkit.Client, db *pg.DB) {
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

// A resource's scope applies to its list, view, edit and deletion.
func TestScope(t *testing.T) {
	t.Parallel()
	anna, ben, _ := newLibrary(t)
	anna.Do("POST", "/shelf", `{"name": "novels"}`).Want(200)
	ben.Do("POST", "/shelf", `{"name": "plays"}`).Want(200)
	list := anna.Do("GET", "/shelf?count=true", nil).Want(200)
	if want := `[{"id":1,"name":"novels","owner_id":1}]` + "\n"; list.Text != want || list.Header.Get("X-Total-Count") != "1" {
		t.Errorf("got %s with the count %s, want %s with the count 1", list.Text, list.Header.Get("X-Total-Count"), want)
	}
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		var body any
		if method == "PATCH" {
			body = `{"name": "x"}`
		}
		ben.Do(method, "/shelf/1", body).WantDetail(problem.NotFound, "There is no such item.")
		ben.Do(method, "/shelf/1", body, "If-Match", `"99"`).Want(404) // not 412, which would reveal that the shelf exists
	}
	anna.Do("PATCH", "/shelf/1", `{"name": "essays"}`).Want(200)
	anna.Do("DELETE", "/shelf/1", nil).Want(200)
}

// A nested collection exists only for callers that see its parent, and contains only the items of this parent.
func TestParent(t *testing.T) {
	t.Parallel()
	anna, ben, db := newLibrary(t)
	anna.Do("POST", "/shelf", `{"name": "novels"}`).Want(200)
	anna.Do("POST", "/shelf", `{"name": "plays"}`).Want(200)
	created := anna.Do("POST", "/shelf/1/book", `{"name": "Emma", "shelf_id": 2}`).Want(200)
	if want := `{"id":1,"shelf_id":1,"name":"Emma"}` + "\n"; created.Text != want || created.Header.Get("ETag") != `"1"` {
		t.Errorf("got %s with the ETag %s, want %s with \"1\"", created.Text, created.Header.Get("ETag"), want)
	}
	anna.Do("POST", "/shelf/1/book", `{"name": "Emma"}`).WantErrors("/name", "taken")
	anna.Do("POST", "/shelf/2/book", "name,shelf_id\nHamlet,1\nLear,1\n", "Content-Type", "text/csv").Want(200)
	want := `[{"id":3,"shelf_id":2,"name":"Hamlet"},{"id":4,"shelf_id":2,"name":"Lear"}]` + "\n"
	if got := anna.Do("GET", "/shelf/2/book", nil).Want(200).Text; got != want {
		t.Errorf("the books of the second shelf: got %s, want %s", got, want)
	}
	anna.Do("PATCH", "/shelf/1/book/1", `{"name": "Persuasion"}`).Want(200)
	if got := anna.Do("GET", "/shelf/1/book/1?include=more", nil).Want(200).Text; !strings.Contains(got, `"more of Persuasion"`) {
		t.Errorf("got %s, want more of Persuasion in it", got)
	}
	for _, path := range []string{"/shelf/2/book/1", "/shelf/9/book/1", "/shelf/1/book/3"} { // the wrong shelf, or none
		anna.Do("GET", path, nil).Want(404)
		anna.Do("GET", path+"?include=more", nil).Want(404)
		anna.Do("PATCH", path, `{"name": "x"}`).Want(404)
	}
	for _, path := range []string{"/shelf/1/book", "/shelf/9/book"} { // another owner's shelf, and a missing one
		ben.Do("GET", path, nil).Want(404)
		ben.Do("POST", path, `{"name": "x"}`).Want(404)
		ben.Do("POST", path, "name\nx\n", "Content-Type", "text/csv").Want(404)
	}
	ben.Do("PATCH", "/shelf/1/book/1", `{"name": "x"}`).Want(404)
	if got := anna.Do("DELETE", "/shelf/1/book/1", nil).Want(405).Header.Get("Allow"); got != "GET, HEAD, PATCH" {
		t.Errorf("delete a book: got Allow %q, want GET, HEAD, PATCH", got)
	}
	wantRecords := []string{
		"shelf.created shelf/1", "shelf.created shelf/2", "shelf.book.created shelf/1/book/1", "shelf.book.created shelf/2/book/3",
		"shelf.book.created shelf/2/book/4", "shelf.book.edited shelf/1/book/1",
	}
	if got := records(t, db); !slices.Equal(got, wantRecords) {
		t.Errorf("got the records %q, want %q", got, wantRecords)
	}
}

// records returns the recorded changes as kind.action and target, without refused requests.
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

// A raw operation has the same guard, unit of work, records and limits as all others.
func TestRaw(t *testing.T) {
	t.Parallel()
	anna, _, db := newLibrary(t)
	anna.Do("POST", "/shelf", `{"name": "novels"}`).Want(200)
	anna.Do("POST", "/shelf/1/book", `{"name": "Emma"}`).Want(200)
	scan := strings.Repeat("0123456789", 100)
	pdf := []string{"Content-Type", "application/pdf"}

	anna.Do("POST", "/scan/1", scan).Want(415)
	anna.Do("POST", "/scan/1", scan+"!", pdf...).WantDetail(problem.TooLarge, "The body is larger than 1000 bytes.")
	anna.Do("POST", "/scan/x", scan, pdf...).Want(404)
	anna.Do("POST", "/scan/9", scan, pdf...).Want(500) // violates a foreign key for which the schema names no member
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
		t.Errorf("a chunked body that is too large: got %d, want 413", response.StatusCode)
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

// A caller notices that a response is incomplete.
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
				panic("broken")
			},
		},
	})
	c := testkit.NewClient(t, testkit.As(handler, testkit.AdminWith(0)))
	if response, err := c.Try("GET", "/broken", nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %+v, %v, want %v", response, err, io.ErrUnexpectedEOF)
	}
}

// Several items are edited or deleted with one request, all or none. All must exist below the path's parent and be visible to
// the caller. Each item has its own record.
func TestSeveral(t *testing.T) {
	t.Parallel()
	anna, ben, db := newLibrary(t)
	for _, name := range []string{"novels", "plays", "poems"} {
		anna.Do("POST", "/shelf", `{"name": "`+name+`"}`).Want(200)
	}
	ben.Do("POST", "/shelf", `{"name": "letters"}`).Want(200)
	anna.Do("POST", "/shelf/1/book", "name\nEmma\nPersuasion\n", "Content-Type", "text/csv").Want(200)
	anna.Do("POST", "/shelf/2/book", `{"name": "Hamlet"}`).Want(200)

	edited := anna.Do("PATCH", "/shelf/3,1", `{"name": "essays"}`).Want(200)
	want := `[{"id":3,"name":"essays","owner_id":1},{"id":1,"name":"essays","owner_id":1}]` + "\n"
	if edited.Text != want || edited.Header.Get("ETag") != "" {
		t.Errorf("got %s with the ETag %q, want %s without an ETag", edited.Text, edited.Header.Get("ETag"), want)
	}
	anna.Do("PATCH", "/shelf/1,4", `{"name": "x"}`).WantDetail(problem.NotFound, "There is no such item.") // shelf 4 is ben's
	anna.Do("DELETE", "/shelf/1,4", nil).Want(404)
	anna.Do("PATCH", "/shelf/1/book/1,3", `{"name": "x"}`).Want(404) // book 3 is on another shelf
	anna.Do("PATCH", "/shelf/2,1", `{"name": ["x"]}`).WantErrors("/1/name", "type", "/2/name", "type")
	anna.Do("PATCH", "/shelf/2,1", `{"name": null}`).WantErrors("/1/name", "required", "/2/name", "required")
	anna.Do("PATCH", "/shelf/1/book/1,2", `{"name": "Ivanhoe"}`).WantErrors("/2/name", "taken")
	anna.Do("POST", "/shelf/1/book", `{"name": "Rob Roy"}`).Want(200)
	anna.Do("PATCH", "/shelf/1/book/1,2", `{"name": "Rob Roy"}`).WantErrors("/1/name", "taken") // the first violation ends the edit
	anna.Do("PATCH", "/shelf/1,2", `{}`).Want(200)
	anna.Do("PATCH", "/shelf/1,2", `{"name": "x"}`, "If-Match", `"1"`).
		WantDetail(problem.BadRequest, "If-Match is about one item, and the path names 2.")
	anna.Do("GET", "/shelf/1,2", nil).Want(404)
	if got := anna.Do("DELETE", "/shelf/3,2", nil).Want(200).Text; got != `{"message":"Shelfs 3, 2 deleted."}`+"\n" {
		t.Errorf("got %s, want shelfs 3 and 2 deleted", got)
	}
	want = `[{"id":1,"shelf_id":1,"name":"Emma"},{"id":2,"shelf_id":1,"name":"Persuasion"},{"id":4,"shelf_id":1,"name":"Rob Roy"}]` + "\n"
	if got := anna.Do("GET", "/shelf/1/book", nil).Want(200).Text; got != want {
		t.Errorf("the books of the first shelf: got %s, want %s", got, want)
	}
	wantRecords := []string{
		"shelf.edited shelf/1", "shelf.edited shelf/3", "shelf.book.created shelf/1/book/4", "shelf.deleted shelf/2", "shelf.deleted shelf/3",
	}
	if got := records(t, db)[7:]; !slices.Equal(got, wantRecords) {
		t.Errorf("got the records %q, want %q", got, wantRecords)
	}
}

// A misspelled member is refused beside all other errors, and an item that was read can be sent back whole.
func TestUnknownMembers(t *testing.T) {
	t.Parallel()
	anna, ben, db := newLibrary(t)
	read := anna.Do("POST", "/shelf", `{"name": "novels", "owner_id": 7, "isWrapped": true}`).Want(200).Text
	anna.Do("POST", "/shelf", `{"name": "plays"}`).Want(200)
	anna.Do("PATCH", "/shelf/1", read).Want(200)
	const unknown = "is unknown; the nearest known member is name"
	for _, request := range []struct {
		method, path, body string
		errors             []string // pointers with codes
	}{
		{"POST", "/shelf", `{"nmae": "x"}`, []string{"/name", "required", "/nmae", "unknown"}},
		{"PATCH", "/shelf/1", `{"nmae": "x", "name": ["x"]}`, []string{"/name", "type", "/nmae", "unknown"}},
		{"PATCH", "/shelf/2,1", `{"nmae": "x"}`, []string{"/1/nmae", "unknown", "/2/nmae", "unknown"}},
		{"POST", "/shelf/1/book", `{"name": "x", "nmae": "x"}`, []string{"/nmae", "unknown"}},
	} {
		anna.Do(request.method, request.path, request.body).Want(422).WantErrors(request.errors...)
	}
	anna.Do("PATCH", "/shelf/1", `{"nmae": "x"}`).WantDetail(problem.Invalid, "nmae "+unknown+".")
	anna.Do("POST", "/shelf", "id,nmae,name,\n1,a,b,\n", "Content-Type", "text/csv").
		WantDetail(problem.Invalid, "1/nmae "+unknown+" (line 1, column 2).")
	anna.Do("POST", "/shelf", "name,owner_id,\npoems,3,\n", "Content-Type", "text/csv").Want(200)
	ben.Do("PATCH", "/shelf/1", `{"nmae": "x"}`).Want(404)
	if got := len(records(t, db)); got != 3 {
		t.Errorf("got %d records, want 3 of created shelves", got)
	}
}

// Processes of two releases call each other, so an internal operation ignores members that it does not know.
func TestInternalBodiesAreTolerant(t *testing.T) {
	t.Parallel()
	type request struct{ Body rest.Body[plainBody] }
	handler := rest.NewHandler("library", nil, slog.New(slog.DiscardHandler), []rest.Route{rest.Read[request, plainBody]{
		Method: http.MethodPost,
		Path:   "/internal/echo",
		Guard:  guard.Peers(principal.Gateway),
		Do: func(_ context.Context, req request) (plainBody, error) {
			body, err := req.Body.New()
			return *body, err
		},
	}})
	r := httptest.NewRequest(http.MethodPost, "/internal/echo", strings.NewReader(`{"name": "x", "added_in_the_next_release": true}`))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r.WithContext(principal.NewContext(r.Context(), &principal.Call{Peer: principal.Gateway})))
	if got := w.Body.String(); w.Code != http.StatusOK || got != `{"name":"x"}`+"\n" {
		t.Errorf(`got %d %s, want 200 {"name":"x"}`, w.Code, got)
	}
}

package pg_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3/lock"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/listing"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var migrations = fstest.MapFS{"migrations/0001_things.sql": {Data: []byte(`-- +goose Up
CREATE TABLE thing (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, version bigint NOT NULL DEFAULT 1,
	name text NOT NULL CONSTRAINT thing__name UNIQUE CONSTRAINT thing__deep__name CHECK (name <> 'deep'), note text,
	part bigint CONSTRAINT thing__part REFERENCES thing);
CREATE VIEW thing_view AS SELECT t.*, p.name AS part_name FROM thing t LEFT JOIN thing p ON p.id = t.part;
`)}}

func changes(t *testing.T, db *pg.DB) (types []string) {
	t.Helper()
	rows, err := db.Query(t.Context(), "SELECT type FROM change ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	types, err = pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return types
}

func insert(name string) func(*pg.Tx) error {
	return func(tx *pg.Tx) error {
		_, err := tx.Exec(context.Background(), "INSERT INTO thing (name) VALUES ($1)", name)
		return err
	}
}

func TestInTxRecords(t *testing.T) {
	t.Parallel()
	db := testkit.Database(t, "things", migrations)

	if err := db.InTx(t.Context(), insert("unrecorded")); err == nil {
		t.Error("a change without a record: got no error, want one")
	}
	err := db.InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Record(pg.Record{Kind: "thing", Action: "created", Targets: []pg.Target{{Type: "thing", ID: 1}}})
		return errors.Join(insert("refused")(tx), errors.New("no"))
	})
	if err == nil {
		t.Error("a failed change: got no error, want one")
	}
	err = db.InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		return insert("unrecorded, with a reason")(tx)
	})
	if err != nil {
		t.Error(err)
	}
	called := false
	err = db.InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Record(pg.Record{Kind: "thing", Action: "created", Targets: []pg.Target{{Type: "thing", ID: 1}}, After: map[string]any{"name": "x"}})
		tx.AfterCommit(func(ctx context.Context) error {
			called = true
			return db.QueryRow(ctx, "SELECT FROM thing WHERE name = 'recorded'").Scan()
		})
		return insert("recorded")(tx)
	})
	if err != nil || !called {
		t.Errorf("got the hook called %t, %v, want true, no error", called, err)
	}
	if got := changes(t, db); len(got) != 1 || got[0] != "thing.created" {
		t.Errorf("got the records %v, want [thing.created]", got)
	}
	err = db.InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Record(pg.Record{Kind: "thing", Action: pg.Edited, Targets: []pg.Target{{Type: "thing", ID: 1}}})
		tx.Record(
			pg.Record{Kind: "thing", Part: "owner", Action: "given", Targets: []pg.Target{{Type: "thing", ID: 2}}},
			pg.Record{Kind: "thing", Action: pg.Deleted},
		)
		return nil
	})
	if got := changes(t, db); err != nil || fmt.Sprint(got) != "[thing.created thing.edited thing.owner.given thing.deleted]" {
		t.Errorf("got the records %v, %v, want [thing.created thing.edited thing.owner.given thing.deleted]", got, err)
	}
}

// A unit of work that Postgres aborts because of a deadlock is retried.
func TestDeadlockIsRetried(t *testing.T) {
	t.Parallel()
	db := testkit.Database(t, "things", migrations)
	for _, name := range []string{"a", "b"} {
		if err := db.InTx(t.Context(), func(tx *pg.Tx) error { tx.Unrecorded("a test"); return insert(name)(tx) }); err != nil {
			t.Fatal(err)
		}
	}
	var both sync.WaitGroup
	var barrier sync.WaitGroup
	barrier.Add(2)
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		met := sync.OnceFunc(func() { barrier.Done(); barrier.Wait() })
		both.Go(func() {
			err := db.InTx(t.Context(), func(tx *pg.Tx) error {
				tx.Unrecorded("a test")
				for _, name := range order {
					if _, err := tx.Exec(t.Context(), "UPDATE thing SET note = coalesce(note, '') || $2 WHERE name = $1", name, order[0]); err != nil {
						return err
					}
					met()
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	var notes string
	if err := db.QueryRow(t.Context(), "SELECT string_agg(note, ' ' ORDER BY name) FROM thing").
		Scan(&notes); err != nil ||
		notes != "ab ab" && notes != "ba ba" {
		t.Errorf("got the notes %q, %v, want ab ab or ba ba", notes, err)
	}
}

// A unit of work is retried if Postgres ended its session because the process stalled: nothing was committed.
func TestStalledChangeIsRetried(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(*pg.Tx) error{
		"before a statement": insert("after"), "before the commit": func(*pg.Tx) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testkit.Database(t, "things", migrations)
			tries := 0
			err := db.InTx(t.Context(), func(tx *pg.Tx) error {
				tx.Unrecorded("a test")
				if err := insert("before")(tx); err != nil {
					return err
				}
				if tries++; tries == 1 {
					var session int
					if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid() FROM set_config('idle_in_transaction_session_timeout', '1', true)").
						Scan(&session); err != nil {
						return err
					}
					for exists := true; exists; {
						if err := db.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", session).Scan(&exists); err != nil {
							return err
						}
					}
				}
				return write(tx)
			})
			var before int
			if counting := db.QueryRow(t.Context(), "SELECT count(*) FROM thing WHERE name = 'before'").
				Scan(&before); err != nil || counting != nil || tries != 2 ||
				before != 1 {
				t.Errorf("got %d things after %d tries: %v, %v, want 1 after 2", before, tries, err, counting)
			}
		})
	}
}

// A commit and its hooks complete even if the caller leaves.
func TestChangeOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	db := testkit.Database(t, "things", migrations)
	ctx, leave := context.WithCancel(t.Context())
	called := false
	err := db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		tx.AfterCommit(func(ctx context.Context) error { called = true; return ctx.Err() })
		if err := insert("kept")(tx); err != nil {
			return err
		}
		leave()
		return nil
	})
	if err != nil || !called {
		t.Errorf("got the hook called %t, %v, want true, no error", called, err)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	db := testkit.Database(t, "things", migrations)
	do := func(sql string, args ...any) error {
		return pgerror.Explain(db.InTx(t.Context(), func(tx *pg.Tx) error {
			tx.Unrecorded("a test")
			_, err := tx.Exec(t.Context(), sql, args...)
			return err
		}))
	}
	if err := do("INSERT INTO thing (name) VALUES ('a')"); err != nil {
		t.Fatal(err)
	}
	for sql, want := range map[string]problem.Field{
		"INSERT INTO thing (name) VALUES ('a')":           {Pointer: "/name", Code: "taken", Message: "is taken"},
		"INSERT INTO thing (name) VALUES ('deep')":        {Pointer: "/deep/name", Code: "invalid", Message: "is not allowed"},
		"INSERT INTO thing (name, part) VALUES ('b', 99)": {Pointer: "/part", Code: "not_found", Message: "does not exist"},
	} {
		if f := problem.From(do(sql)); f.Kind != problem.Invalid || len(f.Fields) != 1 || f.Fields[0] != want {
			t.Errorf("%s: got %v, want %v", sql, f, want)
		}
	}
	if f := problem.From(do("INSERT INTO thing (name) VALUES (NULL)")); f.Kind != problem.Internal || strings.Contains(f.Detail, "null") {
		t.Errorf("a broken statement: got %v, want an internal error without null", f)
	}
	readOnly := pgerror.Explain(db.InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		if _, err := tx.Exec(t.Context(), "SET TRANSACTION READ ONLY"); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "INSERT INTO thing (name) VALUES ('c')")
		return err
	}))
	if f := problem.From(
		readOnly,
	); f.Kind != problem.Unavailable || f.RetryAfter == 0 ||
		f.Detail != "The database is read-only right now. Try again later." {
		t.Errorf("a read-only transaction: got %v, want unavailable with a time to try again", f)
	}
	url := testkit.Databases(t, testkit.Service{Name: "things", Migrations: migrations})["things"].Reveal()
	_, refused := pool.Open(t.Context(), strings.Replace(url, "for-tests-only", "another", 1), 1, pool.Options{})
	if f := problem.From(pgerror.Explain(refused)); f.Kind != problem.Unavailable || f.RetryAfter == 0 {
		t.Errorf("a wrong password: got %v, want unavailable with a time to try again", f)
	}
	if text := refused.Error(); !strings.Contains(text, "password authentication failed") || strings.Contains(text, "TLS") {
		t.Errorf("a wrong password at a server without TLS: got %v, want the cause and nothing about TLS", refused)
	}
	if f := problem.From(pgerror.Explain(context.DeadlineExceeded)); f.Kind != problem.Unavailable || f.RetryAfter == 0 {
		t.Errorf("a deadline: got %v, want unavailable with a time to try again", f)
	}
}

// A database that restarts ends all sessions. Units of work that begin later succeed, and those in progress get a 503.
func TestDatabaseRestarts(t *testing.T) {
	t.Parallel()
	const connections = 4
	url := testkit.Databases(t, testkit.Service{Name: "things", Migrations: migrations})["things"].Reveal()
	db, err := pool.Open(
		t.Context(),
		url,
		connections,
		pool.Options{Parameters: map[string]string{"idle_in_transaction_session_timeout": "0"}},
	) // the units of work wait for one another
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	throwOut := func() {
		_, err := other.Exec(
			t.Context(),
			"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
		)
		if err != nil {
			t.Error(err)
		}
	}
	change := func(then func()) error {
		return pgerror.Explain(db.InTx(t.Context(), func(tx *pg.Tx) error {
			tx.Unrecorded("a test")
			err := insert(rand.Text())(tx)
			then()
			return err
		}))
	}
	all := func(then func()) {
		var working sync.WaitGroup
		for range connections {
			working.Go(func() {
				if err := change(then); err != nil {
					t.Error(err)
				}
			})
		}
		working.Wait()
	}
	var met sync.WaitGroup
	met.Add(connections)
	all(func() { met.Done(); met.Wait() })
	throwOut()
	all(func() {})

	if f := problem.From(
		change(throwOut),
	); f.Kind != problem.Unavailable || f.RetryAfter == 0 ||
		!strings.Contains(f.Detail, "may or may not have been made") {
		t.Errorf("before the commit: got %v, want unavailable that says may or may not have been made", f)
	}
	twice := pgerror.Explain(db.InTx(t.Context(), func(tx *pg.Tx) error {
		if err := insert("lost")(tx); err != nil {
			return err
		}
		throwOut()
		return insert("lost, too")(tx)
	}))
	if f := problem.From(twice); f.Kind != problem.Unavailable || f.RetryAfter == 0 {
		t.Errorf("within the change: got %v, want unavailable with a time to try again", f)
	}
	var n int
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM thing").Scan(&n); err != nil || n != 2*connections {
		t.Errorf("got %d things, %v, want %d", n, err, 2*connections)
	}
}

type widget struct {
	ID   int64   `db:"id"`
	Name string  `db:"name"`
	Note *string `db:"note"`
	Part *part   `db:"part_"`
}

type part struct {
	Name string `db:"name"`
}

type widgetBody struct {
	Name string  `db:"name"`
	Note *string `db:"note"`
	Part *int64  `db:"part"`
}

// A failed savepoint is undone, one without statements sends nothing, and savepoints can be nested, also if a savepoint begins or
// ends the unit of work.
func TestSavepoints(t *testing.T) {
	t.Parallel()
	db := testkit.Database(t, "things", migrations)
	refused := errors.New("refused")
	err := db.InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		within := func(fail error, steps ...func(*pg.Tx) error) func(*pg.Tx) error {
			return func(tx *pg.Tx) error {
				err := tx.Savepoint(t.Context(), func() error {
					for _, step := range steps {
						if err := step(tx); err != nil {
							return err
						}
					}
					return fail
				})
				if !errors.Is(err, fail) {
					t.Errorf("got %v, want %v", err, fail)
				}
				return nil
			}
		}
		broken := func(tx *pg.Tx) error {
			err := tx.Savepoint(t.Context(), func() error {
				var n int
				return tx.QueryRow(t.Context(), "SELECT 1 / length($1)", "").Scan(&n)
			})
			if err == nil {
				t.Error("got no error of a statement that divides by 0")
			}
			return nil
		}
		for _, step := range []func(*pg.Tx) error{
			within(refused),
			within(nil),
			within(nil, insert("a"), within(refused, insert("b"), within(nil, insert("c"))), within(nil, insert("d"))),
			broken,
			within(refused, insert("e"), broken),
			within(nil, broken, within(nil), insert("f")),
			within(refused, within(nil, within(refused, insert("g")))),
		} {
			if err := step(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := db.Query(t.Context(), "SELECT name FROM thing ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if want := []string{"a", "d", "f"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %v, %v, want %v", names, err, want)
	}
}

// A commit that times out is reported as possibly made.
func TestCommitHangs(t *testing.T) {
	t.Parallel()
	db := testkit.Database(t, "things", migrations)
	err := db.InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		_, err := tx.Exec(t.Context(), `
			CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(30); RETURN NULL; END'`)
		if err != nil {
			return err
		}
		_, err = tx.Exec(t.Context(), `
			CREATE CONSTRAINT TRIGGER hang AFTER INSERT ON thing DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hang()`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = pgerror.Explain(db.InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		return insert("late")(tx)
	}))
	if f := problem.From(err); f.Kind != problem.Unavailable || !strings.Contains(f.Detail, "may or may not have been made") {
		t.Errorf("got %v, want unavailable that says may or may not have been made", err)
	}
}

func TestMapper(t *testing.T) {
	t.Parallel()
	db := testkit.Database(t, "things", migrations)
	view, list, table := pg.NewView[widget]("thing_view"), listing.New[widget]("thing_view"), table.New[widgetBody]("thing", "thing_view", nil)
	const many = 1203 // more than two batches
	var first int64
	err := db.InTx(t.Context(), func(tx *pg.Tx) (err error) {
		tx.Unrecorded("a test")
		if first, err = table.Insert(t.Context(), tx, &widgetBody{Name: "first"}); err != nil {
			return err
		}
		for i := range many - 1 {
			if _, err := table.Insert(t.Context(), tx, &widgetBody{Name: strings.Repeat("x", i+1), Part: &first}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	count := 0
	for v, err := range list.List(t.Context(), db, listing.Query{Where: []pg.Condition{{SQL: "length(name) > $1", Args: []any{0}}}}) {
		if err != nil || v.ID <= last || (v.Part == nil) != (v.ID == first) {
			t.Fatalf("got %+v, %v, want rising ids, and a part of all but the first", v, err)
		}
		last = v.ID
		count++
	}
	if count != many {
		t.Errorf("got %d items, want %d", count, many)
	}
	note := "n"
	err = db.InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		if err := table.Lock(t.Context(), tx, first); err != nil {
			return err
		}
		body, err := table.Load(t.Context(), tx, first)
		if err != nil {
			return err
		}
		body.Note = &note
		if err := table.Update(t.Context(), tx, first, body); err != nil {
			return err
		}
		var version int64
		if err := tx.QueryRow(t.Context(), "SELECT version FROM thing WHERE id = $1", first).Scan(&version); err != nil || version != 2 {
			t.Errorf("got version %d, %v, want 2", version, err)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := view.Get(t.Context(), db, first); err != nil || *v.Note != "n" || v.Name != "first" {
		t.Errorf("got %+v, %v, want the name first and the note n", v, err)
	}
	if _, err := view.Get(t.Context(), db, -1); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("a missing row: got %v, want %v", err, pgx.ErrNoRows)
	}
}

// A service cannot use another service's schema in the same database.
func TestServicesAreApart(t *testing.T) {
	t.Parallel()
	urls := testkit.Databases(
		t,
		testkit.Service{Name: "things", Migrations: migrations},
		testkit.Service{Name: "others", Migrations: migrations},
	)
	conn, err := pgx.Connect(t.Context(), urls["others"].Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, sql := range []string{"SELECT * FROM things.thing", "INSERT INTO things.thing (name) VALUES ('x')", "CREATE TABLE things.mine ()",
		"DROP SCHEMA ext CASCADE", "CREATE ROLE mine",
		"LOCK TABLE things.migrating IN ACCESS SHARE MODE", "LOCK TABLE ext.bootstrap IN ACCESS SHARE MODE"} {
		if _, err := conn.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s as another service: got no error, want one", sql)
		}
	}
	if _, err := conn.Exec(t.Context(), "SELECT similarity('a', 'b'), * FROM thing"); err != nil {
		t.Error(err)
	}
	guess, _ := url.Parse(urls["others"].Reveal())
	guess.User = url.UserPassword(guess.User.Username(), "wrong")
	if _, err := pool.Open(t.Context(), guess.String(), 1, pool.Options{}); err == nil || strings.Contains(err.Error(), "wrong") {
		t.Errorf("a wrong password: got %v, want an error without the password", err)
	}
}

// Many instances may migrate at once. Another service's role cannot delay them with goose's advisory lock.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	urls := testkit.Databases(t, testkit.Service{Name: "late"}, testkit.Service{Name: "others"})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	other, err := pgx.Connect(ctx, urls["others"].Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(ctx)
	number := fnv.New64a()
	number.Write([]byte("migrate late"))
	for _, lock := range []int64{int64(number.Sum64()), lock.DefaultLockID} {
		if _, err := other.Exec(ctx, "SELECT pg_advisory_lock($1)", lock); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			db, err := pool.Open(ctx, urls["late"].Reveal(), 2, pool.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer db.Close()
			if err := host.Migrate(ctx, service.Definition{Name: "late", Migrations: migrations}, db, slog.New(slog.DiscardHandler)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestSchemaOfAnotherVersion(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	aged, err := pool.Open(ctx, testkit.Databases(t, testkit.Service{Name: "aged"})["aged"].Reveal(), 2, pool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer aged.Close()
	newer := fstest.MapFS{"migrations/0002_more.sql": {Data: []byte("-- +goose Up\nALTER TABLE thing ADD COLUMN more text;\n")}}
	maps.Copy(newer, migrations)
	expectMissing := func(need fstest.MapFS, lacks string) {
		t.Helper()
		err := host.Prepare(ctx, service.Definition{Migrations: need}, service.Deps{DB: aged.DB})
		if (lacks == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), " "+lacks+":") {
			t.Errorf("got %v, want a lack of %q", err, lacks)
		}
	}
	expectMissing(migrations, "0001_things.sql")
	expectMissing(newer, "0001_things.sql, 0002_more.sql")
	if err := host.Migrate(ctx, service.Definition{Migrations: migrations}, aged, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	expectMissing(migrations, "")
	expectMissing(newer, "0002_more.sql")
	if err := host.Migrate(ctx, service.Definition{Migrations: newer}, aged, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	expectMissing(newer, "")
	expectMissing(migrations, "")
	if err := host.Migrate(ctx, service.Definition{Migrations: migrations}, aged, slog.New(slog.DiscardHandler)); err != nil {
		t.Error("migrate a newer schema with an older program:", err)
	}
	expectMissing(newer, "")

	edited := maps.Clone(newer)
	edited["migrations/0001_things.sql"] = &fstest.MapFile{Data: append(bytes.Clone(newer["migrations/0001_things.sql"].Data), "-- more\n"...)}
	between := maps.Clone(newer)
	between["migrations/0001_late.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nSELECT 1;\n")}
	for want, files := range map[string]fstest.MapFS{
		"0001_things.sql was edited": edited, "0001_late.sql was added before number 2": between,
	} {
		d := service.Definition{Migrations: files}
		if err := host.Prepare(ctx, d, service.Deps{DB: aged.DB}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ready: got %v, want an error that says %s", err, want)
		}
		if err := host.Migrate(ctx, d, aged, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("migrate: got %v, want an error that says %s", err, want)
		}
	}
}

// Units of work that lock new numbers beside others never deadlock.
func TestFirstLocks(t *testing.T) {
	t.Parallel()
	url := testkit.Databases(t, testkit.Service{Name: "things", Migrations: migrations})["things"].Reveal()
	opened, err := pool.Open(t.Context(), url, 12, pool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	db := pg.New(opened.Connections(), func(_ context.Context, err error) bool {
		t.Errorf("got %v, want no unit of work to be aborted", err)
		return pgerror.IsAborted(err)
	})
	var last atomic.Int64
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			for n := last.Add(1); n < 2000; n = last.Add(1) {
				err := db.InTx(t.Context(), func(tx *pg.Tx) error {
					tx.Unrecorded("a test")
					return tx.Lock(t.Context(), "things", n/4+2, n/4, n/4+1)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

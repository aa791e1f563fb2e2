package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/migrate"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// files is a service's folder: the texts of its files by name.
type files map[string]string

func (f files) merge(more files) files {
	all := maps.Clone(f)
	maps.Copy(all, more)
	return all
}

func (f files) set() migrate.MigrationSet {
	folder := fstest.MapFS{}
	for name, text := range f {
		folder[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return migrate.MigrationSet{Table: "migration", Files: []fs.FS{folder}}
}

// dogs has a trigger, and views whose alphabetical order differs from the order in which they read each other.
var dogs = files{
	"migrations/0001_dog.sql": `-- +goose Up
		CREATE TABLE dog (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL, shown text);`,
	"schema/views/all_dogs.sql":  "-- Not of dog_count.\nCREATE OR REPLACE VIEW all_dogs AS SELECT id, name FROM dog_view;",
	"schema/views/dog_view.sql":  "CREATE OR REPLACE VIEW dog_view AS SELECT id, name FROM dog;",
	"schema/views/dog_count.sql": "CREATE OR REPLACE VIEW dog_count AS SELECT count(*) AS dogs FROM all_dogs;",
	"schema/functions/dog_shown.sql": `CREATE OR REPLACE FUNCTION dog_shown() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			NEW.shown := upper(NEW.name); RETURN NEW;
		END $$;
		CREATE OR REPLACE TRIGGER dog_shown BEFORE INSERT ON dog FOR EACH ROW EXECUTE FUNCTION dog_shown();`,
}

// wider adds a column behind the others, as a next release would.
var wider = dogs.merge(files{
	"migrations/0002_age.sql":   "-- +goose Up\nALTER TABLE dog ADD COLUMN age integer NOT NULL DEFAULT 1;",
	"schema/views/dog_view.sql": "CREATE OR REPLACE VIEW dog_view AS SELECT id, name, age FROM dog;",
})

// turned changes the order and type of a view's columns, for which CREATE OR REPLACE does not suffice.
var turned = dogs.merge(files{
	"schema/views/dog_view.sql": "CREATE OR REPLACE VIEW dog_view AS SELECT name, id::text AS id FROM dog;",
})

// schema is an empty schema with a connection to it.
type schema struct {
	*testing.T
	url  string
	conn *pgx.Conn
}

func newSchema(t *testing.T) *schema {
	t.Helper()
	t.Parallel()
	s := &schema{T: t, url: testkit.Databases(t, testkit.Service{Name: "dogs"})["dogs"].Reveal()}
	s.conn = s.connect()
	return s
}

func (s *schema) connect() *pgx.Conn {
	s.Helper()
	conn, err := pgx.Connect(s.Context(), s.url)
	testkit.Must(s, err)
	s.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (s *schema) pool() *pool.Pool {
	s.Helper()
	opened, err := pool.Open(s.Context(), s.url, 2, pool.Options{})
	testkit.Must(s, err)
	s.Cleanup(opened.Close)
	return opened
}

func (s *schema) migrate(f files) error {
	s.Helper()
	return <-s.start(f)
}

// start migrates in the background.
func (s *schema) start(f files) (ended chan error) {
	s.Helper()
	to, ended := s.pool(), make(chan error, 1)
	go func() {
		defer to.Close()
		ended <- migrate.Migrate(s.Context(), to, slog.New(slog.DiscardHandler), f.set())
	}()
	return ended
}

func (s *schema) execute(conn *pgx.Conn, statement string) {
	s.Helper()
	if _, err := conn.Exec(s.Context(), statement); err != nil {
		s.Fatalf("%s: %v", statement, err)
	}
}

func (s *schema) expect(query, want string) {
	s.Helper()
	var got string
	if err := s.conn.QueryRow(s.Context(), query).Scan(&got); err != nil || got != want {
		s.Errorf("%s: got %q (%v), want %q", query, got, err, want)
	}
}

// A definition exists after the first migration, and is replaced after its file has changed.
func TestDefinitionsAreApplied(t *testing.T) {
	s := newSchema(t)
	testkit.Must(t, s.migrate(dogs))
	s.execute(s.conn, "INSERT INTO dog (name) VALUES ('rex')")
	s.expect("SELECT shown FROM dog", "REX")
	s.expect("SELECT dogs::text FROM dog_count", "1")

	testkit.Must(t, s.migrate(wider))
	s.expect("SELECT age::text FROM dog_view", "1")

	loud := wider.merge(files{
		"schema/functions/dog_shown.sql": strings.ReplaceAll(dogs["schema/functions/dog_shown.sql"], "upper(NEW.name)", "NEW.name || '!'"),
	})
	testkit.Must(t, s.migrate(loud))
	s.execute(s.conn, "INSERT INTO dog (name) VALUES ('bello')")
	s.expect("SELECT shown FROM dog WHERE name = 'bello'", "bello!")
}

// A start that finds nothing changed waits for no lock.
func TestUnchangedDefinitionsAreLeftAlone(t *testing.T) {
	s := newSchema(t)
	testkit.Must(t, s.migrate(dogs))
	holder := s.connect()
	s.execute(holder, "BEGIN")
	s.execute(holder, "LOCK TABLE migrating, dog, dog_view")
	testkit.Must(t, s.migrate(dogs))
	testkit.Must(t, migrate.Check(t.Context(), s.pool().DB, dogs.set()))
}

// If columns move or change their type, the view and its readers are dropped and created again.
func TestViewColumnsChange(t *testing.T) {
	s := newSchema(t)
	testkit.Must(t, s.migrate(dogs))
	s.execute(s.conn, "INSERT INTO dog (name) VALUES ('rex')")
	testkit.Must(t, s.migrate(turned))
	s.expect("SELECT id FROM all_dogs", "1") // a text
	s.expect("SELECT dogs::text FROM dog_count", "1")
	testkit.Must(t, s.migrate(turned))

	s.execute(s.conn, "CREATE VIEW of_nobody AS SELECT id FROM dog_view")
	if err := s.migrate(dogs); err == nil || !strings.Contains(err.Error(), "of_nobody") {
		t.Errorf("got %v, want an error that names the view without a file", err)
	}
	s.expect("SELECT id FROM of_nobody", "1")
}

// An older program starts on a newer schema, and leaves the newer views in place.
func TestOlderProgramLeavesNewerDefinitions(t *testing.T) {
	s := newSchema(t)
	testkit.Must(t, s.migrate(dogs))
	testkit.Must(t, s.migrate(wider))
	testkit.Must(t, s.migrate(dogs))
	testkit.Must(t, migrate.Check(t.Context(), s.pool().DB, dogs.set()))
	s.execute(s.conn, "INSERT INTO dog (name) VALUES ('rex')")
	s.expect("SELECT age::text FROM dog_view", "1")
	testkit.Must(t, migrate.Check(t.Context(), s.pool().DB, wider.set()))
}

// A migration that holds only a comment marks a change of a view as newer than an older program's views.
func TestMigrationOfACommentAlone(t *testing.T) {
	s := newSchema(t)
	testkit.Must(t, s.migrate(dogs))
	newer := turned.merge(files{"migrations/0002_turned.sql": "-- +goose Up\n-- dog_view has its columns in another order.\n"})
	testkit.Must(t, s.migrate(newer))
	testkit.Must(t, s.migrate(dogs))
	s.execute(s.conn, "INSERT INTO dog (name) VALUES ('rex')")
	s.expect("SELECT id FROM dog_view", "1") // a text
}

// Views and triggers that a migration drops, such as by DROP COLUMN … CASCADE, are created again.
func TestDroppedViewsAreRecreated(t *testing.T) {
	s := newSchema(t)
	testkit.Must(t, s.migrate(dogs))
	narrow := dogs.merge(files{
		"migrations/0002_unshown.sql": `-- +goose Up
			ALTER TABLE dog DROP COLUMN name CASCADE, ADD COLUMN called text NOT NULL DEFAULT 'rex';`,
		"schema/views/dog_view.sql":      "CREATE OR REPLACE VIEW dog_view AS SELECT id, called AS name FROM dog;",
		"schema/functions/dog_shown.sql": strings.ReplaceAll(dogs["schema/functions/dog_shown.sql"], "NEW.name", "NEW.called"),
	})
	testkit.Must(t, s.migrate(narrow))
	s.execute(s.conn, "INSERT INTO dog DEFAULT VALUES; DROP TRIGGER dog_shown ON dog; DROP VIEW dog_count")
	if err := migrate.Check(t.Context(), s.pool().DB, narrow.set()); !errors.Is(err, migrate.ErrOlder) {
		t.Errorf("got %v, want %v", err, migrate.ErrOlder)
	}
	testkit.Must(t, s.migrate(narrow))
	s.execute(s.conn, "INSERT INTO dog DEFAULT VALUES")
	s.expect("SELECT count(shown) || ' of ' || (SELECT dogs FROM dog_count) FROM dog", "2 of 2")
}

// Sessions can read a view while it is replaced, with prepared statements and without. They see it before or after.
func TestViewsStayReadable(t *testing.T) {
	s := newSchema(t)
	testkit.Must(t, s.migrate(dogs))
	s.execute(s.conn, "INSERT INTO dog (name) VALUES ('rex')")
	var reads atomic.Int64
	upper := dogs.merge(files{
		"schema/views/all_dogs.sql": "CREATE OR REPLACE VIEW all_dogs AS SELECT id, name, upper(name) AS loud FROM dog_view;",
		"schema/views/dog_view.sql": "CREATE OR REPLACE VIEW dog_view AS SELECT id, name, name AS again FROM dog;",
	})
	done := make(chan struct{})
	var reading sync.WaitGroup
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		conn := s.connect()
		reading.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				var name string
				err := conn.QueryRow(t.Context(), "SELECT name FROM all_dogs WHERE name <> $1", mode, "bello").Scan(&name)
				if err != nil || name != "rex" {
					t.Errorf("got %q (%v), want rex", name, err)
					return
				}
				reads.Add(1)
			}
		})
	}
	testkit.Eventually(t, "reads of the view", func() bool { return reads.Load() > 100 || t.Failed() })
	for range 3 {
		testkit.Must(t, s.migrate(upper))
		testkit.Must(t, s.migrate(dogs))
	}
	testkit.Must(t, s.migrate(turned))
	testkit.Must(t, s.migrate(dogs))
	testkit.Must(t, s.migrate(wider))
	before := reads.Load()
	testkit.Eventually(t, "reads of the new view", func() bool { return reads.Load() > before+100 || t.Failed() })
	close(done)
	reading.Wait()
}

// A session that holds a view for long, such as a backup, delays the replacement but no other reader.
func TestViewInUse(t *testing.T) {
	s := newSchema(t)
	testkit.Must(t, s.migrate(dogs))
	holder, reader := s.connect(), s.connect()
	s.execute(holder, "BEGIN")
	s.execute(holder, "SELECT FROM dog_view")
	migrated := s.start(turned)
	testkit.AwaitLocked(t, s.pool().DB, 1)
	s.execute(reader, "SET lock_timeout = '20s'")
	s.execute(reader, "SELECT FROM all_dogs") // it waits for the attempt, not for the holder
	select {
	case err := <-migrated:
		t.Fatalf("got %v while the view is in use, want it to wait", err)
	default:
	}
	s.execute(holder, "COMMIT")
	testkit.Must(t, <-migrated)
	s.expect("SELECT pg_typeof(max(id))::text FROM dog_view", "text")
}

// A process that is killed while it applies files leaves none of them applied. The next process applies them all.
func TestKilledBetweenDefinitions(t *testing.T) {
	s := newSchema(t)
	testkit.Must(t, s.migrate(dogs))
	next := wider.merge(files{
		"schema/views/all_dogs.sql":      "CREATE OR REPLACE VIEW all_dogs AS SELECT id, name, age FROM dog_view;",
		"schema/functions/dog_shown.sql": strings.ReplaceAll(dogs["schema/functions/dog_shown.sql"], "upper", "lower"),
	})
	holder := s.connect()
	s.execute(holder, "BEGIN")
	s.execute(holder, "COMMENT ON VIEW all_dogs IS 'locks the view, and no table'")
	killed := s.start(next)
	var pid int
	testkit.Eventually(t, "the view's replacement", func() bool {
		_ = s.conn.QueryRow(t.Context(), `SELECT coalesce(max(pid), 0) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%VIEW%'`).Scan(&pid)
		return pid != 0
	})
	s.execute(s.conn, fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid))
	if err := <-killed; err == nil {
		t.Fatal("got no error, want that of a session that was ended")
	}
	s.execute(holder, "COMMIT")

	s.expect("SELECT max(version_id)::text FROM migration", "2")
	s.expect("SELECT (pg_get_functiondef('dog_shown'::regproc) LIKE '%upper%')::text", "true")
	s.expect("SELECT count(*)::text FROM pg_attribute WHERE attrelid = 'dog_view'::regclass", "2")
	if err := migrate.Check(t.Context(), s.pool().DB, next.set()); !errors.Is(err, migrate.ErrOlder) {
		t.Errorf("got %v, want %v", err, migrate.ErrOlder)
	}
	testkit.Must(t, s.migrate(next))
	testkit.Must(t, migrate.Check(t.Context(), s.pool().DB, next.set()))
	s.expect("SELECT (pg_get_functiondef('dog_shown'::regproc) LIKE '%lower%')::text", "true")
	s.expect("SELECT count(*)::text FROM pg_attribute WHERE attrelid = 'dog_view'::regclass", "3")
}

// Any number of processes may start at once.
func TestSeveralMigrateAtOnce(t *testing.T) {
	s := newSchema(t)
	var all []chan error
	for range 8 {
		all = append(all, s.start(wider))
	}
	for _, ended := range all {
		testkit.Must(t, <-ended)
	}
	testkit.Must(t, migrate.Check(t.Context(), s.pool().DB, wider.set()))
}

// Invalid definition files stop the start, with an error that names the file.
func TestInvalidDefinitions(t *testing.T) {
	s := newSchema(t)
	for name, invalid := range map[string]files{
		"views/dog_view.sql creates": {"schema/views/dog_view.sql": "CREATE OR REPLACE VIEW cat_view AS SELECT 1 AS id;"},
		"views/dog_view.sql select":  {"schema/views/dog_view.sql": "CREATE OR REPLACE VIEW dog_view AS SELECT * FROM dog;"},
		"the view all_dogs reads":    {"schema/views/dog_view.sql": "CREATE OR REPLACE VIEW dog_view AS SELECT id, name FROM all_dogs;"},
		"apply schema/views/cats":    {"schema/views/cats.sql": "CREATE OR REPLACE VIEW cats AS SELECT id FROM cat;"},
	} {
		if err := s.migrate(dogs.merge(invalid)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want an error that says %q", err, name)
		}
	}
	testkit.Must(t, s.migrate(dogs))
}

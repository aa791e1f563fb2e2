package product_test

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// migrationsBefore returns the network service's migrations up to this number.
func migrationsBefore(t *testing.T, number string) fstest.MapFS {
	t.Helper()
	files, err := fs.Glob(network.Definition.Migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	some := fstest.MapFS{}
	for _, file := range files {
		text, err := fs.ReadFile(network.Definition.Migrations, file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) < number {
			some[file] = &fstest.MapFile{Data: text}
		}
	}
	return some
}

// The migration that rewrites all assignments blocks no writes: while it runs, others insert, rename, release and delete
// rows on both sides of it. If it is interrupted, the next attempt completes it.
func TestMigrationInSteps(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	url := testkit.Databases(t, testkit.Service{Name: network.Name, Migrations: migrationsBefore(t, "0010")})[network.Name]
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(ctx, url.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	execute := func(conn *pgx.Conn, statement string) {
		t.Helper()
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	writer, holder := connect(), connect()
	execute(writer, `
		INSERT INTO ip_group (name, reserved) VALUES ('site', false);
		INSERT INTO ip_entity (group_id, v4_first, v4_last, vlan) SELECT 1, '10.0.0.0'::inet + n, '10.0.0.0'::inet + n, 7 FROM generate_series(1, 12000) n;
		INSERT INTO ip_assignment (entity_id, owner_id, owner_name) SELECT id, 1, 'x' FROM ip_entity WHERE id <= 11000;
		CREATE TABLE halt ();
		CREATE FUNCTION halt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN LOCK TABLE halt; RETURN NEW; END $$;
		CREATE TRIGGER halt BEFORE UPDATE ON ip_assignment FOR EACH ROW WHEN (NEW.entity_id = 6000) EXECUTE FUNCTION halt()`)

	// It halts in the second batch; the first one is committed.
	migrate := func() chan error {
		migrated := make(chan error, 1)
		go func() {
			db, err := pool.Open(ctx, url.Reveal(), 2, pool.Options{})
			if err != nil {
				migrated <- err
				return
			}
			defer db.Close()
			migrated <- host.Migrate(ctx, network.Definition, db, slog.New(slog.DiscardHandler))
		}()
		return migrated
	}
	halted := func() (pid int) {
		t.Helper()
		for deadline := time.Now().Add(soon); pid == 0; time.Sleep(5 * time.Millisecond) {
			err := writer.QueryRow(ctx, "SELECT coalesce(max(pid), 0) FROM pg_stat_activity "+
				"WHERE query LIKE '%LOOP%' AND pid <> pg_backend_pid() AND wait_event_type = 'Lock' AND datname = current_database()").
				Scan(&pid)
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("got no wait in the second batch (%v), want one", err)
			}
		}
		return pid
	}
	execute(holder, "BEGIN")
	execute(holder, "LOCK TABLE halt")
	migrated := migrate()
	halted()
	execute(writer, "SET lock_timeout = '20s'") // what waits fails
	execute(writer, "UPDATE ip_entity SET nickname = 'renamed', vlan = NULL WHERE id IN (10, 9000)")
	execute(writer, "DELETE FROM ip_assignment WHERE entity_id IN (20, 9100)")
	execute(writer, "INSERT INTO ip_assignment (entity_id, owner_id) VALUES (11500, 2), (20, 2)")
	execute(writer, "DELETE FROM ip_entity WHERE id IN (30, 9200)")
	execute(writer, "INSERT INTO ip_entity (group_id, v4_first, v4_last) VALUES (1, '10.9.0.1', '10.9.0.1')")
	admin, err := pgx.Connect(ctx, testkit.AdminURL(t, url).Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(ctx)
	if _, err := admin.Exec(ctx, "SELECT pg_terminate_backend($1, 10000)", halted()); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err == nil || !strings.Contains(err.Error(), "migrate network") {
		t.Fatalf("got %v, want an error that names the migration of network", err)
	}

	migrated = migrate()
	halted()
	execute(writer, "UPDATE ip_entity SET nickname = 'renamed again' WHERE id IN (11, 9001)")
	execute(holder, "COMMIT")
	if err := <-migrated; err != nil {
		t.Fatal(err)
	}
	var rows, mismatched int
	err = writer.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE (a.entity_name, a.vlan) IS DISTINCT FROM (e.name, e.vlan)) "+
		"FROM ip_assignment a JOIN ip_entity e ON e.id = a.entity_id").
		Scan(&rows, &mismatched)
	if err != nil || rows != 11000-4+2 || mismatched != 0 {
		t.Errorf("got %d assignments, %d of them wrong (%v), want %d and none wrong", rows, mismatched, err, 11000-4+2)
	}
	var invalid int
	if err := writer.QueryRow(ctx, "SELECT count(*) FROM pg_index WHERE NOT indisvalid").Scan(&invalid); err != nil || invalid > 0 {
		t.Errorf("got %d half-made indexes (%v), want none", invalid, err)
	}
}

// The migration in CONTRIBUTING.md blocks no writes, fills all rows, and can run twice.
func TestColumnOfALargeTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "CONTRIBUTING.md")
	testkit.Must(t, err)
	_, sample, _ := strings.Cut(string(text), "```sql\n-- +goose NO TRANSACTION")
	sample, _, found := strings.Cut(sample, "```")
	if !found {
		t.Fatal("got no migration in steps in CONTRIBUTING.md, want one")
	}
	with := func(name string) service.Definition {
		d := network.Definition
		files := migrationsBefore(t, "9")
		files["migrations/"+name] = &fstest.MapFile{Data: []byte("-- +goose NO TRANSACTION" + sample)}
		d.Migrations = files
		return d
	}
	url := testkit.Databases(t, testkit.Service{Name: network.Name, Migrations: migrationsBefore(t, "0010")})[network.Name]
	db, err := pool.Open(t.Context(), url.Reveal(), 4, pool.Options{})
	testkit.Must(t, err)
	defer db.Close()
	testkit.Must(t, host.Migrate(t.Context(), network.Definition, db, slog.New(slog.DiscardHandler)))
	testkit.Execute(t, db.DB, "INSERT INTO ip_group (name, reserved) VALUES ('site', false)")
	testkit.Execute(t, db.DB, `INSERT INTO ip_entity (group_id, v4_first, v4_last)
		SELECT 1, '10.0.0.0'::inet + n, '10.0.0.0'::inet + n FROM generate_series(1, 12000) n`)
	migrated := make(chan error, 1)
	go func() {
		migrated <- host.Migrate(t.Context(), with("9998_label.sql"), db, slog.New(slog.DiscardHandler))
	}()
	for n := 1; ; n++ {
		testkit.Execute(t, db.DB, "UPDATE ip_entity SET nickname = $2 WHERE id = $1", n, fmt.Sprint("name ", n)) // it waits for 10 s at most
		testkit.Execute(t, db.DB, `
			INSERT INTO ip_entity (group_id, v4_first, v4_last) SELECT 1, a, a FROM (SELECT '11.0.0.0'::inet + $1 AS a) of`, n)
		select {
		case err := <-migrated:
			testkit.Must(t, err)
		default:
			continue
		}
		break
	}
	testkit.Must(t, host.Migrate(t.Context(), with("9999_label_again.sql"), db, slog.New(slog.DiscardHandler)))
	var mismatched, invalid int
	testkit.Must(
		t,
		db.QueryRow(t.Context(), "SELECT count(*) FROM ip_entity WHERE label <> coalesce(nickname, 'entity ' || id)").Scan(&mismatched),
	)
	testkit.Must(t, db.QueryRow(t.Context(), "SELECT count(*) FROM pg_index WHERE NOT indisvalid").Scan(&invalid))
	if mismatched != 0 || invalid != 0 {
		t.Errorf("got %d rows with another label and %d half-made indexes, want none", mismatched, invalid)
	}
}

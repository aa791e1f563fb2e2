package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/deploy/measure/seed/rows"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/network"
)

// installation is the product on a seeded Postgres of its own.
type installation struct {
	entities int64
	conn     *pgx.Conn // the administrator's
	client   *testkit.Client
	log      *os.File
}

const (
	startTime   = time.Minute
	migrateTime = 30 * time.Minute // of a folder that an older version filled
)

// ground starts the Postgres of a folder, or, if its name is empty, of a new one, in which nothing is migrated yet.
func ground(t testing.TB, data string) (i *installation, folder string, urls map[string]secret.String) {
	t.Helper()
	if data == "" {
		var err error
		if data, err = os.MkdirTemp("", "ironplane-scale-"); err != nil { // a test's own folder cannot be passed by Postgres' user
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(data) })
		testkit.Must(t, os.Chmod(data, 0o711))
	}
	starting, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	postgres, admin, err := product.StartPostgres(starting, data)
	testkit.Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), startTime)
		defer cancel()
		if err := postgres.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	urls, err = product.Bootstrap(starting, admin, data)
	testkit.Must(t, err)
	i = &installation{}
	i.conn, err = pgx.Connect(starting, admin.Reveal())
	testkit.Must(t, err)
	t.Cleanup(func() { _ = i.conn.Close(context.WithoutCancel(t.Context())) })
	i.log, err = os.Open(filepath.Join(product.PostgresFolder(data), "postgres.log"))
	testkit.Must(t, err)
	t.Cleanup(func() { _ = i.log.Close() })
	return i, data, urls
}

// start seeds a new folder, or, if its name is not empty, starts one that a seeded standalone left. Before the product
// is opened, prepare is called.
func start(t testing.TB, data string, entities int, prepare func(*installation, *pgx.ConnConfig)) *installation {
	t.Helper()
	seeded := data != ""
	i, data, urls := ground(t, data)
	masterKey, err := product.EnsureMasterKey(t.Context(), data, i.conn)
	testkit.Must(t, err)
	migrating, cancel := context.WithTimeout(t.Context(), migrateTime)
	defer cancel()
	testkit.Must(t, product.Migrate(migrating, urls))
	if seeded { // as autovacuum would, in its time
		_, err = i.conn.Exec(migrating, "VACUUM (ANALYZE)")
		testkit.Must(t, err)
	} else {
		makeFirstAdmin(t, urls[identity.Name])
		testkit.Must(t, rows.Fill(t.Context(), urls, rows.Options{Entities: entities, Seed: 1, MasterKey: masterKey, Progress: progress(t)}))
	}
	_, err = i.conn.Exec(t.Context(), "SET search_path = network, ext")
	testkit.Must(t, err)
	schema, err := pgx.ParseConfig(urls[network.Name].Reveal())
	testkit.Must(t, err)
	prepare(i, schema)
	i.ask(t, "SELECT max(id) FROM ip_entity", &i.entities)

	opening, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	p, err := product.Open(
		opening,
		urls,
		masterKey,
		service.Settings{},
		producttest.Unlimited,
		testkit.Redis(t),
		gateway.Config{},
		slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	)
	testkit.Must(t, err)
	t.Cleanup(p.Close)
	key, _, err := admin.CreateKey(opening, p.Databases[identity.Name])
	testkit.Must(t, err)
	i.client = testkit.NewClient(t, p.Gateway).WithKey(key.Reveal())
	return i
}

// progress is where a test shows how far the seed is. A benchmark shows its outcome alone.
func progress(t testing.TB) io.Writer {
	if _, ok := t.(*testing.B); ok {
		return io.Discard
	}
	return t.Output()
}

func makeFirstAdmin(t testing.TB, url secret.String) {
	t.Helper()
	db, err := pool.Open(t.Context(), url.Reveal(), 1, nil)
	testkit.Must(t, err)
	defer db.Close()
	_, _, err = admin.CreateFirst(t.Context(), db.DB)
	testkit.Must(t, err)
}

// explain has the server log the plan, with its counts of pages, of every statement of the network service's role.
func (i *installation) explain(t testing.TB, service *pgx.ConnConfig) {
	t.Helper()
	role := pgx.Identifier{service.User}.Sanitize()
	for name, value := range map[string]string{
		"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_format": "json",
		"auto_explain.log_analyze": "on", "auto_explain.log_buffers": "on", "auto_explain.log_timing": "off",
	} {
		_, err := i.conn.Exec(t.Context(), "ALTER ROLE "+role+" SET "+name+" = '"+value+"'")
		testkit.Must(t, err)
	}
	t.Cleanup(func() { // the folder may go on
		_, err := i.conn.Exec(context.WithoutCancel(t.Context()), "ALTER ROLE "+role+" RESET ALL")
		if err != nil {
			t.Error(err)
		}
	})
}

func (i *installation) ask(t testing.TB, sql string, into any, args ...any) {
	t.Helper()
	if err := i.conn.QueryRow(t.Context(), sql, args...).Scan(into); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// plan is what auto_explain logs of a statement.
type plan struct {
	Query string `json:"Query Text"`
	Plan  struct {
		Hit  int64 `json:"Shared Hit Blocks"`
		Read int64 `json:"Shared Read Blocks"`
	}
	process string // which asked
	text    string
}

// planLogged is how the line begins before a plan.
var planLogged = regexp.MustCompile(`\[(\d+)\] LOG:  duration: \S+ ms  plan:\n`)

// plans are those of the statements that run while do does.
func (i *installation) plans(t testing.TB, do func()) []plan {
	t.Helper()
	_, err := i.log.Seek(0, io.SeekEnd)
	testkit.Must(t, err)
	do()
	text, err := io.ReadAll(i.log)
	testkit.Must(t, err)
	var found []plan
	for _, at := range planLogged.FindAllSubmatchIndex(text, -1) {
		var raw json.RawMessage
		err := json.NewDecoder(bytes.NewReader(text[at[1]:])).Decode(&raw)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			break // it is just being written, of what a job asked
		}
		testkit.Must(t, err)
		p := plan{process: string(text[at[2]:at[3]]), text: string(raw)}
		testkit.Must(t, json.Unmarshal(raw, &p))
		found = append(found, p)
	}
	return found
}

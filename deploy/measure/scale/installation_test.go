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

// installation is the product on a seeded PostgreSQL of its own.
type installation struct {
	entities int64
	conn     *pgx.Conn // the administrator's
	client   *testkit.Client
	log      *os.File
}

const (
	startTimeout   = time.Minute
	migrateTimeout = 30 * time.Minute // a folder of an older version may need many migrations
)

// startDatabase starts the PostgreSQL of a folder, or of a new folder if data is empty. It runs no migrations.
func startDatabase(t testing.TB, data string) (i *installation, folder string, urls map[string]secret.String) {
	t.Helper()
	if data == "" {
		var err error
		if data, err = os.MkdirTemp("", "ironplane-scale-"); err != nil { // PostgreSQL's user cannot enter t.TempDir()
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(data) })
		testkit.Must(t, os.Chmod(data, 0o711))
	}
	starting, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	postgres, admin, err := product.StartPostgres(starting, data)
	testkit.Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), startTimeout)
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

// start seeds a new folder, or starts an already seeded one if data is not empty. It calls prepare before it opens the product.
func start(t testing.TB, data string, entities int, prepare func(*installation, *pgx.ConnConfig)) *installation {
	t.Helper()
	seeded := data != ""
	i, data, urls := startDatabase(t, data)
	masterKey, err := product.EnsureMasterKey(t.Context(), data, i.conn)
	testkit.Must(t, err)
	migrating, cancel := context.WithTimeout(t.Context(), migrateTimeout)
	defer cancel()
	testkit.Must(t, product.Migrate(migrating, urls))
	if seeded { // autovacuum may not have run yet
		_, err = i.conn.Exec(migrating, "VACUUM (ANALYZE)")
		testkit.Must(t, err)
	} else {
		createFirstAdmin(t, urls[identity.Name])
		testkit.Must(t, rows.Fill(t.Context(), urls, rows.Options{Entities: entities, Seed: 1, MasterKey: masterKey, Progress: progress(t)}))
	}
	_, err = i.conn.Exec(t.Context(), "SET search_path = network, ext")
	testkit.Must(t, err)
	schema, err := pgx.ParseConfig(urls[network.Name].Reveal())
	testkit.Must(t, err)
	prepare(i, schema)
	i.query(t, "SELECT max(id) FROM ip_entity", &i.entities)

	opening, cancel := context.WithTimeout(t.Context(), startTimeout)
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

// progress returns the writer for the progress of the seed. A benchmark prints only its result.
func progress(t testing.TB) io.Writer {
	if _, ok := t.(*testing.B); ok {
		return io.Discard
	}
	return t.Output()
}

func createFirstAdmin(t testing.TB, url secret.String) {
	t.Helper()
	db, err := pool.Open(t.Context(), url.Reveal(), 1, pool.Options{})
	testkit.Must(t, err)
	defer db.Close()
	_, _, err = admin.CreateFirst(t.Context(), db.DB)
	testkit.Must(t, err)
}

// explain lets the server log the plan of every statement of a service's role, with the pages that it reads.
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
	t.Cleanup(func() { // the folder may be used again
		_, err := i.conn.Exec(context.WithoutCancel(t.Context()), "ALTER ROLE "+role+" RESET ALL")
		if err != nil {
			t.Error(err)
		}
	})
}

func (i *installation) query(t testing.TB, sql string, into any, args ...any) {
	t.Helper()
	if err := i.conn.QueryRow(t.Context(), sql, args...).Scan(into); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// plan is a statement's plan, as auto_explain logs it.
type plan struct {
	Query string `json:"Query Text"`
	Plan  struct {
		Hit  int64 `json:"Shared Hit Blocks"`
		Read int64 `json:"Shared Read Blocks"`
	}
	process string // the id of the server process
	text    string
}

// planPattern matches the log line before a plan.
var planPattern = regexp.MustCompile(`\[(\d+)\] LOG:  duration: \S+ ms  plan:\n`)

// plans returns the plans of the statements that run during do.
func (i *installation) plans(t testing.TB, do func()) []plan {
	t.Helper()
	_, err := i.log.Seek(0, io.SeekEnd)
	testkit.Must(t, err)
	do()
	text, err := io.ReadAll(i.log)
	testkit.Must(t, err)
	var found []plan
	for _, at := range planPattern.FindAllSubmatchIndex(text, -1) {
		var raw json.RawMessage
		err := json.NewDecoder(bytes.NewReader(text[at[1]:])).Decode(&raw)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			break // a job's plan that is being written
		}
		testkit.Must(t, err)
		p := plan{process: string(text[at[2]:at[3]]), text: string(raw)}
		testkit.Must(t, json.Unmarshal(raw, &p))
		found = append(found, p)
	}
	return found
}

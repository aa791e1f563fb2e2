package system_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/names"
	"github.com/ironplane/ironplane/services/system"
	"github.com/ironplane/ironplane/services/system/audit"
)

func TestMain(m *testing.M) {
	names.ReplaceResolver()
	testkit.Main(m)
}

// fixture is the system service on its own database. It runs no tasks and jobs.
type fixture struct {
	*testkit.Client
	t   testing.TB
	db  *pg.DB
	box *seal.Box
	log *audit.Log
	seq map[string]int64
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	return newFixtureWithKey(t, seal.NewMasterKey())
}

// neverUsed answers for other services that they do not refer to anything.
type neverUsed struct{}

func (neverUsed) Ask(context.Context, string, string, any) error { return nil }

func (neverUsed) Limit(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, timeout)
}

// newFixtureWithKey returns a fixture whose log is signed with this master key.
func newFixtureWithKey(t testing.TB, masterKey secret.String) *fixture {
	t.Helper()
	db := testkit.Database(t, system.Name, system.Definition.Migrations)
	box := mustBox(t, masterKey.Reveal())
	s := &fixture{t: t, db: db, box: box, log: audit.New(box), seq: map[string]int64{}}
	s.signHead()
	s.Client = s.as(principal.All)
	return s
}

// as returns a client of an admin with these grants.
func (s *fixture) as(grants principal.Grants) *testkit.Client {
	s.t.Helper()
	handler := rest.NewHandler(
		system.Name,
		s.db,
		slog.New(slog.NewTextHandler(s.t.Output(), nil)),
		system.New(service.Deps{DB: s.db, Box: s.box, Peers: neverUsed{}}).Routes(),
	)
	return testkit.NewClient(s.t, testkit.As(handler, testkit.AdminWith(grants)))
}

// write logs changes of a service.
func (s *fixture) write(source string, batch ...events.Event) {
	s.t.Helper()
	for i := range batch {
		s.seq[source]++
		batch[i].Seq = s.seq[source]
		if batch[i].At.IsZero() {
			batch[i].At = time.Now()
		}
	}
	if err := s.tryBatch(source, batch); err != nil {
		s.t.Fatal(err)
	}
}

var actorAnna = &events.Actor{URL: "/admin/2", Name: "anna", Key: 7}

// newEdit returns a change of an IP group.
func newEdit(id int64, before, after string) events.Event {
	name := fmt.Sprint("site ", id)
	return events.Event{
		Type:      "group.edited",
		Kind:      "group",
		Action:    "edited",
		Targets:   []pg.Target{{Type: "group", Noun: "IP group", ID: id, Name: name, Version: 2}},
		Before:    json.RawMessage(before),
		After:     json.RawMessage(after),
		Actor:     actorAnna,
		IP:        netip.MustParseAddr("192.0.2.7"),
		RequestID: "r",
	}
}

// signHead does what the service does when it starts.
func (s *fixture) signHead() {
	s.t.Helper()
	if err := s.log.SignHead(s.t.Context(), s.db); err != nil {
		s.t.Fatal(err)
	}
}

// execute changes the database directly.
func (s *fixture) execute(sql string, args ...any) {
	s.t.Helper()
	testkit.Execute(s.t, s.db, sql, args...)
}

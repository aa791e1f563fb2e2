package events_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/wake"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// The service owner has items. The service user has notes about them.
var (
	itemMigrations = fstest.MapFS{"migrations/0001_items.sql": {Data: []byte(`-- +goose Up
CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, version bigint NOT NULL DEFAULT 1, name text NOT NULL, times bigint NOT NULL DEFAULT 0);`)}}
	notes = fstest.MapFS{"migrations/0001_notes.sql": {Data: []byte(`-- +goose Up
CREATE TABLE applied (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, seq bigint NOT NULL, type text NOT NULL, item bigint NOT NULL, version bigint NOT NULL);
CREATE TABLE note (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item bigint);`)}}
)

// lookInterval is how often sequencers and consumers look for changes by themselves.
const lookInterval = 20 * time.Millisecond

// fixture holds two services, and runs their background work until the test ends.
type fixture struct {
	testing.TB
	owner, user *pg.DB
	peers       mesh.Peers
	working     sync.WaitGroup
	jobs        context.Context
	isDown      bool // the owner responds with 503
	asked       atomic.Int64
	mu          sync.Mutex
}

func newFixture(t testing.TB) *fixture {
	s := &fixture{
		TB:    t,
		owner: testkit.Database(t, "owner", itemMigrations),
		user:  testkit.Database(t, "user", notes),
	}
	jobs, end := context.WithCancel(t.Context())
	t.Cleanup(func() {
		end()
		s.working.Wait()
	})
	s.jobs = jobs
	s.start()
	return s
}

// start starts the owner. Its feed has not stored yet how far the readers are.
func (s *fixture) start() {
	owner := rest.NewHandler(
		"owner",
		s.owner,
		slog.New(slog.DiscardHandler),
		[]rest.Route{events.Feed(s.owner, "user"), events.RefRoute(s.owner, "item", "item", "NULL::jsonb", "user")},
	)
	s.peers = peers.New("user", map[string]http.Handler{"owner": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked.Add(1)
		isDown := s.isDown
		s.mu.Unlock()
		if isDown {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		owner.ServeHTTP(w, r)
	})})
}

// repeat runs a job until the test ends, and starts it again when it fails.
func (s *fixture) repeat(job func(context.Context) error) {
	s.working.Go(func() {
		for s.jobs.Err() == nil {
			if job(s.jobs) != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
}

// startSequencer starts an instance of the owner's sequencer.
func (s *fixture) startSequencer() {
	s.repeat((&events.Sequencer{DB: s.owner, Interval: lookInterval}).Run)
}

// numberChanges runs a new sequencer until all changes have numbers.
func (s *fixture) numberChanges() {
	s.Helper()
	working, stop := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&events.Sequencer{DB: s.owner}).Run(working) }()
	testkit.Eventually(s, "all are numbered", func() bool { return count(s, s.owner, "change WHERE seq IS NULL") == 0 })
	stop()
	<-ended
}

// startConsumer starts an instance of a consumer of the user.
func (s *fixture) startConsumer(c *events.Consumer) {
	peers := s.peers
	c.Interval = lookInterval
	s.repeat(func(ctx context.Context) error { return c.Consume(ctx, s.user, peers, nil) })
}

// change creates an item, and calls do in the same unit of work: commit or rollBack.
func (s *fixture) change(do func(tx *pg.Tx, id int64) error) (id int64) {
	s.Helper()
	err := s.owner.InTx(s.Context(), func(tx *pg.Tx) error {
		if err := tx.QueryRow(s.Context(), "INSERT INTO item (name) VALUES ('new') RETURNING id").Scan(&id); err != nil {
			return err
		}
		tx.Record(pg.Record{Kind: "item", Action: "created", Targets: []pg.Target{{Type: "item", ID: id, Name: "new", Version: 1}}})
		return do(tx, id)
	})
	if err != nil && !errors.Is(err, errRolledBack) {
		s.Fatal(err)
	}
	return id
}

func commit(*pg.Tx, int64) error { return nil }

var errRolledBack = errors.New("rolled back")

func rollBack(*pg.Tx, int64) error { return errRolledBack }

// touch edits an item, which raises its version.
func (s *fixture) touch(id int64) {
	err := s.owner.InTx(s.Context(), func(tx *pg.Tx) error {
		at := pg.Target{Type: "item", ID: id, Name: "new"}
		if err := tx.QueryRow(s.Context(), "UPDATE item SET version = version + 1 WHERE id = $1 RETURNING version", id).
			Scan(&at.Version); err != nil {
			return err
		}
		tx.Record(pg.Record{Kind: "item", Action: "edited", Targets: []pg.Target{at}})
		return nil
	})
	if err != nil {
		s.Error(err)
	}
}

func (s *fixture) remove(id int64) {
	err := s.owner.InTx(s.Context(), func(tx *pg.Tx) error {
		_, err := tx.Exec(s.Context(), "DELETE FROM item WHERE id = $1", id)
		tx.Record(pg.Record{Kind: "item", Action: "deleted", Targets: []pg.Target{{Type: "item", ID: id, Name: "new"}}})
		return err
	})
	if err != nil {
		s.Error(err)
	}
}

// count returns the number of rows of a table, with a condition if there is one.
func count(t testing.TB, db *pg.DB, sql string, args ...any) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM "+sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// recordApplied stores each change in the table applied.
func recordApplied(ctx context.Context, tx *pg.Tx, changes []events.Event) error {
	for _, e := range changes {
		_, err := tx.Exec(
			ctx,
			"INSERT INTO applied (seq, type, item, version) VALUES ($1, $2, $3, $4)",
			e.Seq,
			e.Type,
			e.Targets[0].ID,
			e.Targets[0].Version,
		)
		if err != nil {
			return err
		}
	}
	return nil
}

func TestEachChangeIsAppliedOnceInOrder(t *testing.T) {
	t.Parallel()
	for _, batched := range []bool{true, false} {
		t.Run(fmt.Sprint("batched=", batched), func(t *testing.T) {
			t.Parallel()
			testEachChangeIsAppliedOnceInOrder(t, batched)
		})
	}
}

func testEachChangeIsAppliedOnceInOrder(t *testing.T, batched bool) {
	s := newFixture(t)
	for range 3 { // instances
		s.startSequencer()
		s.startConsumer(&events.Consumer{Source: "owner", Batched: batched, Apply: recordApplied})
	}
	shared := s.change(commit)
	const writers, rounds = 8, 40
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for range rounds {
				if rand.IntN(4) == 0 {
					s.change(rollBack)
				}
				s.touch(shared)
			}
		})
	}
	writing.Wait()
	const all = writers*rounds + 1
	testkit.Eventually(s, "the cursor is at the last change", func() bool { return count(t, s.user, "consumer WHERE seq = $1", all) == 1 })
	if n := count(t, s.user, "(SELECT DISTINCT seq FROM applied) d"); n != all || count(t, s.user, "applied") != all {
		t.Errorf("got %d changes applied %d times, want %d, each once", n, count(t, s.user, "applied"), all)
	}
	if n := count(t, s.user, "applied WHERE seq <> n OR version <> n"); n != 0 { // n is the order in which they were applied
		t.Errorf("got %d changes of one item out of order, want none", n)
	}
}

func TestConsumerStopsAndSkips(t *testing.T) {
	t.Parallel()
	for _, batched := range []bool{true, false} {
		t.Run(fmt.Sprint("batched=", batched), func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			s.change(commit)
			poison := s.change(commit)
			s.change(commit)
			s.startSequencer()
			c := &events.Consumer{Source: "owner", Batched: batched, Apply: func(ctx context.Context, tx *pg.Tx, changes []events.Event) error {
				if slices.ContainsFunc(changes, func(e events.Event) bool { return e.Targets[0].ID == poison }) {
					return errors.New("poison")
				}
				return recordApplied(ctx, tx, changes)
			}}
			s.startConsumer(c)
			testkit.Eventually(s, "it stops", func() bool { return c.Status().Stopped == 2 })
			if got := c.Status(); got.Reason == nil || got.Behind == 0 {
				t.Errorf("got %+v, want a reason and changes behind", got)
			}
			if n := count(t, s.user, "applied"); n != 1 {
				t.Errorf("before the change that cannot be applied: got %d changes applied, want 1", n)
			}
			if err := s.skip("owner:3"); !errors.Is(err, host.ErrNotStopped) {
				t.Errorf("skip a change at which the consumer has not stopped: got %v, want %v", err, host.ErrNotStopped)
			}
			testkit.Eventually(s, "change 2 is skipped", func() bool { return s.skip("owner:2") == nil })
			testkit.Eventually(s, "it goes on", func() bool { return count(t, s.user, "applied") == 2 && c.Status().Stopped == 0 })
			if n := count(t, s.user, `change WHERE type = 'event.skipped' AND targets @> '[{"type": "event/owner", "id": 2}]'`); n != 1 {
				t.Errorf("got %d records of the skip, want 1", n)
			}
		})
	}
}

// A consumer of all changes stops at a gap. It goes on behind the gap only when an operator skips the missing changes.
func TestLostChangesStopAConsumer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sql         string
		first, last int
	}{
		"first":         {"seq <= 2", 1, 2},
		"in the middle": {"seq IN (3, 4)", 3, 4},
		"last":          {"seq = 6", 6, 6},
		"all":           {"true", 1, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			for range 6 {
				s.change(commit)
			}
			s.startSequencer()
			testkit.Eventually(s, "all are numbered", func() bool { return count(t, s.owner, "change WHERE seq IS NULL") == 0 })
			testkit.Execute(t, s.owner, "DELETE FROM change WHERE "+test.sql)
			c := &events.Consumer{Source: "owner", Batched: true, Apply: recordApplied}
			s.startConsumer(c)
			testkit.Eventually(s, "it stops", func() bool { return c.Status().Stopped == int64(test.last) })
			want := fmt.Sprintf("the changes %d to %d of owner no longer exist", test.first, test.last)
			if got := c.Status().Reason; got == nil || got.Error() != want {
				t.Errorf("got the reason %v, want %s", got, want)
			}
			if n := count(t, s.user, "applied"); n != test.first-1 {
				t.Errorf("got %d changes applied before the lost ones, want %d", n, test.first-1)
			}
			testkit.Eventually(s, "the lost changes are skipped", func() bool { return s.skip(fmt.Sprintf("owner:%d", test.last)) == nil })
			s.change(commit)
			left := 7 - (test.last - test.first + 1)
			testkit.Eventually(s, "it goes on", func() bool { return count(t, s.user, "applied") == left && c.Status().Reason == nil })
		})
	}
}

// Each consumer of a source has its own cursor. A stopped consumer does not stop the others, and an operator skips a change for
// it by its name. The source keeps the changes that it has not applied.
func TestNamedConsumers(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	for range 3 {
		s.change(commit)
	}
	s.numberChanges()
	if err := host.Sweep(t.Context(), s.owner, "user"); err != nil {
		t.Fatal(err)
	}
	s.startConsumer(&events.Consumer{Source: "owner", Batched: true, Apply: recordApplied})
	testkit.Eventually(
		s,
		"the first consumer has applied all changes",
		func() bool { return count(t, s.user, "consumer WHERE name = '' AND seq = 3") == 1 },
	)
	named := &events.Consumer{
		Source:  "owner",
		Name:    "named",
		Batched: true,
		Apply: func(ctx context.Context, tx *pg.Tx, changes []events.Event) error {
			for _, e := range changes {
				if e.Seq == 2 {
					return errors.New("poison")
				}
			}
			return recordApplied(ctx, tx, changes)
		},
	}
	s.startConsumer(named)
	testkit.Eventually(s, "the named consumer stops", func() bool { return named.Status().Stopped == 2 })
	if reason := named.Status().Reason; reason == nil || reason.Error() != "apply change 2 of owner/named (item.created): poison" {
		t.Errorf("got the reason %v, want apply change 2 of owner/named (item.created): poison", reason)
	}
	s.start()
	s.startConsumer(&events.Consumer{Source: "owner", Batched: true, Apply: recordApplied})
	testkit.Eventually(s, "the source has stored how far the slowest consumer is", func() bool {
		return count(t, s.owner, "change_reader WHERE seq = 1") == 1
	})
	if err := s.skip("owner:2"); !errors.Is(err, host.ErrNotStopped) {
		t.Errorf("skip for the consumer without a name: got %v, want %v", err, host.ErrNotStopped)
	}
	testkit.Eventually(s, "the change is skipped for the named consumer", func() bool { return s.skip("owner/named:2") == nil })
	testkit.Eventually(s, "it goes on", func() bool { return count(t, s.user, "consumer WHERE name = 'named' AND seq = 3") == 1 })
	if n, all := count(t, s.user, "applied"), 3+2; n != all {
		t.Errorf("got %d changes applied, want %d", n, all)
	}
}

// A consumer that is added after the source has deleted changes begins with the oldest stored change, and misses none.
func TestNamedConsumerBeginsWithFirstStoredChange(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sql     string
		applied int
		stopped int64
	}{
		"some deleted":           {"seq <= 2", 4, 0},
		"all deleted":            {"true", 0, 0},
		"one lost in the middle": {"seq IN (1, 4)", 2, 4},
		"none deleted":           {"false", 6, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			for range 6 {
				s.change(commit)
			}
			s.numberChanges()
			testkit.Execute(t, s.owner, "DELETE FROM change WHERE "+test.sql)
			c := &events.Consumer{Source: "owner", Name: "named", Batched: true, Apply: recordApplied}
			s.startConsumer(c)
			testkit.Eventually(s, "it has applied all changes, or stops", func() bool {
				return count(t, s.user, "consumer WHERE seq = 6") == 1 || test.stopped > 0 && c.Status().Stopped == test.stopped
			})
			if n := count(t, s.user, "applied"); n != test.applied {
				t.Errorf("got %d changes applied, want %d", n, test.applied)
			}
		})
	}
}

// A consumer stops if its cursor is beyond the last change. It does not move the cursor.
func TestCursorBeyondTheLastChange(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.change(commit)
	s.startSequencer()
	testkit.Execute(t, s.user, "INSERT INTO consumer (source, seq) VALUES ('owner', 5)")
	c := &events.Consumer{Source: "owner", Batched: true, Apply: recordApplied}
	s.startConsumer(c)
	testkit.Eventually(s, "it reports the reason", func() bool {
		reason := c.Status().Reason
		return reason != nil &&
			reason.Error() == "owner has numbered its changes up to 1, but those up to 5 were applied: it was restored, or the cursor was moved"
	})
	if n := count(t, s.user, "consumer WHERE seq = 5"); n != 1 {
		t.Errorf("got %d cursors at 5, want 1", n)
	}
	testkit.Execute(t, s.user, "UPDATE consumer SET seq = 0")
	testkit.Eventually(s, "it goes on", func() bool { return count(t, s.user, "applied") == 1 && c.Status().Reason == nil })
}

// restore puts the owner back to its state after a number of changes, as the restore of a backup does.
func (s *fixture) restore(changes int64) {
	testkit.Execute(s, s.owner, fmt.Sprintf("DELETE FROM item WHERE id > %d", changes))
	testkit.Execute(s, s.owner, fmt.Sprintf("DELETE FROM change WHERE coalesce(seq, %d) > %[1]d", changes))
	testkit.Execute(s, s.owner, fmt.Sprintf("UPDATE sequencer SET last = %d", changes))
	testkit.Execute(s, s.owner, fmt.Sprintf("SELECT setval(pg_get_serial_sequence('item', 'id'), %d)", changes))
}

// A restored owner assigns the same numbers again. Its consumer notices, however many changes there are by then, and does not
// move its cursor.
func TestRestoredSource(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		later  int // changes after the restore
		reason string
	}{
		"behind the cursor": {1, "owner has numbered its changes up to 3, but those up to 5 were applied: it was restored, or the " +
			"cursor was moved"},
		"at the cursor":     {3, "change 5 of owner is not the one that was applied: the service was restored"},
		"beyond the cursor": {6, "change 5 of owner is not the one that was applied: the service was restored"},
	} {
		for kind, c := range map[string]*events.Consumer{
			"all": {Source: "owner", Batched: true, Apply: recordApplied}, "of a kind": {Source: "owner", Kind: "other", Apply: recordApplied},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				s := newFixture(t)
				for range 5 {
					s.change(commit)
				}
				s.numberChanges()
				s.consumeUntil(c, func() bool { return count(t, s.user, "consumer WHERE seq = 5") == 1 })
				applied := count(t, s.user, "applied")
				s.restore(2)
				for range test.later {
					s.change(commit)
				}
				s.numberChanges()
				s.startConsumer(c)
				testkit.Eventually(s, "it reports the restore", func() bool {
					now := c.Status()
					return now.HistoryMismatch && now.Reason != nil && now.Reason.Error() == test.reason
				})
				if n := count(t, s.user, "consumer WHERE seq = 5"); n != 1 || count(t, s.user, "applied") != applied {
					t.Errorf("got %d cursors at 5 and %d more changes applied, want 1 and 0", n, count(t, s.user, "applied")-applied)
				}
			})
		}
	}
}

// A restored source keeps a change that was numbered after the backup if a reader has applied it. A lagging reader applies it,
// too, before the changes of the next history.
func TestKeptChangeIsAppliedByLaggingConsumer(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	for range 2 {
		s.change(commit)
	}
	s.numberChanges()
	c := &events.Consumer{Source: "owner", Batched: true, Apply: recordApplied}
	s.consumeUntil(c, func() bool { return count(t, s.user, "applied") == 2 })
	s.change(commit)
	s.numberChanges()
	testkit.Execute(t, s.owner, "UPDATE history SET ended = 2")
	testkit.Execute(t, s.owner, "INSERT INTO history (began) VALUES (1000)")
	testkit.Execute(t, s.owner, "UPDATE sequencer SET last = 1000")
	s.change(commit)
	s.numberChanges()
	s.consumeUntil(c, func() bool { return count(t, s.user, "consumer WHERE seq = 1001") == 1 })
	if n := count(t, s.user, "applied"); n != 4 {
		t.Errorf("got %d changes applied, want 4", n)
	}
}

// A running service notices that its database was restored, or that a failover lost the last changes. It does not serve after
// its next start either.
func TestSourceIsRestoredWhileRunning(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]int{"fewer changes": 1, "as many changes": 3, "more changes": 6} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			work := (&events.Sequencer{DB: s.owner}).Run
			ended := make(chan error, 1)
			working, stop := context.WithCancel(t.Context())
			go func() { ended <- work(working) }()
			for range 5 {
				s.change(commit)
			}
			testkit.Eventually(s, "all are numbered", func() bool { return count(t, s.owner, "change WHERE seq IS NULL") == 0 })
			stop()
			<-ended
			s.restore(2)
			for range later {
				s.change(commit)
			}
			s.numberChanges()
			if err := work(t.Context()); !errors.Is(err, events.ErrRestored) {
				t.Errorf("the sequencer of a restored database: got %v, want %v", err, events.ErrRestored)
			}
			if _, err := events.CurrentHistory(t.Context(), s.owner); !errors.Is(err, events.ErrRestored) {
				t.Errorf("the history of a restored database: got %v, want %v", err, events.ErrRestored)
			}
		})
	}
}

// consumeUntil runs a consumer until a condition holds.
func (s *fixture) consumeUntil(c *events.Consumer, holds func() bool) {
	s.Helper()
	c.Interval = lookInterval
	reading, stop := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Consume(reading, s.user, s.peers, nil) }()
	testkit.Eventually(s, "it has read the changes", holds)
	stop()
	if err := <-ended; err != nil {
		s.Error(err)
	}
}

// A consumer stops if its source has another history, even if the numbers continue.
func TestAnotherHistory(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.startSequencer()
	s.change(commit)
	c := &events.Consumer{Source: "owner", Batched: true, Apply: recordApplied}
	s.startConsumer(c)
	testkit.Eventually(s, "it has read the change", func() bool { return count(t, s.user, "applied") == 1 })
	testkit.Execute(t, s.owner, "UPDATE history SET uuid = gen_random_uuid()")
	s.change(commit)
	testkit.Eventually(s, "it stops", func() bool { return c.Status().HistoryMismatch })
	if n := count(t, s.user, "applied"); n != 1 {
		t.Errorf("got %d changes applied, want 1", n)
	}
}

// Older releases store neither histories nor ids of changes. Neither side mistakes the other for restored.
func TestCursorOfOlderRelease(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.startSequencer()
	s.change(commit)
	testkit.Execute(t, s.owner, "UPDATE change SET uuid = NULL")
	testkit.Execute(t, s.user, "INSERT INTO consumer (source, seq) VALUES ('owner', 1)")
	c := &events.Consumer{Source: "owner", Batched: true, Apply: recordApplied}
	s.startConsumer(c)
	testkit.Eventually(s, "the cursor has the history", func() bool { return count(t, s.user, "consumer WHERE history IS NOT NULL") == 1 })
	s.change(commit)
	testkit.Eventually(s, "it goes on", func() bool { return count(t, s.user, "applied WHERE seq = 2") == 1 })
	s.change(commit)
	testkit.Eventually(s, "it goes on", func() bool { return count(t, s.user, "applied WHERE seq = 3") == 1 })
	testkit.Execute(t, s.user, "UPDATE consumer SET seq = 2") // an older instance sets only this column
	testkit.Eventually(s, "it goes on", func() bool { return count(t, s.user, "applied WHERE seq = 3") == 2 && c.Status().Reason == nil })
}

// An operator can skip a span of changes at once. Changes outside the span are not skipped.
func TestSpanIsSkipped(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	for range 6 {
		s.change(commit)
	}
	s.startSequencer()
	c := &events.Consumer{Source: "owner", Batched: true, Apply: func(ctx context.Context, tx *pg.Tx, changes []events.Event) error {
		if slices.ContainsFunc(changes, func(e events.Event) bool { return e.Seq > 1 && e.Seq < 6 }) {
			return errors.New("poison")
		}
		return recordApplied(ctx, tx, changes)
	}}
	s.startConsumer(c)
	testkit.Eventually(s, "it stops", func() bool { return count(t, s.user, "consumer WHERE stopped_at = 2") == 1 })
	for _, other := range []string{"owner:3-5", "owner:1", "other:2-5"} {
		if err := s.skip(other); !errors.Is(err, host.ErrNotStopped) {
			t.Errorf("skip %s: got %v, want %v", other, err, host.ErrNotStopped)
		}
	}
	if err := s.skip("owner:2-7"); err == nil || !strings.Contains(err.Error(), "the last known change of owner is 6") {
		t.Errorf("skip beyond the last change: got %v, want an error that says the last known change of owner is 6", err)
	}
	if err := s.skip("owner:2-5"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(s, "it goes on", func() bool { return count(t, s.user, "applied WHERE seq = 6") == 1 })
	if n := count(t, s.user, "applied"); n != 2 {
		t.Errorf("got %d changes applied, want 2", n)
	}
	if n := count(t, s.user, `change WHERE targets @> '[{"name": "owner:2-5", "id": 5}]'`); n != 1 {
		t.Errorf("got %d records of the skip, want 1", n)
	}
}

func TestInvalidSpans(t *testing.T) {
	t.Parallel()
	for _, invalid := range []string{"owner", "owner:", ":1", "owner:0", "owner:5-2", "owner:1-", "owner:1-2-3", "owner:-1"} {
		if err := new(events.Span).UnmarshalText([]byte(invalid)); err == nil || !strings.HasPrefix(err.Error(), "must be <service>:") {
			t.Errorf("%q: got %v, want an error with the valid forms", invalid, err)
		}
	}
}

// A service that was restored from an old backup lacks changes that the owner has deleted. It asks the owner again about the
// items that it refers to.
func TestRestoredUserOfDeletedChanges(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.startSequencer()
	refs := startRefs(s)
	deleted, kept := s.change(commit), s.change(commit)
	for _, id := range []int64{deleted, kept} {
		if err := s.addNote(refs, id); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(
		s,
		"both changes are applied",
		func() bool { return count(t, s.user, "consumer WHERE seq = 2 AND change IS NOT NULL") == 1 },
	)
	testkit.Execute(
		t,
		s.user,
		"CREATE TABLE backup AS SELECT * FROM consumer; CREATE TABLE backup_ref AS SELECT * "+
			"FROM ref; CREATE TABLE backup_note AS SELECT * FROM note",
	)
	s.remove(deleted)
	s.change(commit)
	testkit.Eventually(s, "all changes are applied", func() bool { return count(t, s.user, "consumer WHERE seq = 4") == 1 })
	testkit.Execute(t, s.owner, "DELETE FROM change WHERE seq < 4")
	testkit.Execute(
		t,
		s.user,
		"DELETE FROM note; DELETE FROM ref; INSERT INTO note OVERRIDING SYSTEM VALUE SELECT * "+
			"FROM backup_note; INSERT INTO ref SELECT * FROM backup_ref",
	)
	testkit.Execute(t, s.user, "UPDATE consumer c SET seq = b.seq, change = b.change, change_seq = b.change_seq FROM backup b")
	testkit.Eventually(s, "the reference to the deleted item is cleared", func() bool {
		return count(t, s.user, "note WHERE item = $1", deleted) == 0 && count(t, s.user, "consumer WHERE seq = 4") == 1
	})
	if count(t, s.user, "note WHERE item = $1", kept) != 1 || count(t, s.user, "ref WHERE id = $1 AND NOT gone", kept) != 1 {
		t.Error("got a cleared reference to an item that exists, want it kept")
	}
}

// A consumer that was told to skip the last change no longer reports that it has stopped.
func TestLastChangeIsSkipped(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.change(commit)
	s.startSequencer()
	c := &events.Consumer{Source: "owner", Apply: func(context.Context, *pg.Tx, []events.Event) error { return errors.New("poison") }}
	s.startConsumer(c)
	testkit.Eventually(s, "the change is skipped", func() bool { return s.skip("owner:1") == nil })
	testkit.Eventually(s, "its status has no reason", func() bool { return c.Status().Stopped == 0 && c.Status().Reason == nil })
}

// While the owner is unavailable, the consumer's status has the reason, and its Since stays.
func TestOwnerIsUnavailable(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	c := &events.Consumer{Source: "owner", Apply: recordApplied}
	s.startConsumer(c)
	testkit.Eventually(s, "it has asked the owner", func() bool { return !c.Status().Since.IsZero() })
	s.mu.Lock()
	s.isDown = true
	s.mu.Unlock()
	testkit.Eventually(s, "it reports a reason", func() bool { return c.Status().Reason != nil })
	since, asked := c.Status().Since, s.asked.Load()
	testkit.Eventually(s, "it has asked twice more", func() bool { return s.asked.Load() >= asked+2 })
	if now := c.Status().Since; !now.Equal(since) {
		t.Errorf("Since while the owner is unavailable: got %v, want %v as before", now, since)
	}
	s.mu.Lock()
	s.isDown = false
	s.mu.Unlock()
	testkit.Eventually(s, "it goes on", func() bool { return c.Status().Reason == nil && c.Status().Since.After(since) })
}

// The feed splits changes of many items with long names into several pages.
func TestLargeTargets(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	const all = 70
	testkit.Execute(t, s.owner, fmt.Sprintf(`INSERT INTO change (type, targets) SELECT 'item.created', (
		SELECT jsonb_agg(jsonb_build_object('type', 'item', 'id', n, 'name', repeat('<', 255))) FROM generate_series(1, %d) n)
		FROM generate_series(1, %d)`, 100, all))
	s.startSequencer()
	s.startConsumer(&events.Consumer{Source: "owner", Batched: true, Apply: recordApplied})
	testkit.Eventually(s, "all changes are applied", func() bool { return count(t, s.user, "applied") == all })
}

// startRefs starts an instance of the user, whose notes refer to items.
func startRefs(s *fixture) *events.Refs {
	r := &events.Refs{
		Owner: "owner",
		Type:  "item",
		DB:    s.user,
		Peers: s.peers,
		Clear: func(ctx context.Context, tx *pg.Tx, id int64, _ string) error {
			_, err := tx.Exec(ctx, "UPDATE note SET item = NULL WHERE item = $1", id)
			return err
		},
	}
	s.startConsumer(r.Consumer())
	return r
}

// addNote adds a note about an item.
func (s *fixture) addNote(r *events.Refs, id int64) error {
	return s.user.InTx(s.Context(), func(tx *pg.Tx) error {
		if err := r.Hold(s.Context(), tx, id, "/item"); err != nil {
			return err
		}
		_, err := tx.Exec(s.Context(), "INSERT INTO note (item) VALUES ($1)", id)
		tx.Record(pg.Record{Kind: "note", Action: "created"})
		return err
	})
}

func TestRefs(t *testing.T) {
	t.Parallel()
	s := newFixture(t) // its sequencer does not run, so the user learns of no change
	refs := startRefs(s)
	id := s.change(commit)
	if err := s.addNote(refs, id); err != nil {
		t.Errorf("add a note about an unknown item: %v", err)
	}
	if err := s.addNote(refs, id+1); !problem.Is(err, problem.Invalid) || problem.From(err).Fields[0].Pointer != "/item" {
		t.Errorf("add a note about a missing item: got %v, want an invalid /item", err)
	}
	other := s.change(commit)
	s.mu.Lock()
	s.isDown = true
	s.mu.Unlock()
	if err := s.addNote(refs, other); !problem.Is(err, problem.Unavailable) {
		t.Errorf("add a note about an unknown item while the owner is unavailable: got %v, want unavailable", err)
	}
	if err := s.addNote(refs, id); err != nil {
		t.Errorf("add a note about a known item while the owner is unavailable: %v", err)
	}
	s.mu.Lock()
	s.isDown = false
	s.mu.Unlock()
	if n := count(t, s.user, "note WHERE item = $1", id); n != 2 {
		t.Errorf("got %d notes, want 2", n)
	}
	s.startSequencer()
	if err := s.owner.InTx(t.Context(), func(tx *pg.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE item SET name = 'renamed', version = 2 WHERE id = $1", id)
		tx.Record(pg.Record{Kind: "item", Action: "edited", Targets: []pg.Target{{Type: "item", ID: id, Name: "renamed", Version: 2}}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(
		s,
		"the reference has the new name",
		func() bool { return count(t, s.user, "ref WHERE id = $1 AND name = 'renamed'", id) == 1 },
	)
	s.remove(id)
	testkit.Eventually(s, "references to the deleted item are cleared", func() bool {
		return count(t, s.user, "note WHERE item = $1", id) == 0
	})
	if err := s.addNote(refs, id); !problem.Is(err, problem.Invalid) {
		t.Errorf("add a note about a deleted item: got %v, want an invalid field", err)
	}
}

func TestNoReferenceDangles(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.startSequencer()
	refs := startRefs(s)
	startRefs(s) // another instance
	rounds := 500
	if testing.Short() {
		rounds = 50
	}
	created := 0
	for range rounds {
		id := s.change(commit)
		var racing sync.WaitGroup
		racing.Go(func() { s.remove(id) })
		for range 2 {
			if err := s.addNote(refs, id); err == nil {
				created++
			} else if !problem.Is(err, problem.Invalid) {
				t.Fatal(err)
			}
		}
		racing.Wait()
	}
	var last int64
	if err := s.owner.QueryRow(t.Context(), "SELECT count(*) FROM change").Scan(&last); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(s, "all changes are applied", func() bool { return count(t, s.user, "consumer WHERE seq = $1", last) == 1 })
	if n := count(t, s.user, "note WHERE item IS NOT NULL"); n != 0 {
		t.Errorf("got %d dangling references of %d, want none", n, created)
	}
	if created == 0 {
		t.Error("got no reference before the item was deleted, want some")
	}
}

func TestFeedIsForItsReaders(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	handler := rest.NewHandler("owner", s.owner, slog.New(slog.DiscardHandler), []rest.Route{events.Feed(s.owner, "user")})
	for peer, want := range map[string]int{"user": http.StatusOK, "gateway": http.StatusForbidden, "": http.StatusForbidden} {
		response := httptest.NewRecorder()
		handler.ServeHTTP(
			response,
			httptest.NewRequestWithContext(
				principal.NewContext(t.Context(), &principal.Call{Peer: peer}),
				http.MethodGet,
				"/internal/events?after=0",
				http.NoBody,
			),
		)
		if response.Code != want {
			t.Errorf("%q: got %d, want %d", peer, response.Code, want)
		}
	}
}

func TestChangesReadByAllAreDeleted(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	sweep := func() int {
		if err := host.Sweep(t.Context(), s.owner, "user", "other"); err != nil {
			t.Fatal(err)
		}
		return count(t, s.owner, "change")
	}
	s.startSequencer()
	for range 3 {
		s.change(commit)
	}
	testkit.Eventually(s, "all are numbered", func() bool { return count(t, s.owner, "change WHERE seq IS NULL") == 0 })
	testkit.Execute(t, s.owner, "UPDATE change SET at = now() - interval '8 days' WHERE seq <= 2")
	if n := sweep(); n != 3 {
		t.Errorf("before a reader has read: got %d changes left, want 3", n)
	}
	testkit.Execute(t, s.owner, "UPDATE change_reader SET seq = CASE name WHEN 'user' THEN 3 ELSE 2 END")
	if n := sweep(); n != 2 {
		t.Errorf("after all readers have read two changes: got %d changes left, want 2", n)
	}
	testkit.Execute(t, s.owner, "UPDATE change_reader SET seq = 3")
	testkit.Execute(t, s.owner, "UPDATE change SET at = now() - interval '8 days'")
	if n := sweep(); n != 1 {
		t.Errorf("after all readers have read all changes: got %d left, want 1, the last one", n)
	}
}

// skip skips changes, such as owner:2-5, as an operator does.
func (s *fixture) skip(span string) error {
	s.Helper()
	var skipped events.Span
	if err := skipped.UnmarshalText([]byte(span)); err != nil {
		s.Fatal(err)
	}
	return host.SkipChange(s.Context(), service.Definition{}, service.Deps{DB: s.user}, skipped)
}

// A change wakes the consumer of another process, which looks by itself only once an hour.
func TestChangeWakesAnotherProcess(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	client := testkit.Redis(t)
	process := func() *wake.Bus {
		bus := wake.New(client)
		s.repeat(func(ctx context.Context) error {
			bus.Run(ctx)
			return nil
		})
		return bus
	}
	ownerWakes, userWakes := process(), process()
	woken := userWakes.Listen("owner", wake.Changes)
	testkit.Eventually(s, "the process has subscribed", userWakes.IsSubscribed)
	sequencer := events.Sequencer{DB: s.owner, Interval: time.Hour, Numbered: func() { ownerWakes.Wake("owner", wake.Changes) }}
	s.repeat(sequencer.Run)
	c := &events.Consumer{Source: "owner", Interval: time.Hour, Apply: recordApplied}
	s.repeat(func(ctx context.Context) error { return c.Consume(ctx, s.user, s.peers, woken) })
	for n := range 3 {
		s.change(commit)
		testkit.Eventually(s, "it is applied", func() bool { return count(t, s.user, "applied") == n+1 })
	}
}

// The sequencer finds a change that it was not notified of, because the process that committed it has ended.
func TestUnannouncedChangeIsNumbered(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.startSequencer()
	testkit.Eventually(s, "the sequencer has looked", func() bool { return count(t, s.owner, "sequencer") == 1 })
	testkit.Execute(t, s.owner, "INSERT INTO change (type, kind, action, targets) VALUES ('item.created', 'item', 'created', '[]')")
	testkit.Eventually(s, "it is numbered", func() bool { return count(t, s.owner, "change WHERE seq = 1") == 1 })
}

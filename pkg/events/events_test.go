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

// The service "owner" has things, "user" has notes of them.
var (
	itemMigrations = fstest.MapFS{"migrations/0001_things.sql": {Data: []byte(`-- +goose Up
CREATE TABLE thing (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, version bigint NOT NULL DEFAULT 1, name text NOT NULL, times bigint NOT NULL DEFAULT 0);`)}}
	notes = fstest.MapFS{"migrations/0001_notes.sql": {Data: []byte(`-- +goose Up
CREATE TABLE applied (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, seq bigint NOT NULL, type text NOT NULL, thing bigint NOT NULL, version bigint NOT NULL);
CREATE TABLE note (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, thing bigint);`)}}
)

// lookInterval is how often consumers look that nobody wakes.
const lookInterval = 20 * time.Millisecond

// stage is two services and what connects them.
type stage struct {
	testing.TB
	owner, user *pg.DB
	peers       mesh.Peers
	working     sync.WaitGroup
	jobs        context.Context
	down        bool // the owner
	mu          sync.Mutex
}

func newStage(t testing.TB) *stage {
	s := &stage{
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

// start starts the owner, which has noted nothing of its readers.
func (s *stage) start() {
	owner := rest.NewHandler(
		"owner",
		s.owner,
		slog.New(slog.DiscardHandler),
		[]rest.Route{events.Feed(s.owner, "user"), events.RefRoute(s.owner, "thing", "thing", "NULL::jsonb", "user")},
	)
	s.peers = peers.New("user", map[string]http.Handler{"owner": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		down := s.down
		s.mu.Unlock()
		if down {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		owner.ServeHTTP(w, r)
	})})
}

// do runs a job, as often as it fails, until the test ends.
func (s *stage) do(job func(context.Context) error) {
	s.working.Go(func() {
		for s.jobs.Err() == nil {
			if job(s.jobs) != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
}

func (s *stage) sequence() {
	s.do((&events.Sequencer{DB: s.owner, Interval: lookInterval}).Run)
}

// number numbers what there is, as a service does that was started just now.
func (s *stage) number() {
	s.Helper()
	working, stop := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&events.Sequencer{DB: s.owner}).Run(working) }()
	testkit.Eventually(s, "all are numbered", func() bool { return count(s, s.owner, "change WHERE seq IS NULL") == 0 })
	stop()
	<-ended
}

func (s *stage) consume(c *events.Consumer) {
	peers := s.peers
	c.Interval = lookInterval
	s.do(func(ctx context.Context) error { return c.Consume(ctx, s.user, peers, nil) })
}

func (s *stage) change(do func(tx *pg.Tx, id int64) error) (id int64) {
	s.Helper()
	err := s.owner.InTx(s.Context(), func(tx *pg.Tx) error {
		if err := tx.QueryRow(s.Context(), "INSERT INTO thing (name) VALUES ('new') RETURNING id").Scan(&id); err != nil {
			return err
		}
		tx.Record(pg.Record{Kind: "thing", Action: "created", Targets: []pg.Target{{Type: "thing", ID: id, Name: "new", Version: 1}}})
		return do(tx, id)
	})
	if err != nil && !errors.Is(err, errUndone) {
		s.Fatal(err)
	}
	return id
}

func kept(*pg.Tx, int64) error { return nil }

var errUndone = errors.New("undone")

func undone(*pg.Tx, int64) error { return errUndone }

// touch raises a thing's version.
func (s *stage) touch(id int64) {
	err := s.owner.InTx(s.Context(), func(tx *pg.Tx) error {
		at := pg.Target{Type: "thing", ID: id, Name: "new"}
		if err := tx.QueryRow(s.Context(), "UPDATE thing SET version = version + 1 WHERE id = $1 RETURNING version", id).
			Scan(&at.Version); err != nil {
			return err
		}
		tx.Record(pg.Record{Kind: "thing", Action: "edited", Targets: []pg.Target{at}})
		return nil
	})
	if err != nil {
		s.Error(err)
	}
}

func (s *stage) remove(id int64) {
	err := s.owner.InTx(s.Context(), func(tx *pg.Tx) error {
		_, err := tx.Exec(s.Context(), "DELETE FROM thing WHERE id = $1", id)
		tx.Record(pg.Record{Kind: "thing", Action: "deleted", Targets: []pg.Target{{Type: "thing", ID: id, Name: "new"}}})
		return err
	})
	if err != nil {
		s.Error(err)
	}
}

func count(t testing.TB, db *pg.DB, sql string, args ...any) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM "+sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// note writes down what is applied.
func note(ctx context.Context, tx *pg.Tx, changes []events.Event) error {
	for _, e := range changes {
		_, err := tx.Exec(
			ctx,
			"INSERT INTO applied (seq, type, thing, version) VALUES ($1, $2, $3, $4)",
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
	s := newStage(t)
	for range 3 { // instances
		s.sequence()
		s.consume(&events.Consumer{Source: "owner", Batched: true, Apply: note})
	}
	shared := s.change(kept)
	const writers, rounds = 8, 40
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for range rounds {
				if rand.IntN(4) == 0 {
					s.change(undone)
				}
				s.touch(shared)
			}
		})
	}
	writing.Wait()
	const all = writers*rounds + 1
	testkit.Eventually(s, "all is applied", func() bool { return count(t, s.user, "applied") >= all })
	if n := count(t, s.user, "(SELECT DISTINCT seq FROM applied) d"); n != all || count(t, s.user, "applied") != all {
		t.Errorf("got %d changes applied %d times, want %d, each once", n, count(t, s.user, "applied"), all)
	}
	if n := count(t, s.user, "applied WHERE seq <> n OR version <> n"); n != 0 { // n is the order in which they were applied
		t.Errorf("got %d changes of one thing out of order, want none", n)
	}
}

func TestConsumerStopsAndSkips(t *testing.T) {
	t.Parallel()
	for _, together := range []bool{true, false} {
		t.Run(fmt.Sprint("together=", together), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.change(kept)
			poison := s.change(kept)
			s.change(kept)
			s.sequence()
			c := &events.Consumer{Source: "owner", Batched: together, Apply: func(ctx context.Context, tx *pg.Tx, changes []events.Event) error {
				if slices.ContainsFunc(changes, func(e events.Event) bool { return e.Targets[0].ID == poison }) {
					return errors.New("poison")
				}
				return note(ctx, tx, changes)
			}}
			s.consume(c)
			testkit.Eventually(s, "it stops", func() bool { return c.Status().Stopped == 2 })
			if got := c.Status(); got.Reason == nil || got.Behind == 0 {
				t.Errorf("got %+v, want a reason and changes behind", got)
			}
			if n := count(t, s.user, "applied"); n != 1 {
				t.Errorf("before the change that cannot be applied: got %d changes applied, want 1", n)
			}
			if err := host.SkipChange(
				t.Context(),
				service.Definition{},
				service.Deps{DB: s.user},
				events.Span{Source: "owner", First: 3, Last: 3},
			); !errors.Is(
				err,
				host.ErrNotStopped,
			) {
				t.Errorf("skip a change at which nothing has stopped: got %v, want %v", err, host.ErrNotStopped)
			}
			testkit.Eventually(s, "it can be skipped", func() bool {
				return host.SkipChange(
					t.Context(),
					service.Definition{},
					service.Deps{DB: s.user},
					events.Span{Source: "owner", First: 2, Last: 2},
				) == nil
			})
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
	for name, lost := range map[string]struct {
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
			s := newStage(t)
			for range 6 {
				s.change(kept)
			}
			s.sequence()
			testkit.Eventually(s, "all are numbered", func() bool { return count(t, s.owner, "change WHERE seq IS NULL") == 0 })
			exec(t, s.owner, "DELETE FROM change WHERE "+lost.sql)
			c := &events.Consumer{Source: "owner", Batched: true, Apply: note}
			s.consume(c)
			testkit.Eventually(s, "it stops", func() bool { return c.Status().Stopped == int64(lost.last) })
			if want := fmt.Sprintf(
				"the changes %d to %d of owner no longer exist",
				lost.first,
				lost.last,
			); c.Status().Reason == nil ||
				c.Status().Reason.Error() != want {
				t.Errorf("got the reason %v, want %s", c.Status().Reason, want)
			}
			if n := count(t, s.user, "applied"); n != lost.first-1 {
				t.Errorf("got %d changes applied before the lost ones, want %d", n, lost.first-1)
			}
			testkit.Eventually(s, "it can be skipped", func() bool {
				return host.SkipChange(
					t.Context(),
					service.Definition{},
					service.Deps{DB: s.user},
					events.Span{Source: "owner", First: int64(lost.last), Last: int64(lost.last)},
				) == nil
			})
			s.change(kept)
			left := 7 - (lost.last - lost.first + 1)
			testkit.Eventually(s, "it goes on", func() bool { return count(t, s.user, "applied") == left && c.Status().Reason == nil })
		})
	}
}

// Of several consumers of a source each has a cursor of its own: one that stops holds up no other, and is told to go on by
// its name. The source keeps what it has not applied.
func TestNamedConsumers(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for range 3 {
		s.change(kept)
	}
	s.number()
	if err := host.Sweep(t.Context(), s.owner, "user"); err != nil {
		t.Fatal(err)
	}
	s.consume(&events.Consumer{Source: "owner", Batched: true, Apply: note})
	testkit.Eventually(s, "the first has applied all", func() bool { return count(t, s.user, "consumer WHERE name = '' AND seq = 3") == 1 })
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
			return note(ctx, tx, changes)
		},
	}
	s.consume(named)
	testkit.Eventually(s, "the named one stops", func() bool { return named.Status().Stopped == 2 })
	if reason := named.Status().Reason; reason == nil || reason.Error() != "apply change 2 of owner/named (thing.created): poison" {
		t.Errorf("got the reason %v, want apply change 2 of owner/named (thing.created): poison", reason)
	}
	s.start()
	s.consume(&events.Consumer{Source: "owner", Batched: true, Apply: note})
	testkit.Eventually(s, "it is noted how far the slowest has read", func() bool {
		return count(t, s.owner, "change_reader WHERE seq = 1") == 1
	})
	if err := host.SkipChange(
		t.Context(),
		service.Definition{},
		service.Deps{DB: s.user},
		events.Span{Source: "owner", First: 2, Last: 2},
	); !errors.Is(
		err,
		host.ErrNotStopped,
	) {
		t.Errorf("skip for the consumer without a name: got %v, want %v", err, host.ErrNotStopped)
	}
	testkit.Eventually(s, "the named one can be told to skip", func() bool {
		var skipped events.Span
		return skipped.UnmarshalText([]byte("owner/named:2")) == nil &&
			host.SkipChange(t.Context(), service.Definition{}, service.Deps{DB: s.user}, skipped) == nil
	})
	testkit.Eventually(s, "it goes on", func() bool { return count(t, s.user, "consumer WHERE name = 'named' AND seq = 3") == 1 })
	if n, all := count(t, s.user, "applied"), 3+2; n != all {
		t.Errorf("got %d changes applied, want %d", n, all)
	}
}

// A consumer that is added where changes are forgotten already begins with those that there are, and misses none of them.
func TestNamedConsumerBeginsWithFirstStoredChange(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]struct {
		sql     string
		applied int
		stopped int64
	}{
		"some forgotten":      {"seq <= 2", 4, 0},
		"all forgotten":       {"true", 0, 0},
		"and lost in between": {"seq IN (1, 4)", 2, 4},
		"none":                {"false", 6, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			for range 6 {
				s.change(kept)
			}
			s.number()
			exec(t, s.owner, "DELETE FROM change WHERE "+lost.sql)
			c := &events.Consumer{Source: "owner", Name: "named", Batched: true, Apply: note}
			s.consume(c)
			testkit.Eventually(s, "it has come as far as it can", func() bool {
				return count(t, s.user, "consumer WHERE seq = 6") == 1 || lost.stopped > 0 && c.Status().Stopped == lost.stopped
			})
			if n := count(t, s.user, "applied"); n != lost.applied {
				t.Errorf("got %d changes applied, want %d", n, lost.applied)
			}
		})
	}
}

// A cursor that stands behind all changes that there are stops its consumer, which moves it nowhere.
func TestCursorBehindTheLastChange(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.change(kept)
	s.sequence()
	exec(t, s.user, "INSERT INTO consumer (source, seq) VALUES ('owner', 5)")
	c := &events.Consumer{Source: "owner", Batched: true, Apply: note}
	s.consume(c)
	testkit.Eventually(s, "it says so", func() bool {
		reason := c.Status().Reason
		return reason != nil &&
			reason.Error() == "owner has numbered its changes up to 1, but those up to 5 were applied: it was restored, or the cursor was moved"
	})
	if n := count(t, s.user, "consumer WHERE seq = 5"); n != 1 {
		t.Errorf("got %d cursors at 5, want 1", n)
	}
	exec(t, s.user, "UPDATE consumer SET seq = 0")
	testkit.Eventually(s, "it goes on", func() bool { return count(t, s.user, "applied") == 1 && c.Status().Reason == nil })
}

// restore puts the owner back to where it was after a number of changes, as a backup of its schema does.
func (s *stage) restore(changes int64) {
	exec(s, s.owner, fmt.Sprintf("DELETE FROM thing WHERE id > %d", changes))
	exec(s, s.owner, fmt.Sprintf("DELETE FROM change WHERE coalesce(seq, %d) > %[1]d", changes))
	exec(s, s.owner, fmt.Sprintf("UPDATE sequencer SET last = %d", changes))
	exec(s, s.owner, fmt.Sprintf("SELECT setval(pg_get_serial_sequence('thing', 'id'), %d)", changes))
}

// A restored owner assigns numbers a second time. Its reader notices that, however many there are by then, and does not
// move its cursor.
func TestRestoredSource(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]struct {
		later  int // changes that are made after the owner was restored
		reason string
	}{
		"behind the reader": {1, "owner has numbered its changes up to 3, but those up to 5 were applied: it was restored, or the " +
			"cursor was moved"},
		"as far": {3, "change 5 of owner is not the one that was applied: the service was restored"},
		"beyond": {6, "change 5 of owner is not the one that was applied: the service was restored"},
	} {
		for kind, c := range map[string]*events.Consumer{
			"all": {Source: "owner", Batched: true, Apply: note}, "of a kind": {Source: "owner", Kind: "other", Apply: note},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				for range 5 {
					s.change(kept)
				}
				s.number()
				s.consumeUntil(c, func() bool { return count(t, s.user, "consumer WHERE seq = 5") == 1 })
				applied := count(t, s.user, "applied")
				s.restore(2)
				for range way.later {
					s.change(kept)
				}
				s.number()
				s.consume(c)
				testkit.Eventually(s, "it says so", func() bool {
					now := c.Status()
					return now.HistoryMismatch && now.Reason != nil && now.Reason.Error() == way.reason
				})
				if n := count(t, s.user, "consumer WHERE seq = 5"); n != 1 || count(t, s.user, "applied") != applied {
					t.Errorf("got %d cursors at 5 and %d more changes applied, want 1 and 0", n, count(t, s.user, "applied")-applied)
				}
			})
		}
	}
}

// A restored source keeps a change that got its number after the backup, because one reader has applied it. A reader that
// lags behind applies it, too, before it goes on with the next history.
func TestKeptChangeIsAppliedByLaggingConsumer(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for range 2 {
		s.change(kept)
	}
	s.number()
	c := &events.Consumer{Source: "owner", Batched: true, Apply: note}
	s.consumeUntil(c, func() bool { return count(t, s.user, "applied") == 2 })
	s.change(kept)
	s.number()
	exec(t, s.owner, "UPDATE history SET ended = 2")
	exec(t, s.owner, "INSERT INTO history (began) VALUES (1000)")
	exec(t, s.owner, "UPDATE sequencer SET last = 1000")
	s.change(kept)
	s.number()
	s.consumeUntil(c, func() bool { return count(t, s.user, "consumer WHERE seq = 1001") == 1 })
	if n := count(t, s.user, "applied"); n != 4 {
		t.Errorf("got %d changes applied, want 4", n)
	}
}

// A running service notices that its database was restored to an earlier time, or that a standby took over that lacks
// the last changes. It does not serve after its next start either.
func TestSourceIsRestoredWhileRunning(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]int{"behind": 1, "as far": 3, "beyond": 6} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			work := (&events.Sequencer{DB: s.owner}).Run
			ended := make(chan error, 1)
			working, stop := context.WithCancel(t.Context())
			go func() { ended <- work(working) }()
			for range 5 {
				s.change(kept)
			}
			testkit.Eventually(s, "all are numbered", func() bool { return count(t, s.owner, "change WHERE seq IS NULL") == 0 })
			stop()
			<-ended
			s.restore(2)
			for range later {
				s.change(kept)
			}
			s.number()
			if err := work(t.Context()); !errors.Is(err, events.ErrRestored) {
				t.Errorf("the sequencer of a restored database: got %v, want %v", err, events.ErrRestored)
			}
			if _, err := events.CurrentHistory(t.Context(), s.owner); !errors.Is(err, events.ErrRestored) {
				t.Errorf("the history of a restored database: got %v, want %v", err, events.ErrRestored)
			}
		})
	}
}

// consumeUntil lets a consumer work until something has come true.
func (s *stage) consumeUntil(c *events.Consumer, true func() bool) {
	s.Helper()
	c.Interval = lookInterval
	reading, stop := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Consume(reading, s.user, s.peers, nil) }()
	testkit.Eventually(s, "it has read", true)
	stop()
	if err := <-ended; err != nil {
		s.Error(err)
	}
}

// A history that an owner takes up anew is another one, whatever its numbers are.
func TestAnotherHistory(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sequence()
	s.change(kept)
	c := &events.Consumer{Source: "owner", Batched: true, Apply: note}
	s.consume(c)
	testkit.Eventually(s, "it has read", func() bool { return count(t, s.user, "applied") == 1 })
	exec(t, s.owner, "UPDATE history SET uuid = gen_random_uuid()")
	s.change(kept)
	testkit.Eventually(s, "it stops", func() bool { return c.Status().HistoryMismatch })
	if n := count(t, s.user, "applied"); n != 1 {
		t.Errorf("got %d changes applied, want 1", n)
	}
}

// Programs of before note neither a history nor ids, on either side: nothing is taken for restored.
func TestCursorOfAnOlderProgram(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sequence()
	s.change(kept)
	exec(t, s.owner, "UPDATE change SET uuid = NULL")
	exec(t, s.user, "INSERT INTO consumer (source, seq) VALUES ('owner', 1)")
	c := &events.Consumer{Source: "owner", Batched: true, Apply: note}
	s.consume(c)
	testkit.Eventually(s, "it knows the history", func() bool { return count(t, s.user, "consumer WHERE history IS NOT NULL") == 1 })
	s.change(kept)
	testkit.Eventually(s, "it goes on", func() bool { return count(t, s.user, "applied WHERE seq = 2") == 1 })
	s.change(kept)
	testkit.Eventually(s, "it goes on", func() bool { return count(t, s.user, "applied WHERE seq = 3") == 1 })
	exec(t, s.user, "UPDATE consumer SET seq = 2") // an older instance does not touch the rest
	testkit.Eventually(s, "it goes on", func() bool { return count(t, s.user, "applied WHERE seq = 3") == 2 && c.Status().Reason == nil })
}

// A span of changes is skipped at once, and no more than it names.
func TestSpanIsSkipped(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for range 6 {
		s.change(kept)
	}
	s.sequence()
	c := &events.Consumer{Source: "owner", Batched: true, Apply: func(ctx context.Context, tx *pg.Tx, changes []events.Event) error {
		if slices.ContainsFunc(changes, func(e events.Event) bool { return e.Seq > 1 && e.Seq < 6 }) {
			return errors.New("poison")
		}
		return note(ctx, tx, changes)
	}}
	s.consume(c)
	testkit.Eventually(s, "it stops", func() bool { return count(t, s.user, "consumer WHERE stopped_at = 2") == 1 })
	skip := func(text string) error {
		t.Helper()
		var skipped events.Span
		if err := skipped.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return host.SkipChange(t.Context(), service.Definition{}, service.Deps{DB: s.user}, skipped)
	}
	for _, other := range []string{"owner:3-5", "owner:1", "other:2-5"} {
		if err := skip(other); !errors.Is(err, host.ErrNotStopped) {
			t.Errorf("skip %s: got %v, want %v", other, err, host.ErrNotStopped)
		}
	}
	if err := skip("owner:2-7"); err == nil || !strings.Contains(err.Error(), "the last known change of owner is 6") {
		t.Errorf("skip beyond the last change: got %v, want an error that says the last known change of owner is 6", err)
	}
	if err := skip("owner:2-5"); err != nil {
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

func TestSpanOfAText(t *testing.T) {
	t.Parallel()
	for _, invalid := range []string{"owner", "owner:", ":1", "owner:0", "owner:5-2", "owner:1-", "owner:1-2-3", "owner:-1"} {
		if err := new(events.Span).UnmarshalText([]byte(invalid)); err == nil {
			t.Errorf("%q: got a span, want an error", invalid)
		}
	}
}

// A user that was restored from an old backup lacks changes that the owner has forgotten. It asks again for what it
// refers to.
func TestRestoredUserOfForgottenChanges(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sequence()
	refs := noting(s)
	deleted, left := s.change(kept), s.change(kept)
	for _, id := range []int64{deleted, left} {
		if err := s.noteOf(refs, id); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(s, "all is heard of", func() bool { return count(t, s.user, "consumer WHERE seq = 2 AND change IS NOT NULL") == 1 })
	exec(
		t,
		s.user,
		"CREATE TABLE backup AS SELECT * FROM consumer; CREATE TABLE backup_ref AS SELECT * "+
			"FROM ref; CREATE TABLE backup_note AS SELECT * FROM note",
	)
	s.remove(deleted)
	s.change(kept)
	testkit.Eventually(s, "all is heard of", func() bool { return count(t, s.user, "consumer WHERE seq = 4") == 1 })
	exec(t, s.owner, "DELETE FROM change WHERE seq < 4")
	exec(
		t,
		s.user,
		"DELETE FROM note; DELETE FROM ref; INSERT INTO note OVERRIDING SYSTEM VALUE SELECT * "+
			"FROM backup_note; INSERT INTO ref SELECT * FROM backup_ref",
	)
	exec(t, s.user, "UPDATE consumer c SET seq = b.seq, change = b.change, change_seq = b.change_seq FROM backup b")
	testkit.Eventually(s, "it hears that a thing is gone", func() bool {
		return count(t, s.user, "note WHERE thing = $1", deleted) == 0 && count(t, s.user, "consumer WHERE seq = 4") == 1
	})
	if count(t, s.user, "note WHERE thing = $1", left) != 1 || count(t, s.user, "ref WHERE id = $1 AND NOT gone", left) != 1 {
		t.Error("got a cleared reference to a thing that exists, want it kept")
	}
}

// One that is told to skip the last change there is has not stopped any more.
func TestNothingIsLeftToApply(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.change(kept)
	s.sequence()
	c := &events.Consumer{Source: "owner", Apply: func(context.Context, *pg.Tx, []events.Event) error { return errors.New("poison") }}
	s.consume(c)
	testkit.Eventually(s, "it can be skipped", func() bool {
		return host.SkipChange(
			t.Context(),
			service.Definition{},
			service.Deps{DB: s.user},
			events.Span{Source: "owner", First: 1, Last: 1},
		) == nil
	})
	testkit.Eventually(s, "it says that it goes on", func() bool { return c.Status().Stopped == 0 && c.Status().Reason == nil })
}

// While the owner cannot be asked, a consumer says so, and lags.
func TestOwnerIsAway(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	c := &events.Consumer{Source: "owner", Apply: note}
	s.consume(c)
	testkit.Eventually(s, "it has looked", func() bool { return !c.Status().Since.IsZero() })
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	testkit.Eventually(s, "it says so", func() bool { return c.Status().Reason != nil })
	since := c.Status().Since
	time.Sleep(50 * time.Millisecond)
	if now := c.Status().Since; !now.Equal(since) {
		t.Errorf("while the owner is away: got the time %v, want %v as before", now, since)
	}
	s.mu.Lock()
	s.down = false
	s.mu.Unlock()
	testkit.Eventually(s, "it goes on", func() bool { return c.Status().Reason == nil && c.Status().Since.After(since) })
}

// Changes of many items with long names come in as many pages as it takes.
func TestLargeTargets(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const all = 70
	exec(t, s.owner, fmt.Sprintf(`INSERT INTO change (type, targets) SELECT 'thing.created', (
		SELECT jsonb_agg(jsonb_build_object('type', 'thing', 'id', n, 'name', repeat('<', 255))) FROM generate_series(1, %d) n)
		FROM generate_series(1, %d)`, 100, all))
	s.sequence()
	s.consume(&events.Consumer{Source: "owner", Batched: true, Apply: note})
	testkit.Eventually(s, "all is applied", func() bool { return count(t, s.user, "applied") == all })
}

// noting is a user of things: its notes name them.
func noting(s *stage) *events.Refs {
	r := &events.Refs{
		Owner: "owner",
		Type:  "thing",
		DB:    s.user,
		Peers: s.peers,
		Clear: func(ctx context.Context, tx *pg.Tx, id int64, _ string) error {
			_, err := tx.Exec(ctx, "UPDATE note SET thing = NULL WHERE thing = $1", id)
			return err
		},
	}
	s.consume(r.Consumer())
	return r
}

func (s *stage) noteOf(r *events.Refs, id int64) error {
	return s.user.InTx(s.Context(), func(tx *pg.Tx) error {
		if err := r.Hold(s.Context(), tx, id, "/thing"); err != nil {
			return err
		}
		_, err := tx.Exec(s.Context(), "INSERT INTO note (thing) VALUES ($1)", id)
		tx.Record(pg.Record{Kind: "note", Action: "created"})
		return err
	})
}

func TestRefs(t *testing.T) {
	t.Parallel()
	s := newStage(t) // whose sequencer does not run: nothing is heard of
	refs := noting(s)
	id := s.change(kept)
	if err := s.noteOf(refs, id); err != nil {
		t.Errorf("add a note to an unknown thing: %v", err)
	}
	if err := s.noteOf(refs, id+1); !problem.Is(err, problem.Invalid) || problem.From(err).Fields[0].Pointer != "/thing" {
		t.Errorf("add a note to a missing thing: got %v, want an invalid /thing", err)
	}
	other := s.change(kept)
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	if err := s.noteOf(refs, other); !problem.Is(err, problem.Unavailable) {
		t.Errorf("add a note to an unknown thing while the owner is away: got %v, want unavailable", err)
	}
	if err := s.noteOf(refs, id); err != nil {
		t.Errorf("add a note to a known thing while the owner is away: %v", err)
	}
	s.mu.Lock()
	s.down = false
	s.mu.Unlock()
	if n := count(t, s.user, "note WHERE thing = $1", id); n != 2 {
		t.Errorf("got %d notes, want 2", n)
	}
	s.sequence()
	if err := s.owner.InTx(t.Context(), func(tx *pg.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE thing SET name = 'renamed', version = 2 WHERE id = $1", id)
		tx.Record(pg.Record{Kind: "thing", Action: "edited", Targets: []pg.Target{{Type: "thing", ID: id, Name: "renamed", Version: 2}}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(s, "the name follows", func() bool { return count(t, s.user, "ref WHERE id = $1 AND name = 'renamed'", id) == 1 })
	s.remove(id)
	testkit.Eventually(s, "references to what is gone are cleared", func() bool {
		return count(t, s.user, "note WHERE thing = $1", id) == 0
	})
	if err := s.noteOf(refs, id); !problem.Is(err, problem.Invalid) {
		t.Errorf("add a note to a deleted thing: got %v, want an invalid field", err)
	}
}

func TestNoReferenceDangles(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sequence()
	refs := noting(s)
	noting(s) // another instance
	rounds := 500
	if testing.Short() {
		rounds = 50
	}
	created := 0
	for range rounds {
		id := s.change(kept)
		var racing sync.WaitGroup
		racing.Go(func() { s.remove(id) })
		for range 2 {
			if err := s.noteOf(refs, id); err == nil {
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
	testkit.Eventually(s, "all is heard of", func() bool { return count(t, s.user, "consumer WHERE seq = $1", last) == 1 })
	if n := count(t, s.user, "note WHERE thing IS NOT NULL"); n != 0 {
		t.Errorf("got %d dangling references of %d, want none", n, created)
	}
	if created == 0 {
		t.Error("got no reference made before its thing was gone, want some")
	}
}

func TestFeedIsForItsReaders(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	handler := rest.NewHandler("owner", s.owner, slog.New(slog.DiscardHandler), []rest.Route{events.Feed(s.owner, "user")})
	for peer, want := range map[string]int{"user": http.StatusOK, "gateway": http.StatusForbidden, "": http.StatusForbidden} {
		response := httptest.NewRecorder()
		handler.ServeHTTP(
			response,
			httptest.NewRequestWithContext(
				principal.With(t.Context(), &principal.Call{Peer: peer}),
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
	s := newStage(t)
	keep := func() int {
		if err := host.Sweep(t.Context(), s.owner, "user", "other"); err != nil {
			t.Fatal(err)
		}
		return count(t, s.owner, "change")
	}
	s.sequence()
	for range 3 {
		s.change(kept)
	}
	testkit.Eventually(s, "all are numbered", func() bool { return count(t, s.owner, "change WHERE seq IS NULL") == 0 })
	exec(t, s.owner, "UPDATE change SET at = now() - interval '8 days' WHERE seq <= 2")
	if n := keep(); n != 3 {
		t.Errorf("before anybody has read: got %d changes left, want 3", n)
	}
	exec(t, s.owner, "UPDATE change_reader SET seq = CASE name WHEN 'user' THEN 3 ELSE 2 END")
	if n := keep(); n != 2 {
		t.Errorf("after all have read the first: got %d changes left, want 2", n)
	}
	exec(t, s.owner, "UPDATE change_reader SET seq = 3")
	exec(t, s.owner, "UPDATE change SET at = now() - interval '8 days'")
	if n := keep(); n != 1 {
		t.Errorf("after all have read all: got %d changes left, want the last one alone", n)
	}
}

func exec(t testing.TB, db *pg.DB, sql string) {
	t.Helper()
	err := db.InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		_, err := tx.Exec(t.Context(), sql)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A change wakes the consumer in another process, which does not look by itself for an hour.
func TestChangeWakesAnotherProcess(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	client := testkit.Redis(t)
	process := func() *wake.Bus {
		bus := wake.New(client)
		s.do(func(ctx context.Context) error {
			bus.Run(ctx)
			return nil
		})
		return bus
	}
	ownerWakes, userWakes := process(), process()
	woken := userWakes.Listen("owner", wake.Changes)
	testkit.Eventually(s, "Redis is heard", userWakes.IsSubscribed)
	sequencer := events.Sequencer{DB: s.owner, Interval: time.Hour, Numbered: func() { ownerWakes.Wake("owner", wake.Changes) }}
	s.do(sequencer.Run)
	c := &events.Consumer{Source: "owner", Interval: time.Hour, Apply: note}
	s.do(func(ctx context.Context) error { return c.Consume(ctx, s.user, s.peers, woken) })
	for n := range 3 {
		s.change(kept)
		testkit.Eventually(s, "it is applied", func() bool { return count(t, s.user, "applied") == n+1 })
	}
}

// A change that another process committed, which ended before it was numbered, is found though nobody tells of it.
func TestUntoldChangeIsNumbered(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sequence()
	testkit.Eventually(s, "the sequencer has looked", func() bool { return count(t, s.owner, "sequencer") == 1 })
	exec(t, s.owner, "INSERT INTO change (type, kind, action, targets) VALUES ('thing.created', 'thing', 'created', '[]')")
	testkit.Eventually(s, "it is numbered", func() bool { return count(t, s.owner, "change WHERE seq = 1") == 1 })
}

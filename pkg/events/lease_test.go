package events_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
)

// newLeases is what deletes things unless there are notes of them, which refs then says.
func newLeases(s *stage, refs *events.Refs) *events.Leases {
	refs.FindUsage = func(ctx context.Context, q pg.Querier, id int64) (string, error) {
		var n int
		err := q.QueryRow(ctx, "SELECT count(*) FROM note WHERE thing = $1", id).Scan(&n)
		return strings.Repeat("has a note", min(n, 1)), err
	}
	user := rest.NewHandler("user", s.user, slog.New(slog.DiscardHandler), []rest.Route{refs.LeaseRoute()})
	return &events.Leases{
		DB:    s.owner,
		Type:  "thing",
		Noun:  "thing",
		Table: "thing",
		Users: []string{"user"},
		Peers: peers.New("owner", map[string]http.Handler{"user": user}),
	}
}

// removeLeased deletes things that nobody uses.
func (s *stage) removeLeased(c *events.Leases, ids ...int64) error {
	return s.owner.InTx(s.Context(), func(tx *pg.Tx) error {
		held, err := tx.Exec(s.Context(), "SELECT FROM thing WHERE id = ANY ($1) ORDER BY id FOR UPDATE", ids)
		if err != nil || held.RowsAffected() < int64(len(ids)) {
			return errors.Join(err, pgx.ErrNoRows)
		}
		if err := c.Acquire(s.Context(), tx, ids); err != nil {
			return err
		}
		for _, id := range ids {
			tx.Record(pg.Record{Kind: "thing", Action: pg.Deleted, Targets: []pg.Target{{Type: "thing", ID: id, Name: "new"}}})
		}
		_, err = tx.Exec(s.Context(), "DELETE FROM thing WHERE id = ANY ($1)", ids)
		return err
	})
}

func TestUsedItemIsNotDeleted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	refs := noting(s)
	c := newLeases(s, refs)
	used, free := s.change(kept), s.change(kept)
	if err := s.noteOf(refs, used); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.removeLeased(c, free, used); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "Thing 1 has a note.") {
			t.Errorf("delete a used thing: got %v, want a conflict that says Thing 1 has a note", err)
		}
	}
	// That the other one could have been deleted closes nothing.
	for _, id := range []int64{used, free} {
		if err := s.noteOf(refs, id); err != nil {
			t.Errorf("add a note after a refused deletion: %v", err)
		}
	}
	exec(t, s.user, "DELETE FROM note")
	if err := s.removeLeased(c, used, free); err != nil {
		t.Errorf("delete unused things: %v", err)
	}
	for _, id := range []int64{used, free} {
		if err := s.noteOf(refs, id); !problem.Is(err, problem.Invalid) {
			t.Errorf("add a note to a deleted thing: got %v, want an invalid field", err)
		}
	}
	if n := count(t, s.owner, "closing"); n != 0 {
		t.Errorf("got %d pending deletions, want none", n)
	}

	// Who uses it cannot be asked.
	alone := *c
	alone.Peers = peers.New(
		"owner",
		map[string]http.Handler{"user": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })},
	)
	last := s.change(kept)
	if err := s.removeLeased(&alone, last); !problem.Is(err, problem.Unavailable) || count(t, s.owner, "thing WHERE id = $1", last) != 1 {
		t.Errorf("delete without an answer of the user: got %v, want unavailable and the thing kept", err)
	}
}

// A permanent lease lasts until the last reference is detached. Until then, no other deletion succeeds.
func TestDetach(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	refs := noting(s)
	c := newLeases(s, refs)
	refs.Detach = func(ctx context.Context, tx *pg.Tx, id int64, _ string) (int64, error) {
		tx.Record(pg.Record{Kind: "note", Action: pg.Deleted})
		detached, err := tx.Exec(ctx, "DELETE FROM note WHERE ctid IN (SELECT ctid FROM note WHERE thing = $1 LIMIT 2)", id)
		return detached.RowsAffected(), err
	}
	id := s.change(kept)
	for range 3 {
		if err := s.noteOf(refs, id); err != nil {
			t.Fatal(err)
		}
	}
	stay := func() error {
		return s.owner.InTx(t.Context(), func(tx *pg.Tx) error {
			tx.Unrecorded("a test")
			return c.AcquirePermanent(t.Context(), tx, []int64{id})
		})
	}
	for range 2 {
		if err := stay(); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, s.user, "note"); n != 3 {
		t.Errorf("before anything is detached: got %d notes, want 3", n)
	}
	for _, want := range []int64{2, 1, 0} {
		if want > 0 {
			if err := s.removeLeased(c, id); err == nil {
				t.Error("delete a thing with notes: got no error, want one")
			}
		}
		if err := s.noteOf(refs, id); !problem.Is(err, problem.Invalid) || problem.From(err).Fields[0].Code != "closing" {
			t.Errorf("add a note to a closed thing: got %v, want a field with the code closing", err)
		}
		if n, err := c.Detach(t.Context(), id); err != nil || n != want {
			t.Errorf("got %d notes detached, %v, want %d", n, err, want)
		}
	}
	if err := s.removeLeased(c, id); err != nil {
		t.Errorf("delete a thing without notes: %v", err)
	}
	if n, err := c.Detach(t.Context(), id); err != nil || n != 0 || count(t, s.owner, "closing") != 0 {
		t.Errorf("a deleted thing: got %d notes detached, %v and %d pending deletions, want none", n, err, count(t, s.owner, "closing"))
	}
}

// A deletion whose process ended in between closes nothing for ever.
func TestAbandonedDeletion(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	refs := noting(s)
	c := newLeases(s, refs)
	id := s.change(kept)
	exec(t, s.owner, "INSERT INTO closing (type, id, agreed, until) SELECT 'thing', id, true, now() + interval '1 hour' FROM thing")
	exec(t, s.user, "INSERT INTO ref (type, id, name, version, closing) VALUES ('thing', 1, '', 0, 1)")
	if err := s.noteOf(refs, id); !problem.Is(err, problem.Invalid) || problem.From(err).Fields[0].Code != "closing" {
		t.Errorf("add a note during a deletion: got %v, want a field with the code closing", err)
	}
	exec(t, s.owner, "UPDATE closing SET until = now() - interval '1 second'")
	if err := s.noteOf(refs, id); err != nil {
		t.Errorf("add a note after the deletion expired: %v", err)
	}
	if err := s.removeLeased(c, id); !problem.Is(err, problem.Conflict) {
		t.Errorf("delete a thing that is used again: got %v, want a conflict", err)
	}
	exec(t, s.user, "DELETE FROM note")
	if err := s.removeLeased(c, id); err != nil {
		t.Error(err)
	}
}

// References and deletions race: in the end either the item exists, or the reference does not.
func TestNoReferenceToDeletedItem(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sequence()
	refs := noting(s)
	c := newLeases(s, refs)
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	deleted, used := 0, 0
	for range rounds {
		id := s.change(kept)
		var racing sync.WaitGroup
		for range 2 {
			racing.Go(func() {
				if err := s.removeLeased(c, id); err != nil && !problem.Is(err, problem.Conflict) && !errors.Is(err, pgx.ErrNoRows) {
					t.Error(err)
				}
			})
			racing.Go(func() {
				if err := s.noteOf(refs, id); err != nil && !problem.Is(err, problem.Invalid) {
					t.Error(err)
				}
			})
		}
		racing.Wait()
		notes, exists := count(t, s.user, "note WHERE thing = $1", id), count(t, s.owner, "thing WHERE id = $1", id)
		if notes > 0 && exists == 0 {
			t.Errorf("got %d notes of the deleted thing %d, want none", notes, id)
		}
		deleted += 1 - exists
		used += min(notes, 1)
	}
	t.Logf("%d were deleted, %d used", deleted, used)
	if deleted == 0 || used == 0 {
		t.Errorf("got %d things deleted and %d used, want some of both", deleted, used)
	}
}

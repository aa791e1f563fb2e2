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
	"github.com/ironplane/ironplane/pkg/testkit"
)

// newLeases returns the owner's leases. The user refuses the deletion of items that have notes.
func newLeases(s *fixture, refs *events.Refs) *events.Leases {
	refs.FindUsage = func(ctx context.Context, q pg.Querier, id int64) (string, error) {
		var n int
		err := q.QueryRow(ctx, "SELECT count(*) FROM note WHERE item = $1", id).Scan(&n)
		return strings.Repeat("has a note", min(n, 1)), err
	}
	user := rest.NewHandler("user", s.user, slog.New(slog.DiscardHandler), []rest.Route{refs.LeaseRoute()})
	return &events.Leases{
		DB:    s.owner,
		Type:  "item",
		Noun:  "item",
		Table: "item",
		Users: []string{"user"},
		Peers: peers.New("owner", map[string]http.Handler{"user": user}),
	}
}

// deleteLeased deletes items in one unit of work, if the user agrees.
func (s *fixture) deleteLeased(leases *events.Leases, ids ...int64) error {
	return s.owner.InTx(s.Context(), func(tx *pg.Tx) error {
		held, err := tx.Exec(s.Context(), "SELECT FROM item WHERE id = ANY ($1) ORDER BY id FOR UPDATE", ids)
		if err != nil || held.RowsAffected() < int64(len(ids)) {
			return errors.Join(err, pgx.ErrNoRows)
		}
		if err := leases.Acquire(s.Context(), tx, ids); err != nil {
			return err
		}
		for _, id := range ids {
			tx.Record(pg.Record{Kind: "item", Action: pg.Deleted, Targets: []pg.Target{{Type: "item", ID: id, Name: "new"}}})
		}
		_, err = tx.Exec(s.Context(), "DELETE FROM item WHERE id = ANY ($1)", ids)
		return err
	})
}

func TestUsedItemIsNotDeleted(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	refs := startRefs(s)
	leases := newLeases(s, refs)
	used, free := s.change(commit), s.change(commit)
	if err := s.addNote(refs, used); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.deleteLeased(leases, free, used); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "Item 1 has a note.") {
			t.Errorf("delete a used item: got %v, want a conflict that says Item 1 has a note", err)
		}
	}
	// A refused deletion leaves no lease, also on the unused item.
	for _, id := range []int64{used, free} {
		if err := s.addNote(refs, id); err != nil {
			t.Errorf("add a note after a refused deletion: %v", err)
		}
	}
	testkit.Execute(t, s.user, "DELETE FROM note")
	if err := s.deleteLeased(leases, used, free); err != nil {
		t.Errorf("delete unused items: %v", err)
	}
	for _, id := range []int64{used, free} {
		if err := s.addNote(refs, id); !problem.Is(err, problem.Invalid) {
			t.Errorf("add a note about a deleted item: got %v, want an invalid field", err)
		}
	}
	if n := count(t, s.owner, "closing"); n != 0 {
		t.Errorf("got %d pending deletions, want none", n)
	}

	unavailable := *leases
	unavailable.Peers = peers.New(
		"owner",
		map[string]http.Handler{"user": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })},
	)
	last := s.change(commit)
	if err := s.deleteLeased(&unavailable, last); !problem.Is(err, problem.Unavailable) || count(t, s.owner, "item WHERE id = $1", last) != 1 {
		t.Errorf("delete while the user is unavailable: got %v, want unavailable and the item kept", err)
	}
}

// A permanent lease lasts until the last reference is detached. Until then, no other deletion succeeds.
func TestDetach(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	refs := startRefs(s)
	leases := newLeases(s, refs)
	refs.Detach = func(ctx context.Context, tx *pg.Tx, id int64, _ string) (int64, error) {
		tx.Record(pg.Record{Kind: "note", Action: pg.Deleted})
		detached, err := tx.Exec(ctx, "DELETE FROM note WHERE ctid IN (SELECT ctid FROM note WHERE item = $1 LIMIT 2)", id)
		return detached.RowsAffected(), err
	}
	id := s.change(commit)
	for range 3 {
		if err := s.addNote(refs, id); err != nil {
			t.Fatal(err)
		}
	}
	acquire := func() error {
		return s.owner.InTx(t.Context(), func(tx *pg.Tx) error {
			tx.Unrecorded("a test")
			return leases.AcquirePermanent(t.Context(), tx, []int64{id})
		})
	}
	for range 2 {
		if err := acquire(); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, s.user, "note"); n != 3 {
		t.Errorf("before anything is detached: got %d notes, want 3", n)
	}
	for _, want := range []int64{2, 1, 0} {
		if want > 0 {
			if err := s.deleteLeased(leases, id); !errors.As(err, new(pg.RestartAfter)) {
				t.Errorf("delete an item with notes: got %v, want that it still waits for the permanent lease", err)
			}
		}
		if err := s.addNote(refs, id); !problem.Is(err, problem.Invalid) || problem.From(err).Fields[0].Code != "closing" {
			t.Errorf("add a note about an item that is being deleted: got %v, want a field with the code closing", err)
		}
		if n, err := leases.Detach(t.Context(), id); err != nil || n != want {
			t.Errorf("got %d notes detached, %v, want %d", n, err, want)
		}
	}
	if err := s.deleteLeased(leases, id); err != nil {
		t.Errorf("delete an item without notes: %v", err)
	}
	if n, err := leases.Detach(t.Context(), id); err != nil || n != 0 || count(t, s.owner, "closing") != 0 {
		t.Errorf("a deleted item: got %d notes detached, %v and %d pending deletions, want none", n, err, count(t, s.owner, "closing"))
	}
}

// The lease of a deletion whose process has ended expires.
func TestAbandonedDeletion(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	refs := startRefs(s)
	leases := newLeases(s, refs)
	id := s.change(commit)
	testkit.Execute(t, s.owner, "INSERT INTO closing (type, id, agreed, until) SELECT 'item', id, true, now() + interval '1 hour' FROM item")
	testkit.Execute(t, s.user, "INSERT INTO ref (type, id, name, version, closing) VALUES ('item', 1, '', 0, 1)")
	if err := s.addNote(refs, id); !problem.Is(err, problem.Invalid) || problem.From(err).Fields[0].Code != "closing" {
		t.Errorf("add a note during a deletion: got %v, want a field with the code closing", err)
	}
	testkit.Execute(t, s.owner, "UPDATE closing SET until = now() - interval '1 second'")
	if err := s.addNote(refs, id); err != nil {
		t.Errorf("add a note after the deletion expired: %v", err)
	}
	if err := s.deleteLeased(leases, id); !problem.Is(err, problem.Conflict) {
		t.Errorf("delete an item that has a note again: got %v, want a conflict", err)
	}
	testkit.Execute(t, s.user, "DELETE FROM note")
	if err := s.deleteLeased(leases, id); err != nil {
		t.Error(err)
	}
}

// References and deletions race: in the end either the item exists, or the reference does not.
func TestNoReferenceToDeletedItem(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.startSequencer()
	refs := startRefs(s)
	leases := newLeases(s, refs)
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	deleted, noted := 0, 0
	for range rounds {
		id := s.change(commit)
		var racing sync.WaitGroup
		for range 2 {
			racing.Go(func() {
				if err := s.deleteLeased(leases, id); err != nil && !problem.Is(err, problem.Conflict) && !errors.Is(err, pgx.ErrNoRows) {
					t.Error(err)
				}
			})
			racing.Go(func() {
				if err := s.addNote(refs, id); err != nil && !problem.Is(err, problem.Invalid) {
					t.Error(err)
				}
			})
		}
		racing.Wait()
		notes, exists := count(t, s.user, "note WHERE item = $1", id), count(t, s.owner, "item WHERE id = $1", id)
		if notes > 0 && exists == 0 {
			t.Errorf("got %d notes about the deleted item %d, want none", notes, id)
		}
		deleted += 1 - exists
		noted += min(notes, 1)
	}
	if deleted == 0 || noted == 0 {
		t.Errorf("got %d items deleted and %d with notes, want some of both", deleted, noted)
	}
}

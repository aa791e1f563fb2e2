package system_test

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
	"github.com/ironplane/ironplane/services/system/audit"
)

// If a consumer's position is changed by hand, no change is left out or logged twice. The consumer stops with a reason, and
// continues once the position is restored.
func TestCursorMovedByHand(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	discard := slog.New(slog.DiscardHandler)
	owner := testkit.Database(t, "network", nil)
	change := func() {
		t.Helper()
		if err := owner.InTx(t.Context(), func(tx *pg.Tx) error {
			tx.Record(pg.Record{Kind: "group", Action: "edited"})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	peers := peers.New(
		system.Name,
		map[string]http.Handler{"network": rest.NewHandler("network", owner, discard, []rest.Route{events.Feed(owner, system.Name)})},
	)
	parts := system.Definition.New(service.Deps{DB: s.db, Box: s.box, Log: discard})
	c := parts.Consumers[slices.IndexFunc(parts.Consumers, func(c *events.Consumer) bool { return c.Source == "network" })]
	c.Interval = 10 * time.Millisecond // no wake-ups in this test
	jobs, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for jobs.Err() == nil {
			_ = c.Consume(jobs, s.db, peers, nil) // the error is in its status
			time.Sleep(10 * time.Millisecond)
		}
	}()
	numbered := make(chan struct{})
	go func() {
		defer close(numbered)
		_ = (&events.Sequencer{DB: owner}).Run(jobs)
	}()
	t.Cleanup(func() { stop(); <-done; <-numbered })

	logged := func(items int) {
		t.Helper()
		testkit.Eventually(s.t, "all changes are logged", func() bool { return len(s.queryIDs("SELECT id FROM log")) == items })
		if _, bad := s.verify(audit.Anchor{}); bad != nil {
			t.Error(bad)
		}
	}
	stops := func(because string) {
		t.Helper()
		testkit.Eventually(s.t, "the consumer stops: "+because, func() bool {
			reason := c.Status().Reason
			return reason != nil && strings.Contains(reason.Error(), because)
		})
		if _, bad := s.verify(audit.Anchor{}); bad == nil {
			t.Error("got a log that verifies, want an error")
		}
	}
	for range 3 {
		change()
	}
	logged(3)
	s.execute("UPDATE consumer SET seq = 5")
	stops("network has numbered its changes up to 3, but those up to 5 were applied: it was restored, or the cursor was moved")
	for range 3 {
		change()
	}
	stops("got change 6 of network, but the log ends at its change 3")
	s.execute("UPDATE consumer SET seq = 3")
	logged(6)
	s.execute("UPDATE consumer SET seq = 1")
	stops("got change 2 of network, but the log ends at its change 6")
	s.execute("UPDATE consumer SET seq = 6")
	change()
	logged(7)
	s.execute("UPDATE consumer SET seq = 0")
	stops("got change 1 of network, but the log ends at its change 7")
}

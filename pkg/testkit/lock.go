package testkit

import (
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// HoldLock runs lock in a transaction, and keeps the transaction open until release is called.
func HoldLock(t testing.TB, db *pg.DB, lock func(*pg.Tx) error) (release func()) {
	t.Helper()
	held, end, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	has := sync.OnceFunc(func() { close(held) }) // a transaction may be retried
	go func() {
		ended <- db.InTx(t.Context(), func(tx *pg.Tx) error {
			tx.Unrecorded("a test")
			_, err := tx.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0")
			if err == nil {
				err = lock(tx)
			}
			has()
			<-end
			return err
		})
	}()
	<-held
	release = sync.OnceFunc(func() {
		close(end)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(release) // otherwise a failing test would never end
	return release
}

// AwaitLocked waits until this many sessions of a database wait for locks.
func AwaitLocked(t testing.TB, db *pg.DB, sessions int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		var waiting int
		err := db.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").
			Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		if waiting >= sessions {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %d sessions that wait for locks, want %d", waiting, sessions)
		}
	}
}

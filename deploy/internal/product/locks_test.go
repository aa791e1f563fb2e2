package product_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/pxe"
)

// The role of one service cannot block another service, even if it takes all advisory locks that it knows or sees.
func TestAnotherRoleBlocksNoService(t *testing.T) { both(t, testAnotherRoleBlocksNoService) }

func testAnotherRoleBlocksNoService(t *testing.T, p *product.Product, c *testkit.Client) {
	unlock := holdLock(t, p.Databases[network.Name], "address space", 1)
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	begun, first := make(chan struct{}), make(chan *testkit.Response, 1)
	end := attack(t, p.Databases[pxe.Name], begun)
	<-begun
	at, body := path("/group/%d/entity/bulk", group), `{"prefix": "10.0.0.1/32"}`
	go func() { first <- c.Do("POST", at, body, idempotencyKey, "a") }()
	testkit.AwaitLocked(t, p.Databases[network.Name], 1) // and seen
	unlock()
	created := (<-first).Want(200)

	if repeated := c.Do("POST", at, body, idempotencyKey, "a").Want(200); repeated.Text != created.Text {
		t.Errorf("got %s, want %s", repeated.Text, created.Text)
	}
	c.Do("POST", at, `{"prefix": "10.1.0.0/28", "all": true}`).Want(200)
	c.Do("POST", "/client", order("ben@example.com")).Want(200)
	c.Do("POST", path("/group/%d/allocate", group), `{"count": 3, "owner": {"id": 1}}`).Want(200)
	c.Do("POST", path("/group/%d/allocate", group), `{"prefix": 30, "owner": {"id": 1}}`).Want(200)
	id, _ := newAdmin(t, c, "other", `{}`)
	c.Do("DELETE", path("/admin/%d", id), nil).Want(200)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var left int
		if err := p.Databases[network.Name].QueryRow(t.Context(), "SELECT count(*) FROM ip_group_delta").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %d counts left, want all folded", left)
		}
	}
	if seen := end(); len(seen) > 0 {
		t.Errorf("got the advisory locks %v, want none", seen)
	}
}

// attack takes advisory locks and holds them until end is called, which returns the locks of other roles that it saw.
func attack(t *testing.T, db *pg.DB, begun chan<- struct{}) (end func() (seen []int64)) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan error, 1)
	var seen []int64
	go func() {
		ended <- db.InTx(t.Context(), func(tx *pg.Tx) error {
			tx.Unrecorded("a test")
			if _, err := tx.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
				return err
			}
			for _, name := range []string{
				"accounts", "address space", "allocation", "fold counts", "idempotency", "bootstrap", "standalone", "migrate network",
			} {
				for number := range 4 {
					if _, err := tx.Exec(t.Context(), "SELECT pg_try_advisory_xact_lock(hashtextextended($1, $2))", name, number); err != nil {
						return err
					}
				}
			}
			close(begun)
			for {
				rows, err := tx.Query(t.Context(), `
					SELECT l.number, pg_try_advisory_xact_lock(l.number) FROM (
						SELECT DISTINCT classid::bigint << 32 | objid::bigint AS number FROM pg_locks
						WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()) l`)
				if err != nil {
					return err
				}
				found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (number int64, err error) {
					var locked bool
					return number, row.Scan(&number, &locked)
				})
				if err != nil {
					return err
				}
				seen = append(seen, found...)
				select {
				case <-stop:
					return nil
				case <-time.After(time.Millisecond):
				}
			}
		})
	}()
	return func() []int64 {
		t.Helper()
		close(stop)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return seen
	}
}

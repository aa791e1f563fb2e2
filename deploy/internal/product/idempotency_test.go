package product_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/system"
)

const idempotencyKey = "Idempotency-Key"

func TestIdempotency(t *testing.T) { both(t, testIdempotency) }

func testIdempotency(t *testing.T, p *product.Product, c *testkit.Client) {
	body := `{"name": "once", "speed": 1}`
	first := c.Do("POST", "/port-speed", body, idempotencyKey, "a").Want(200)
	repeated := c.Do("POST", "/port-speed", body, idempotencyKey, "a").Want(200)
	if repeated.Text != first.Text || repeated.Header.Get("ETag") != first.Header.Get("ETag") {
		t.Errorf("got %s, want %s with the same ETag", repeated.Text, first.Text)
	}
	c.Do("POST", "/port-speed", body, idempotencyKey, "b").WantErrors("/name", "taken") // another value is another request
	used := "This Idempotency-Key was used for another request."
	c.Do("POST", "/port-speed", `{"name": "once", "speed": 2}`, idempotencyKey, "a").WantDetail(problem.Conflict, used)
	c.Do("POST", "/group", `{"name": "once"}`, idempotencyKey, "a").WantDetail(problem.Conflict, used)
	c.Do("POST", "/port-speed", "name,speed\nx,1\n", idempotencyKey, "a", "Content-Type", "text/csv").WantDetail(problem.Conflict, used)
	c.Do("POST", "/port-speed", body, idempotencyKey, strings.Repeat("x", 256)).Want(400)
	c.Do("POST", "/port-speed", body, idempotencyKey, "ä").Want(400)

	_, other := newAdmin(t, c, "other", `{"network": {"switches": {"write": true}}}`)
	other.Do("POST", "/port-speed", body, idempotencyKey, "a").WantErrors("/name", "taken") // so is the same value of another caller
	// A key never gets the stored response of another key of its owner, because that response may contain a more powerful key.
	bounded, key := c.WithKey(newKey(t, c, "bounded")), `{"name": "made"}`
	created := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", key, idempotencyKey, "1").Want(200))
	repeatedKey := testkit.Decode[keys.APIKey](bounded.Do("POST", "/auth/key", key, idempotencyKey, "1").Want(200))
	if repeatedKey.ID == created.ID || repeatedKey.Key == created.Key {
		t.Error("got the response of another key of the owner, want an own one")
	}
	// A refusal is not stored, so the value can be used again for the corrected request.
	c.Do("POST", "/port-speed", `{}`, idempotencyKey, "c").Want(422)
	c.Do("POST", "/port-speed", `{"name": "corrected", "speed": 1}`, idempotencyKey, "c").Want(200)

	// A CSV body with several rows is one request, too.
	csv := []string{idempotencyKey, "d", "Content-Type", "text/csv"}
	rows := c.Do("POST", "/port-speed", "name,speed\nx,1\ny,2\n", csv...).Want(200).Text
	if repeated := c.Do("POST", "/port-speed", "name,speed\nx,1\ny,2\n", csv...).Want(200).Text; repeated != rows {
		t.Errorf("got %s, want %s", repeated, rows)
	}
	if n := len(testkit.Decode[[]network.PortSpeed](c.Do("GET", "/port-speed", nil))); n != 4 {
		t.Errorf("got %d port speeds, want 4", n)
	}

	// After a day a value can be used again.
	testkit.Execute(t, p.Databases[network.Name], "UPDATE idempotency SET expires_at = now()")
	testkit.Execute(t, p.Databases[network.Name], "INSERT INTO idempotency SELECT int8send(n), '', '', now() FROM generate_series(1, 20000) n")
	c.Do("POST", "/port-speed", body, idempotencyKey, "a").WantErrors("/name", "taken")
	c.Do("POST", "/port-speed", `{"name": "the day after", "speed": 1}`, idempotencyKey, "a").Want(200)
	if err := host.Sweep(t.Context(), p.Databases[network.Name], system.Name); err != nil {
		t.Fatal(err)
	}
	c.Do("POST", "/port-speed", `{"name": "later", "speed": 1}`, idempotencyKey, "e").Want(200)
	var left int
	if err := p.Databases[network.Name].QueryRow(t.Context(), "SELECT count(*) FROM idempotency").Scan(&left); err != nil || left != 2 {
		t.Errorf("got %d stored responses (%v), want 2", left, err)
	}
}

// A repeated request gets the stored response even if the request would be refused by now.
func TestReplayAfterExpiry(t *testing.T) { shared(t, testReplayAfterExpiry) }

func testReplayAfterExpiry(t *testing.T, _ *product.Product, c *testkit.Client) {
	body := map[string]any{"name": "short"}
	at, first := soonExpiring(c, body, idempotencyKey, "a")
	time.Sleep(time.Until(at))
	if repeated := c.Do("POST", "/auth/key", body, idempotencyKey, "a").Want(200); repeated.Text != first.Text {
		t.Errorf("got %s, want %s", repeated.Text, first.Text)
	}
	c.Do("POST", "/auth/key", body, idempotencyKey, "b").WantErrors("/expires_at", "out_of_range")
}

// A caller that may not create keys any more does not get the stored response from before.
func TestReplayAfterRevocation(t *testing.T) { shared(t, testReplayAfterRevocation) }

func testReplayAfterRevocation(t *testing.T, _ *product.Product, c *testkit.Client) {
	other, _ := newAdmin(t, c, "other", `{}`)
	id, eve := newAdmin(t, c, "eve", usersAdmins)
	body := map[string]any{"name": "x", "owner": map[string]any{"url": path("/admin/%d", other)}}
	first := eve.Do("POST", "/auth/key", body, idempotencyKey, "a").Want(200)
	if repeated := eve.Do("POST", "/auth/key", body, idempotencyKey, "a").Want(200); repeated.Text != first.Text {
		t.Errorf("got %s, want %s", repeated.Text, first.Text)
	}
	c.Do("PATCH", path("/admin/%d/permission", id), `{"users": {"admins": {"read": false, "write": false}}}`).Want(200)
	eve.Do("POST", "/auth/key", body, idempotencyKey, "a").Want(403)
}

// Equal requests at the same time create one item, and all get its response.
func TestRepeatedAtOnce(t *testing.T) { shared(t, testRepeatedAtOnce) }

func testRepeatedAtOnce(t *testing.T, _ *product.Product, c *testkit.Client) {
	const rounds, twins = 5, 32
	_, c = newAdmin(t, c, "twins", `{}`)
	for round := range rounds {
		answers := make([]*testkit.Response, twins)
		var all sync.WaitGroup
		for i := range twins {
			all.Go(func() {
				answers[i] = c.Do("POST", "/auth/key", `{"name": "twin"}`, idempotencyKey, fmt.Sprint("round ", round))
			})
		}
		all.Wait()
		for _, a := range answers {
			if a.Want(200).Text != answers[0].Text {
				t.Fatalf("got %s, want %s", a.Text, answers[0].Text)
			}
		}
	}
	if n := len(testkit.Decode[[]keys.APIKey](c.Do("GET", "/auth/key", nil))); n != 1+rounds {
		t.Errorf("got %d keys, want %d", n, 1+rounds)
	}
}

// A dump of the database holds no secret of a request or a response.
func TestDumpHoldsNoSecret(t *testing.T) { both(t, testDumpHoldsNoSecret) }

func testDumpHoldsNoSecret(t *testing.T, p *product.Product, c *testkit.Client) {
	secrets := map[string]string{
		"the first key": c.Key,
		"a key": testkit.Decode[keys.APIKey](
			c.Do("POST", "/auth/key", `{"name": "x"}`, idempotencyKey, "the-idempotency-key").Want(200),
		).Key,
		"an imported key":      "a-key-that-another-panel-made-0001",
		"a password":           "a long walk in the rain",
		"the idempotency key":  "the-idempotency-key",
		"a password, no admin": "another long walk home",
	}
	c.Do("POST", "/auth/key", map[string]any{"name": "y", "key": secrets["an imported key"]}, idempotencyKey, "z").Want(200)
	c.Do("POST", "/admin", map[string]any{"email": "a@example.com", "password": secrets["a password"]}, idempotencyKey, "w").Want(200)
	c.Do("POST", "/admin", map[string]any{"email": "a@example.com", "password": secrets["a password, no admin"]}).Want(422)
	for name, db := range p.Databases {
		tables, err := db.Query(t.Context(), "SELECT format('%I', tablename) FROM pg_tables WHERE schemaname = current_schema()")
		if err != nil {
			t.Fatal(err)
		}
		all, err := pgx.CollectRows(tables, pgx.RowTo[string])
		if err != nil || len(all) < 3 {
			t.Fatalf("got the tables %v (%v), want at least 3", all, err)
		}
		for _, table := range all {
			rows, err := db.Query(t.Context(), "SELECT t::text || encode(convert_to(t::text, 'UTF8'), 'escape') FROM "+table+" t")
			if err != nil {
				t.Fatal(err)
			}
			texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			for secretName, value := range secrets {
				if dump := strings.Join(texts, "\n"); strings.Contains(dump, value) || strings.Contains(dump, fmt.Sprintf("%x", value)) {
					t.Errorf("got %s in %s.%s, want no secret there", secretName, name, table)
				}
			}
		}
	}
}

// A request is told to try again later while an equal one runs, and holds no connection meanwhile.
func TestRepeatedWhileRunning(t *testing.T) { both(t, testRepeatedWhileRunning) }

func testRepeatedWhileRunning(t *testing.T, p *product.Product, c *testkit.Client) {
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	unlock := holdLock(t, p.Databases[network.Name], "address space", 1)
	body := `{"prefix": "10.0.0.1/32"}`
	var all sync.WaitGroup
	for range 30 { // more than there are connections
		all.Go(func() {
			if a := c.Do(
				"POST",
				"/group/1/entity/bulk",
				body,
				idempotencyKey,
				"stuck",
			); a.Status != 200 &&
				(a.Status != 503 || a.Header.Get("Retry-After") == "") {
				t.Errorf("got %d %s, want 200, or 503 with Retry-After", a.Status, a.Text)
			}
		})
	}
	testkit.AwaitLocked(t, p.Databases[network.Name], 1)
	c.Do("POST", "/port-speed", `{"name": "others go on", "speed": 1}`).Want(200)
	unlock()
	all.Wait()
	c.Do("POST", "/group/1/entity/bulk", body, idempotencyKey, "stuck").Want(200)
	if n := len(testkit.Decode[[]network.IPEntity](c.Do("GET", "/entity", nil))); n != 1 {
		t.Errorf("got %d entities, want 1", n)
	}
}

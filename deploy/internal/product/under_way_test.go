package product_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/network"
)

// soon is how long a test waits for a condition.
const soon = 2 * time.Minute

// send opens a connection, and sends the head of a request.
func send(t *testing.T, c *testkit.Client, head string) (net.Conn, *bufio.Reader) {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(c.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	_ = connection.(*net.TCPConn).SetReadBuffer(64 << 10) // so that the system holds little of a response that the test does not read
	_ = connection.SetDeadline(time.Now().Add(3 * soon))
	if _, err := fmt.Fprintf(
		connection,
		"%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Api-Key: %s\r\n",
		head,
		c.Key,
	); err != nil {
		t.Fatal(err)
	}
	return connection, bufio.NewReader(connection)
}

func revoke(t *testing.T, c *testkit.Client, key string) {
	t.Helper()
	for _, k := range testkit.Decode[[]keys.APIKey](c.Do("GET", "/auth/key", nil).Want(200)) {
		if k.Name == key {
			c.Do("DELETE", path("/auth/key/%d", k.ID), nil).Want(200)
			return
		}
	}
	t.Fatalf("got no key %s, want one", key)
}

// A request has no effect if its key is deleted while its body arrives.
func TestRevokedWithinTheBody(t *testing.T) { both(t, testRevokedWithinTheBody) }

func testRevokedWithinTheBody(t *testing.T, _ *product.Product, c *testkit.Client) {
	for name, body := range map[string]string{
		"/auth/key": `{"name": "successor"}`,
		"/admin":    `{"username": "successor", "email": "successor@example.com", "password": ""}`,
	} {
		key := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "revoked"}`).Want(200))
		to, from := send(t, c.WithKey(key.Key), "POST "+name)
		fmt.Fprintf(to, "Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body))
		if line, err := from.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
			t.Fatalf("got %q (%v), want 100 Continue", line, err)
		}
		_, _ = from.ReadString('\n')
		_, _ = io.WriteString(to, body[:1])
		revoke(t, c, "revoked")
		time.Sleep(100 * time.Millisecond)
		_, _ = io.WriteString(to, body[1:])
		response, err := http.ReadResponse(from, nil)
		if err != nil || response.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: got %v (%v), want %d", name, response, err, http.StatusUnauthorized)
		}
		if list := c.Do("GET", name, nil).Want(200); strings.Contains(list.Text, "successor") {
			t.Errorf("got %s, want no successor in it", list.Text)
		}
	}
}

// A change that waits is refused if its key is revoked or loses the permission meanwhile.
func TestRevokedBeforeTheCommit(t *testing.T) { both(t, testRevokedBeforeTheCommit) }

func testRevokedBeforeTheCommit(t *testing.T, p *product.Product, c *testkit.Client) {
	db := p.Databases[network.Name]
	speed := c.Do("POST", "/port-speed", `{"name": "before", "speed": 1, "billing_id": "b"}`).Want(200).ID()
	for name, test := range map[string]struct {
		revoke func(admin int64)
		want   int
	}{
		"deleted": {func(admin int64) { c.Do("DELETE", path("/admin/%d", admin), nil).Want(200) }, 401},
		"without-permission": {func(admin int64) {
			c.Do("PATCH", path("/admin/%d/permission", admin), `{"network": {"switches": {"write": false}}}`).Want(200)
		}, 403},
	} {
		admin, client := newAdmin(t, c, name, `{"network": {"switches": {"read": true, "write": true}}}`)
		unlock := holdSpeed(t, db, speed)
		to, from := send(t, client, "PATCH "+path("/port-speed/%d", speed))
		const body = `{"name": "after", "speed": 1, "billing_id": "b"}`
		fmt.Fprintf(to, "Content-Length: %d\r\n\r\n%s", len(body), body)
		testkit.AwaitLocked(t, db, 1)
		test.revoke(admin)
		response, err := http.ReadResponse(from, nil)
		if err != nil || response.StatusCode != test.want {
			t.Errorf("%s: got %v (%v), want %d", name, response, err, test.want)
		}
		unlock()
		c.Do("PATCH", path("/port-speed/%d", speed), `{"name": "before", "speed": 2, "billing_id": "b"}`).
			Want(200)
			// waits for the requests that still hold the lock
		var count int
		if err := db.QueryRow(t.Context(), "SELECT count(*) FROM change WHERE after::text LIKE '%after%'").Scan(&count); err != nil || count > 0 {
			t.Errorf("%s: got %d changes (%v), want none", name, count, err)
		}
	}
}

// A list stops soon after its key is revoked, however slowly the caller reads it.
func TestRevokedWithinAList(t *testing.T) { both(t, testRevokedWithinAList) }

func testRevokedWithinAList(t *testing.T, p *product.Product, c *testkit.Client) {
	testkit.Execute(
		t,
		p.Databases[network.Name],
		"INSERT INTO port_speed (name, speed) SELECT repeat('x', 1000) || n, n FROM generate_series(1, 20000) n",
	)
	admin, client := newAdmin(t, c, "lister", `{"network": {"switches": {"read": true}}}`)
	to, from := send(t, client, "GET /port-speed")
	_, _ = io.WriteString(to, "\r\n")
	response, err := http.ReadResponse(from, nil)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("got %v (%v), want %d", response, err, http.StatusOK)
	}
	if _, err := io.CopyN(io.Discard, response.Body, 64<<10); err != nil {
		t.Fatal(err)
	}
	c.Do("DELETE", path("/admin/%d", admin), nil).Want(200)
	testkit.Eventually(t, "the rest of the list ends", func() bool { // at this pace, the whole list would take half a minute
		_, err = io.CopyN(io.Discard, response.Body, 16<<10)
		return err != nil
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Errorf("got the end %v, want a connection that is cut off", err)
	}
}

// holdSpeed locks a port speed until release is called.
func holdSpeed(t *testing.T, db *pg.DB, id int64) (release func()) {
	t.Helper()
	return testkit.HoldLock(t, db, func(tx *pg.Tx) error {
		_, err := tx.Exec(t.Context(), "SELECT FROM port_speed WHERE id = $1 FOR UPDATE", id)
		return err
	})
}

package revocation

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// openRequests are requests that a key has begun before it is revoked: one whose body is still arriving, and a list
// that its caller reads slowly.
type openRequests struct {
	t    *testing.T
	body net.Conn
	from *bufio.Reader // reads from body
	list io.Reader
}

const heldBody = `{"name": "successor"}`

// fillList makes the list longer than the buffers between its service and a caller that reads nothing.
func (s *stand) fillList() {
	s.t.Helper()
	testkit.Execute(
		s.t,
		s.product.Databases[network.Name],
		"INSERT INTO port_speed (name, speed) SELECT repeat('x', 1000) || n, n FROM generate_series(1, 20000) n",
	)
}

// open begins the two requests with a key.
func (s *stand) open(key string) *openRequests {
	s.t.Helper()
	u := &openRequests{t: s.t}
	u.body, u.from = s.send(
		"POST /auth/key",
		key,
		fmt.Sprintf("Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n", len(heldBody)),
	)
	if line, err := u.from.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
		s.t.Fatalf("got %q, %v, want HTTP/1.1 100", line, err)
	}
	_, _ = u.from.ReadString('\n')
	_, _ = io.WriteString(u.body, heldBody[:1])
	_, from := s.send("GET /port-speed", key, "")
	response, err := http.ReadResponse(from, nil)
	if err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("got %v, %v, want 200", response, err)
	}
	u.list = response.Body
	return u
}

// send writes the head of a request, and returns the connection.
func (s *stand) send(line, key, headers string) (net.Conn, *bufio.Reader) {
	s.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.gateways[0].URL, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\n%s\r\n", line, key, headers)
	return c, bufio.NewReader(c)
}

// end completes both requests after the revocation, and wants both refused or cut off.
func (u *openRequests) end() {
	u.t.Helper()
	_, _ = io.WriteString(u.body, heldBody[1:])
	response, err := http.ReadResponse(u.from, nil)
	if err != nil || response.StatusCode != http.StatusUnauthorized && response.StatusCode != http.StatusForbidden {
		u.t.Errorf("got %v, %v for a request whose body arrived later, want 401 or 403", response, err)
	}
	if n, err := io.Copy(io.Discard, u.list); err == nil || strings.Contains(err.Error(), "timeout") {
		u.t.Errorf("got %d bytes and %v for a list that had begun, want it cut off", n, err)
	}
}

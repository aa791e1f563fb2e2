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

// underWay is what a key has begun when it is revoked: a request whose body is on its way, and a list whose caller is slow
// to take it.
type underWay struct {
	t    *testing.T
	body net.Conn
	from *bufio.Reader // of body
	list io.Reader
}

const heldBody = `{"name": "successor"}`

// fillList makes a list longer than what fits between its service and a caller who takes nothing.
func (s *stand) fillList() {
	s.t.Helper()
	testkit.Execute(
		s.t,
		s.product.Databases[network.Name],
		"INSERT INTO port_speed (name, speed) SELECT repeat('x', 1000) || n, n FROM generate_series(1, 20000) n",
	)
}

func (s *stand) begin(key string) *underWay {
	s.t.Helper()
	u := &underWay{t: s.t}
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

func (s *stand) send(line, key, headers string) (net.Conn, *bufio.Reader) {
	s.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.doors[0].URL, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\n%s\r\n", line, key, headers)
	return c, bufio.NewReader(c)
}

// end goes on with it, after the revocation.
func (u *underWay) end() {
	u.t.Helper()
	_, _ = io.WriteString(u.body, heldBody[1:])
	response, err := http.ReadResponse(u.from, nil)
	if err != nil || response.StatusCode != http.StatusUnauthorized && response.StatusCode != http.StatusForbidden {
		u.t.Errorf("got %v, %v for a body on its way, want 401 or 403", response, err)
	}
	if n, err := io.Copy(io.Discard, u.list); err == nil || strings.Contains(err.Error(), "timeout") {
		u.t.Errorf("got %d bytes and %v for a list on its way, want it cut off", n, err)
	}
}

package product_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
)

// sentEvent is a server-sent event.
type sentEvent struct {
	id, name string
	data     struct {
		Type    string
		Targets []struct{ URL string }
		User    struct{ URL string }
	}
}

// eventStream is an open event stream.
type eventStream struct {
	t     *testing.T
	lines *bufio.Scanner
	leave context.CancelFunc
}

// openEvents opens the event stream of the client's key.
func openEvents(t *testing.T, c *testkit.Client, last string) *eventStream {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", c.URL+"/event", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.Key)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { leave(); _ = response.Body.Close() })
	if media := response.Header.Get("Content-Type"); response.StatusCode != 200 || media != "text/event-stream" ||
		response.Header.Get("Content-Encoding") != "" {
		t.Fatalf("got %d with %v, want 200 and an uncompressed stream", response.StatusCode, response.Header)
	}
	return &eventStream{t, bufio.NewScanner(response.Body), leave}
}

// next returns the next event, or only an id where the server sends no more. ok is false at the end.
func (s *eventStream) next() (e sentEvent, ok bool) {
	s.t.Helper()
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			if err := json.Unmarshal([]byte(value), &e.data); err != nil {
				s.t.Fatal(err)
			}
		case "":
			if e.id != "" {
				return e, true
			}
		}
	}
	return e, false
}

// await returns the event about an item. It fails the test if an event comes before it that the caller may not see.
func (s *eventStream) await(kind, url string) sentEvent {
	s.t.Helper()
	for {
		e, ok := s.next()
		if !ok {
			s.t.Fatalf("got the end of the stream, want %s of %s", kind, url)
		}
		if strings.HasPrefix(e.data.Type, "client.") {
			s.t.Errorf("got %+v, which the key may not read", e)
		}
		if e.data.Type == kind && len(e.data.Targets) > 0 && e.data.Targets[0].URL == url {
			return e
		}
	}
}

// Callers hear of the changes that they may read, and of what they missed in between.
func TestEvents(t *testing.T) {
	t.Parallel()
	_, c := producttest.Shared(t)
	_, viewer := newAdmin(t, c, "event-viewer", `{"network": {"groups": {"read": true}}}`)
	stream := openEvents(t, viewer, "")
	begin, _ := stream.next()
	newPerson(t, c, "client", "unseen-event@example.com")
	first := c.Do("POST", "/group", `{"name": "seen"}`).Want(200).ID()
	seen := stream.await("group.created", path("/group/%d", first))
	if seen.data.User.URL != "/admin/1" {
		t.Errorf("got the user %s, want /admin/1", seen.data.User.URL)
	}
	stream.leave()

	second := c.Do("POST", "/group", `{"name": "missed"}`).Want(200).ID()
	newPerson(t, c, "client", "unseen-event-2@example.com")
	resumed := openEvents(t, viewer, seen.id)
	missed := resumed.await("group.created", path("/group/%d", second))
	c.Do("DELETE", path("/group/%d", second), nil).Want(200)
	deleted := resumed.await("group.deleted", path("/group/%d", second))
	ids := []int64{number(t, begin.id), number(t, seen.id), number(t, missed.id), number(t, deleted.id)}
	if !slices.IsSorted(ids) || ids[0] == ids[1] {
		t.Errorf("got the ids %v, want them in order", ids)
	}

	// Another stream of the key ends the first one.
	other := openEvents(t, viewer, deleted.id)
	if e, ok := resumed.next(); ok {
		t.Errorf("got %+v at the older stream, want its end", e)
	}
	third := c.Do("POST", "/group", `{"name": "other"}`).Want(200).ID()
	other.await("group.created", path("/group/%d", third))

	if e, ok := openEvents(t, viewer, "9999999999").next(); !ok || e.name != "reset" {
		t.Errorf("got %+v for an id of the future, want reset", e)
	}
	accept := []string{"Accept", "text/event-stream"}
	viewer.Do("GET", "/event", nil, append(accept, "Last-Event-ID", "x")...).Want(400)
	viewer.Do("GET", "/event", nil).Want(406)
	newPerson(t, c, "client", "event-client@example.com")
	_, client := signIn(t, c, loginOf("client", "event-client@example.com", password))
	client.Do("GET", "/event", nil, accept...).WantDetail(403, "Clients cannot use this route.")
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A stream ends when its key is revoked or loses a permission, and nobody who missed too much gets half of it.
func TestEventsEnd(t *testing.T) { both(t, testEventsEnd) }

func testEventsEnd(t *testing.T, p *product.Product, c *testkit.Client) {
	id, viewer := newAdmin(t, c, "event-loser", `{"network": {"groups": {"read": true}}}`)
	stream := openEvents(t, viewer, "")
	begin, _ := stream.next()
	c.Do("PATCH", path("/admin/%d/permission", id), `{"network": {"groups": {"read": false}}}`).Want(200)
	if e, ok := stream.next(); ok {
		t.Errorf("got %+v after the permission was lost, want the end", e)
	}
	stream = openEvents(t, viewer, "")
	stream.next()
	c.Do("PATCH", path("/admin/%d", id), `{"disabled": true}`).Want(200)
	if e, ok := stream.next(); ok {
		t.Errorf("got %+v after the admin was disabled, want the end", e)
	}

	// The log was cut behind what the caller has: what it missed cannot be told.
	producttest.AwaitLog(t, p)
	last := openEvents(t, c, "")
	newest, _ := last.next()
	testkit.Execute(t, p.Databases[system.Name], "DELETE FROM log WHERE id <= $1", number(t, begin.id)+1)
	if e, ok := openEvents(t, c, begin.id).next(); !ok || e.name != "reset" || number(t, e.id) < number(t, newest.id) {
		t.Errorf("got %+v after a cut, want reset with the newest id", e)
	}
}

package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/network"
)

// ledger records the changes that callers requested, and the responses to them.
type ledger struct {
	t    *testing.T
	c    *testkit.Client
	post *post

	mu                          sync.Mutex
	changes                     []expectation
	tries                       int
	accepted, refused, repeated int
	shared                      map[string][]int64 // by collection: items that all callers may edit and refer to; some are deleted
	unlogged                    map[string]bool    // requests whose changes were lost with a schema before the log had them
}

// expectation is one change, with the requests that asked for it. The log must have between min and max items of
// them.
type expectation struct {
	name     string
	requests []string
	shared   bool // other callers request the same change, so it may already be done
	min, max int
}

func newLedger(t *testing.T, c *testkit.Client, post *post) *ledger {
	return &ledger{t: t, c: c, post: post, shared: map[string][]int64{}, unlogged: map[string]bool{}}
}

// runDuring has callers make changes while do runs.
func (l *ledger) runDuring(callers int, do func()) {
	working, stop := context.WithCancel(l.t.Context())
	defer stop()
	l.shared = map[string][]int64{}
	var changing sync.WaitGroup
	for range callers {
		changing.Go(func() { newChanger(l).run(working) })
	}
	do()
	stop()
	changing.Wait()
}

// change requests a change that no other caller requests, until a response tells whether it was made.
func (l *ledger) change(method, path string, body any) *testkit.Response {
	return l.ask(expectation{name: method + " " + path}, method, path, body)
}

// ask sends a request, again and again if it must, until a response tells whether the change was made. Retries use
// the same idempotency key.
func (l *ledger) ask(expected expectation, method, path string, body any) *testkit.Response {
	key := fmt.Sprint("key ", rand.Uint64())
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(20 * time.Millisecond) {
		l.mu.Lock()
		l.tries++
		expected.requests = append(expected.requests, fmt.Sprint("crash-", l.tries))
		l.mu.Unlock()
		headers := []string{"X-Request-Id", expected.requests[len(expected.requests)-1]}
		if method == http.MethodPost {
			headers = append(headers, "Idempotency-Key", key)
		}
		response, err := l.c.Try(method, path, body, headers...)
		limited := err == nil && response.Status == http.StatusTooManyRequests // a gateway that has just started may not know the limits yet
		if err == nil && !limited && response.Status < http.StatusInternalServerError {
			l.record(expected, method, response)
			return response
		}
		if err == nil && !limited && response.Status != http.StatusServiceUnavailable && response.Status != http.StatusBadGateway &&
			response.Status != http.StatusGatewayTimeout {
			l.t.Errorf("%s: got %d: %s, want a status below 500, or 502, 503 or 504", expected.name, response.Status, response.Text)
			return &testkit.Response{}
		}
		if time.Now().After(deadline) {
			l.t.Errorf("%s: got no final answer in %v (%v), want one", expected.name, waitTimeout, err)
			return &testkit.Response{}
		}
	}
}

// record notes how many items of each change the log must have. A request without a response may have made the
// change or not.
func (l *ledger) record(expected expectation, method string, response *testkit.Response) {
	l.mu.Lock()
	defer l.mu.Unlock()
	repeats := len(expected.requests) - 1
	l.repeated += repeats
	switch response.Status {
	case http.StatusOK:
		l.accepted++
		expected.min, expected.max = 1, 1
	case http.StatusConflict: // the client has entities
		l.refused++
	case http.StatusNotFound, http.StatusUnprocessableEntity:
		l.refused++
		if method == http.MethodDelete { // an earlier request has deleted it, or another caller if it is shared
			expected.min, expected.max = 1, 1
		}
	default:
		l.t.Errorf("%s: got %d: %s, want 200, 404, 409 or 422", expected.name, response.Status, response.Text)
	}
	if expected.shared {
		expected.min = 0
	}
	if method == http.MethodPatch { // each repetition changes something only if another caller edited the item in between
		expected.max = repeats + expected.min
	}
	l.changes = append(l.changes, expected)
}

func (l *ledger) addShared(collection string, id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shared[collection] = append(l.shared[collection], id)
}

// pickShared returns one of the last six shared items of a collection.
func (l *ledger) pickShared(collection string) (id int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.shared[collection]
	all = all[max(0, len(all)-6):]
	if len(all) == 0 {
		return 0, false
	}
	return all[rand.IntN(len(all))], true
}

// changer is a caller that makes random changes.
type changer struct {
	*ledger
	own      map[string][]int64 // by collection: items that only this caller deletes
	entities []int64            // allocated to this caller
	link     string             // the path of the last sub link that it created
	path     string             // of the group in which it allocates
}

func newChanger(l *ledger) *changer { return &changer{ledger: l, own: map[string][]int64{}} }

const (
	groupSize      = 16 // the number of entities in each caller's group
	servers        = 3
	changeInterval = 5 * time.Millisecond
	pxeField       = "pxe_dhcp_server"
)

// bodies returns the body to create or edit an item of each collection.
var bodies = map[string]func(l *ledger, name string) map[string]any{
	"port-speed": func(_ *ledger, name string) map[string]any {
		return map[string]any{"name": name, "speed": 1000, "billing_id": name}
	},
	"pxe/dhcp": func(_ *ledger, name string) map[string]any {
		return map[string]any{"name": name, "http": map[string]any{"host": "192.0.2.1"}}
	},
	"client": func(_ *ledger, name string) map[string]any {
		return map[string]any{"email": name + "@example.com", "first": "Ben", "last": name}
	},
	"auth/key": func(_ *ledger, name string) map[string]any { return map[string]any{"name": name} },
	"group": func(l *ledger, name string) map[string]any {
		body := map[string]any{"name": name, pxeField: nil}
		if server, ok := l.pickShared("pxe/dhcp"); ok && rand.IntN(4) > 0 {
			body[pxeField] = server
		}
		return body
	},
}

func (c *changer) run(ctx context.Context) {
	group := c.change("POST", "/group", map[string]any{"name": fmt.Sprint("Space ", rand.Uint64())})
	c.path = fmt.Sprintf("/group/%d", group.ID())
	first := fmt.Sprintf("10.%d.%d.0", rand.IntN(256), rand.IntN(256))
	c.change("POST", c.path+"/entity/bulk", map[string]any{"prefix": first + "/28", "all": true}).Want(200)
	collections := slices.Sorted(maps.Keys(bodies))
	for ctx.Err() == nil {
		switch collection := collections[rand.IntN(len(collections))]; rand.IntN(8) {
		case 0:
			c.create(collection)
		case 1:
			c.edit(collection)
		case 2:
			c.delete(collection)
		case 3:
			c.allocate()
		case 4:
			c.mail()
		case 5:
			c.createLink()
		case 6:
			c.deleteLink()
		default:
			c.release()
		}
		time.Sleep(changeInterval)
	}
}

func (c *changer) body(collection string) map[string]any {
	return bodies[collection](c.ledger, fmt.Sprint("n", rand.Uint64()))
}

func (c *changer) create(collection string) {
	response := c.change("POST", "/"+collection, c.body(collection))
	if response.Status == http.StatusOK { // a group may refer to a deleted DHCP server
		c.own[collection] = append(c.own[collection], response.ID())
		c.addShared(collection, response.ID())
	}
}

// edit changes an item that other callers may be editing or deleting.
func (c *changer) edit(collection string) {
	if id, ok := c.pickShared(collection); ok {
		c.change("PATCH", fmt.Sprintf("/%s/%d", collection, id), c.body(collection))
	}
}

func (c *changer) delete(collection string) {
	if all := c.own[collection]; len(all) > 0 {
		c.change("DELETE", fmt.Sprintf("/%s/%d", collection, all[0]), nil)
		c.own[collection] = all[1:]
	}
}

func (c *changer) allocate() {
	if len(c.entities) == groupSize {
		return
	}
	client, ok := c.pickShared("client")
	if !ok {
		return
	}
	owner := map[string]any{"id": client, "server": map[string]any{"id": rand.IntN(servers) + 1}}
	response := c.change("POST", c.path+"/allocate", map[string]any{"owner": owner})
	if response.Status != http.StatusOK { // the client may be deleted, or about to be
		return
	}
	for _, entity := range testkit.Decode[[]network.IPEntity](response) {
		c.entities = append(c.entities, entity.ID)
	}
}

// mail sends a mail to a client. The response contains the address, which other callers may be changing.
func (c *changer) mail() {
	id, ok := c.pickShared("client")
	if !ok {
		return
	}
	response := c.change("POST", fmt.Sprintf("/client/%d/email", id), map[string]any{"type": "welcome"})
	if response.Status != http.StatusOK {
		return
	}
	for _, word := range strings.Fields(testkit.Decode[[]clients.EmailResult](response)[0].Text) {
		if strings.Contains(word, "@") {
			c.post.addMail(strings.Trim(word, "<>.,\""))
		}
	}
}

// createLink links two clients. Other callers may be creating the same link, or the reverse one.
func (c *changer) createLink() {
	from, ok := c.pickShared("client")
	to, _ := c.pickShared("client")
	if !ok || from == to {
		return
	}
	at := fmt.Sprintf("/client/%d/sub", from)
	if response := c.ask(
		expectation{name: "POST " + at, shared: true},
		"POST",
		at,
		map[string]any{"client_id": to},
	); response.Status == http.StatusOK {
		c.link = fmt.Sprint(at, "/", response.ID())
	}
}

func (c *changer) deleteLink() {
	if at := c.link; at != "" {
		c.ask(expectation{name: "DELETE " + at, shared: true}, "DELETE", at, nil)
		c.link = ""
	}
}

func (c *changer) release() {
	if len(c.entities) > 0 {
		c.change("POST", fmt.Sprintf("/entity/%d/release", c.entities[0]), nil).Want(200)
		c.entities = c.entities[1:]
	}
}

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

// ledger is what callers asked for, and what they were answered.
type ledger struct {
	t    *testing.T
	c    *testkit.Client
	post *post

	mu                          sync.Mutex
	changes                     []asked
	tries                       int
	answered, refused, repeated int
	shared                      map[string][]int64 // what all may edit or name, and some of it is deleted
	unheard                     map[string]bool    // requests that a schema that was lost had changes of which are in no log
}

// asked is one change: the requests that asked for it, of which the log has so many.
type asked struct {
	what        string
	requests    []string
	shared      bool // others do the same: it may have been done when the request came
	least, most int
}

func newLedger(t *testing.T, c *testkit.Client, post *post) *ledger {
	return &ledger{t: t, c: c, post: post, shared: map[string][]int64{}, unheard: map[string]bool{}}
}

// during has callers change things that are theirs while something is done.
func (l *ledger) during(callers int, do func()) {
	working, calm := context.WithCancel(l.t.Context())
	defer calm()
	l.shared = map[string][]int64{}
	var changing sync.WaitGroup
	for range callers {
		changing.Go(func() { newChanger(l).run(working) })
	}
	do()
	calm()
	changing.Wait()
}

// change asks for a change that nobody else makes until there is an answer that says what became of it.
func (l *ledger) change(method, path string, body any) *testkit.Response {
	return l.ask(asked{what: method + " " + path}, method, path, body)
}

func (l *ledger) ask(what asked, method, path string, body any) *testkit.Response {
	key := fmt.Sprint("key ", rand.Uint64())
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		l.mu.Lock()
		l.tries++
		what.requests = append(what.requests, fmt.Sprint("crash-", l.tries))
		l.mu.Unlock()
		headers := []string{"X-Request-Id", what.requests[len(what.requests)-1]}
		if method == http.MethodPost {
			headers = append(headers, "Idempotency-Key", key)
		}
		answer, err := l.c.Try(method, path, body, headers...)
		limited := err == nil && answer.Status == http.StatusTooManyRequests // a gateway that starts while nobody tells it the limits
		if err == nil && !limited && answer.Status < http.StatusInternalServerError {
			l.enter(what, method, answer)
			return answer
		}
		if err == nil && !limited && answer.Status != http.StatusServiceUnavailable && answer.Status != http.StatusBadGateway &&
			answer.Status != http.StatusGatewayTimeout {
			l.t.Errorf("%s: got %d: %s, want a status below 500, or 502, 503 or 504", what.what, answer.Status, answer.Text)
		}
		if time.Now().After(deadline) {
			l.t.Errorf("%s: got no final answer in %v (%v), want one", what.what, patience, err)
			return &testkit.Response{}
		}
	}
}

// enter notes how often each request of a change is in the log: of those without an answer nobody knows.
func (l *ledger) enter(what asked, method string, answer *testkit.Response) {
	l.mu.Lock()
	defer l.mu.Unlock()
	again := len(what.requests) - 1
	l.repeated += again
	switch answer.Status {
	case http.StatusOK:
		l.answered++
		what.least, what.most = 1, 1
	case http.StatusConflict: // something is assigned to the client
		l.refused++
	case http.StatusNotFound, http.StatusUnprocessableEntity:
		l.refused++
		if method == http.MethodDelete { // an earlier request has deleted it, or somebody else where that is shared
			what.least, what.most = 1, 1
		}
	default:
		l.t.Errorf("%s: got %d: %s, want 200, 404, 409 or 422", what.what, answer.Status, answer.Text)
	}
	if what.shared {
		what.least = 0
	}
	if method == http.MethodPatch { // each of them may have been one, and changes nothing where nobody has edited since the one before
		what.most = again + what.least
	}
	l.changes = append(l.changes, what)
}

func (l *ledger) share(collection string, id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shared[collection] = append(l.shared[collection], id)
}

// recent is one of the last that were shared, or none.
func (l *ledger) recent(collection string) (id int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.shared[collection]
	all = all[max(0, len(all)-6):]
	if len(all) == 0 {
		return 0, false
	}
	return all[rand.IntN(len(all))], true
}

// changer is a caller that changes things at random.
type changer struct {
	*ledger
	own  map[string][]int64 // by collection: what only this one deletes
	held []int64            // entities
	link string             // the last sub link that it made
	path string             // of the group to allocate in
}

func newChanger(l *ledger) *changer { return &changer{ledger: l, own: map[string][]int64{}} }

const (
	space    = 16 // entities in the group of each caller
	servers  = 3
	pause    = 5 * time.Millisecond
	pxeField = "pxe_dhcp_server"
)

// bodies are what is sent for each collection, to create and to edit.
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
		if server, ok := l.recent("pxe/dhcp"); ok && rand.IntN(4) > 0 {
			body[pxeField] = server
		}
		return body
	},
}

func (c *changer) run(ctx context.Context) {
	group := c.change("POST", "/group", map[string]any{"name": fmt.Sprint("Space ", rand.Uint64())})
	c.path = fmt.Sprintf("/group/%d", group.ID())
	first := fmt.Sprintf("10.%d.%d.0", rand.IntN(256), rand.IntN(256))
	c.change("POST", c.path+"/entity/bulk", map[string]any{"prefix": first + "/28"}).Want(200)
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
			c.makeLink()
		case 6:
			c.deleteLink()
		default:
			c.release()
		}
		time.Sleep(pause)
	}
}

func (c *changer) body(collection string) map[string]any {
	return bodies[collection](c.ledger, fmt.Sprint("n", rand.Uint64()))
}

func (c *changer) create(collection string) {
	answer := c.change("POST", "/"+collection, c.body(collection))
	if answer.Status == http.StatusOK { // a group may name a DHCP server that is gone
		c.own[collection] = append(c.own[collection], answer.ID())
		c.share(collection, answer.ID())
	}
}

// edit edits what others may be editing and deleting.
func (c *changer) edit(collection string) {
	if id, ok := c.recent(collection); ok {
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
	if len(c.held) == space {
		return
	}
	client, ok := c.recent("client")
	if !ok {
		return
	}
	owner := map[string]any{"id": client, "server": map[string]any{"id": rand.IntN(servers) + 1}}
	answer := c.change("POST", c.path+"/allocate", map[string]any{"owner": owner})
	if answer.Status != http.StatusOK { // the client may be gone, or going
		return
	}
	for _, entity := range testkit.Decode[[]network.IPEntity](answer) {
		c.held = append(c.held, entity.ID)
	}
}

// mail writes to a client. The answer says at which address, which others may be changing.
func (c *changer) mail() {
	id, ok := c.recent("client")
	if !ok {
		return
	}
	answer := c.change("POST", fmt.Sprintf("/client/%d/email", id), map[string]any{"type": "welcome"})
	if answer.Status != http.StatusOK {
		return
	}
	for _, word := range strings.Fields(testkit.Decode[[]clients.EmailResult](answer)[0].Text) {
		if strings.Contains(word, "@") {
			c.post.mailed(strings.Trim(word, "<>.,\""))
		}
	}
}

// makeLink makes a sub link that others may be making, too, or one the other way round.
func (c *changer) makeLink() {
	from, there := c.recent("client")
	to, _ := c.recent("client")
	if !there || from == to {
		return
	}
	at := fmt.Sprintf("/client/%d/sub", from)
	if answer := c.ask(asked{what: "POST " + at, shared: true}, "POST", at, map[string]any{"client_id": to}); answer.Status == http.StatusOK {
		c.link = fmt.Sprint(at, "/", answer.ID())
	}
}

func (c *changer) deleteLink() {
	if at := c.link; at != "" {
		c.ask(asked{what: "DELETE " + at, shared: true}, "DELETE", at, nil)
		c.link = ""
	}
}

func (c *changer) release() {
	if len(c.held) > 0 {
		c.change("POST", fmt.Sprintf("/entity/%d/release", c.held[0]), nil).Want(200)
		c.held = c.held[1:]
	}
}

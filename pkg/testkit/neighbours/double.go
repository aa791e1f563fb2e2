// Package neighbours has doubles of the services, for tests of one service alone. A double keeps its items in memory. It serves
// the internal routes of its service, has a feed of changes, and sends and receives messages.
//
// Each double has a contract: a function that sends the requests of the neighbours. It runs here against the double, and in the
// service's own tests against the real service. So the two cannot drift apart.
package neighbours

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
)

// history is the history of the changes of all doubles.
const history = "3f1c8a52-0c1d-4c55-9d5e-6f6f1f0d7a01"

// Double is the common part of the doubles.
type Double struct {
	Name string

	t         testing.TB
	redis     *cache.Client
	masterKey secret.String
	mux       *http.ServeMux

	mu           sync.Mutex
	away         bool
	changes      []events.Event
	messages     int                         // the number of sent messages
	sent         map[string][]events.Message // by receiver
	usage        map[string]string           // why items cannot be deleted, by item: "client 5"
	referred     map[string]int64            // the number of references, by item
	closed       []string                    // items that may be deleted
	tested       http.Handler                // the service under test
	received     []events.Message
	acknowledged []string // ids of messages that the service under test may forget
}

func newDouble(t testing.TB, name string, o options) *Double {
	d := &Double{
		Name: name, t: t, redis: o.redis, masterKey: o.masterKey, mux: http.NewServeMux(),
		sent: map[string][]events.Message{}, usage: map[string]string{}, referred: map[string]int64{},
	}
	d.handle("/internal/events", o.names, d.feed)
	d.handle("/internal/messages", o.names, d.serveMessages)
	return d
}

// ServeHTTP serves the requests of neighbours.
func (d *Double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	away := d.away
	d.mu.Unlock()
	if away {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	d.mux.ServeHTTP(w, r)
}

// SetAway makes the double respond with 503 to all requests, or ends that.
func (d *Double) SetAway(away bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away = away
}

// handle serves a path to these peers. The double is locked meanwhile.
func (d *Double) handle(path string, to []string, answer func(r *http.Request) any) {
	d.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(to, principal.FromContext(r.Context()).Peer) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		d.mu.Lock()
		text, err := json.Marshal(answer(r))
		d.mu.Unlock()
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	})
}

// id returns the number at the end of the path.
func id(r *http.Request) int64 {
	n, _ := strconv.ParseInt(r.PathValue("id"), 10, 64)
	return n
}

// page is a page of the feed, in the form of events.Feed.
type page struct {
	History string         `json:"history"`
	After   string         `json:"after"`
	Events  []events.Event `json:"events"`
	Last    int64          `json:"last"`
	LastID  string         `json:"last_id"`
	Newest  int64          `json:"newest"`
}

func (d *Double) feed(r *http.Request) any {
	after, _ := strconv.ParseInt(r.FormValue("after"), 10, 64)
	p := page{History: history, Last: int64(len(d.changes))}
	p.After, p.LastID, p.Newest = d.changeID(after), d.changeID(p.Last), p.Last
	for _, e := range d.changes[min(after, p.Last):] {
		if kind := r.FormValue("kind"); kind == "" || e.Kind == kind {
			p.Events = append(p.Events, e)
		}
	}
	return p
}

func (d *Double) changeID(seq int64) string {
	if seq < 1 || seq > int64(len(d.changes)) {
		return ""
	}
	return d.changes[seq-1].ID
}

// Change records a change. The double's readers are notified.
func (d *Double) Change(kind string, action pg.Action, before, after any, targets ...pg.Target) {
	d.t.Helper()
	d.mu.Lock()
	n := len(d.changes) + 1
	d.changes = append(d.changes, events.Event{
		Seq: int64(n), ID: d.uuid(n), At: time.Now(), Type: kind + "." + string(action), Kind: kind, Action: action, Targets: targets,
		Before: d.object(before), After: d.object(after), RequestID: d.Name + "-" + strconv.Itoa(n),
	})
	d.mu.Unlock()
	d.wake()
}

func (d *Double) object(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		d.t.Error(err)
	}
	return text
}

// uuid returns the id of the nth change or message. Ids of different doubles differ.
func (d *Double) uuid(n int) string {
	sum := fnv.New32()
	_, _ = sum.Write([]byte(d.Name))
	return fmt.Sprintf("%08x-0000-4000-8000-%012d", sum.Sum32(), n)
}

// wake notifies the double's readers of news, as pkg/events does.
func (d *Double) wake() { d.redis.Publish(context.Background(), "events:"+d.Name, 1) }

// Send sends a message. confidential is sealed, unless it is empty.
func (d *Double) Send(receiver, kind string, content any, confidential secret.String) {
	d.t.Helper()
	d.mu.Lock()
	d.messages++
	m := events.Message{
		N:         int64(d.messages),
		ID:        d.uuid(d.messages),
		Kind:      kind,
		Content:   d.object(content),
		At:        time.Now(),
		RequestID: d.Name,
	}
	if !confidential.IsZero() {
		m.Sealed = d.box(receiver).Seal(messageAddress(&m), confidential)
	}
	d.sent[receiver] = append(d.sent[receiver], m)
	d.mu.Unlock()
	d.wake()
}

func messageAddress(m *events.Message) seal.Location {
	return seal.Location{Table: "message", Column: "sealed", ID: m.N}
}

// box returns the box for sealed parts of messages to a service.
func (d *Double) box(receiver string) *seal.Box {
	owner := events.MessageKey(receiver)
	key, err := seal.Derive(d.masterKey, d.Name, seal.Sealing(owner))
	if err != nil {
		d.t.Fatal(err)
	}
	box, err := key.Box(owner)
	if err != nil {
		d.t.Fatal(err)
	}
	return box
}

// messagePage is the response with messages, in the form of events.MessageRoute.
type messagePage struct {
	Messages []events.Message `json:"messages"`
}

func (d *Double) serveMessages(r *http.Request) any {
	receiver, acknowledged := principal.FromContext(r.Context()).Peer, strings.Split(r.FormValue("taken"), ",")
	after, _ := strconv.ParseInt(r.FormValue("after"), 10, 64)
	d.sent[receiver] = slices.DeleteFunc(d.sent[receiver], func(m events.Message) bool { return slices.Contains(acknowledged, m.ID) })
	var out messagePage
	for _, m := range d.sent[receiver] {
		if m.N > after {
			out.Messages = append(out.Messages, m)
		}
	}
	return out
}

// Received returns all messages that the service under test has sent to the double. Sealed parts are opened.
func (d *Double) Received() []events.Message {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.receive()
	return slices.Clone(d.received)
}

// receive fetches and returns new messages from the service under test. The caller holds the lock.
func (d *Double) receive() []events.Message {
	if d.tested == nil {
		return nil
	}
	var out messagePage
	all := peers.New(d.Name, map[string]http.Handler{"other": d.tested})
	path := "/internal/messages?after=0&taken=" + strings.Join(d.acknowledged, ",")
	if err := all.Ask(context.Background(), "other", path, &out); err != nil {
		return nil // the service sends no messages to this one
	}
	first := len(d.received)
	d.acknowledged = nil
	for _, m := range out.Messages {
		if len(m.Sealed) > 0 {
			opened, err := d.box(d.Name).Open(messageAddress(&m), m.Sealed)
			if err != nil {
				d.t.Errorf("open a message to %s: %v", d.Name, err)
			}
			m.Secret = opened
		}
		d.received, d.acknowledged = append(d.received, m), append(d.acknowledged, m.ID)
	}
	return d.received[first:]
}

// user is an item that cannot be deleted, and why.
type user struct {
	ID    int64  `json:"id"` // 0: all items can be deleted
	Usage string `json:"uses,omitempty"`

	Detached int64 `json:"detached,omitempty"` // the number of removed references
}

// detachBatch is the number of references that a double removes at once.
const detachBatch = 2

// handleClose serves the question whether items are in use. Their owner asks it before it deletes them.
func (d *Double) handleClose(kind, owner string) {
	d.handle("/internal/close/"+kind, []string{owner}, func(r *http.Request) any {
		var items []struct{ ID, Token int64 }
		if err := json.Unmarshal([]byte(r.FormValue("items")), &items); err != nil {
			d.t.Errorf("%s is asked about %q: %v", d.Name, r.FormValue("items"), err)
		}
		switch r.FormValue("detach") {
		case "later":
			return user{}
		case "now":
			n := min(d.referred[itemKey(kind, items[0].ID)], detachBatch)
			d.referred[itemKey(kind, items[0].ID)] -= n
			return user{Detached: n}
		}
		for _, item := range items {
			if usage := d.usage[itemKey(kind, item.ID)]; usage != "" {
				return user{ID: item.ID, Usage: usage}
			}
		}
		for _, item := range items {
			d.closed = append(d.closed, itemKey(kind, item.ID))
		}
		return user{}
	})
}

func itemKey(kind string, id int64) string { return kind + " " + strconv.FormatInt(id, 10) }

// Use marks an item as used, for example "has 2 IP entities". It cannot be deleted then. An empty usage ends that.
func (d *Double) Use(kind string, id int64, usage string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.usage[itemKey(kind, id)] = usage
}

// Refer sets the number of references to an item. These references do not prevent its deletion.
func (d *Double) Refer(kind string, id, references int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.referred[itemKey(kind, id)] = references
}

// References returns the number of remaining references to an item.
func (d *Double) References(kind string, id int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.referred[itemKey(kind, id)]
}

// Closed reports whether the double has agreed to the deletion of an item.
func (d *Double) Closed(kind string, id int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.closed, itemKey(kind, id))
}

// item is the response about an item that others refer to, in the form of events.RefRoute.
type item struct {
	Exists  bool            `json:"exists"`
	Name    string          `json:"name"`
	Version int64           `json:"version"`
	Detail  json.RawMessage `json:"detail,omitempty"`
}

// items are the items of one kind in a double.
type items struct {
	d          *Double
	kind, noun string
	targetType string
	all        map[int64]item
}

// below returns the items of a collection below an item: of the type client/4/sub, if the kind is client/sub.
func (i items) below(kind string, parent int64) *items {
	i.targetType = strings.Replace(i.kind, kind, kind+"/"+decimal(parent), 1)
	return &i
}

// handleRefs serves requests about items of a kind.
func (d *Double) handleRefs(kind, noun string, readers ...string) *items {
	i := &items{d, kind, noun, kind, map[int64]item{}}
	d.handle("/internal/ref/"+kind+"/{id}", readers, func(r *http.Request) any { return i.all[id(r)] })
	return i
}

// set creates or edits an item. The double's readers are notified.
func (i *items) set(id int64, name string, detail, before, after any) {
	i.d.t.Helper()
	i.d.mu.Lock()
	was := i.all[id]
	is := item{true, name, was.Version + 1, i.d.object(detail)}
	i.all[id] = is
	i.d.mu.Unlock()
	action := pg.Edited
	if !was.Exists {
		action = pg.Created
	}
	i.d.Change(strings.ReplaceAll(i.kind, "/", "."), action, before, after, i.target(id, is))
}

func (i *items) target(id int64, is item) pg.Target {
	return pg.Target{Type: i.targetType, Noun: i.noun, ID: id, Name: is.Name, Version: is.Version}
}

// remove deletes an item. The double's readers are notified.
func (i *items) remove(id int64, before any) {
	i.d.t.Helper()
	i.d.mu.Lock()
	was := i.all[id]
	delete(i.all, id)
	i.d.mu.Unlock()
	i.d.Change(strings.ReplaceAll(i.kind, "/", "."), pg.Deleted, before, nil, i.target(id, was))
}

// sendChange sends a change of a client's credentials to the clients service.
func (d *Double) sendChange(c credentials.Change, hash string) {
	d.t.Helper()
	d.Send("clients", credentials.ChangeKind, c, secret.New(hash))
}

// Package events carries the changes of one service to the services that depend on them, each change once and in order.
//
// The record that a unit of work commits with its change is the event. A sequencer numbers the committed records. A feed
// serves them to the service's readers. A consumer applies them in transactions that also move its cursor. So a kill at
// any time loses nothing and applies nothing twice. Redis only carries wake-ups. See docs/understand/events.md.
package events

import (
	"embed"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// Migrations are the migrations of a service's events, references and messages.
//
//go:embed migrations/*.sql schema/*/*.sql
var Migrations embed.FS

// Event is a change in another service.
type Event struct {
	Seq       int64           `json:"seq"` // its number in its service, from 1, without gaps
	ID        string          `json:"id"`  // a random UUID; empty: an older version wrote the change
	At        time.Time       `json:"at"`
	Type      string          `json:"type"` // pxe.dhcp.created
	Kind      string          `json:"kind"` // pxe.dhcp
	Part      string          `json:"part,omitempty"`
	Action    pg.Action       `json:"action"`
	Targets   []pg.Target     `json:"targets"`
	Before    json.RawMessage `json:"before,omitempty"` // an object; absent if the change created the item
	After     json.RawMessage `json:"after,omitempty"`  // an object; absent if the change deleted the item
	Actor     *Actor          `json:"actor,omitempty"`  // absent: the installation itself
	IP        netip.Addr      `json:"ip,omitzero"`
	RequestID string          `json:"request_id,omitempty"`

	Traceparent string `json:"traceparent,omitempty"` // the span that made the change; empty: it was not traced
}

// Actor is the owner of the key with which a change was made.
type Actor struct {
	URL  string `json:"url"`
	Name string `json:"name"`
	Key  int64  `json:"key"`
}

// page is a feed's response.
type page struct {
	History string     `json:"history"` // the history that assigned the numbers
	After   string     `json:"after"`   // the id of the change before the page; empty: the change does not exist
	Events  []Event    `json:"events"`
	Last    int64      `json:"last"`           // the page is complete up to this number
	LastID  string     `json:"last_id"`        // the id of that change
	Newest  int64      `json:"newest"`         // the last assigned number
	Forgot  bool       `json:"forgot"`         // changes behind After were deleted because all readers seemed to have read them
	Next    *successor `json:"next,omitempty"` // the history that followed
}

// RequestError is the failure to carry out something that a request to another service led to.
type RequestError struct {
	RequestID string
	error
}

func (e *RequestError) Unwrap() error { return e.error }

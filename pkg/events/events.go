// Package events carries what one service changed to the services that need to know, each change once and in order.
//
// The record that a unit of work commits with its change is the event. A sequencer numbers the records that are
// committed, a feed gives them to the services that are named as its readers, and a consumer applies them in
// transactions that also hold its cursor. So nothing is lost or applied twice, whoever is killed when; Redis only
// says that there is something new. See docs/understand/events.md.
package events

import (
	"embed"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// Migrations are those of what follows the changes.
//
//go:embed migrations/*.sql schema/*/*.sql
var Migrations embed.FS

// Event is a change that another service made.
type Event struct {
	Seq       int64           `json:"seq"` // its number in its service, from 1, without gaps
	ID        string          `json:"id"`  // a random one, as nobody else has it; empty: an older program wrote it
	At        time.Time       `json:"at"`
	Type      string          `json:"type"` // pxe.dhcp.created
	Kind      string          `json:"kind"` // pxe.dhcp
	Part      string          `json:"part,omitempty"`
	Action    pg.Action       `json:"action"`
	Targets   []pg.Target     `json:"targets"`
	Before    json.RawMessage `json:"before,omitempty"` // an object; absent where the item was made just then
	After     json.RawMessage `json:"after,omitempty"`  // an object; absent where it is gone
	Actor     *Actor          `json:"actor,omitempty"`  // absent: the installation itself
	IP        netip.Addr      `json:"ip,omitzero"`
	RequestID string          `json:"request_id,omitempty"`
}

// Actor is whose key made a change.
type Actor struct {
	URL  string `json:"url"`
	Name string `json:"name"`
	Key  int64  `json:"key"`
}

// page is an answer of a feed.
type page struct {
	History string     `json:"history"` // which the numbers are of
	After   string     `json:"after"`   // the id of the change that the page begins behind; empty: it is not there
	Events  []Event    `json:"events"`
	Last    int64      `json:"last"`           // there is nothing else up to this number
	LastID  string     `json:"last_id"`        // the id of the change that has it
	Newest  int64      `json:"newest"`         // the last number that was given
	Forgot  bool       `json:"forgot"`         // what is behind After is not all there any more: it was read by all, or so it seemed
	Next    *successor `json:"next,omitempty"` // what followed the history
}

// RequestError is why something cannot be done here that a request led to elsewhere.
type RequestError struct {
	RequestID string
	error
}

func (e *RequestError) Unwrap() error { return e.error }

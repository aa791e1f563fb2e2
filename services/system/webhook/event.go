package webhook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/catalog"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/services/system/audit"
)

// WebhookEvent is the body of a delivery.
type WebhookEvent struct {
	Type      string      `json:"type" example:"group.edited" doc:"The event's type."`
	Timestamp string      `json:"timestamp" format:"date-time" example:"2026-11-20T10:00:00Z" doc:"When the change was made."`
	Data      WebhookData `json:"data" doc:"The change."`
}

// WebhookData is the change that an event is about.
type WebhookData struct {
	Kind      string          `json:"kind" example:"group" doc:"The kind of the changed item."`
	Part      string          `json:"part,omitempty" example:"permission" doc:"The part of the item that changed. Left out if the change was not limited to a part."`
	Action    string          `json:"action" example:"edited" doc:"What was done: created, edited, deleted or another action."`
	Targets   []audit.Target  `json:"targets" doc:"The changed item, and then other items that the change is about."`
	Before    json.RawMessage `json:"before,omitempty" doc:"The item before the change, as its view shows it. A secret that was set is {\"secret\": true}. Left out if the item was created, or if truncated."`
	After     json.RawMessage `json:"after,omitempty" doc:"The item after the change, in the same form. Left out if the item was deleted, or if truncated."`
	Truncated bool            `json:"truncated,omitempty" doc:"Whether before and after were left out because they are too large, or all but the first hundred targets."`
	User      *EventUser      `json:"user,omitempty" doc:"The owner of the key that made the change. Left out if the installation itself made it."`
	RequestID string          `json:"request_id,omitempty" doc:"The id of the request that caused the change, as in the log."`
}

// EventUser identifies who made a change, by the account's path alone. Receivers may not be allowed to read more.
type EventUser struct {
	URL string `json:"url" example:"/admin/3"`
}

// maxItemBytes limits before and after together, and maxTargets the number of targets. An event then has at most about
// 200 KiB.
const maxItemBytes, maxTargets = 64 << 10, 100

// sharedTopics are the topics of changes that every service can make: to the log, and refused requests.
var sharedTopics = map[string][]permission.Permission{
	"request": {permission.SystemLogs},
	"event":   {permission.SystemLogs},
	"history": {permission.SystemLogs},
}

// forEachTopic calls use with every kind of change, and with the permissions that a webhook's owner needs to read such
// changes. A change belongs to the longest kind that its type begins with. Every owner needs system.integrations as well.
func forEachTopic(use func(kind string, needed []permission.Permission)) {
	for kind, needed := range sharedTopics {
		use(kind, needed)
	}
	for _, s := range catalog.Services {
		for kind, needed := range s.Topics {
			use(kind, needed)
		}
	}
}

// Kinds returns the kinds of changes that events can be about, in order.
func Kinds() (all []string) {
	forEachTopic(func(kind string, _ []permission.Permission) { all = append(all, kind) })
	slices.Sort(all)
	return all
}

// requiredGrants returns the grants that are needed to receive all events that a pattern or type matches. ok is false if
// there are no such events.
func requiredGrants(pattern string) (all principal.Grants, ok bool) {
	kind, wide := strings.CutSuffix(pattern, "*")
	if wide && kind != "" && !strings.HasSuffix(kind, ".") {
		return 0, false
	}
	kind = strings.TrimSuffix(kind, ".")
	topic, topicGrants := "", principal.Grants(0)
	forEachTopic(func(name string, needed []permission.Permission) {
		if (kind == name && wide || strings.HasPrefix(kind, name+".")) && name >= topic {
			topic, topicGrants, ok = name, readGrants(needed), true
		}
		if wide && (kind == "" || strings.HasPrefix(name, kind+".")) {
			all, ok = all|readGrants(needed), true
		}
	})
	return all | topicGrants, ok
}

// NeededToRead returns the grants that are needed to read events of a type. ok is false if no service makes such events.
func NeededToRead(eventType string) (needed principal.Grants, ok bool) {
	needed, ok = requiredGrants(eventType)
	if needed == 0 { // of a kind that every owner of a webhook may read
		needed = principal.Grant(permission.SystemIntegrations, permission.Read)
	}
	return needed, ok
}

// readGrants returns the grants to read with these permissions.
func readGrants(permissions []permission.Permission) (all principal.Grants) {
	for _, p := range permissions {
		all |= principal.Grant(p, permission.Read)
	}
	return all
}

// matches reports whether one of the patterns matches a type.
func matches(patterns []string, eventType string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, wide := strings.CutSuffix(pattern, "*")
		return pattern == eventType || wide && strings.HasPrefix(eventType, prefix)
	})
}

// message is an event with the body to deliver.
type message struct {
	id, kind, item, payload string
	at                      time.Time
	traceparent             string // of the change or the request that is its cause; empty: it was not traced
}

// newMessage returns the event of a change.
func newMessage(source string, e *events.Event) (m message, err error) {
	m = message{id: e.ID, kind: e.Type, at: e.At, traceparent: e.Traceparent, item: fmt.Sprintf("%s:%d", source, e.Seq)}
	if m.id == "" { // an older version wrote the change
		m.id = m.item
	}
	if len(e.Targets) > 0 {
		m.item = fmt.Sprintf("%s/%d", e.Targets[0].Type, e.Targets[0].ID)
	}
	event := WebhookEvent{
		Type:      e.Type,
		Timestamp: e.At.UTC().Format(time.RFC3339Nano),
		Data: WebhookData{
			Kind:      e.Kind,
			Part:      e.Part,
			Action:    string(e.Action),
			Targets:   audit.NewTargets(e.Targets),
			Before:    e.Before,
			After:     e.After,
			RequestID: e.RequestID,
		},
	}
	if e.Actor != nil {
		event.Data.User = &EventUser{e.Actor.URL}
	}
	if len(e.Before)+len(e.After) > maxItemBytes {
		event.Data.Before, event.Data.After, event.Data.Truncated = nil, nil, true
	}
	if len(e.Targets) > maxTargets {
		event.Data.Targets, event.Data.Truncated = event.Data.Targets[:maxTargets], true
	}
	text, err := json.Marshal(event)
	if err != nil {
		return m, fmt.Errorf("encode change %d of %s: %w", e.Seq, source, err)
	}
	m.payload = string(text)
	return m, nil
}

// TestType is the type of test events.
const TestType = "webhook.tested"

// testMessage returns a test event.
func testMessage(id int64, name string, by *principal.Principal, request string) (message, error) {
	e := events.Event{ID: uuid.NewString(), At: time.Now(), Type: TestType, Kind: "webhook", Action: "tested", RequestID: request,
		Targets: []pg.Target{{Type: "webhook", Noun: "webhook", ID: id, Name: name}}}
	if by != nil {
		e.Actor = &events.Actor{URL: by.Owner.URL()}
	}
	m, err := newMessage("test", &e)
	m.item = "test " + m.id // its own item, so that it waits for no other event
	return m, err
}

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

// WebhookEvent is what a webhook is sent.
type WebhookEvent struct {
	Type      string      `json:"type" example:"group.edited" doc:"what happened"`
	Timestamp string      `json:"timestamp" format:"date-time" example:"2026-11-20T10:00:00Z" doc:"when"`
	Data      WebhookData `json:"data"`
}

// WebhookData is what an event is about.
type WebhookData struct {
	Kind      string          `json:"kind" example:"group" doc:"of the item that changed"`
	Part      string          `json:"part,omitempty" example:"permission" doc:"which part of it, where not all of it did"`
	Action    string          `json:"action" example:"edited" doc:"what was done to it: created, edited, deleted or another word"`
	Targets   []audit.Target  `json:"targets" doc:"the item, and then what else the change is about"`
	Before    json.RawMessage `json:"before,omitempty" doc:"the item as it was, as its view shows it, with {\"secret\": true} in place of a secret that was set; left out where it was made just then, or where truncated"`
	After     json.RawMessage `json:"after,omitempty" doc:"the item as it is now, likewise; left out where it is gone, or where truncated"`
	Truncated bool            `json:"truncated,omitempty" doc:"before and after are left out as they are too large, or all but the first hundred targets"`
	User      *EventUser      `json:"user,omitempty" doc:"whose key it was; left out where the installation itself did it"`
	RequestID string          `json:"request_id,omitempty" doc:"of the request that led to it, as in the log"`
}

// EventUser is who did it: no more of him than his path.
type EventUser struct {
	URL string `json:"url" example:"/admin/3"`
}

// maxItemBytes is how many bytes an item has as it was and as it is, together, and maxTargets how many targets are named: so an event
// has some 200 KiB at most.
const maxItemBytes, maxTargets = 64 << 10, 100

// sharedTopics are the topics of changes that every service can make: about the log, and about who was refused.
var sharedTopics = map[string][]permission.Permission{
	"request": {permission.SystemLogs},
	"event":   {permission.SystemLogs},
	"history": {permission.SystemLogs},
}

// forEachTopic calls use with the kinds of what changes, and with what the maker of a webhook has to hold read on to be told of them.
// Each change counts for the longest kind that its type begins with. Who makes a webhook holds system.integrations.
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

// actions are what the last word of a type can be.
var actions = []string{
	"allocated",
	"asked",
	"began",
	"booted",
	"cancelled",
	"confirmed",
	"created",
	"cut",
	"deleted",
	"edited",
	"emailed",
	"ended",
	"failed",
	"given",
	"installed",
	"issued",
	"queued",
	"refreshed",
	"refused",
	"released",
	"removed",
	"renewed",
	"replayed",
	"restored",
	"retried",
	"sent",
	"skipped",
	"synced",
	"tested",
	"used",
	"verified",
}

// Kinds are those that there can be events of, in order.
func Kinds() (all []string) {
	forEachTopic(func(kind string, _ []permission.Permission) { all = append(all, kind) })
	slices.Sort(all)
	return all
}

// requiredGrants is what one has to hold who is told of events of a type, or of all that a pattern means. ok is false where nobody
// knows such events.
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

// readGrants is the grant to read what these permissions guard.
func readGrants(permissions []permission.Permission) (all principal.Grants) {
	for _, p := range permissions {
		all |= principal.Grant(p, permission.Read)
	}
	return all
}

// matches tells whether patterns mean events of a type.
func matches(patterns []string, eventType string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, wide := strings.CutSuffix(pattern, "*")
		return pattern == eventType || wide && strings.HasPrefix(eventType, prefix)
	})
}

// message is an event as it is delivered.
type message struct {
	id, kind, item, payload string
	at                      time.Time
}

// newMessage makes what is delivered of a change.
func newMessage(source string, e *events.Event) (m message, err error) {
	m = message{id: e.ID, kind: e.Type, at: e.At, item: fmt.Sprintf("%s:%d", source, e.Seq)}
	if m.id == "" { // an older program wrote it
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

// TestType is the type of the event by which a webhook is tried out.
const TestType = "webhook.tested"

// testMessage is such an event.
func testMessage(id int64, name string, by *principal.Principal, request string) (message, error) {
	e := events.Event{ID: uuid.NewString(), At: time.Now(), Type: TestType, Kind: "webhook", Action: "tested", RequestID: request,
		Targets: []pg.Target{{Type: "webhook", Noun: "webhook", ID: id, Name: name}}}
	if by != nil {
		e.Actor = &events.Actor{URL: by.Owner.URL()}
	}
	m, err := newMessage("test", &e)
	m.item = "test " + m.id // waits for nothing
	return m, err
}

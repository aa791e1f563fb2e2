package pg

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/pkg/schema"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Record is what a unit of work did to one item. The audit log and other services receive it.
type Record struct {
	Kind    string // the kind of the item, with dots: pxe.dhcp
	Part    string // the part of the item that changed, such as permission; empty: the item itself
	Action  Action
	Targets []Target // the item, then other items that the change is about
	// Before and After are the item as a JSON object without secrets: see secret.Marked. Members with the tag
	// recorded:"false" change without a record. They are left out, so that successive records of an item never contradict
	// each other.
	Before any // nil for a new item
	After  any // nil for a deleted item
}

// Action is the verb of a record. Services add their own, such as allocated.
type Action string

// The actions of every kind.
const (
	Created Action = "created"
	Edited  Action = "edited"
	Deleted Action = "deleted"
)

// Target is an item that a change is about.
type Target struct {
	Type string `json:"type"`           // the collection's path without the first slash, such as port-speed
	Noun string `json:"noun,omitempty"` // the item's name within a sentence: port speed
	ID   int64  `json:"id"`
	Name string `json:"name"`
	// Version is the row's version after the change, or 0 if no reader needs it.
	Version int64 `json:"version,omitempty"`
}

// eventType returns the event's name for programs, such as pxe.dhcp.edited or admin.permission.edited.
func (r *Record) eventType() string {
	if r.Part != "" {
		return r.Kind + "." + r.Part + "." + string(r.Action)
	}
	return r.Kind + "." + string(r.Action)
}

// Record adds records of the unit of work's changes, one for each item. They commit together with the changes.
func (tx *Tx) Record(records ...Record) { tx.records = append(tx.records, records...) }

// Unrecorded states why this unit of work may commit without a record.
func (tx *Tx) Unrecorded(reason string) { tx.unrecorded = reason }

// recordColumns holds records by column, so that one statement inserts them all.
type recordColumns struct {
	types, kinds, parts, actions, targets []string
	before, after                         []*string
}

func (c *recordColumns) add(r *Record) error {
	before, err := encodeItem(r.Before)
	if err != nil {
		return err
	}
	after, err := encodeItem(r.After)
	if err != nil {
		return err
	}
	targets, err := json.Marshal(append([]Target{}, r.Targets...))
	if err != nil {
		return fmt.Errorf("encode targets: %w", err)
	}
	c.types, c.kinds, c.parts, c.actions = append(
		c.types,
		r.eventType(),
	), append(
		c.kinds,
		r.Kind,
	), append(
		c.parts,
		r.Part,
	), append(
		c.actions,
		string(r.Action),
	)
	c.targets, c.before, c.after = append(c.targets, string(targets)), append(c.before, before), append(c.after, after)
	return nil
}

// recordStatement returns the statement that inserts the records. It fails if there are none and no reason was stated.
func (tx *Tx) recordStatement(ctx context.Context) (*command, error) {
	if len(tx.records) == 0 {
		if tx.unrecorded == "" {
			return nil, errors.New("the unit of work has neither a record nor a reason for having none")
		}
		return nil, nil
	}
	var c recordColumns
	for i := range tx.records {
		if err := c.add(&tx.records[i]); err != nil {
			return nil, err
		}
	}
	call := principal.FromContext(ctx)
	var actor struct {
		url, name *string
		key       *int64
		ip        *netip.Addr
	}
	if p := call.Principal; p != nil {
		url := p.Owner.URL()
		actor.url, actor.name, actor.key = &url, &p.Name, &p.KeyID
	}
	if call.IP.IsValid() {
		actor.ip = &call.IP
	}
	return &command{`
		INSERT INTO change (type, kind, part, action, targets, before, after, actor_url, actor_name, actor_key, ip, request_id, traceparent)
		SELECT type, kind, nullif(part, ''), action, targets::jsonb, before::jsonb, after::jsonb,
			@actor_url, @actor_name, @actor_key, @ip, nullif(@request_id, ''), nullif(@traceparent, '')
		FROM unnest(@types::text[], @kinds::text[], @parts::text[], @actions::text[], @targets::text[], @before::text[], @after::text[])
			WITH ORDINALITY AS record (type, kind, part, action, targets, before, after, n) ORDER BY n`,
		[]any{pgx.StrictNamedArgs{
			"types": c.types, "kinds": c.kinds, "parts": c.parts, "actions": c.actions,
			"targets": c.targets, "before": c.before, "after": c.after,
			"actor_url": actor.url, "actor_name": actor.name, "actor_key": actor.key, "ip": actor.ip, "request_id": call.RequestID,
			"traceparent": tracing.Traceparent(ctx),
		}},
	}, nil
}

// encodeItem returns an item as JSON without its unrecorded members, or nil for nil.
func encodeItem(v any) (*string, error) {
	if v == nil {
		return nil, nil
	}
	text, err := json.Marshal(v)
	if err == nil {
		text, err = dropUnrecorded(text, reflect.TypeOf(secret.Unmarked(v)))
	}
	if err != nil {
		return nil, fmt.Errorf("encode the recorded item: %w", err)
	}
	document := string(text)
	return &document, nil
}

// dropUnrecorded removes the members with the tag recorded:"false" from the JSON of a value of type t.
func dropUnrecorded(text []byte, t reflect.Type) ([]byte, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return text, nil
	}
	return dropMembers(text, schema.Describe(t).Members)
}

// dropMembers removes the unrecorded members from a JSON object and the objects within it.
func dropMembers(text []byte, members []*schema.Member) ([]byte, error) {
	if !slices.ContainsFunc(members, hasUnrecorded) || bytes.Equal(text, []byte("null")) {
		return text, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	for _, m := range members {
		if m.Unrecorded {
			delete(object, m.JSON)
		} else if inner, exists := object[m.JSON]; exists && m.Inner != nil {
			kept, err := dropMembers(inner, m.Inner.Members)
			if err != nil {
				return nil, err
			}
			object[m.JSON] = kept
		}
	}
	return json.Marshal(object)
}

func hasUnrecorded(m *schema.Member) bool {
	return m.Unrecorded || m.Inner != nil && slices.ContainsFunc(m.Inner.Members, hasUnrecorded)
}

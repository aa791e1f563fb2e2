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
	"github.com/ironplane/ironplane/pkg/schema"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Record is what a unit of work did to an item, as the log and the other services will hear of it.
type Record struct {
	Kind    string // of the item, with dots: pxe.dhcp
	Part    string // of the item that was changed, where that is not all of it: permission
	Action  Action
	Targets []Target // the item, and what else the change is about
	// Before and After are the item as an object, which shows no secrets: see secret.Marked. Members that change without a
	// record, which have the tag recorded:"false", are left out, or an item's records would contradict each other.
	Before any // nil where it was made just now
	After  any // nil where it is gone
}

// Action is what was done. Services have others, too: allocated.
type Action string

// The actions that every kind has.
const (
	Created Action = "created"
	Edited  Action = "edited"
	Deleted Action = "deleted"
)

// Target is a thing that a change is about.
type Target struct {
	Type string `json:"type"`           // its collection's path without the first slash, such as port-speed
	Noun string `json:"noun,omitempty"` // what one is called, in the middle of a sentence: port speed
	ID   int64  `json:"id"`
	Name string `json:"name"`
	// Version is that of the row once it was changed, 0 where nobody needs it.
	Version int64 `json:"version,omitempty"`
}

// eventType is what happened in one word, for programs: pxe.dhcp.edited, admin.permission.edited
func (r *Record) eventType() string {
	if r.Part != "" {
		return r.Kind + "." + r.Part + "." + string(r.Action)
	}
	return r.Kind + "." + string(r.Action)
}

// Record notes what the unit of work changes, one record an item. They commit with the change.
func (tx *Tx) Record(records ...Record) { tx.records = append(tx.records, records...) }

// Unrecorded says why this unit of work has nothing to record, unless something in it has.
func (tx *Tx) Unrecorded(reason string) { tx.unrecorded = reason }

// recordColumns are records as they are written, all at once.
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

func (tx *Tx) writeRecords(ctx context.Context) error {
	if len(tx.records) == 0 {
		if tx.unrecorded == "" {
			return errors.New("a unit of work recorded nothing and gave no reason")
		}
		return nil
	}
	var c recordColumns
	for i := range tx.records {
		if err := c.add(&tx.records[i]); err != nil {
			return err
		}
	}
	call := principal.From(ctx)
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
	_, err := tx.Exec(ctx, `
		INSERT INTO change (type, kind, part, action, targets, before, after, actor_url, actor_name, actor_key, ip, request_id)
		SELECT type, kind, nullif(part, ''), action, targets::jsonb, before::jsonb, after::jsonb,
			@actor_url, @actor_name, @actor_key, @ip, nullif(@request_id, '')
		FROM unnest(@types::text[], @kinds::text[], @parts::text[], @actions::text[], @targets::text[], @before::text[], @after::text[])
			WITH ORDINALITY AS record (type, kind, part, action, targets, before, after, n) ORDER BY n`,
		pgx.StrictNamedArgs{
			"types": c.types, "kinds": c.kinds, "parts": c.parts, "actions": c.actions,
			"targets": c.targets, "before": c.before, "after": c.after,
			"actor_url": actor.url, "actor_name": actor.name, "actor_key": actor.key, "ip": actor.ip, "request_id": call.RequestID,
		})
	if err != nil {
		return fmt.Errorf("record %s: %w", c.types[0], err)
	}
	return nil
}

// encodeItem is an item as a record has it: without the members that change without a record.
func encodeItem(v any) (*string, error) {
	if v == nil {
		return nil, nil
	}
	text, err := json.Marshal(v)
	if err == nil {
		text, err = dropUnrecorded(text, reflect.TypeOf(secret.Unmarked(v)))
	}
	if err != nil {
		return nil, fmt.Errorf("encode a change: %w", err)
	}
	document := string(text)
	return &document, nil
}

// dropUnrecorded is the JSON of a value of this type without the members with the tag recorded:"false".
func dropUnrecorded(text []byte, t reflect.Type) ([]byte, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return text, nil
	}
	return dropMembers(text, schema.Describe(t).Members)
}

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

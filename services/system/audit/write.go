package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
)

// Write appends the changes of a service. They must follow the service's last logged change without a gap.
func (l *Log) Write(ctx context.Context, tx *pg.Tx, source string, batch []events.Event) error {
	h, err := l.lockHead(ctx, tx)
	if err != nil {
		return err
	}
	w := writer{signer: l.signer(), head: &h}
	for i := range batch {
		if logged := h.seqs[source]; batch[i].Seq != logged+1 {
			return fmt.Errorf(
				"got change %d of %s, but the log ends at its change %d: if its seq in the table consumer was moved, set it to %d",
				batch[i].Seq,
				source,
				logged,
				logged,
			)
		}
		if err := w.append(source, &batch[i]); err != nil {
			return fmt.Errorf("log change %d of %s: %w", batch[i].Seq, source, err)
		}
	}
	return w.flush(ctx, tx)
}

// Written is the topic by which the service wakes itself when the log has new items.
const Written = "log"

// writer appends items after the head.
type writer struct {
	signer *seal.Signer
	head   *head
	items  itemColumns
}

// append adds the item of a change, and moves the head.
func (w *writer) append(source string, e *events.Event) error {
	added, err := newItem(source, e)
	if err != nil {
		return err
	}
	w.head.id++
	added.id = w.head.id
	added.mac = w.signer.Sign(added.message(w.head.mac))
	w.head.mac = added.mac
	w.head.seqs[source] = max(w.head.seqs[source], e.Seq)
	w.items.add(added, e.Targets)
	return nil
}

// flush writes the items and the head to the database.
func (w *writer) flush(ctx context.Context, tx *pg.Tx) error {
	if err := w.items.insert(ctx, tx); err != nil {
		return err
	}
	tx.Wake(Written)
	return w.head.store(ctx, tx, w.signer)
}

// newItem returns the item for a change, without id and mac.
func newItem(source string, e *events.Event) (*item, error) {
	changed, err := diff(e.Before, e.After)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(changed)
	if err != nil {
		return nil, fmt.Errorf("encode the changes: %w", err)
	}
	targets, err := json.Marshal(append([]pg.Target{}, e.Targets...))
	if err != nil {
		return nil, fmt.Errorf("encode the targets: %w", err)
	}
	created := &item{at: e.At.Truncate(time.Microsecond), source: source, seq: e.Seq, kind: e.Type,
		description: Describe(e, changed), targets: string(targets), changes: string(text)}
	if e.Actor != nil {
		created.userURL, created.userName, created.userKey = &e.Actor.URL, &e.Actor.Name, &e.Actor.Key
	}
	if e.IP.IsValid() {
		ip := e.IP.String()
		created.ip = &ip
	}
	if e.RequestID != "" {
		created.requestID = &e.RequestID
	}
	return created, nil
}

// itemColumns holds items by column, so that one statement inserts all of them.
type itemColumns struct {
	ids, seqs              []int64
	ats                    []time.Time
	sources, kinds         []string
	descriptions           []string
	userURLs               []*string
	userNames              []*string
	userKeys               []*int64
	ips, requestIDs        []*string
	targets, changes       []string
	macs                   [][]byte
	targetTypes            []string
	targetIDs, targetItems []int64
	targetAts              []time.Time
	targetUsers            []*string
}

// add appends an item and its targets to the columns.
func (c *itemColumns) add(i *item, targets []pg.Target) {
	c.ids, c.seqs, c.ats = append(c.ids, i.id), append(c.seqs, i.seq), append(c.ats, i.at)
	c.sources, c.kinds, c.descriptions = append(c.sources, i.source), append(c.kinds, i.kind), append(c.descriptions, i.description)
	c.userURLs, c.userNames, c.userKeys = append(c.userURLs, i.userURL), append(c.userNames, i.userName), append(c.userKeys, i.userKey)
	c.ips, c.requestIDs = append(c.ips, i.ip), append(c.requestIDs, i.requestID)
	c.targets, c.changes, c.macs = append(c.targets, i.targets), append(c.changes, i.changes), append(c.macs, i.mac)
	for _, t := range targets {
		c.targetTypes, c.targetIDs = append(c.targetTypes, t.Type), append(c.targetIDs, t.ID)
		c.targetItems, c.targetAts, c.targetUsers = append(c.targetItems, i.id), append(c.targetAts, i.at), append(c.targetUsers, i.userURL)
	}
}

// insert writes all items and targets with one statement each.
func (c *itemColumns) insert(ctx context.Context, tx *pg.Tx) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO log (id, at, source, seq, type, description, user_url, user_name, user_key, ip, request_id, targets, changes, mac)
		SELECT id, at, source, seq, type, description, user_url, user_name, user_key, ip, request_id, targets::json, changes::json, mac
		FROM unnest(@ids::bigint[], @ats::timestamptz[], @sources::text[], @seqs::bigint[], @types::text[], @descriptions::text[],
			@user_urls::text[], @user_names::text[], @user_keys::bigint[], @ips::text[], @request_ids::text[],
			@targets::text[], @changes::text[], @macs::bytea[])
			AS row (id, at, source, seq, type, description, user_url, user_name, user_key, ip, request_id, targets, changes, mac)`,
		pgx.StrictNamedArgs{
			"ids": c.ids, "ats": c.ats, "sources": c.sources, "seqs": c.seqs, "types": c.kinds, "descriptions": c.descriptions,
			"user_urls": c.userURLs, "user_names": c.userNames, "user_keys": c.userKeys, "ips": c.ips, "request_ids": c.requestIDs,
			"targets": c.targets, "changes": c.changes, "macs": c.macs,
		})
	if err != nil {
		return fmt.Errorf("append to the log: %w", err)
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO log_target (type, target_id, at, log_id, user_url)
		SELECT * FROM unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::bigint[], $5::text[]) ON CONFLICT DO NOTHING`,
		c.targetTypes, c.targetIDs, c.targetAts, c.targetItems, c.targetUsers)
	if err != nil {
		return fmt.Errorf("insert the targets of log items: %w", err)
	}
	return nil
}

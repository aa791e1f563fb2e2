package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/pg"
)

// errHead says that the log must not be written to.
var errHead = errors.New("the head of the log is not what was written there")

// Write appends what a service changed.
func (l *Log) Write(ctx context.Context, tx *pg.Tx, source string, batch []events.Event) error {
	head, err := readEnd(ctx, tx, "FOR UPDATE")
	if err != nil {
		return err
	}
	if err := l.checkEnd(&head); err != nil {
		return err
	}
	signer, items := l.signer(), columns{}
	for i := range batch {
		added, err := newItem(source, &batch[i])
		if err != nil {
			return fmt.Errorf("log change %d of %s: %w", batch[i].Seq, source, err)
		}
		head.id++
		added.id = head.id
		added.mac = signer.Sign(added.message(head.mac))
		head.mac = added.mac
		items.add(added, batch[i].Targets)
	}
	if err := items.insert(ctx, tx); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE log_head SET id = $1, mac = $2, signature = $3", head.id, head.mac, signer.Sign(head.message()))
	if err != nil {
		return fmt.Errorf("move the log's head: %w", err)
	}
	return nil
}

// checkEnd refuses a head that is not of this log's making.
func (l *Log) checkEnd(head *end) error {
	if head.id == 0 && len(head.mac) == 0 && len(head.signature) == 0 {
		return nil
	}
	if _, ok, err := l.signer().Check(head.message(), head.signature); err != nil {
		return fmt.Errorf("%w: %w", errHead, err)
	} else if !ok {
		return errHead
	}
	return nil
}

// newItem is an item without its place.
func newItem(source string, e *events.Event) (*item, error) {
	changed, err := changesOf(e.Before, e.After)
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
	made := &item{at: e.At.Truncate(time.Microsecond), source: source, seq: e.Seq, kind: e.Type,
		description: Describe(e.Type, e.Targets, changed), targets: string(targets), changes: string(text)}
	if e.Actor != nil {
		made.userURL, made.userName, made.userKey = &e.Actor.URL, &e.Actor.Name, &e.Actor.Key
	}
	if e.IP.IsValid() {
		ip := e.IP.String()
		made.ip = &ip
	}
	if e.RequestID != "" {
		made.requestID = &e.RequestID
	}
	return made, nil
}

// columns are items as they are written, all at once.
type columns struct {
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

func (c *columns) add(i *item, targets []pg.Target) {
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

func (c *columns) insert(ctx context.Context, tx *pg.Tx) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO log (id, at, source, seq, type, description, user_url, user_name, user_key, ip, request_id, targets, changes, mac)
		SELECT id, at, source, seq, type, description, user_url, user_name, user_key, ip, request_id, targets::json, changes::json, mac
		FROM unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[],
			$10::text[], $11::text[], $12::text[], $13::text[], $14::bytea[])
			AS row (id, at, source, seq, type, description, user_url, user_name, user_key, ip, request_id, targets, changes, mac)`,
		c.ids, c.ats, c.sources, c.seqs, c.kinds, c.descriptions, c.userURLs, c.userNames, c.userKeys,
		c.ips, c.requestIDs, c.targets, c.changes, c.macs)
	if err != nil {
		return fmt.Errorf("append to the log: %w", err)
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO log_target (type, target_id, at, log_id, user_url)
		SELECT * FROM unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::bigint[], $5::text[]) ON CONFLICT DO NOTHING`,
		c.targetTypes, c.targetIDs, c.targetAts, c.targetItems, c.targetUsers)
	if err != nil {
		return fmt.Errorf("note the targets of what is logged: %w", err)
	}
	return nil
}

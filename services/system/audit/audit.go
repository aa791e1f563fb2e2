// Package audit is the log that cannot be altered unnoticed: who changed what, chained by a keyed hash.
//
// One writer at a time appends, under the lock of the head's row. An item's mac signs the item and the mac of the one
// before it, so an item that is altered, removed or put in between breaks the chain there. The head is signed, so none
// is cut off at the end; and where the log is cut at its beginning, because it is old, a signed checkpoint takes its
// place. What the signatures cannot tell is a log that was rolled back, as a whole, to what it was before: for that an
// anchor is kept elsewhere, and Verify compares it.
package audit

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Log is the log of a schema.
type Log struct{ box *secret.Box }

// New makes the log that is signed with the service's box.
func New(box *secret.Box) *Log { return &Log{box} }

func (l *Log) signer() *secret.Signer { return l.box.Signer("audit log") }

// item is a row of the log.
type item struct {
	id                int64
	at                time.Time
	source            string
	seq               int64
	kind              string
	description       string
	userURL, userName *string
	userKey           *int64
	ip, requestID     *string
	targets, changes  string
	mac               []byte
}

// message is what the item's mac signs: each part with its length before it, so that no two items say the same.
func (i *item) message(before []byte) []byte {
	m := message("item")
	m.bytes(before)
	m.number(i.id)
	m.number(i.at.UnixMicro())
	m.text(i.source)
	m.number(i.seq)
	m.text(i.kind)
	m.text(i.description)
	m.optional(i.userURL)
	m.optional(i.userName)
	if i.userKey == nil {
		m.optional(nil)
	} else {
		m.number(*i.userKey)
	}
	m.optional(i.ip)
	m.optional(i.requestID)
	m.text(i.targets)
	m.text(i.changes)
	return m
}

type buffer []byte

func message(kind string) buffer {
	var m buffer
	m.text(kind)
	return m
}

func (m *buffer) length(n uint64) { *m = binary.BigEndian.AppendUint64(*m, n) }

func (m *buffer) bytes(value []byte) {
	m.length(uint64(len(value)))
	*m = append(*m, value...)
}

func (m *buffer) text(value string) { m.bytes([]byte(value)) }

func (m *buffer) number(value int64) {
	m.length(8)
	*m = binary.BigEndian.AppendUint64(*m, uint64(value))
}

// optional writes, of what is not there, a length that nothing has.
func (m *buffer) optional(value *string) {
	if value == nil {
		m.length(1 << 63)
		return
	}
	m.text(*value)
}

// end is where the log ends: the last item and its mac. Of a log without items it is the zero end.
type end struct {
	id        int64
	mac       []byte
	signature []byte
}

func (e *end) message() []byte {
	m := message("head")
	m.number(e.id)
	m.bytes(e.mac)
	return m
}

// readEnd reads the head, and keeps others off it where lock says so.
func readEnd(ctx context.Context, tx *pg.Tx, lock string) (e end, err error) {
	err = tx.QueryRow(ctx, "SELECT id, mac, signature FROM log_head "+lock).Scan(&e.id, &e.mac, &e.signature)
	if err != nil {
		return e, fmt.Errorf("read the log's head: %w", err)
	}
	return e, nil
}

// checkpoint is up to where the log has been cut.
type checkpoint struct {
	id        int64
	mac       []byte
	at        time.Time
	signature []byte
}

func (c *checkpoint) message() []byte {
	m := message("checkpoint")
	m.number(c.id)
	m.bytes(c.mac)
	m.number(c.at.UnixMicro())
	return m
}

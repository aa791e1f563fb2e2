// Package audit keeps the log of who changed what, and detects when the log was altered.
//
// Writers append one at a time, under a lock on the head's row. Each item has a mac, a signature over the item and the
// previous item's mac. Altering, removing or inserting an item therefore breaks the chain at that item. The head is
// signed, so items cannot be removed at the end. When old items are cut at the beginning, a signed checkpoint replaces
// them. Head and checkpoints hold the number of each service's last change, so no change can be left out.
//
// Signatures cannot detect a log that was rolled back as a whole. For that, an operator stores an anchor elsewhere, and
// Verify compares the log with it. See docs/understand/audit-log.md.
package audit

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/ironplane/ironplane/pkg/seal"
)

// Log is the audit log in a service's schema.
type Log struct{ box *seal.Box }

// New returns a log that signs with keys from the service's box.
func New(box *seal.Box) *Log { return &Log{box} }

func (l *Log) signer() *seal.Signer { return l.box.Signer("audit log") }

// item is a row of the table log.
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

// message returns the bytes that the item's mac signs. Each part follows its length, so two different items never
// have the same message. before is the previous item's mac.
func (i *item) message(before []byte) []byte {
	m := newBuffer("item")
	m.putBytes(before)
	m.putNumber(i.id)
	m.putNumber(i.at.UnixMicro())
	m.putText(i.source)
	m.putNumber(i.seq)
	m.putText(i.kind)
	m.putText(i.description)
	m.putOptional(i.userURL)
	m.putOptional(i.userName)
	if i.userKey == nil {
		m.putOptional(nil)
	} else {
		m.putNumber(*i.userKey)
	}
	m.putOptional(i.ip)
	m.putOptional(i.requestID)
	m.putText(i.targets)
	m.putText(i.changes)
	return m
}

// buffer is a message to be signed. It begins with its kind, so a signature of one kind is not valid for another.
type buffer []byte

// newBuffer returns a buffer for a message of this kind.
func newBuffer(kind string) buffer {
	var m buffer
	m.putText(kind)
	return m
}

func (m *buffer) putLength(n uint64) { *m = binary.BigEndian.AppendUint64(*m, n) }

func (m *buffer) putBytes(value []byte) {
	m.putLength(uint64(len(value)))
	*m = append(*m, value...)
}

func (m *buffer) putText(value string) { m.putBytes([]byte(value)) }

func (m *buffer) putNumber(value int64) {
	m.putLength(8)
	*m = binary.BigEndian.AppendUint64(*m, uint64(value))
}

// putOptional appends a text. For nil it appends a length that no text can have.
func (m *buffer) putOptional(value *string) {
	if value == nil {
		m.putLength(1 << 63)
		return
	}
	m.putText(*value)
}

func (m *buffer) putNumbers(values map[string]int64) {
	m.putLength(uint64(len(values)))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		m.putText(name)
		m.putNumber(values[name])
	}
}

// Package audit is the log that cannot be altered unnoticed: who changed what, chained by a keyed hash.
//
// One writer at a time appends, under the lock of the head's row. An item's mac signs the item and the mac of the one
// before it, so an item that is altered, removed or put in between breaks the chain there. The head is signed, so none
// is cut off at the end; and where the log is cut at its beginning, because it is old, a signed checkpoint takes its
// place. Head and checkpoints say the number of each service's last change, so none is left out. What the signatures
// cannot tell is a log that was rolled back, as a whole, to what it was before: for that an anchor is kept elsewhere, and
// Verify compares it. See docs/understand/audit-log.md.
package audit

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/ironplane/ironplane/pkg/seal"
)

// Log is the log of a schema.
type Log struct{ box *seal.Box }

// New makes the log that is signed with the service's box.
func New(box *seal.Box) *Log { return &Log{box} }

func (l *Log) signer() *seal.Signer { return l.box.Signer("audit log") }

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

// buffer is a message that is signed. It begins with its kind, so that no signature is good for another kind.
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

func (m *buffer) numbers(values map[string]int64) {
	m.length(uint64(len(values)))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		m.text(name)
		m.number(values[name])
	}
}

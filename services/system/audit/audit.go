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

// newBuffer is what the item's mac signs: each part with its length before it, so that no two items say the same.
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

// buffer is a message that is signed. It begins with its kind, so that no signature is good for another kind.
type buffer []byte

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

// putOptional writes, of what is not there, a length that nothing has.
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

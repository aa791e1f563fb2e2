package keycache

import (
	"encoding/binary"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// format is the version of what is signed. An entry of another version counts as none.
	format = 2
	// maxSkew is by how much Redis' clock and ours may differ. It bounds what somebody who answers in Redis' place gains by
	// telling another time.
	maxSkew = time.Minute
)

// Signed is what the signature of an entry is of: the history that the service was in which filled it, and when its
// filling began, by Redis' clock, in ms. No two entries have it in common: all but the last part are of a length that is
// known.
func Signed(name, history string, at int64, body []byte) []byte {
	message := make([]byte, 0, 1+4+len(name)+4+len(history)+8+len(body))
	message = append(message, format)
	for _, part := range []string{name, history} {
		message = binary.BigEndian.AppendUint32(message, uint32(len(part)))
		message = append(message, part...)
	}
	message = binary.BigEndian.AppendUint64(message, uint64(at))
	return append(message, body...)
}

// isSigned tells whether the entry was signed by who fills entries.
func (s *Store) isSigned(name, history string, at int64, body, signature []byte) bool {
	_, ok, err := s.signer.Check(Signed(name, history, at, body), signature)
	if err != nil || !ok {
		s.unsigned.report()
		return false
	}
	return true
}

// checkClock tells whether Redis' clock shows the time.
func (s *Store) checkClock(clock time.Time) bool {
	if time.Since(clock).Abs() > maxSkew {
		s.skewed.report()
		return false
	}
	return true
}

// distrust counts what was not believed for one reason, and says it once, until it has not happened for a while.
type distrust struct {
	count   atomic.Uint64
	last    atomic.Int64 // Unix time in ns
	log     *slog.Logger
	warning string
}

func (d *distrust) metric(reason string) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "ironplane_keycache_distrusted_total", ConstLabels: prometheus.Labels{"reason": reason},
		Help: "Entries in Redis that counted as none: they were not signed by who fills entries, or Redis' clock is not ours.",
	}, func() float64 { return float64(d.count.Load()) })
}

// quietInterval is for how long it does not happen any more when it is said again.
const quietInterval = time.Minute

func (d *distrust) report() {
	d.count.Add(1)
	now := time.Now().UnixNano()
	if last := d.last.Swap(now); now-last > int64(quietInterval) {
		d.log.Warn(d.warning)
	}
}

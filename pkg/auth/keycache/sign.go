package keycache

import (
	"encoding/binary"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// format is the version of the signed message. Entries of another version are not trusted.
	format = 2
	// maxSkew bounds the difference between the clock of Redis and this machine's. It limits what an attacker gains who
	// answers in place of Redis with a wrong time.
	maxSkew = time.Minute
)

// Signed returns the message that an entry's signature covers: format, name, history, the time at which the fill began
// (by the clock of Redis, in ms), and body. Names and histories are preceded by their length, so no two entries have the
// same message.
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

// isSigned tells whether a service that fills entries signed this one.
func (s *Store) isSigned(name, history string, at int64, body, signature []byte) bool {
	_, ok, err := s.signer.Check(Signed(name, history, at, body), signature)
	if err != nil || !ok {
		s.unsigned.report()
		return false
	}
	return true
}

// checkClock tells whether the clock of Redis agrees with this machine's.
func (s *Store) checkClock(clock time.Time) bool {
	if time.Since(clock).Abs() > maxSkew {
		s.skewed.report()
		return false
	}
	return true
}

// distrust counts entries that were not trusted for one reason. It logs a warning when it happens for the first time
// after a while.
type distrust struct {
	count   atomic.Uint64
	last    atomic.Int64 // Unix time in ns
	log     *slog.Logger
	warning string
}

func (d *distrust) metric(reason string) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "ironplane_keycache_distrusted_total", ConstLabels: prometheus.Labels{"reason": reason},
		Help: "Entries in Redis that were ignored because their signature is invalid, or because the clock of Redis is wrong.",
	}, func() float64 { return float64(d.count.Load()) })
}

// quietInterval is how long it must not have happened for the next warning.
const quietInterval = time.Minute

// report counts an entry, and logs a warning unless the last one was reported within quietInterval.
func (d *distrust) report() {
	d.count.Add(1)
	now := time.Now().UnixNano()
	if last := d.last.Swap(now); now-last > int64(quietInterval) {
		d.log.Warn(d.warning)
	}
}

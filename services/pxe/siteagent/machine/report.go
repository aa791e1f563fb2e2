package machine

import (
	"reflect"
	"time"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// rateLimit bounds reports, so that one machine cannot push the others' reports out of the feed.
type rateLimit struct {
	used float64
	at   time.Time
}

// allow reports whether one more report may be sent: limit at once, and then one a second.
func (l *rateLimit) allow(limit float64) bool {
	now := time.Now()
	l.used = max(l.used-now.Sub(l.at).Seconds(), 0)
	l.at = now
	if l.used+1 > limit {
		return false
	}
	l.used++
	return true
}

// sentReport is a report with the time when it was sent.
type sentReport struct {
	siteagent.Report
	at time.Time
}

// report reports what a machine did. It drops the same report within repeatInterval, and refusals within reportInterval. Progress
// that comes too soon waits until then, or for the machine's next report.
func (m *Machines) report(mach *machine, r siteagent.Report) error {
	r.ID, r.Revision = mach.ID, mach.Revision
	if r.MAC == "" {
		r.MAC = mach.MACs[0]
	}
	previous := mach.lastSent[r.Event]
	elapsed := time.Since(previous.at)
	switch {
	case r.Event == siteagent.EventRefused && elapsed < reportInterval,
		elapsed < repeatInterval && mach.pending == nil && reflect.DeepEqual(r, previous.Report):
		return nil
	case r.Event == siteagent.EventProgress && elapsed < reportInterval:
		mach.pending = &r
		return nil
	}
	if rate, limit := m.limitFor(mach); !rate.allow(limit) {
		return nil
	}
	if err := m.flush(mach); err != nil {
		return err
	}
	return m.sendReport(mach, r)
}

// limitFor returns the rate limit for a machine's reports, and how many may be sent at once.
func (m *Machines) limitFor(mach *machine) (*rateLimit, float64) {
	if mach.ID == 0 {
		return &m.discoverLimit, maxDiscovered
	}
	return &mach.limit, maxReports
}

// flush sends the pending report of progress.
func (m *Machines) flush(mach *machine) error {
	r := mach.pending
	if r == nil {
		return nil
	}
	mach.pending = nil
	return m.sendReport(mach, *r)
}

// sendReport appends a report to the feed, and remembers it as the last of its event.
func (m *Machines) sendReport(mach *machine, r siteagent.Report) error {
	if err := m.deliver(r); err != nil {
		return err
	}
	if mach.lastSent == nil {
		mach.lastSent = map[string]sentReport{}
	}
	mach.lastSent[r.Event] = sentReport{r, time.Now()}
	return nil
}

// sendUndelivered sends the report that the state holds, and removes it from the state.
func (m *Machines) sendUndelivered(mach *machine) error {
	if err := m.sendReport(mach, *mach.Undelivered); err != nil {
		return err
	}
	next := mach.state
	next.Undelivered = nil
	return m.setState(mach, next)
}

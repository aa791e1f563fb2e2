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
func (a *rateLimit) allow(limit float64) bool {
	now := time.Now()
	a.used = max(a.used-now.Sub(a.at).Seconds(), 0)
	a.at = now
	if a.used+1 > limit {
		return false
	}
	a.used++
	return true
}

type sentReport struct {
	siteagent.Report
	at time.Time
}

// report reports what a machine did. It drops the same report within repeatInterval, and refusals within reportInterval. Progress
// that comes too soon waits until then, or for the machine's next report.
func (m *Machines) report(one *machine, r siteagent.Report) error {
	r.ID, r.Revision = one.ID, one.Revision
	if r.MAC == "" {
		r.MAC = one.MACs[0]
	}
	previous := one.lastSent[r.Event]
	elapsed := time.Since(previous.at)
	switch {
	case r.Event == siteagent.EventRefused && elapsed < reportInterval,
		elapsed < repeatInterval && one.pending == nil && reflect.DeepEqual(r, previous.Report):
		return nil
	case r.Event == siteagent.EventProgress && elapsed < reportInterval:
		one.pending = &r
		return nil
	}
	if rate, limit := m.limitFor(one); !rate.allow(limit) {
		return nil
	}
	if err := m.flush(one); err != nil {
		return err
	}
	return m.sendReport(one, r)
}

func (m *Machines) limitFor(one *machine) (*rateLimit, float64) {
	if one.ID == 0 {
		return &m.discoverLimit, maxDiscovered
	}
	return &one.limit, maxReports
}

// flush sends the pending report of progress.
func (m *Machines) flush(one *machine) error {
	r := one.pending
	if r == nil {
		return nil
	}
	one.pending = nil
	return m.sendReport(one, *r)
}

func (m *Machines) sendReport(one *machine, r siteagent.Report) error {
	if err := m.deliver(r); err != nil {
		return err
	}
	if one.lastSent == nil {
		one.lastSent = map[string]sentReport{}
	}
	one.lastSent[r.Event] = sentReport{r, time.Now()}
	return nil
}

// sendUndelivered sends the report that the state holds, and removes it from the state.
func (m *Machines) sendUndelivered(one *machine) error {
	if err := m.sendReport(one, *one.Undelivered); err != nil {
		return err
	}
	next := one.state
	next.Undelivered = nil
	return m.setState(one, next)
}

package machine

import (
	"reflect"
	"time"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// allowance is what is left of reports, so that who repeats himself in ever other words leaves room for others' in the feed.
type allowance struct {
	used float64
	at   time.Time
}

// take tells whether there may be one more: so many at once, and then one a second.
func (a *allowance) take(most float64) bool {
	now := time.Now()
	a.used = max(a.used-now.Sub(a.at).Seconds(), 0)
	a.at = now
	if a.used+1 > most {
		return false
	}
	a.used++
	return true
}

type said struct {
	siteagent.Report
	at time.Time
}

// say reports what a machine did: the same once a minute, and what is refused once a second. A report of progress that comes too soon
// waits for the next pause, or for what the machine does next. That it has ended is said in any case.
func (m *Machines) say(one *machine, r siteagent.Report) error {
	r.ID, r.Revision = one.ID, one.Revision
	if r.MAC == "" {
		r.MAC = one.MACs[0]
	}
	before := one.said[r.What]
	ago := time.Since(before.at)
	switch {
	case r.What == siteagent.Refused && ago < pause, ago < againAfter && one.pending == nil && reflect.DeepEqual(r, before.Report):
		return nil
	case r.What == siteagent.Progressed && ago < pause:
		one.pending = &r
		return nil
	}
	if may, most := m.allowance(one); !may.take(most) {
		return nil
	}
	if err := m.flush(one); err != nil {
		return err
	}
	return m.send(one, r)
}

func (m *Machines) allowance(one *machine) (*allowance, float64) {
	if one.ID == 0 {
		return &m.mayDiscover, mostDiscovered
	}
	return &one.may, mostReports
}

// flush reports the progress that waits.
func (m *Machines) flush(one *machine) error {
	r := one.pending
	if r == nil {
		return nil
	}
	one.pending = nil
	return m.send(one, *r)
}

func (m *Machines) send(one *machine, r siteagent.Report) error {
	if err := m.report(r); err != nil {
		return err
	}
	if one.said == nil {
		one.said = map[string]said{}
	}
	one.said[r.What] = said{r, time.Now()}
	return nil
}

// pay reports what a machine's state owes, and notes that.
func (m *Machines) pay(one *machine) error {
	if err := m.send(one, *one.Owed); err != nil {
		return err
	}
	next := one.state
	next.Owed = nil
	return m.become(one, next)
}

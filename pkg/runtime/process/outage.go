package process

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// outageAttr is the attribute that names an outage, and serviceAttr the one that names a service.
	outageAttr, serviceAttr = "outage", "service"
	// recoversAttr marks lines of an outage whose end the program will log, with the outage's name as recoveredAttr.
	recoversAttr, recoveredAttr = "recovers", "recovered"
	// reminderInterval is how often a lasting outage is logged.
	reminderInterval = time.Minute
	// quietPeriod is how long an outage whose end nobody logs has no line until it counts as quiet.
	quietPeriod = 10 * time.Second
	// maxOutages bounds the outages at one time. Lines of further outages are all logged.
	maxOutages = 100
)

// outages is a slog.Handler that condenses outages. Lines with the same attribute outage form an outage. It logs the first
// line, one line a minute with the count since the last, and the end. If a log has several services, the last one counts.
// Only the program knows when the thing works again. Where it does not log that, the end is only that no more lines came.
type outages struct {
	slog.Handler
	service string
	open    *openOutages
}

// openOutages are the outages that have begun and not ended.
type openOutages struct {
	mu       sync.Mutex
	byName   map[[2]string]*outage // by service and attribute; nil: closed, all lines are logged
	closed   chan struct{}
	watching sync.WaitGroup
}

// outage counts the log lines of one outage.
type outage struct {
	began, logged, last time.Time
	total, unlogged     int
}

func newOutages(h slog.Handler) outages {
	return outages{Handler: h, open: &openOutages{byName: map[[2]string]*outage{}, closed: make(chan struct{})}}
}

// close stops watching for the ends of outages.
func (h outages) close() {
	h.open.mu.Lock()
	h.open.byName = nil
	h.open.mu.Unlock()
	close(h.open.closed)
	h.open.watching.Wait()
}

func (h outages) WithAttrs(attrs []slog.Attr) slog.Handler {
	if i := slices.IndexFunc(attrs, func(a slog.Attr) bool { return a.Key == serviceAttr }); i >= 0 {
		h.service = attrs[i].Value.String()
		attrs = slices.Delete(slices.Clone(attrs), i, i+1)
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h outages) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// Handle passes a line on unless it belongs to an outage that was logged less than a minute ago.
func (h outages) Handle(ctx context.Context, r slog.Record) error {
	var name, recovered string
	recovers := false
	line := h.line(r.Time, r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case recoversAttr:
			recovers = true
			return true
		case recoveredAttr:
			recovered = a.Value.String()
			a.Key = outageAttr
		case outageAttr:
			name = a.Value.String()
		}
		line.AddAttrs(a)
		return true
	})
	switch {
	case recovered != "":
		line.AddAttrs(h.recover([2]string{h.service, recovered}, r.Time)...)
	case name != "":
		count, isLogged := h.note([2]string{h.service, name}, r.Time, recovers)
		if !isLogged {
			return nil
		}
		if count > 1 {
			line.AddAttrs(slog.Int("lines", count))
		}
	}
	return h.Handler.Handle(ctx, line)
}

// recover ends an outage. It returns how long the outage lasted, and how many lines it had.
func (h outages) recover(key [2]string, at time.Time) []slog.Attr {
	h.open.mu.Lock()
	defer h.open.mu.Unlock()
	o := h.open.byName[key]
	if o == nil {
		return nil
	}
	delete(h.open.byName, key)
	return []slog.Attr{slog.Duration("duration", at.Sub(o.began)), slog.Int("lines", o.total)}
}

// line returns a new log line of the service.
func (h outages) line(at time.Time, level slog.Level, message string) slog.Record {
	line := slog.NewRecord(at, level, message, 0)
	if h.service != "" {
		line.AddAttrs(slog.String(serviceAttr, h.service))
	}
	return line
}

// note counts a line. It reports whether to log it, and how many lines it stands for.
func (h outages) note(key [2]string, at time.Time, recovers bool) (count int, isLogged bool) {
	h.open.mu.Lock()
	defer h.open.mu.Unlock()
	o := h.open.byName[key]
	if o == nil {
		if h.open.byName == nil || len(h.open.byName) == maxOutages {
			return 1, true
		}
		h.open.byName[key] = &outage{began: at, logged: at, last: at, total: 1}
		if !recovers {
			h.open.watching.Go(func() { h.watch(key) })
		}
		return 1, true
	}
	o.last = at
	o.total++
	if o.unlogged++; at.Sub(o.logged) < reminderInterval {
		return 0, false
	}
	count, o.logged, o.unlogged = o.unlogged, at, 0
	return count, true
}

// watch logs the end of an outage once no more lines come.
func (h outages) watch(key [2]string) {
	timer := time.NewTimer(quietPeriod)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-h.open.closed:
			return
		}
		left := h.end(key)
		if left <= 0 {
			return
		}
		timer.Reset(left)
	}
}

// end logs that an outage is quiet, or returns how long to wait before looking again.
func (h outages) end(key [2]string) (left time.Duration) {
	h.open.mu.Lock()
	o := h.open.byName[key]
	if o != nil {
		left = quietPeriod - time.Since(o.last)
	}
	if o == nil || left > 0 {
		h.open.mu.Unlock()
		return left
	}
	delete(h.open.byName, key)
	h.open.mu.Unlock()
	quiet := h.line(time.Now(), slog.LevelWarn, "outage is quiet")
	quiet.AddAttrs(slog.String(outageAttr, key[1]), slog.Duration("duration", o.last.Sub(o.began)), slog.Int("lines", o.total))
	if ctx := context.Background(); h.Enabled(ctx, quiet.Level) {
		_ = h.Handler.Handle(ctx, quiet)
	}
	return 0
}

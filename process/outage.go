package process

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// outageAttr names what is away, in the lines of an outage.
	outageAttr = "outage"
	// reminderPause is how often an outage is told of while it lasts.
	reminderPause = time.Minute
	// quietTime is how long no line of an outage comes until it is over.
	quietTime = 10 * time.Second
	// mostOutages bounds how many there are at once. Lines of others are all logged.
	mostOutages = 100
)

// outages is a handler that logs of an outage, the lines that have the same attribute outage, the first one, then one a
// minute with their number, and when it is over.
type outages struct {
	slog.Handler
	service string
	open    *openOutages
}

type openOutages struct {
	mu     sync.Mutex
	byName map[[2]string]*outage // by service and attribute
}

type outage struct {
	began, told, last time.Time
	total, untold     int
}

func newOutages(h slog.Handler) outages {
	return outages{Handler: h, open: &openOutages{byName: map[[2]string]*outage{}}}
}

func (h outages) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	if i := slices.IndexFunc(attrs, func(a slog.Attr) bool { return a.Key == "service" }); i >= 0 {
		h.service = attrs[i].Value.String()
	}
	return h
}

func (h outages) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

func (h outages) Handle(ctx context.Context, r slog.Record) error {
	name := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == outageAttr {
			name = a.Value.String()
		}
		return name == ""
	})
	if name == "" {
		return h.Handler.Handle(ctx, r)
	}
	if count, tell := h.note([2]string{h.service, name}, r.Time); !tell {
		return nil
	} else if count > 1 {
		r.AddAttrs(slog.Int("lines", count))
	}
	return h.Handler.Handle(ctx, r)
}

// note counts a line, and answers how many it stands for where it is to be logged.
func (h outages) note(key [2]string, at time.Time) (count int, tell bool) {
	h.open.mu.Lock()
	defer h.open.mu.Unlock()
	o := h.open.byName[key]
	if o == nil {
		if len(h.open.byName) == mostOutages {
			return 1, true
		}
		h.open.byName[key] = &outage{began: at, told: at, last: at, total: 1}
		time.AfterFunc(quietTime, func() { h.end(key) })
		return 1, true
	}
	o.last = at
	o.total++
	if o.untold++; at.Sub(o.told) < reminderPause {
		return 0, false
	}
	count, o.told, o.untold = o.untold, at, 0
	return count, true
}

// end logs that an outage is over, or looks again later.
func (h outages) end(key [2]string) {
	h.open.mu.Lock()
	o := h.open.byName[key]
	if left := quietTime - time.Since(o.last); left > 0 {
		time.AfterFunc(left, func() { h.end(key) })
		h.open.mu.Unlock()
		return
	}
	delete(h.open.byName, key)
	h.open.mu.Unlock()
	over := slog.NewRecord(time.Now(), slog.LevelWarn, "an outage is over", 0)
	over.AddAttrs(slog.String(outageAttr, key[1]), slog.Duration("took", o.last.Sub(o.began)), slog.Int("lines", o.total))
	if ctx := context.Background(); h.Enabled(ctx, over.Level) {
		_ = h.Handler.Handle(ctx, over)
	}
}

package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/system/audit"
	"github.com/ironplane/ironplane/services/system/webhook"
)

const (
	// MediaType is the media type of a stream.
	MediaType = "text/event-stream"
	// heartbeatInterval is how often something is sent. The gateway ends responses that stall for longer.
	heartbeatInterval = 15 * time.Second
	// retryInterval is how long browsers wait before they connect again.
	retryInterval = 2 * time.Second
)

// maxTargets bounds the targets of an event, as in webhooks.
const maxTargets = 100

// item is an event as it is sent.
type item struct {
	Type      string        `json:"type"`
	Timestamp string        `json:"timestamp"`
	Targets   audit.Targets `json:"targets"`
	Truncated bool          `json:"truncated,omitempty"` // all but the first targets were left out
	User      *user         `json:"user,omitempty"`
	RequestID string        `json:"request_id,omitempty"`
}

// user identifies who made a change, by the account's path alone, as in webhooks.
type user struct {
	URL string `json:"url"`
}

// scanEvent reads a log item as an event.
func scanEvent(rows pgx.Rows) (e event, err error) {
	var i item
	var at time.Time
	var userURL string
	if err := rows.Scan(&e.id, &at, &i.Type, &userURL, &i.RequestID, &i.Targets); err != nil {
		return e, fmt.Errorf("read new log items: %w", err)
	}
	i.Timestamp = at.UTC().Format(time.RFC3339Nano)
	if userURL != "" {
		i.User = &user{userURL}
	}
	if i.Truncated = len(i.Targets) > maxTargets; i.Truncated {
		i.Targets = i.Targets[:maxTargets]
	}
	data, err := json.Marshal(i) // JSON has no line breaks
	if err != nil {
		return e, fmt.Errorf("encode log item %d: %w", e.id, err)
	}
	e.text = fmt.Appendf(nil, "id: %d\ndata: %s\n\n", e.id, data)
	var isKnown bool
	if e.needed, isKnown = webhook.NeededToRead(i.Type); !isKnown { // a service of a newer version has made the change
		e.needed = principal.All
	}
	return e, nil
}

// Serve sends events until the caller leaves, the caller's key opens another stream, or the hub ends.
func (h *Hub) Serve(ctx context.Context, c *rest.RawCall) error {
	if !problem.Accepts(c.Request.Header.Get("Accept"), MediaType) {
		return problem.New(http.StatusNotAcceptable, "The response is a stream of events. Send Accept: %s.", MediaType)
	}
	after, err := parseLast(c.Request.Header.Get("Last-Event-Id"))
	if err != nil {
		return err
	}
	p := principal.FromContext(ctx).Principal
	r, err := h.join(p.KeyID)
	if err != nil {
		return err
	}
	defer h.leave(p.KeyID, r)
	first, head, err := h.head(ctx)
	if err != nil {
		return err
	}
	h.begin(head)
	w := newWriter(c.Writer, p.Grants)
	w.Header().Set("Content-Type", MediaType)
	w.Header().Set("X-Accel-Buffering", "no") // nginx passes each event on as it comes
	if err := w.send(fmt.Appendf(nil, "retry: %d\n", retryInterval.Milliseconds())); err != nil {
		return err
	}
	if err := h.catchUp(ctx, w, after, first, head); err != nil {
		return err
	}
	return r.follow(ctx, w)
}

// parseLast returns the id of the last event that a caller has got, or -1 if it has got none.
func parseLast(text string) (int64, error) {
	if text == "" {
		return -1, nil
	}
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 0 {
		return 0, problem.New(problem.BadRequest, "The header Last-Event-ID is not the id of an event.")
	}
	return id, nil
}

// catchUp sends what a caller has missed. If that is too much, or cannot be told, it sends the event reset instead.
func (h *Hub) catchUp(ctx context.Context, w *writer, after, first, head int64) error {
	switch {
	case after < 0:
		return w.send(fmt.Appendf(nil, "id: %d\n\n", head))
	case after > head, head-after > maxMissed, after < first-1:
		return w.send(fmt.Appendf(nil, "id: %d\nevent: reset\ndata: {}\n\n", head))
	}
	if err := w.send([]byte("\n")); err != nil { // the end of the block with retry
		return err
	}
	for w.last = after; w.last < head; {
		page, err := h.read(ctx, w.last)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		if err := w.sendPage(page); err != nil {
			return err
		}
	}
	return nil
}

// follow sends new events, and heartbeats.
func (r *reader) follow(ctx context.Context, w *writer) error {
	heartbeat := time.NewTicker(heartbeatInterval)
	defer heartbeat.Stop()
	for {
		var err error
		select {
		case page := <-r.pages:
			err = w.sendPage(page)
		case <-heartbeat.C:
			err = w.send([]byte(":\n\n"))
		case <-r.ended:
			return nil
		case <-ctx.Done():
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// writer sends the events that a caller may see.
type writer struct {
	http.ResponseWriter
	connection *http.ResponseController
	grants     principal.Grants
	last       int64 // the last item that was sent or left out
}

func newWriter(w http.ResponseWriter, grants principal.Grants) *writer {
	return &writer{ResponseWriter: w, connection: http.NewResponseController(w), grants: grants}
}

// sendPage sends the events of a page that the caller has not got and may see.
func (w *writer) sendPage(page []event) error {
	var text []byte
	for _, e := range page {
		if e.id <= w.last {
			continue
		}
		if w.last = e.id; w.grants.Holds(e.needed) {
			text = append(text, e.text...)
		}
	}
	if len(text) == 0 {
		return nil
	}
	return w.send(text)
}

// send writes a text, and passes it on at once.
func (w *writer) send(text []byte) error {
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("send events: %w", err)
	}
	return w.connection.Flush()
}

// Package stream tells callers of changes as they are logged, by server-sent events. Nothing is read while nobody listens.
package stream

import (
	"context"
	"fmt"
	"sync"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	// maxReaders bounds the open streams of a process.
	maxReaders = 500
	// pageSize is how many log items are read at a time, and maxPages how many pages a slow reader may have before it. A reader
	// that falls further behind is ended, and asks again from where it was.
	pageSize, maxPages = 500, 32
	// maxMissed is how many items a reader may have missed. A reader that missed more is told to load everything again.
	maxMissed = 2000
)

// Hub reads new log items once, and passes them on to the open streams.
type Hub struct {
	DB *pg.DB

	mu      sync.Mutex
	readers map[int64]*reader // by the id of their key
	last    int64             // the last item that was read; 0: unknown, since there was no reader
	isOpen  bool              // Run is running
	added   chan struct{}     // holds a value if there may be items that no wake-up announces
}

// New returns a hub of the log in this database.
func New(db *pg.DB) *Hub {
	return &Hub{DB: db, readers: map[int64]*reader{}, added: make(chan struct{}, 1)}
}

// reader is an open stream. The hub's mutex guards pages until ended is closed.
type reader struct {
	pages chan []event
	ended chan struct{}
}

// event is a log item that a reader with the needed grants may see.
type event struct {
	id     int64
	text   []byte // as it is sent
	needed principal.Grants
}

// Run passes new items on whenever woken has a value, until ctx ends. Then it ends all streams.
func (h *Hub) Run(ctx context.Context, woken <-chan struct{}) error {
	h.mu.Lock()
	h.isOpen = true
	h.mu.Unlock()
	defer h.close()
	for {
		if err := h.pass(ctx); err != nil {
			return err
		}
		select {
		case <-woken:
		case <-h.added:
		case <-ctx.Done():
			return nil
		}
	}
}

// close ends all streams.
func (h *Hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isOpen = false
	for key, r := range h.readers {
		h.end(key, r)
	}
}

// end ends a stream, unless it has ended. Its caller holds the mutex.
func (h *Hub) end(key int64, r *reader) {
	if h.readers[key] == r {
		delete(h.readers, key)
		close(r.ended)
	}
	if len(h.readers) == 0 {
		h.last = 0
	}
}

// join adds a stream. It ends the key's older one.
func (h *Hub) join(key int64) (*reader, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if older := h.readers[key]; older != nil {
		h.end(key, older)
	}
	if !h.isOpen || len(h.readers) >= maxReaders {
		return nil, problem.New(problem.Unavailable, "No more event streams can be opened right now. Try again.")
	}
	r := &reader{pages: make(chan []event, maxPages), ended: make(chan struct{})}
	h.readers[key] = r
	return r, nil
}

// leave removes a stream.
func (h *Hub) leave(key int64, r *reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(key, r)
}

// begin makes the hub read from the item after head, if no other stream has made it read yet.
func (h *Hub) begin(head int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == 0 {
		h.last = max(head, 1) // the first item is that of the installation's first key
	}
	select {
	case h.added <- struct{}{}:
	default:
	}
}

// pass reads new items and passes them on. Without streams it reads nothing.
func (h *Hub) pass(ctx context.Context) error {
	for {
		h.mu.Lock()
		last := h.last
		h.mu.Unlock()
		if last == 0 {
			return nil
		}
		page, err := h.read(ctx, last)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		h.broadcast(last, page)
	}
}

// broadcast passes a page on to all streams. It ends those that have no room for it.
func (h *Hub) broadcast(after int64, page []event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last != after { // all streams that wanted the page have left
		return
	}
	h.last = page[len(page)-1].id
	for key, r := range h.readers {
		select {
		case r.pages <- page:
		default:
			h.end(key, r)
		}
	}
}

// read returns the items after one, at most a page of them.
func (h *Hub) read(ctx context.Context, after int64) ([]event, error) {
	rows, err := h.DB.Query(ctx, "SELECT id, at, type, coalesce(user_url, ''), coalesce(request_id, ''), targets FROM log "+
		"WHERE id > $1 ORDER BY id LIMIT $2", after, pageSize)
	if err != nil {
		return nil, fmt.Errorf("read new log items: %w", err)
	}
	defer rows.Close()
	var page []event
	for rows.Next() {
		e, err := scanEvent(rows)
		if err != nil {
			return nil, err
		}
		page = append(page, e)
	}
	return page, rows.Err()
}

// head returns the ids of the first and of the last item.
func (h *Hub) head(ctx context.Context) (first, last int64, err error) {
	err = h.DB.QueryRow(ctx, "SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM log").Scan(&first, &last)
	if err != nil {
		return 0, 0, fmt.Errorf("find the newest log item: %w", err)
	}
	return first, last, nil
}

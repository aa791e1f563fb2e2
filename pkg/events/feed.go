package events

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
)

const (
	feedPath = "/internal/events"
	// maxPageEvents is how many events a page has at most.
	maxPageEvents = 1000
	// maxPageBytes is how many bytes of events a page has, about; a single event may be larger. JSON makes them at most
	// six times as long, which mesh.Peers still accepts.
	maxPageBytes = 512 << 10
)

// pullRequest is a reader's request for a page.
type pullRequest struct {
	After   int64  `query:"after"`
	History string `query:"history"` // the history that numbered after; empty: from an older version, or nothing was applied yet
	Kind    string `query:"kind"`    // only changes of this kind; empty: all
	Ahead   int64  `query:"ahead"`   // by how much the reader's slowest consumer is behind after
}

// Feed serves a service's changes to its readers.
func Feed(db *pg.DB, readers ...string) rest.Route {
	f := &feed{noted: map[string]time.Time{}}
	return rest.Read[pullRequest, page]{
		Path:  feedPath,
		Guard: guard.Peers(readers...),
		Do: func(ctx context.Context, req pullRequest) (page, error) {
			if reader := principal.FromContext(ctx).Peer; f.due(reader) {
				if err := noteProgress(ctx, db, reader, req.After-req.Ahead); err != nil {
					return page{}, err
				}
			}
			return readPage(ctx, db, req)
		},
	}
}

// feed remembers when each reader's progress was last stored. Changes live for days, so once a minute is enough.
type feed struct {
	mu    sync.Mutex
	noted map[string]time.Time
}

// due reports whether a reader's progress was last stored over a minute ago, and if so counts it as stored.
func (f *feed) due(reader string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.noted[reader]) < time.Minute {
		return false
	}
	f.noted[reader] = time.Now()
	return true
}

// kindSQL is SQL for a change's kind, which older versions did not store.
const kindSQL = `coalesce(kind, substring(type from '^(.*)\.'))`

// idSQL returns SQL for the id of the change with a number.
func idSQL(seq string) string {
	return "coalesce((SELECT uuid::text FROM change WHERE seq = " + seq + "), '')"
}

// readPage returns the changes after a number, with what the reader needs to detect a restored schema.
func readPage(ctx context.Context, db *pg.DB, req pullRequest) (page, error) {
	var p page
	// Read before the changes: all changes up to this number are visible to the next statement.
	err := db.QueryRow(ctx, "SELECT last, (SELECT uuid::text FROM history WHERE ended IS NULL), "+idSQL("last")+", "+idSQL("$1")+
		", last > $1 AND NOT EXISTS (SELECT FROM change WHERE seq = $1 + 1) FROM sequencer", req.After).
		Scan(&p.Last, &p.History, &p.LastID, &p.After, &p.Forgot)
	if err != nil {
		return p, fmt.Errorf("read the last number: %w", err)
	}
	p.Newest = p.Last
	if req.History != "" && req.History != p.History {
		if p.Next, err = findSuccessor(ctx, db, req.History); err != nil {
			return p, err
		}
		if p.Next == nil { // the reader has applied changes of a history that this schema does not know
			if err := db.InTx(ctx, func(tx *pg.Tx) error { return markRestored(ctx, tx) }); err != nil {
				return p, err
			}
		}
	}
	upTo := p.Last
	if p.Next != nil {
		p.History, p.Last, upTo = req.History, p.Next.Ended, p.Next.Ended
		if req.After >= p.Last {
			upTo = p.Next.Began // of the kept changes, those that the reader has not applied, one at a time
		}
		if err := db.QueryRow(ctx, "SELECT "+idSQL("$1"), p.Last).Scan(&p.LastID); err != nil {
			return p, fmt.Errorf("read the last change of a history: %w", err)
		}
	}
	rows, err := db.Query(ctx, `
		SELECT seq, coalesce(uuid::text, ''), at, type, `+kindSQL+`, coalesce(part, ''), coalesce(action, substring(type from '[^.]*$')), targets, before, after, actor_url, actor_name, actor_key, ip, coalesce(request_id, ''),
			coalesce(traceparent, '')
		FROM change WHERE seq > $1 AND seq <= $2 AND ($3 = '' OR `+kindSQL+` = $3) ORDER BY seq LIMIT $4`, req.After, upTo, req.Kind, maxPageEvents)
	if err != nil {
		return p, fmt.Errorf("read changes: %w", err)
	}
	defer rows.Close()
	size := 0
	for rows.Next() {
		e, bytes, err := scanEvent(rows)
		if err != nil {
			return p, err
		}
		p.Events = append(p.Events, e)
		if size += bytes; len(p.Events) == maxPageEvents || size >= maxPageBytes || upTo > p.Last {
			p.Last, p.LastID = e.Seq, e.ID
			break
		}
	}
	return p, rows.Err()
}

func scanEvent(rows pgx.Rows) (e Event, size int, err error) {
	var targets []byte
	var url, name *string
	var key *int64
	var ip *netip.Addr
	if err := rows.Scan(
		&e.Seq,
		&e.ID,
		&e.At,
		&e.Type,
		&e.Kind,
		&e.Part,
		&e.Action,
		&targets,
		&e.Before,
		&e.After,
		&url,
		&name,
		&key,
		&ip,
		&e.RequestID,
		&e.Traceparent,
	); err != nil {
		return e, 0, fmt.Errorf("read a change: %w", err)
	}
	if err := json.Unmarshal(targets, &e.Targets); err != nil {
		return e, 0, fmt.Errorf("read the targets of change %d: %w", e.Seq, err)
	}
	if url != nil {
		e.Actor = &Actor{*url, *name, *key}
	}
	if ip != nil {
		e.IP = *ip
	}
	return e, len(targets) + len(e.Before) + len(e.After), nil
}

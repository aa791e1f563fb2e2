package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/pg"
)

// skipKind is the type of an item that stands for changes that are not logged. It has the last one's number.
const skipKind = "event.skipped"

// span are the numbers of changes of a service that follow each other.
type span struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// Skip accounts for a change that cannot be logged, and for all before it that are not.
func (l *Log) Skip(ctx context.Context, tx *pg.Tx, at events.Position) error {
	h, err := l.lockHead(ctx, tx)
	if err != nil {
		return err
	}
	logged := h.seqs[at.Source]
	if at.Seq <= logged {
		return fmt.Errorf("the log has the changes of %s up to %d: set its seq in change_cursor to that", at.Source, logged)
	}
	w := writer{signer: l.signer(), head: &h}
	if err := w.skip(at.Source, span{logged + 1, at.Seq}); err != nil {
		return err
	}
	return w.flush(ctx, tx)
}

// skip appends an item that accounts for changes that are not logged.
func (w *writer) skip(source string, skipped span) error {
	text, err := json.Marshal(skipped)
	if err != nil {
		return fmt.Errorf("encode what is skipped: %w", err)
	}
	at := events.Position{Source: source, Seq: skipped.Last}
	return w.append(source, &events.Event{Seq: skipped.Last, At: time.Now(), Type: skipKind, Kind: "event", Action: "skipped", Targets: []pg.Target{at.Target()}, After: text})
}

// skipped are the changes that an item accounts for, if it does.
func (i *item) skipped() (skipped span, ok bool) {
	var members struct{ First, Last struct{ After int64 } }
	if i.kind != skipKind || json.Unmarshal([]byte(i.changes), &members) != nil {
		return span{}, false
	}
	skipped = span{members.First.After, members.Last.After}
	return skipped, skipped.First > 0 && skipped.First <= skipped.Last && skipped.Last == i.seq
}

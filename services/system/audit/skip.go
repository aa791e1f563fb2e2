package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// The types of items that account for changes that are not logged. Such an item has the last change's number.
const (
	skipKind     = "event.skipped"
	restoredKind = "event.restored" // a service was restored from a backup; the item covers the unused numbers in between
)

// span is a range of change numbers of a service.
type span struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// Skip appends an item that accounts for changes that cannot be logged, and for all changes before them that are not
// logged.
func (l *Log) Skip(ctx context.Context, tx *pg.Tx, skipped events.Span) error {
	h, err := l.lockHead(ctx, tx)
	if err != nil {
		return err
	}
	logged := h.seqs[skipped.Source]
	if skipped.Last <= logged {
		return fmt.Errorf(
			"the log already has the changes of %s up to %d: set its seq in the table consumer to %d", skipped.Source, logged, logged,
		)
	}
	w := writer{signer: l.signer(), head: &h}
	if err := w.skip(skipped.Source, span{logged + 1, skipped.Last}); err != nil {
		return err
	}
	return w.flush(ctx, tx)
}

// RecordRestore appends an item about a service that was restored from a backup. It says which logged changes the
// service has lost, and at which number its changes continue.
func (l *Log) RecordRestore(ctx context.Context, tx *pg.Tx, t events.Restore) error {
	h, err := l.lockHead(ctx, tx)
	if err != nil {
		return err
	}
	logged := h.seqs[t.Source]
	if logged != t.Applied {
		return fmt.Errorf(
			"the log has the changes of %s up to %d, but its consumer is at %d: if its seq in the table consumer was moved, set it to %d",
			t.Source,
			logged,
			t.Applied,
			logged,
		)
	}
	w := writer{signer: l.signer(), head: &h}
	restored := restoredChanges{span: span{logged + 1, t.Began}}
	if t.Applied > t.After {
		restored.Lost, restored.Kept = &span{t.After + 1, t.Applied}, t.Kept
	}
	if err := w.appendSpan(t.Source, t.Began, restoredKind, "restored", restored); err != nil {
		return err
	}
	return w.flush(ctx, tx)
}

// restoredChanges is what an item of restoredKind says. Its span has the numbers that no change uses. Lost is the range of
// logged changes that the service no longer has, except those in Kept.
type restoredChanges struct {
	span
	Lost *span   `json:"lost,omitempty"`
	Kept []int64 `json:"kept,omitempty"`
}

// skip appends an item that accounts for changes that are not logged.
func (w *writer) skip(source string, skipped span) error {
	return w.appendSpan(source, skipped.Last, skipKind, "skipped", skipped)
}

// appendSpan appends an item that accounts for changes up to seq.
func (w *writer) appendSpan(source string, seq int64, kind string, action pg.Action, after any) error {
	text, err := json.Marshal(after)
	if err != nil {
		return fmt.Errorf("encode a span of changes: %w", err)
	}
	at := events.Span{Source: source, First: seq, Last: seq}
	return w.append(
		source,
		&events.Event{Seq: seq, At: time.Now(), Type: kind, Kind: "event", Action: action, Targets: []pg.Target{at.Target()}, After: text},
	)
}

// accountsFor returns the range of changes that the item accounts for. lost says what a restored service has lost. ok is
// false for items that stand for a single change.
func (i *item) accountsFor() (all span, lost restoredChanges, ok bool) {
	var members struct {
		First, Last struct{ After int64 }
		LostFirst   struct{ After int64 } `json:"lost.first"`
		LostLast    struct{ After int64 } `json:"lost.last"`
		Kept        struct{ After []int64 }
	}
	if i.kind != skipKind && i.kind != restoredKind || json.Unmarshal([]byte(i.changes), &members) != nil {
		return span{}, restoredChanges{}, false
	}
	all = span{members.First.After, members.Last.After}
	lost = restoredChanges{all, &span{members.LostFirst.After, members.LostLast.After}, members.Kept.After}
	return all, lost, all.First > 0 && all.First <= all.Last && all.Last == i.seq
}

package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// The types of items that stand for changes that are not logged. They have the last one's number.
const (
	skipKind     = "event.skipped"
	restoredKind = "event.restored" // of a service that was restored from a backup, between its old and its new numbers
)

// span are the numbers of changes of a service that follow each other.
type span struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// Skip accounts for changes that cannot be logged, and for all before them that are not.
func (l *Log) Skip(ctx context.Context, tx *pg.Tx, skipped events.Span) error {
	h, err := l.lockHead(ctx, tx)
	if err != nil {
		return err
	}
	logged := h.seqs[skipped.Source]
	if skipped.Last <= logged {
		return fmt.Errorf("the log has the changes of %s up to %d: set its seq in consumer to that", skipped.Source, logged)
	}
	w := writer{signer: l.signer(), head: &h}
	if err := w.skip(skipped.Source, span{logged + 1, skipped.Last}); err != nil {
		return err
	}
	return w.flush(ctx, tx)
}

// RecordRestore accounts for a service that was restored from a backup and taken up again: which changes it has lost, that are
// logged, and from which number on it goes on.
func (l *Log) RecordRestore(ctx context.Context, tx *pg.Tx, t events.TakenUp) error {
	h, err := l.lockHead(ctx, tx)
	if err != nil {
		return err
	}
	logged := h.seqs[t.Source]
	if logged != t.Applied {
		return fmt.Errorf(
			"the log has the changes of %s up to %d, and its cursor stands at %d: set its seq in consumer to that, if it was moved",
			t.Source,
			logged,
			t.Applied,
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

// restoredChanges are the numbers that no change has, and those of the changes that are lost, but for some that are kept.
type restoredChanges struct {
	span
	Lost *span   `json:"lost,omitempty"`
	Kept []int64 `json:"kept,omitempty"`
}

// skip appends an item that accounts for changes that are not logged.
func (w *writer) skip(source string, skipped span) error {
	return w.appendSpan(source, skipped.Last, skipKind, "skipped", skipped)
}

// appendSpan appends an item that stands for changes up to this number.
func (w *writer) appendSpan(source string, seq int64, kind string, action pg.Action, after any) error {
	text, err := json.Marshal(after)
	if err != nil {
		return fmt.Errorf("encode what is not logged: %w", err)
	}
	at := events.Span{Source: source, First: seq, Last: seq}
	return w.append(
		source,
		&events.Event{Seq: seq, At: time.Now(), Type: kind, Kind: "event", Action: action, Targets: []pg.Target{at.Target()}, After: text},
	)
}

// accountsFor are the changes that an item accounts for, if it does, and, of a service that was restored, what it has lost.
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

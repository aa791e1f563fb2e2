package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
)

// IntegrityError says what is wrong with a log, and where it begins.
type IntegrityError struct {
	ID     int64 // of the first item that is not as it was written; 0: it is not an item
	Reason string
}

func (b *IntegrityError) Error() string {
	if b.ID == 0 {
		return "the log is not as it was written: " + b.Reason
	}
	return fmt.Sprintf("the log is not as it was written: item %d %s", b.ID, b.Reason)
}

// verifier verifies the log from its beginning: up to the item id, whose mac is mac, all is well.
type verifier struct {
	signer        *seal.Signer
	tx            *pg.Tx
	earlier       Anchor
	compared      bool // with earlier
	first         int64
	id            int64
	mac           []byte
	age           int              // of the master key that signed it
	seqs          map[string]int64 // by service: the number of its last change up to here
	missing       map[gap]int64    // the changes that no item accounts for yet, and the item where that was seen
	skipped       int64            // how many changes the items account for that were given up
	restored      []Restoration
	countersigned []countersignedRange // what is still to come of it
	current       *rangeHash           // what is begun of the first
	toCountersign *[]rangeHash         // items to be countersigned, where they are asked for
	// before is what seqs were before the first item, where only the items can tell: as the walk finds them. Else it is nil.
	before map[string]int64
}

// gap are changes of a service that are left out.
type gap struct {
	source string
	span
}

func (l *Log) newVerifier(tx *pg.Tx) *verifier {
	return &verifier{signer: l.signer(), tx: tx, first: 1, seqs: map[string]int64{}, missing: map[gap]int64{}}
}

// verifyCheckpoints verifies the checkpoints up to the one that the head names: the log begins behind that.
func (w *verifier) verifyCheckpoints(ctx context.Context, h *head) error {
	var before []byte
	var age int
	if err := forEachCheckpoint(ctx, w.tx, func(c *checkpoint) error {
		signed, ok, err := w.signer.Check(c.message(before), c.signature)
		switch {
		case err != nil || !ok:
			return &IntegrityError{
				0,
				fmt.Sprintf("the checkpoint behind item %d is not signed with this master key, or one before it is missing", c.id),
			}
		case before != nil && signed > age:
			return &IntegrityError{0, fmt.Sprintf("the checkpoint behind item %d is signed with an earlier master key than the one before it", c.id)}
		}
		before, age = c.signature, signed
		w.seqs = maps.Clone(c.seqs)
		return w.advance(c.id, c.mac)
	}); err != nil {
		return err
	}
	if err := w.readCountersigned(ctx); err != nil {
		return err
	}
	w.first = w.id + 1
	if !bytes.Equal(before, h.checkpoint) {
		return &IntegrityError{0, "the last checkpoint is not the one that the head names"}
	}
	if before != nil && h.age > age {
		return &IntegrityError{0, "the head is signed with an earlier master key than the last checkpoint"}
	}
	return nil
}

// advance notes how far all is well, and compares that with the earlier anchor.
func (w *verifier) advance(id int64, mac []byte) error {
	w.id, w.mac = id, bytes.Clone(mac)
	if id == w.earlier.ID {
		if w.compared = bytes.Equal(mac, w.earlier.MAC); !w.compared {
			return &IntegrityError{id, "is another one than it was once"}
		}
	}
	return nil
}

// readBatch is how many items are read at a time.
const readBatch = 5000

// verifyTo verifies the items up to this one.
func (w *verifier) verifyTo(ctx context.Context, last int64) error {
	for w.id < last {
		rows, err := w.tx.Query(ctx, `
			SELECT id, at, source, seq, type, description, user_url, user_name, user_key, ip, request_id, targets::text, changes::text, mac,
				ARRAY(SELECT concat_ws(' ', t.type, t.target_id, t.at = l.at AND t.user_url IS NOT DISTINCT FROM l.user_url) FROM log_target t WHERE t.log_id = l.id)
			FROM log l WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3`, w.id, last, readBatch)
		if err != nil {
			return fmt.Errorf("read items: %w", err)
		}
		begun := w.id
		var i item
		var targets []string
		if _, err = pgx.ForEachRow(rows, []any{&i.id, &i.at, &i.source, &i.seq, &i.kind, &i.description, &i.userURL, &i.userName, &i.userKey,
			&i.ip, &i.requestID, &i.targets, &i.changes, &i.mac, &targets}, func() error {
			return w.verifyItem(&i, targets)
		}); err != nil {
			return err
		}
		if w.id == begun {
			return &IntegrityError{w.id + 1, "is missing, and all behind it"}
		}
	}
	return nil
}

// verifyItem verifies the next item.
func (w *verifier) verifyItem(i *item, targets []string) error {
	switch {
	case i.id == w.id:
		return &IntegrityError{i.id, "is there twice"}
	case i.id > w.id+1:
		return &IntegrityError{w.id + 1, "is missing"}
	}
	age, ok, err := w.signer.Check(i.message(w.mac), i.mac)
	covered, altered := w.verifyCountersigned(i)
	switch {
	case err != nil && !covered:
		return &IntegrityError{i.id, "is not signed with this master key"}
	case altered != nil:
		return altered
	case err != nil:
		age = unknownAge
	case !ok:
		return &IntegrityError{i.id, "was altered or put there, or the one before it was removed"}
	case i.id > w.first && age > w.age:
		return &IntegrityError{i.id, "is signed with an earlier master key than the one before it"}
	}
	w.age = age
	w.collectForCountersigning(i, age)
	if err := w.verifyNumber(i); err != nil {
		return err
	}
	if err := w.advance(i.id, i.mac); err != nil {
		return err
	}
	return verifyTargets(i, targets)
}

// verifyNumber verifies that the item's change is the next one of its service.
func (w *verifier) verifyNumber(i *item) error {
	last, known := w.seqs[i.source]
	if !known && w.before != nil {
		last = i.seq - 1
		w.before[i.source] = last
	}
	skipped, lost, skips := i.accountsFor()
	switch {
	case skips && i.kind == skipKind:
		w.skipped += skipped.Last - skipped.First + 1
	case skips:
		w.restored = append(w.restored, Restoration{i.id, i.source, lost.Lost.First, lost.Lost.Last, len(lost.Kept)})
	}
	switch {
	case i.seq <= last && skips: // what an earlier version left out, perhaps before the log was cut
		delete(w.missing, gap{i.source, skipped})
		return nil
	case i.seq <= last:
		return &IntegrityError{i.id, fmt.Sprintf("is change %d of %s, which is logged before", i.seq, i.source)}
	case i.seq > last+1 && (!skips || skipped.First != last+1):
		w.missing[gap{i.source, span{last + 1, i.seq - 1}}] = i.id
	}
	w.seqs[i.source] = i.seq
	return nil
}

// verifyComplete verifies that each change is accounted for.
func (w *verifier) verifyComplete() error {
	var first *IntegrityError
	for left, id := range w.missing {
		if first == nil || id < first.ID {
			first = &IntegrityError{id, fmt.Sprintf("comes where the changes %d to %d of %s are left out", left.First, left.Last, left.source)}
		}
	}
	if first != nil {
		return first
	}
	return nil
}

// verifyEnd verifies that the log ends here, and where the head says.
func (w *verifier) verifyEnd(ctx context.Context, h *head) error {
	if w.current != nil {
		return &IntegrityError{w.countersigned[0].last, "is missing, and is countersigned"}
	}
	if !bytes.Equal(w.mac, h.mac) {
		return &IntegrityError{w.id, "is not the one that the head names"}
	}
	return w.expectNoItem(ctx, "was put behind the log's end", "SELECT min(id) FROM log WHERE id > $1", h.id)
}

// expectNoItem tells of the first item that there is and should not be.
func (w *verifier) expectNoItem(ctx context.Context, reason, sql string, args ...any) error {
	var id *int64
	if err := w.tx.QueryRow(ctx, sql, args...).Scan(&id); err != nil {
		return fmt.Errorf("look for an item that %s: %w", reason, err)
	}
	if id != nil {
		return &IntegrityError{*id, reason}
	}
	return nil
}

// verifyTargets tells whether an item is found by its targets, and by no others.
func verifyTargets(i *item, found []string) error {
	var signed []pg.Target
	if err := json.Unmarshal([]byte(i.targets), &signed); err != nil {
		return fmt.Errorf("read the targets of item %d: %w", i.id, err)
	}
	want := map[string]bool{}
	for _, t := range signed {
		want[fmt.Sprintf("%s %d t", t.Type, t.ID)] = true
	}
	for _, t := range found {
		if !want[t] {
			return &IntegrityError{i.id, "is found by a target that it does not have"}
		}
		delete(want, t)
	}
	if len(want) > 0 {
		return &IntegrityError{i.id, "is not found by one of its targets"}
	}
	return nil
}

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

// IntegrityError says how and where a log was altered.
type IntegrityError struct {
	ID     int64 // the first altered item; 0: the head, a checkpoint or another part
	Reason string
}

func (e *IntegrityError) Error() string {
	if e.ID == 0 {
		return "the log was altered: " + e.Reason
	}
	return fmt.Sprintf("the log was altered: item %d %s", e.ID, e.Reason)
}

// verifier reads the log from its beginning. All items up to id are verified, and mac is the mac of item id.
type verifier struct {
	signer        *seal.Signer
	tx            *pg.Tx
	earlier       Anchor
	compared      bool // whether the item of earlier was reached
	first         int64
	id            int64
	mac           []byte
	age           int              // of the master key that signed it
	seqs          map[string]int64 // by service: the number of its last change up to here
	missing       map[gap]int64    // the changes that no item accounts for so far, and the item after the gap
	skipped       int64            // how many skipped changes the items account for
	restored      []Restoration
	countersigned []countersignedRange // the ranges from the current item on
	current       *rangeHash           // the first range, if the current item is in it
	toCountersign *[]rangeHash         // items to be countersigned, where they are asked for
	// before holds seqs as they were before the first item. It is only used by upgrade, where no checkpoint has them.
	before map[string]int64
}

// gap is a range of a service's changes that are not logged.
type gap struct {
	source string
	span
}

// newVerifier returns a verifier at the beginning of the log.
func (l *Log) newVerifier(tx *pg.Tx) *verifier {
	return &verifier{signer: l.signer(), tx: tx, first: 1, seqs: map[string]int64{}, missing: map[gap]int64{}}
}

// verifyCheckpoints verifies the checkpoints up to the one that the head names. The log begins after that one.
func (v *verifier) verifyCheckpoints(ctx context.Context, h *head) error {
	var before []byte
	var age int
	if err := forEachCheckpoint(ctx, v.tx, func(c *checkpoint) error {
		signed, ok, err := v.signer.Check(c.message(before), c.signature)
		switch {
		case err != nil || !ok:
			return &IntegrityError{
				0,
				fmt.Sprintf("the checkpoint after item %d is not signed with this master key, or an earlier checkpoint is missing", c.id),
			}
		case before != nil && signed > age:
			return &IntegrityError{0, fmt.Sprintf("the checkpoint after item %d is signed with an earlier master key than the one before it", c.id)}
		}
		before, age = c.signature, signed
		v.seqs = maps.Clone(c.seqs)
		return v.advance(c.id, c.mac)
	}); err != nil {
		return err
	}
	if err := v.readCountersigned(ctx); err != nil {
		return err
	}
	v.first = v.id + 1
	if !bytes.Equal(before, h.checkpoint) {
		return &IntegrityError{0, "the last checkpoint is not the one that the head names"}
	}
	if before != nil && h.age > age {
		return &IntegrityError{0, "the head is signed with an earlier master key than the last checkpoint"}
	}
	return nil
}

// advance marks the log as verified up to this item, and compares the item with the earlier anchor.
func (v *verifier) advance(id int64, mac []byte) error {
	v.id, v.mac = id, bytes.Clone(mac)
	if id == v.earlier.ID {
		if v.compared = bytes.Equal(mac, v.earlier.MAC); !v.compared {
			return &IntegrityError{id, "does not match the anchor"}
		}
	}
	return nil
}

// readBatch is how many items are read at a time.
const readBatch = 5000

// verifyTo verifies the items up to last.
func (v *verifier) verifyTo(ctx context.Context, last int64) error {
	for v.id < last {
		rows, err := v.tx.Query(ctx, `
			SELECT id, at, source, seq, type, description, user_url, user_name, user_key, ip, request_id, targets::text, changes::text, mac,
				ARRAY(SELECT concat_ws(' ', t.type, t.target_id, t.at = l.at AND t.user_url IS NOT DISTINCT FROM l.user_url) FROM log_target t WHERE t.log_id = l.id)
			FROM log l WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3`, v.id, last, readBatch)
		if err != nil {
			return fmt.Errorf("read items: %v", err)
		}
		begun := v.id
		var i item
		var targets []string
		if _, err = pgx.ForEachRow(rows, []any{&i.id, &i.at, &i.source, &i.seq, &i.kind, &i.description, &i.userURL, &i.userName, &i.userKey,
			&i.ip, &i.requestID, &i.targets, &i.changes, &i.mac, &targets}, func() error {
			return v.verifyItem(&i, targets)
		}); err != nil {
			return err
		}
		if v.id == begun {
			return &IntegrityError{v.id + 1, "and all later ones are missing"}
		}
	}
	return nil
}

// verifyItem verifies the next item.
func (v *verifier) verifyItem(i *item, targets []string) error {
	switch {
	case i.id == v.id:
		return &IntegrityError{i.id, "exists twice"}
	case i.id > v.id+1:
		return &IntegrityError{v.id + 1, "is missing"}
	}
	age, ok, err := v.signer.Check(i.message(v.mac), i.mac)
	covered, altered := v.verifyCountersigned(i)
	switch {
	case err != nil && !covered:
		return &IntegrityError{i.id, "is not signed with this master key"}
	case altered != nil:
		return altered
	case err != nil:
		age = unknownAge
	case !ok:
		return &IntegrityError{i.id, "was altered or inserted, or the one before it was removed"}
	case i.id > v.first && age > v.age:
		return &IntegrityError{i.id, "is signed with an earlier master key than the one before it"}
	}
	v.age = age
	v.collectForCountersigning(i, age)
	if err := v.verifyNumber(i); err != nil {
		return err
	}
	if err := v.advance(i.id, i.mac); err != nil {
		return err
	}
	return verifyTargets(i, targets)
}

// verifyNumber verifies that the item's change is the next one of its service, and collects gaps.
func (v *verifier) verifyNumber(i *item) error {
	last, known := v.seqs[i.source]
	if !known && v.before != nil {
		last = i.seq - 1
		v.before[i.source] = last
	}
	skipped, lost, skips := i.accountsFor()
	switch {
	case skips && i.kind == skipKind:
		v.skipped += skipped.Last - skipped.First + 1
	case skips:
		v.restored = append(v.restored, Restoration{i.id, i.source, lost.Lost.First, lost.Lost.Last, len(lost.Kept)})
	}
	switch {
	case i.seq <= last && skips: // changes that an earlier version left out, perhaps before the log was cut
		delete(v.missing, gap{i.source, skipped})
		return nil
	case i.seq <= last:
		return &IntegrityError{i.id, fmt.Sprintf("is change %d of %s, which was logged before", i.seq, i.source)}
	case i.seq > last+1 && (!skips || skipped.First != last+1):
		v.missing[gap{i.source, span{last + 1, i.seq - 1}}] = i.id
	}
	v.seqs[i.source] = i.seq
	return nil
}

// verifyComplete verifies that items account for every change.
func (v *verifier) verifyComplete() error {
	var first *IntegrityError
	for left, id := range v.missing {
		if first == nil || id < first.ID {
			first = &IntegrityError{id, fmt.Sprintf("comes after a gap: changes %d to %d of %s are not logged", left.First, left.Last, left.source)}
		}
	}
	if first != nil {
		return first
	}
	return nil
}

// verifyEnd verifies that the log ends with the current item, and that the head names this item.
func (v *verifier) verifyEnd(ctx context.Context, h *head) error {
	if v.current != nil {
		return &IntegrityError{v.countersigned[0].last, "is missing, but is countersigned"}
	}
	if !bytes.Equal(v.mac, h.mac) {
		return &IntegrityError{v.id, "is not the one that the head names"}
	}
	return v.expectNoItem(ctx, "was added after the end of the log", "SELECT min(id) FROM log WHERE id > $1", h.id)
}

// expectNoItem returns an *IntegrityError if the query finds an item. The query selects the smallest id or null.
func (v *verifier) expectNoItem(ctx context.Context, reason, sql string, args ...any) error {
	var id *int64
	if err := v.tx.QueryRow(ctx, sql, args...).Scan(&id); err != nil {
		return fmt.Errorf("find an item that %s: %v", reason, err)
	}
	if id != nil {
		return &IntegrityError{*id, reason}
	}
	return nil
}

// verifyTargets verifies that the table log_target lists the item for its own targets and for no others.
func verifyTargets(i *item, found []string) error {
	var signed []pg.Target
	if err := json.Unmarshal([]byte(i.targets), &signed); err != nil {
		return fmt.Errorf("decode the targets of item %d: %v", i.id, err)
	}
	want := map[string]bool{}
	for _, t := range signed {
		want[fmt.Sprintf("%s %d t", t.Type, t.ID)] = true
	}
	for _, t := range found {
		if !want[t] {
			return &IntegrityError{i.id, "is listed for a target that it does not have"}
		}
		delete(want, t)
	}
	if len(want) > 0 {
		return &IntegrityError{i.id, "is not listed for one of its targets"}
	}
	return nil
}
